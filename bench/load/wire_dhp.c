/* dhp/1: counted frames, requests with numbers for ids. Also the echo of such frames, whose answers have no ids. */

#include <stdlib.h>
#include <string.h>

#include "load.h"

#define NUMBERS "0123456789"
#define HEX "0123456789abcdef"
#define PIECES(pieces) (pieces), sizeof(pieces) / sizeof *(pieces)

/* `LEN SP BODY LF` */
static ssize_t cut(const char *bytes, size_t length, struct piece *answer) {
    size_t body = 0, at = 0;
    while (at < length && bytes[at] >= '0' && bytes[at] <= '9' && at < 10)
        body = body * 10 + (size_t)(bytes[at++] - '0');
    if (at == length)
        return 0;
    if (at == 0 || bytes[at] != ' ')
        return -1;
    at++;
    if (length - at < body + 1)
        return 0;
    if (bytes[at + body] != '\n')
        return -1;
    *answer = (struct piece){bytes + at, body};
    return (ssize_t)(at + body + 1);
}

static struct slot *whose(struct connection *connection, struct piece answer) {
    static const char before[] = "{\"id\":";
    const size_t skipped = sizeof before - 1;
    if (answer.length < skipped || memcmp(answer.bytes, before, skipped) != 0)
        return NULL;
    uint64_t id = 0;
    for (size_t at = skipped; at < answer.length && answer.bytes[at] >= '0' && answer.bytes[at] <= '9'; at++)
        id = id * 10 + (uint64_t)(answer.bytes[at] - '0');
    struct slot *slot = &connection->slots[id % connection->run->slots];
    return slot->id == id ? slot : NULL;
}

const struct wire dhp_wire = {cut, whose};
const struct wire echo_wire = {cut, NULL};

/* An id that no request of this connection had before; the slot can be told from it. */
static struct piece next_id(struct run *run, struct slot *slot, char *room) {
    slot->id = ++slot->turn * run->slots + slot->index;
    return digits(slot->id, room);
}

static struct piece text(const char *bytes) {
    return (struct piece){bytes, strlen(bytes)};
}

static bool is_ok(struct piece answer) {
    return holds(answer, TEXT("\"ok\":true"));
}

static bool ok(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection, (void)slot;
    return is_ok(answer);
}

static void ask_hello(struct run *run, struct connection *connection, struct slot *slot) {
    char room[20];
    struct piece pieces[] = {TEXT("{\"op\":\"hello\",\"id\":"), next_id(run, slot, room), TEXT(",\"client\":\"load\"}")};
    put_frame(&connection->out, PIECES(pieces));
}

static void ask_ping(struct run *run, struct connection *connection, struct slot *slot) {
    char room[20];
    struct piece pieces[] = {TEXT("{\"op\":\"ping\",\"id\":"), next_id(run, slot, room), TEXT("}")};
    put_frame(&connection->out, PIECES(pieces));
}

static void ask_dispatch(struct run *run, struct connection *connection, struct slot *slot) {
    char id[20], page[20], key[20], keep[20];
    unsigned kept = run->options->keep_checkpoints;
    struct piece pieces[] = {
        TEXT("{\"op\":\"dispatch\",\"id\":"), next_id(run, slot, id),
        TEXT(",\"kind\":\""), text(run->options->kind),
        TEXT("\",\"inputs\":{\"path\":\"/srv/pages\",\"page\":"), digits(run->keys, page),
        TEXT("},\"key\":\""), text(run->name), digits(run->keys, key),
        kept ? TEXT("\",\"keep_checkpoints\":") : TEXT("\""), kept ? digits(kept, keep) : TEXT(""), TEXT("}"),
    };
    run->keys++;
    put_frame(&connection->out, PIECES(pieces));
}

static bool dispatched(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection;
    struct piece handoff = between(answer, TEXT("\"handoff\":\""), HEX);
    if (!is_ok(answer) || !holds(answer, TEXT("\"created\":true")) || handoff.length != sizeof slot->held->id)
        return false;
    memcpy(slot->held->id, handoff.bytes, handoff.length);
    slot->held->id_length = (unsigned)handoff.length;
    return true;
}

#define CLAIM_END ",\"worker\":\"load\",\"ttl_ms\":3600000"

static struct piece claim_end(const struct run *run) {
    return run->options->detached ? TEXT(CLAIM_END ",\"detached\":true}") : TEXT(CLAIM_END "}");
}

static void ask_claim(struct run *run, struct connection *connection, struct slot *slot) {
    char id[20];
    struct piece pieces[] = {
        TEXT("{\"op\":\"claim\",\"id\":"), next_id(run, slot, id),
        TEXT(",\"handoff\":\""), {slot->held->id, slot->held->id_length}, TEXT("\""), claim_end(run),
    };
    put_frame(&connection->out, PIECES(pieces));
}

static void ask_claim_kind(struct run *run, struct connection *connection, struct slot *slot) {
    char id[20];
    struct piece pieces[] = {
        TEXT("{\"op\":\"claim\",\"id\":"), next_id(run, slot, id),
        TEXT(",\"kinds\":[\""), text(run->options->kind), TEXT("\"]"), claim_end(run),
    };
    put_frame(&connection->out, PIECES(pieces));
}

static bool claimed(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection;
    struct held *held = slot->held;
    struct piece handoff = between(answer, TEXT("\"handoff\":\""), HEX);
    struct piece fence = between(answer, TEXT("\"fence\":"), NUMBERS);
    if (!is_ok(answer) || handoff.length != sizeof held->id || fence.length == 0 || fence.length > sizeof held->fence)
        return false;
    memcpy(held->id, handoff.bytes, handoff.length);
    held->id_length = (unsigned)handoff.length;
    memcpy(held->fence, fence.bytes, fence.length);
    held->fence_length = (unsigned)fence.length;
    return true;
}

/* A write under the fence, with the payload as its last member. */
static void ask_write(struct run *run, struct slot *slot, struct piece before, struct piece payload_name) {
    char id[20];
    struct piece pieces[] = {
        before, next_id(run, slot, id),
        TEXT(",\"handoff\":\""), {slot->held->id, slot->held->id_length},
        TEXT("\",\"fence\":"), {slot->held->fence, slot->held->fence_length},
        payload_name, run->payload, TEXT("}"),
    };
    put_frame(&slot->connection->out, PIECES(pieces));
}

static void ask_checkpoint(struct run *run, struct connection *connection, struct slot *slot) {
    (void)connection;
    ask_write(run, slot, TEXT("{\"op\":\"checkpoint\",\"id\":"), TEXT(",\"state\":"));
}

static bool stored(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection, (void)slot;
    return is_ok(answer) && holds(answer, TEXT("\"duplicate\":false"));
}

static void ask_complete(struct run *run, struct connection *connection, struct slot *slot) {
    char id[20];
    struct piece pieces[] = {
        TEXT("{\"op\":\"complete\",\"id\":"), next_id(run, slot, id),
        TEXT(",\"handoff\":\""), {slot->held->id, slot->held->id_length},
        TEXT("\",\"fence\":"), {slot->held->fence, slot->held->fence_length},
        TEXT(",\"result\":{\"pages\":17,\"errors\":0}}"),
    };
    (void)run;
    put_frame(&connection->out, PIECES(pieces));
}

static void ask_heartbeat(struct run *run, struct connection *connection, struct slot *slot) {
    char id[20];
    struct piece pieces[] = {
        TEXT("{\"op\":\"heartbeat\",\"id\":"), next_id(run, slot, id),
        TEXT(",\"leases\":[{\"handoff\":\""), {slot->held->id, slot->held->id_length},
        TEXT("\",\"fence\":"), {slot->held->fence, slot->held->fence_length}, TEXT("}]}"),
    };
    put_frame(&connection->out, PIECES(pieces));
}

static bool renewed(struct run *run, struct connection *connection, struct slot *slot, struct piece answer) {
    (void)run, (void)connection, (void)slot;
    return is_ok(answer) && holds(answer, TEXT("\"renewed\":[\""));
}

const struct step dhp_hello = {"hello", ask_hello, ok};
const struct step dhp_ping = {"ping", ask_ping, ok};
const struct step dhp_dispatch = {"dispatch", ask_dispatch, dispatched};
const struct step dhp_claim = {"claim", ask_claim, claimed};
const struct step dhp_claim_kind = {"claim", ask_claim_kind, claimed};
const struct step dhp_checkpoint = {"checkpoint", ask_checkpoint, stored};
const struct step dhp_heartbeat = {"heartbeat", ask_heartbeat, renewed};
const struct step dhp_complete = {"complete", ask_complete, stored};

/* As long as a checkpoint. */
static void ask_echo(struct run *run, struct connection *connection, struct slot *slot) {
    (void)connection;
    memset(slot->held->id, 'a', sizeof slot->held->id);
    slot->held->id_length = sizeof slot->held->id;
    slot->held->fence[0] = '1';
    slot->held->fence_length = 1;
    ask_write(run, slot, TEXT("{\"op\":\"checkpoint\",\"id\":"), TEXT(",\"state\":"));
}

const struct step echo_frame = {"echo", ask_echo, ok};
