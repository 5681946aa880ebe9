/* A load generator for the benchmark: see the usage in options.c. One line of JSON says what came of it.
 *
 * Per second: the operations that were answered as expected within the time that counts. Latency: of those that began within
 * it, from the moment when their bytes are handed to write() to the read() that brings the answer. Exit code 1 when anything
 * was answered otherwise than expected. */

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

static void print_text(const char *text) {
    putchar('"');
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '"' || *at == '\\')
            printf("\\%c", *at);
        else if (*at < 0x20 || *at >= 0x7f)
            printf("\\u%04x", *at);
        else
            putchar(*at);
    }
    putchar('"');
}

static void report(const struct run *run) {
    const struct options *options = run->options;
    bool counts = run->end_at > run->warm_at && run->end_at != UINT64_MAX;
    double seconds = counts ? (double)(run->end_at - run->warm_at) / 1e9 : 0;
    printf("{\"mode\":\"%s\",\"connections\":%u,\"depth\":%u,\"bytes\":%zu,\"ops\":%llu,\"seconds\":%.6f,\"per_second\":%.1f,",
           options->mode, options->connections, options->depth, options->bytes, (unsigned long long)run->ops, seconds,
           counts ? (double)run->ops / seconds : 0);
    printf("\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,\"answered\":%llu,\"unbegun\":%llu,\"errors\":%llu,\"first_error\":",
           histogram_at(&run->latency, 0.5) / 1e3, histogram_at(&run->latency, 0.99) / 1e3, (double)run->latency.max / 1e3,
           (unsigned long long)run->answered, (unsigned long long)run->unbegun, (unsigned long long)run->errors);
    print_text(run->first_error);
    printf(",\"cpu_s\":%.4f}\n", run->cpu_s);
}

static void allow_many_files(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(int count, char **words) {
    struct options options = read_options(count, words);
    struct run *run = allocate(1, sizeof *run);
    run->options = &options;
    if (!find_mode(&options, &run->mode)) {
        fprintf(stderr, "load: there is no mode %s\n", options.mode);
        return 2;
    }
    allow_many_files();
    bool much_before = options.preload > 0 || run->mode.holding == EACH;
    run->slots = much_before && options.depth < 32 ? 32 : options.depth;
    run->payload = make_payload(options.bytes);
    run->connections = allocate(options.connections, sizeof *run->connections);
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    snprintf(run->name, sizeof run->name, "%llx-%x-", (unsigned long long)time(NULL), (unsigned)getpid());
    carry_out(run);
    report(run);
    return run->errors > 0;
}
