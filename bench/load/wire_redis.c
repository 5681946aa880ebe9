/* Redis streams, in RESP2. Each connection has a stream and a group of its own. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

/* The line at `at` without its CR LF; moves `at` behind it. False when its end hasn't come yet. */
static bool line(const char *bytes, size_t length, size_t *at, struct piece *found) {
    const char *end = memchr(bytes + *at, '\n', length - *at);
    if (end == NULL)
        return false;
    *found = (struct piece){bytes + *at, (size_t)(end - bytes) - *at - 1};
    *at = (size_t)(end - bytes) + 1;
    return true;
}

static ssize_t cut(const char *bytes, size_t length, struct piece *answer) {
    size_t at = 0;
    for (long wanted = 1; wanted > 0; wanted--) {
        struct piece head;
        if (at >= length || !line(bytes, length, &at, &head))
            return 0;
        if (head.length == 0)
            return -1;
        long number = strtol(head.bytes + 1, NULL, 10);
        switch (head.bytes[0]) {
        case '+':
        case '-':
        case ':':
            break;
        case '$':
            if (number >= 0)
                at += (size_t)number + 2;
            if (at > length)
                return 0;
            break;
        case '*':
            if (number > 0)
                wanted += number;
            break;
        default:
            return -1;
        }
    }
    *answer = (struct piece){bytes, at};
    return (ssize_t)at;
}

const struct wire redis_wire = {cut, NULL};

/* A command of `count` words; the one that is NULL stands for the payload. */
static void put_command(struct run *run, struct connection *connection, const struct piece *words, unsigned count) {
    char room[20];
    struct buffer *out = &connection->out;
    buffer_put(out, TEXT("*"));
    buffer_put(out, digits(count, room));
    buffer_put(out, TEXT("\r\n"));
    for (unsigned i = 0; i < count; i++) {
        struct piece word = words[i].bytes == NULL ? run->payload : words[i];
        buffer_put(out, TEXT("$"));
        buffer_put(out, digits(word.length, room));
        buffer_put(out, TEXT("\r\n"));
        buffer_put(out, word);
        buffer_put(out, TEXT("\r\n"));
    }
}

static struct piece stream(const struct run *run, const struct connection *connection, char *room, size_t length) {
    int written = snprintf(room, length, "load:%s%u", run->name, connection->number);
    return (struct piece){room, (size_t)written};
}

#define PAYLOAD ((struct piece){NULL, 0})
#define COMMAND(...) \
    char room[64]; \
    struct piece key = stream(run, connection, room, sizeof room); \
    struct piece words[] = {__VA_ARGS__}; \
    put_command(run, connection, words, sizeof words / sizeof *words)

static void ask_group(struct run *run, struct connection *connection, struct slot *slot) {
    (void)slot;
    COMMAND(TEXT("XGROUP"), TEXT("CREATE"), key, TEXT("workers"), TEXT("$"), TEXT("MKSTREAM"));
}

static bool group_made(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection, (void)slot;
    return answer.length == 5 && memcmp(answer.bytes, "+OK", 3) == 0;
}

static void ask_xadd(struct run *run, struct connection *connection, struct slot *slot) {
    (void)slot;
    COMMAND(TEXT("XADD"), key, TEXT("*"), TEXT("state"), PAYLOAD);
}

static bool added(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection, (void)slot;
    return answer.bytes[0] == '$' && answer.bytes[1] != '-';
}

static void ask_xreadgroup(struct run *run, struct connection *connection, struct slot *slot) {
    (void)slot;
    COMMAND(TEXT("XREADGROUP"), TEXT("GROUP"), TEXT("workers"), TEXT("load"), TEXT("COUNT"), TEXT("1"), TEXT("STREAMS"), key,
            TEXT(">"));
}

/* *1 *2 $ key *1 *2 $ id *2 … : the entry's id is the second text. */
static bool was_read(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection;
    size_t at = 0;
    struct piece found = {NULL, 0};
    for (unsigned lines = 0; lines < 8; lines++)
        if (at >= answer.length || !line(answer.bytes, answer.length, &at, &found))
            return false;
    if (answer.bytes[0] != '*' || found.length == 0 || found.length > sizeof slot->held->id)
        return false;
    memcpy(slot->held->id, found.bytes, found.length);
    slot->held->id_length = (unsigned)found.length;
    return memchr(found.bytes, '-', found.length) != NULL;
}

static void ask_xack(struct run *run, struct connection *connection, struct slot *slot) {
    COMMAND(TEXT("XACK"), key, TEXT("workers"), {slot->held->id, slot->held->id_length});
}

static bool acked(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection, (void)slot;
    return answer.length == 4 && memcmp(answer.bytes, ":1", 2) == 0;
}

const struct step redis_group = {"XGROUP", ask_group, group_made};
const struct step redis_xadd = {"XADD", ask_xadd, added};
const struct step redis_xreadgroup = {"XREADGROUP", ask_xreadgroup, was_read};
const struct step redis_xack = {"XACK", ask_xack, acked};
