/* Pacing: where a rate is set, operations begin at their moments, whether or not earlier ones were answered.
 *
 * An operation whose moment has come while no slot is free begins late, and its latency counts from the moment all the same. */

#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "load.h"

static uint64_t moment_of(const struct run *run, uint64_t operation) {
    return run->opened_at + (uint64_t)((double)operation * 1e9 / run->options->rate);
}

static void wake_at(struct run *run, uint64_t moment) {
    struct itimerspec when = {.it_value = {(time_t)(moment / 1000000000u), (long)(moment % 1000000000u)}};
    timerfd_settime(run->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

void pace_open(struct run *run) {
    run->idle = allocate((size_t)run->slots * run->options->connections + 1, sizeof *run->idle);
    run->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    epoll_ctl(run->epoll, EPOLL_CTL_ADD, run->timer, &event);
}

void pace_idle(struct run *run, struct slot *slot) {
    uint64_t room = (uint64_t)run->slots * run->options->connections + 1;
    run->idle[run->idle_end++ % room] = slot;
}

void pace_begin_due(struct run *run) {
    uint64_t room = (uint64_t)run->slots * run->options->connections + 1;
    uint64_t now = now_ns();
    while (!run->stopping && moment_of(run, run->scheduled_begun) <= now) {
        if (moment_of(run, run->scheduled_begun) >= run->end_at)
            return;
        if (run->idle_begin == run->idle_end)
            return; /* The next answer brings it back here. */
        struct slot *slot = run->idle[run->idle_begin++ % room];
        if (!begin_operation(run, slot, moment_of(run, run->scheduled_begun)))
            return;
        run->scheduled_begun++;
    }
    wake_at(run, moment_of(run, run->scheduled_begun));
}
