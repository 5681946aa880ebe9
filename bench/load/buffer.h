/* Bytes that are gathered, sent and read, and the numbers in them. */

#ifndef BUFFER_H
#define BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Some bytes that belong to somebody else. */
struct piece {
    const char *bytes;
    size_t length;
};

#define TEXT(literal) ((struct piece){(literal), sizeof(literal) - 1})

struct buffer {
    char *bytes;
    size_t begin, end, room; /* What is held lies between `begin` and `end`. */
};

/* Room for `length` more bytes after `end`; what was there may move. */
char *buffer_reserve(struct buffer *, size_t length);
void buffer_put(struct buffer *, struct piece);
void buffer_took(struct buffer *, size_t length);

/* One counted frame whose body is all of the pieces. */
void put_frame(struct buffer *, const struct piece *pieces, unsigned count);

/* The digits of a number, in `room`, which has 20 bytes. */
struct piece digits(uint64_t number, char *room);

bool holds(struct piece, struct piece wanted);
/* What follows `before`, up to the first byte that isn't of `allowed`; empty when it isn't there. */
struct piece between(struct piece, struct piece before, const char *allowed);

void *allocate(size_t count, size_t size);

/* Some JSON of exactly `length` bytes, such as a worker would keep. */
struct piece make_payload(size_t length);

#endif
