/* Connections: sockets that don't block, what is read from them and written to them. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define READ_AT_ONCE (256u << 10)

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un unix_;
};

uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* `unix:/path`, `tcp://127.0.0.1:PORT` or `tcp://[::1]:PORT`; 0 when it is none. */
static socklen_t parse_address(const char *text, union address *address) {
    memset(address, 0, sizeof *address);
    if (strncmp(text, "unix:", 5) == 0) {
        if (strlen(text + 5) >= sizeof address->unix_.sun_path)
            return 0;
        address->unix_.sun_family = AF_UNIX;
        strcpy(address->unix_.sun_path, text + 5);
        return sizeof address->unix_;
    }
    char host[64];
    int port;
    if (sscanf(text, "tcp://[%63[^]]]:%d", host, &port) == 2 && inet_pton(AF_INET6, host, &address->v6.sin6_addr) == 1) {
        address->v6.sin6_family = AF_INET6;
        address->v6.sin6_port = htons((uint16_t)port);
        return sizeof address->v6;
    }
    if (sscanf(text, "tcp://%63[^:]:%d", host, &port) == 2 && inet_pton(AF_INET, host, &address->v4.sin_addr) == 1) {
        address->v4.sin_family = AF_INET;
        address->v4.sin_port = htons((uint16_t)port);
        return sizeof address->v4;
    }
    return 0;
}

bool connection_open(struct run *run, struct connection *connection) {
    union address address;
    socklen_t length = parse_address(run->options->address, &address);
    if (length == 0) {
        note_error(run, "no address", (struct piece){run->options->address, strlen(run->options->address)});
        return false;
    }
    connection->fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0 || connect(connection->fd, &address.any, length) < 0) {
        const char *why = strerror(errno);
        note_error(run, "can't connect", (struct piece){why, strlen(why)});
        return false;
    }
    if (address.any.sa_family != AF_UNIX)
        setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    epoll_ctl(run->epoll, EPOLL_CTL_ADD, connection->fd, &event);
    connection->run = run;
    connection->slots = allocate(run->slots, sizeof *connection->slots);
    connection->order = allocate(run->slots, sizeof *connection->order);
    connection->fresh = allocate(run->slots, sizeof *connection->fresh);
    for (uint32_t i = 0; i < run->slots; i++) {
        connection->slots[i].connection = connection;
        connection->slots[i].index = i;
    }
    return true;
}

bool connection_read(struct run *run, struct connection *connection) {
    char *room = buffer_reserve(&connection->in, READ_AT_ONCE);
    ssize_t got = read(connection->fd, room, READ_AT_ONCE);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0) {
        const char *why = got == 0 ? "by the other side" : strerror(errno);
        note_error(run, "the connection was closed", (struct piece){why, strlen(why)});
        return false;
    }
    connection->in.end += (size_t)got;
    return true;
}

static void watch_for(struct run *run, struct connection *connection, bool writable) {
    if (connection->blocked == writable)
        return;
    connection->blocked = writable;
    struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0u), .data.ptr = connection};
    epoll_ctl(run->epoll, EPOLL_CTL_MOD, connection->fd, &event);
}

/* One write() of all that waits. */
bool connection_flush(struct run *run, struct connection *connection) {
    if (connection->dirty)
        run->dirty--;
    connection->dirty = false;
    if (connection->fresh_count > 0) {
        uint64_t now = now_ns();
        for (uint32_t i = 0; i < connection->fresh_count; i++)
            connection->fresh[i]->begun = now;
        connection->fresh_count = 0;
    }
    struct buffer *out = &connection->out;
    if (out->begin == out->end)
        return true;
    ssize_t sent = send(connection->fd, out->bytes + out->begin, out->end - out->begin, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        const char *why = strerror(errno);
        note_error(run, "can't write", (struct piece){why, strlen(why)});
        return false;
    }
    if (sent > 0)
        buffer_took(out, (size_t)sent);
    watch_for(run, connection, out->begin < out->end);
    return true;
}

void connection_waits_for(struct run *run, struct connection *connection, struct slot *slot) {
    connection->order[connection->order_end] = slot->index;
    connection->order_end = (connection->order_end + 1) % run->slots;
    connection->order_count++;
}
