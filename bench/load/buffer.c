/* Bytes that are gathered, sent and read, and the numbers in them. */

#include "buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *buffer_reserve(struct buffer *buffer, size_t length) {
    if (buffer->begin == buffer->end)
        buffer->begin = buffer->end = 0;
    if (buffer->room - buffer->end >= length)
        return buffer->bytes + buffer->end;
    size_t held = buffer->end - buffer->begin;
    if (buffer->begin > 0)
        memmove(buffer->bytes, buffer->bytes + buffer->begin, held);
    buffer->begin = 0;
    buffer->end = held;
    if (buffer->room - held < length) {
        size_t room = buffer->room ? buffer->room : 4096;
        while (room - held < length)
            room *= 2;
        buffer->bytes = realloc(buffer->bytes, room);
        if (buffer->bytes == NULL) {
            fputs("load: no memory\n", stderr);
            exit(2);
        }
        buffer->room = room;
    }
    return buffer->bytes + held;
}

void buffer_put(struct buffer *buffer, struct piece piece) {
    memcpy(buffer_reserve(buffer, piece.length), piece.bytes, piece.length);
    buffer->end += piece.length;
}

void buffer_took(struct buffer *buffer, size_t length) {
    buffer->begin += length;
}

void put_frame(struct buffer *buffer, const struct piece *pieces, unsigned count) {
    size_t length = 0;
    for (unsigned i = 0; i < count; i++)
        length += pieces[i].length;
    char room[20];
    struct piece prefix = digits(length, room);
    char *at = buffer_reserve(buffer, prefix.length + length + 2);
    memcpy(at, prefix.bytes, prefix.length);
    at += prefix.length;
    *at++ = ' ';
    for (unsigned i = 0; i < count; i++) {
        memcpy(at, pieces[i].bytes, pieces[i].length);
        at += pieces[i].length;
    }
    *at = '\n';
    buffer->end += prefix.length + length + 2;
}

struct piece digits(uint64_t number, char *room) {
    char *end = room + 20, *at = end;
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    return (struct piece){at, (size_t)(end - at)};
}

bool holds(struct piece text, struct piece wanted) {
    return memmem(text.bytes, text.length, wanted.bytes, wanted.length) != NULL;
}

struct piece between(struct piece text, struct piece before, const char *allowed) {
    const char *found = memmem(text.bytes, text.length, before.bytes, before.length);
    if (found == NULL)
        return (struct piece){text.bytes, 0};
    const char *begin = found + before.length, *end = begin;
    while (end < text.bytes + text.length && strchr(allowed, *end) != NULL && *end != '\0')
        end++;
    return (struct piece){begin, (size_t)(end - begin)};
}

void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (memory == NULL) {
        fputs("load: no memory\n", stderr);
        exit(2);
    }
    return memory;
}

struct piece make_payload(size_t length) {
    static const char item[] = "{\"page\":17,\"done\":true,\"words\":[\"lease\",\"fence\",\"claim\"],\"score\":0.25},";
    static const char open[] = "{\"items\":[", between_them[] = "null],\"rest\":\"", close[] = "\"}";
    struct buffer text = {0};
    size_t least = sizeof open + sizeof between_them + sizeof close - 3;
    if (length >= least) {
        buffer_put(&text, TEXT(open));
        while (text.end + sizeof item + sizeof between_them + sizeof close - 3 <= length)
            buffer_put(&text, TEXT(item));
        buffer_put(&text, TEXT(between_them));
        while (text.end + sizeof close - 1 < length)
            buffer_put(&text, TEXT("x"));
        buffer_put(&text, TEXT(close));
    } else {
        for (size_t i = 0; i < length; i++)
            buffer_put(&text, length == 1 ? TEXT("1") : i == 0 || i == length - 1 ? TEXT("\"") : TEXT("x"));
    }
    return (struct piece){text.bytes, text.end};
}
