/* Operations: how they begin, go through their steps, and count.
 *
 * Each connection goes through the rounds that come before the clock; when all have, the clock begins. */

#include <stdio.h>
#include <stdlib.h>

#include "load.h"

void note_error(struct run *run, const char *what, struct piece answer) {
    if (run->errors++ > 0)
        return;
    size_t shown = answer.length < MAX_ERROR / 2 ? answer.length : MAX_ERROR / 2;
    snprintf(run->first_error, sizeof run->first_error, "%s: %.*s", what, (int)shown, answer.bytes);
    fprintf(stderr, "load: %s\n", run->first_error);
}

static void ask(struct run *run, struct slot *slot) {
    struct connection *connection = slot->connection;
    if (run->mode.wire->whose == NULL)
        connection_waits_for(run, connection, slot);
    (*slot->at)->request(run, connection, slot);
    if (!connection->dirty)
        run->dirty++;
    connection->dirty = true;
}

/* Whether there is another operation for this slot; if so, its first request is to be written. */
bool begin_operation(struct run *run, struct slot *slot, uint64_t begun) {
    struct connection *connection = slot->connection;
    if (run->stopping || (run->options->count && run->begun >= run->options->count))
        return false;
    slot->held = &slot->own;
    if (run->mode.holding == SHARED)
        slot->held = &connection->held[0];
    if (run->mode.holding == EACH) {
        if (connection->held_used == connection->held_count)
            return false;
        slot->held = &connection->held[connection->held_used++];
    }
    run->begun++;
    if (run->in_flight++ == 0)
        run->last_answer_at = now_ns(); /* Nobody was silent while nothing was asked. */
    slot->at = run->mode.steps;
    slot->begun = begun;
    if (begun == 0)
        connection->fresh[connection->fresh_count++] = slot;
    ask(run, slot);
    return true;
}

static void begin_round_operation(struct run *run, struct slot *slot) {
    struct connection *connection = slot->connection;
    const struct round *round = &run->mode.before[connection->round];
    slot->held = round->takes ? &connection->held[connection->held_count++] : &slot->own;
    if (!round->takes && connection->held_count > 0)
        slot->held = &connection->held[0];
    slot->at = round->steps;
    connection->round_begun++;
    ask(run, slot);
}

/* Begins the connection's present round, or the next one that has anything to do. */
void begin_round(struct run *run, struct connection *connection) {
    for (; connection->round < run->mode.rounds; connection->round++) {
        struct round *round = &run->mode.before[connection->round];
        uint64_t count = round->count;
        if (round->takes && run->mode.holding == EACH)
            count = run->options->count / run->options->connections +
                    (connection->number < run->options->count % run->options->connections);
        if (count == 0)
            continue;
        if (round->takes)
            connection->held = allocate(count, sizeof *connection->held);
        connection->round_done = 0;
        connection->round_begun = 0;
        connection->round_count = count;
        for (uint32_t i = 0; i < run->slots && i < count; i++)
            begin_round_operation(run, &connection->slots[i]);
        return;
    }
    if (++run->ready == run->options->connections)
        open_clock(run);
}

static void finished(struct run *run, struct slot *slot) {
    struct connection *connection = slot->connection;
    if (!run->measuring) {
        connection->round_done++;
        if (connection->round_begun < connection->round_count)
            begin_round_operation(run, slot);
        else if (connection->round_done == connection->round_count) {
            connection->round++;
            begin_round(run, connection);
        }
        return;
    }
    run->in_flight--;
    if (run->options->rate > 0)
        pace_idle(run, slot);
    else
        begin_operation(run, slot, 0);
}

static void count_answered(struct run *run, const struct slot *slot) {
    run->answered++;
    if (run->now >= run->warm_at && run->now < run->end_at)
        run->ops++;
    if (slot->begun >= run->warm_at && slot->begun < run->end_at)
        histogram_add(&run->latency, run->now > slot->begun ? run->now - slot->begun : 0);
}

bool take_answer(struct run *run, struct connection *connection, struct piece answer) {
    struct slot *slot = NULL;
    if (run->mode.wire->whose != NULL) {
        slot = run->mode.wire->whose(connection, answer);
    } else if (connection->order_count > 0) {
        slot = &connection->slots[connection->order[connection->order_begin]];
        connection->order_begin = (connection->order_begin + 1) % run->slots;
        connection->order_count--;
    }
    if (slot == NULL || slot->at == NULL) {
        note_error(run, "an answer that nobody waits for", answer);
        return false;
    }
    run->last_answer_at = run->now;
    const struct step *step = *slot->at;
    bool good = step->answer(run, connection, slot, answer);
    slot->id = 0;
    if (!good) {
        note_error(run, step->name, answer);
        if (!run->measuring)
            return false;
    } else if (*++slot->at != NULL) {
        ask(run, slot);
        return true;
    } else if (run->measuring) {
        count_answered(run, slot);
    }
    slot->at = NULL;
    finished(run, slot);
    return true;
}

