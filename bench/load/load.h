/* What the parts of the load generator know of each other.
 *
 * A run has connections, a connection has slots, and a slot carries one operation at a time through its steps: a request that
 * is written, and an answer that is read and looked at. A mode says which steps there are; a wire says how answers are cut out
 * of a stream and whose they are. */

#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "buffer.h"
#include "histogram.h"

#define MAX_ROUNDS 3
#define MAX_ERROR 400

struct run;
struct connection;
struct slot;

struct options {
    const char *mode;
    const char *address;
    unsigned connections;
    unsigned depth;
    double seconds;
    double warmup;
    size_t bytes;
    double rate; /* 0: as fast as answers come. */
    unsigned life_checkpoints;
    const char *kind;
    uint64_t count; /* 0: until the time is over. */
    uint64_t preload;
    unsigned keep_checkpoints; /* 0: the daemon's default. */
    bool detached;
};

/* What an operation works on: a handoff and its fence, an entry of a stream, a job. */
struct held {
    char id[64];
    unsigned id_length;
    char fence[20];
    unsigned fence_length;
};

/* A request, and whether what came back is the answer that was expected. */
struct step {
    const char *name;
    void (*request)(struct run *, struct connection *, struct slot *);
    bool (*answer)(struct run *, struct connection *, struct slot *, struct piece answer);
};

/* Operations that are carried out on each connection, several at a time, each of them through all of the steps. */
struct round {
    const struct step *const *steps; /* Ends with NULL. */
    uint64_t count;
    bool takes; /* What it works on is kept by the connection for later. */
};

struct wire {
    /* Cuts one answer off the front: how many bytes it takes, 0 when there is more to come, -1 when this is no answer. */
    ssize_t (*cut)(const char *bytes, size_t length, struct piece *answer);
    /* Whose answer it is, or NULL when nobody waits for it. Where this is NULL, answers come in the order of the requests. */
    struct slot *(*whose)(struct connection *, struct piece answer);
};

enum holding {
    OWN,    /* Each operation takes what it works on by itself. */
    SHARED, /* All of a connection work on the one thing that it took before the clock. */
    EACH,   /* Each works on another one of the things that its connection took before the clock. */
};

/* What is done before the clock, and what is measured. */
struct mode {
    const struct wire *wire;
    struct round before[MAX_ROUNDS];
    unsigned rounds;
    const struct step *const *steps;
    enum holding holding;
};

struct slot {
    struct connection *connection;
    uint32_t index;
    uint64_t id;    /* Of the request that is outstanding, where the wire has ids. */
    uint64_t turn;  /* How many requests it has sent. */
    uint64_t begun; /* When its operation began, in ns. */
    const struct step *const *at;
    struct held *held;
    struct held own;
};

struct connection {
    struct run *run;
    int fd;
    uint32_t number;
    bool blocked; /* The socket took no more: the rest waits until it does. */
    bool dirty;   /* Has requests that weren't handed to write() yet. */
    struct buffer in;
    struct buffer out;
    struct slot *slots;
    uint32_t *order; /* A ring of slots whose answers are still to come, in the order of their requests. */
    uint32_t order_begin, order_end, order_count;
    struct slot **fresh; /* Slots whose operation begins with the next write(). */
    uint32_t fresh_count;
    unsigned round;
    uint64_t round_count, round_begun, round_done;
    struct held *held;
    uint64_t held_count, held_used;
};

struct run {
    const struct options *options;
    struct mode mode;
    struct connection *connections;
    uint32_t slots; /* Of each connection. */
    char name[24];  /* Unlike that of any other run: part of all keys. */
    struct piece payload;
    int epoll;
    uint32_t ready; /* Connections that have done all that comes before the clock. */
    uint32_t dirty; /* Connections that have requests to be handed to write(). */
    bool measuring;
    bool stopping; /* Begins nothing any more. */
    uint64_t now;
    uint64_t opened_at, warm_at, end_at, last_answer_at;
    uint64_t begun, in_flight;
    uint64_t keys;
    struct slot **idle; /* Where a rate is set: a ring of slots that wait for the next moment. */
    uint64_t idle_begin, idle_end;
    uint64_t scheduled_begun;
    int timer;
    /* What came of it. */
    struct histogram latency;
    uint64_t ops;      /* Answered as expected within the time that counts. */
    uint64_t answered; /* Answered as expected since the clock began. */
    uint64_t errors;
    uint64_t unbegun;
    char first_error[MAX_ERROR];
    double cpu_s, cpu_at_warm;
};

/* options.c: ends the program, with a line on standard error, where they make no sense. */
struct options read_options(int count, char **words);

/* modes.c: false when there is no mode of that name. */
bool find_mode(const struct options *, struct mode *);

/* loop.c: carries the whole run out. Returns false when it couldn't go on; `first_error` says why. */
bool carry_out(struct run *);
void open_clock(struct run *);

/* operations.c */
void note_error(struct run *, const char *what, struct piece answer);
bool begin_operation(struct run *, struct slot *, uint64_t begun); /* `begun` is 0 where it begins with the next write(). */
void begin_round(struct run *, struct connection *);
bool take_answer(struct run *, struct connection *, struct piece answer); /* False where the run can't go on. */

/* pace.c: where a rate is set, operations begin at their moments. */
void pace_open(struct run *);
void pace_idle(struct run *, struct slot *);
void pace_begin_due(struct run *);

/* connection.c */
bool connection_open(struct run *, struct connection *);
bool connection_read(struct run *, struct connection *); /* One read(). False when it is closed or broken. */
bool connection_flush(struct run *, struct connection *);
void connection_waits_for(struct run *, struct connection *, struct slot *);

uint64_t now_ns(void);

extern const struct wire dhp_wire, echo_wire, redis_wire, beanstalkd_wire;
extern const struct step dhp_hello, dhp_dispatch, dhp_claim, dhp_claim_kind, dhp_checkpoint, dhp_heartbeat, dhp_ping,
    dhp_complete, echo_frame, redis_group, redis_xadd, redis_xreadgroup, redis_xack, beanstalkd_use, beanstalkd_watch,
    beanstalkd_ignore, beanstalkd_put, beanstalkd_reserve, beanstalkd_delete;

#endif
