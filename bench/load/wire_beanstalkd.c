/* beanstalkd: a tube of its own for each connection. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define NUMBERS "0123456789"

static bool begins(struct piece text, struct piece with) {
    return text.length >= with.length && memcmp(text.bytes, with.bytes, with.length) == 0;
}

/* A line; behind one that announces a job, the job too. */
static ssize_t cut(const char *bytes, size_t length, struct piece *answer) {
    const char *end = memchr(bytes, '\n', length);
    if (end == NULL)
        return 0;
    size_t took = (size_t)(end - bytes) + 1;
    if (begins((struct piece){bytes, took}, TEXT("RESERVED "))) {
        unsigned long long job;
        size_t size;
        char head[64] = {0};
        memcpy(head, bytes, took < sizeof head ? took : sizeof head - 1);
        if (sscanf(head, "RESERVED %llu %zu", &job, &size) != 2)
            return -1;
        took += size + 2;
        if (took > length)
            return 0;
    }
    *answer = (struct piece){bytes, took};
    return (ssize_t)took;
}

const struct wire beanstalkd_wire = {cut, NULL};

static void ask_about_tube(struct run *run, struct connection *connection, const char *command) {
    char text[80];
    int length = snprintf(text, sizeof text, "%s load-%s%u\r\n", command, run->name, connection->number);
    buffer_put(&connection->out, (struct piece){text, (size_t)length});
}

static void ask_use(struct run *run, struct connection *connection, struct slot *slot) {
    (void)slot;
    ask_about_tube(run, connection, "use");
}

static bool in_use(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection, (void)slot;
    return begins(answer, TEXT("USING "));
}

static void ask_watch(struct run *run, struct connection *connection, struct slot *slot) {
    (void)slot;
    ask_about_tube(run, connection, "watch");
}

static void ask_ignore(struct run *run, struct connection *connection, struct slot *slot) {
    (void)run, (void)slot;
    buffer_put(&connection->out, TEXT("ignore default\r\n"));
}

static bool watching(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection, (void)slot;
    return begins(answer, TEXT("WATCHING "));
}

static void ask_put(struct run *run, struct connection *connection, struct slot *slot) {
    (void)slot;
    char room[20];
    struct buffer *out = &connection->out;
    buffer_put(out, TEXT("put 0 0 3600 "));
    buffer_put(out, digits(run->payload.length, room));
    buffer_put(out, TEXT("\r\n"));
    buffer_put(out, run->payload);
    buffer_put(out, TEXT("\r\n"));
}

static bool inserted(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection, (void)slot;
    return begins(answer, TEXT("INSERTED "));
}

static void ask_reserve(struct run *run, struct connection *connection, struct slot *slot) {
    (void)run, (void)slot;
    buffer_put(&connection->out, TEXT("reserve\r\n"));
}

static bool reserved(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection;
    struct piece job = between(answer, TEXT("RESERVED "), NUMBERS);
    if (!begins(answer, TEXT("RESERVED ")) || job.length == 0 || job.length > sizeof slot->held->id)
        return false;
    memcpy(slot->held->id, job.bytes, job.length);
    slot->held->id_length = (unsigned)job.length;
    return true;
}

static void ask_delete(struct run *run, struct connection *connection, struct slot *slot) {
    (void)run;
    buffer_put(&connection->out, TEXT("delete "));
    buffer_put(&connection->out, (struct piece){slot->held->id, slot->held->id_length});
    buffer_put(&connection->out, TEXT("\r\n"));
}

static bool deleted(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection, (void)slot;
    return begins(answer, TEXT("DELETED\r\n"));
}

const struct step beanstalkd_use = {"use", ask_use, in_use};
const struct step beanstalkd_watch = {"watch", ask_watch, watching};
const struct step beanstalkd_ignore = {"ignore", ask_ignore, watching};
const struct step beanstalkd_put = {"put", ask_put, inserted};
const struct step beanstalkd_reserve = {"reserve", ask_reserve, reserved};
const struct step beanstalkd_delete = {"delete", ask_delete, deleted};
