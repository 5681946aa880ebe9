/* The loop: one thread that waits for answers and has them looked at, until the time is over.
 *
 * Owns the clock. What an operation is stands in operations.c. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "load.h"

#define PATIENCE_NS 30000000000u
#define EVENTS 512
#define LOOK_EVERY_MS 10

static volatile sig_atomic_t asked_to_stop;

static void ask_to_stop(int number) {
    (void)number;
    asked_to_stop = 1;
}

static double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void open_clock(struct run *run) {
    const struct options *options = run->options;
    run->measuring = true;
    run->now = run->opened_at = run->last_answer_at = now_ns();
    fputs("load: the clock begins\n", stderr); /* Whoever started this in the background waits for it. */
    run->warm_at = run->opened_at + (options->count ? 0 : (uint64_t)(options->warmup * 1e9));
    run->end_at = options->count ? UINT64_MAX : run->warm_at + (uint64_t)(options->seconds * 1e9);
    run->cpu_at_warm = options->count || options->warmup == 0 ? cpu_s() : -1;
    for (uint32_t depth = 0; depth < options->depth; depth++)
        for (uint32_t i = 0; i < options->connections; i++) {
            struct slot *slot = &run->connections[i].slots[depth];
            if (options->rate > 0)
                pace_idle(run, slot);
            else
                begin_operation(run, slot, 0);
        }
    if (options->rate > 0)
        pace_begin_due(run);
}

static bool handle(struct run *run, struct connection *connection, uint32_t events) {
    if (events & ~(uint32_t)EPOLLOUT) {
        if (!connection_read(run, connection))
            return false;
        run->now = now_ns();
        struct buffer *in = &connection->in;
        struct piece answer;
        ssize_t took;
        while (in->begin < in->end && (took = run->mode.wire->cut(in->bytes + in->begin, in->end - in->begin, &answer)) != 0) {
            if (took < 0) {
                note_error(run, "no answer of this protocol", (struct piece){in->bytes + in->begin, in->end - in->begin});
                return false;
            }
            buffer_took(in, (size_t)took);
            if (!take_answer(run, connection, answer))
                return false;
        }
    }
    return connection_flush(run, connection);
}

static bool flush_all(struct run *run) {
    for (uint32_t i = 0; run->dirty > 0 && i < run->options->connections; i++)
        if (run->connections[i].dirty && !connection_flush(run, &run->connections[i]))
            return false;
    return true;
}

/* What the time brings; false when nothing has come for too long. */
static bool look_at_clock(struct run *run) {
    uint64_t now = now_ns();
    if (run->cpu_at_warm < 0 && now >= run->warm_at)
        run->cpu_at_warm = cpu_s();
    if (asked_to_stop && run->end_at > now)
        run->end_at = now > run->warm_at ? now : run->warm_at;
    if (!run->stopping && (now >= run->end_at || asked_to_stop)) {
        run->stopping = true;
        run->cpu_s = cpu_s() - (run->cpu_at_warm < 0 ? 0 : run->cpu_at_warm);
    }
    if (run->in_flight > 0 && now > run->last_answer_at + PATIENCE_NS) {
        note_error(run, "nothing was answered", TEXT("for 30 s"));
        return false;
    }
    return true;
}

/* The same before the clock: false when it doesn't come to it. */
static bool look_at_start(struct run *run, bool anything_came) {
    uint64_t now = now_ns();
    if (anything_came)
        run->last_answer_at = now;
    if (asked_to_stop || now > run->last_answer_at + PATIENCE_NS) {
        note_error(run, "the clock never began", asked_to_stop ? TEXT("stopped") : TEXT("nothing was answered for 30 s"));
        return false;
    }
    return true;
}

static bool is_over(const struct run *run) {
    bool all = run->stopping || (run->options->count && run->begun >= run->options->count);
    return run->measuring && all && run->in_flight == 0;
}

static bool serve(struct run *run) {
    struct epoll_event events[EVENTS];
    run->last_answer_at = now_ns();
    while (!is_over(run)) {
        if (!flush_all(run))
            return false;
        int count = epoll_wait(run->epoll, events, EVENTS, LOOK_EVERY_MS);
        if (count < 0 && errno != EINTR)
            return false;
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr != NULL && !handle(run, events[i].data.ptr, events[i].events))
                return false;
        if (!(run->measuring ? look_at_clock(run) : look_at_start(run, count > 0)))
            return false;
        if (run->measuring && run->options->rate > 0)
            pace_begin_due(run);
    }
    return true;
}

bool carry_out(struct run *run) {
    struct sigaction stop = {.sa_handler = ask_to_stop};
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    run->cpu_at_warm = -1;
    if (run->options->rate > 0)
        pace_open(run);
    for (uint32_t i = 0; i < run->options->connections; i++) {
        run->connections[i].number = i;
        if (!connection_open(run, &run->connections[i]))
            return false;
    }
    for (uint32_t i = 0; i < run->options->connections; i++)
        begin_round(run, &run->connections[i]);
    if (!serve(run))
        return false;
    if (run->options->count) {
        run->end_at = run->last_answer_at;
        run->cpu_s = cpu_s() - run->cpu_at_warm;
    }
    if (run->options->rate > 0 && !run->options->count) {
        uint64_t due = (uint64_t)((double)(run->end_at - run->opened_at) * run->options->rate / 1e9);
        run->unbegun = due > run->scheduled_begun ? due - run->scheduled_begun : 0;
    }
    return true;
}
