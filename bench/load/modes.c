/* The modes: what each does before the clock, and what it measures. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define STATIC_STEPS(name, ...) static const struct step *const name[] = {__VA_ARGS__, NULL}

STATIC_STEPS(hello, &dhp_hello);
STATIC_STEPS(take, &dhp_dispatch, &dhp_claim);
STATIC_STEPS(ping, &dhp_ping);
STATIC_STEPS(dispatch, &dhp_dispatch);
STATIC_STEPS(claim_kind, &dhp_claim_kind);
STATIC_STEPS(checkpoint, &dhp_checkpoint);
STATIC_STEPS(heartbeat, &dhp_heartbeat);
STATIC_STEPS(complete, &dhp_complete);
STATIC_STEPS(echo, &echo_frame);
STATIC_STEPS(xadd, &redis_xadd);
STATIC_STEPS(group, &redis_group);
STATIC_STEPS(stream_life, &redis_xadd, &redis_xreadgroup, &redis_xack);
STATIC_STEPS(tube, &beanstalkd_use, &beanstalkd_watch, &beanstalkd_ignore);
STATIC_STEPS(put, &beanstalkd_put);
STATIC_STEPS(job_life, &beanstalkd_put, &beanstalkd_reserve, &beanstalkd_delete);

static const struct step *const *life(unsigned checkpoints) {
    const struct step **steps = allocate(checkpoints + 4, sizeof *steps), **at = steps;
    *at++ = &dhp_dispatch;
    *at++ = &dhp_claim;
    while (checkpoints--)
        *at++ = &dhp_checkpoint;
    *at = &dhp_complete;
    return steps;
}

bool find_mode(const struct options *options, struct mode *mode) {
    static const struct {
        const char *name;
        struct mode mode;
    } modes[] = {
        {"dhp-ping", {&dhp_wire, {{hello, 1, false}}, 1, ping, OWN}},
        {"dhp-dispatch", {&dhp_wire, {{hello, 1, false}}, 1, dispatch, OWN}},
        {"dhp-claim", {&dhp_wire, {{hello, 1, false}}, 1, claim_kind, OWN}},
        {"dhp-checkpoint", {&dhp_wire, {{hello, 1, false}, {take, 1, true}, {checkpoint, 0, false}}, 3, checkpoint, SHARED}},
        {"dhp-heartbeat", {&dhp_wire, {{hello, 1, false}, {take, 1, true}, {checkpoint, 0, false}}, 3, heartbeat, SHARED}},
        {"dhp-complete", {&dhp_wire, {{hello, 1, false}, {take, 1, true}}, 2, complete, EACH}},
        {"dhp-life", {&dhp_wire, {{hello, 1, false}}, 1, NULL, OWN}},
        {"echo", {&echo_wire, {{NULL, 0, false}}, 0, echo, OWN}},
        {"redis-xadd", {&redis_wire, {{NULL, 0, false}}, 0, xadd, OWN}},
        {"redis-life", {&redis_wire, {{group, 1, false}}, 1, stream_life, OWN}},
        {"beanstalkd-put", {&beanstalkd_wire, {{tube, 1, false}}, 1, put, OWN}},
        {"beanstalkd-life", {&beanstalkd_wire, {{tube, 1, false}}, 1, job_life, OWN}},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(modes[i].name, options->mode) != 0)
            continue;
        *mode = modes[i].mode;
        if (mode->steps == NULL)
            mode->steps = life(options->life_checkpoints);
        if (mode->holding == SHARED)
            mode->before[2].count = options->preload;
        if (mode->holding == EACH && (options->count == 0 || options->rate > 0)) {
            fprintf(stderr, "load: %s needs --count, and takes no --rate\n", options->mode);
            exit(2);
        }
        return true;
    }
    return false;
}
