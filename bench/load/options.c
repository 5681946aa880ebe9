/* The command line. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

static const char usage[] =
    "usage: load MODE tcp://HOST:PORT|unix:/PATH [--connections N] [--depth D] [--seconds S] [--warmup S] [--bytes B]\n"
    "            [--rate R] [--count N] [--life-checkpoints K] [--kind NAME] [--preload N] [--keep-checkpoints N] [--detached]\n"
    "\n"
    "  dhp-ping dhp-dispatch dhp-claim dhp-checkpoint dhp-heartbeat dhp-complete dhp-life\n"
    "  echo redis-xadd redis-life beanstalkd-put beanstalkd-life\n"
    "\n"
    "  --connections       each a socket and, where there are such, a session of its own (1)\n"
    "  --depth             so many operations outstanding on each, at all times (1)\n"
    "  --seconds           how long is measured (2), after --warmup seconds that don't count (0.5)\n"
    "  --bytes             of a state, an entry, a job (1024)\n"
    "  --rate              so many begin per second on all connections together; latency counts from the scheduled moment\n"
    "  --count             ends after so many operations, all of which count, instead of after a time\n"
    "  --life-checkpoints  of each life (10)\n"
    "  --kind              of handoffs (bench)\n"
    "  --preload           so many checkpoints on each handoff before the clock\n"
    "  --keep-checkpoints  asked for with each dispatch\n"
    "  --detached          claims hang on no session\n";

static void refuse(const char *what, const char *word) {
    fprintf(stderr, "load: %s: %s\n%s", what, word, usage);
    exit(2);
}

static double number(const char *name, const char *word, double least, double most) {
    if (word == NULL)
        refuse("it needs a value", name);
    char *end;
    errno = 0;
    double value = strtod(word, &end);
    if (errno || end == word || *end != '\0' || !(value >= least && value <= most))
        refuse("that is no value for it", name);
    return value;
}

struct options read_options(int count, char **words) {
    struct options options = {
        .connections = 1, .depth = 1, .seconds = 2, .warmup = 0.5, .bytes = 1024, .life_checkpoints = 10, .kind = "bench"};
    if (count < 3)
        refuse("it needs", "MODE and ADDRESS");
    options.mode = words[1];
    options.address = words[2];
    for (int i = 3; i < count; i += 2) {
        const char *name = words[i], *value = i + 1 < count ? words[i + 1] : NULL;
        if (strcmp(name, "--connections") == 0)
            options.connections = (unsigned)number(name, value, 1, 100000);
        else if (strcmp(name, "--depth") == 0)
            options.depth = (unsigned)number(name, value, 1, 4096);
        else if (strcmp(name, "--seconds") == 0)
            options.seconds = number(name, value, 0.001, 86400);
        else if (strcmp(name, "--warmup") == 0)
            options.warmup = number(name, value, 0, 86400);
        else if (strcmp(name, "--bytes") == 0)
            options.bytes = (size_t)number(name, value, 1, 64 << 20);
        else if (strcmp(name, "--rate") == 0)
            options.rate = number(name, value, 0.1, 1e7);
        else if (strcmp(name, "--count") == 0)
            options.count = (uint64_t)number(name, value, 1, 1e12);
        else if (strcmp(name, "--life-checkpoints") == 0)
            options.life_checkpoints = (unsigned)number(name, value, 0, 100000);
        else if (strcmp(name, "--preload") == 0)
            options.preload = (uint64_t)number(name, value, 0, 1e9);
        else if (strcmp(name, "--keep-checkpoints") == 0)
            options.keep_checkpoints = (unsigned)number(name, value, 1, 1e6);
        else if (strcmp(name, "--kind") == 0 && value != NULL)
            options.kind = value;
        else if (strcmp(name, "--detached") == 0) {
            options.detached = true;
            i--;
        } else
            refuse("there is no such option, or it needs a value", name);
    }
    return options;
}
