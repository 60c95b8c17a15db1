/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection of the gRPC load generator: frames of HTTP/2 both ways, windows, and messages in
 * streams. It knows only what servers of gRPC send. It never compresses, and its own windows are as
 * large as HTTP/2 allows, so that a server never waits for them.
 *
 *      grpc_conn_ask() ──► grpc_conn_flush() ──► grpc_conn_read() ──► events->answered()
 *
 * A call of a unary method ends with its answer. A stream stays, and takes as many requests as the
 * caller wants. Thread: one.
 */
#ifndef BENCH_LOAD_GRPC_CONN_H
#define BENCH_LOAD_GRPC_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel.h"
#include "grpc_head.h"

enum {
    GRPC_MAX_CALLS = 256,    /* of a connection */
    GRPC_MAX_REQUESTS = 256, /* outstanding in a stream */
    GRPC_PREFIX_BYTES = 5,
    GRPC_FRAME_HEAD = 9,
    GRPC_CARRY_BYTES = GRPC_FRAME_HEAD + (16 << 10),
    GRPC_STAGED = 256, /* pieces of a write */
    GRPC_STAGED_TEXT = 16 << 10,
    GRPC_READ_BYTES = 256 << 10,
};

struct grpc_conn;

/* What all connections share; constant after the start. */
struct grpc_plan {
    const char *path;
    const char *wire; /* the message with its prefix */
    size_t wire_bytes;
    bool streams;           /* the method is a bidirectional stream */
    unsigned int n_calls;   /* calls or streams of a connection */
    unsigned int n_answers; /* messages that answer a request of a stream */
    char *scratch;          /* GRPC_READ_BYTES; connections read into it */
    /* Bytes of the body of a message, at its position. */
    void (*got)(struct grpc_conn *c, size_t at, const char *bytes, size_t n_bytes);
    /* A message is complete. */
    void (*got_message)(struct grpc_conn *c, size_t n_bytes);
    /* A request is answered; `fine`: with the status OK and as many messages as expected. */
    void (*answered)(struct grpc_conn *c, uint64_t begun_ns, bool fine);
};

struct grpc_call {
    uint32_t id;       /* 0: not begun */
    bool queued;       /* in to_send */
    uint32_t n_unsent; /* requests, the one that is sent in part included */
    size_t sent;       /* bytes of it */
    int64_t window;

    /* The answers. */
    uint8_t prefix[GRPC_PREFIX_BYTES];
    unsigned int n_prefix;
    size_t length, at; /* of the message that is coming */
    unsigned int n_messages;
    uint64_t n_begun, n_done;
    uint64_t begun_ns[GRPC_MAX_REQUESTS];
};

struct grpc_conn {
    const struct grpc_plan *plan;
    void *owner;
    struct channel channel;
    struct grpc_head_reader heads;
    bool has_begun; /* the first head was sent */
    uint32_t next_id;

    /* The server's limits. */
    int64_t window, first_window;
    size_t max_frame;

    struct grpc_call calls[GRPC_MAX_CALLS];
    uint16_t slot_of[1024]; /* a guess: the call that last had an id */
    uint16_t to_send[GRPC_MAX_CALLS];
    unsigned int to_send_first, n_to_send;

    /* What is to be written. */
    struct iovec staged[GRPC_STAGED];
    int n_staged, first_staged;
    char text[GRPC_STAGED_TEXT];
    size_t n_text;
    char again[GRPC_HEAD_BYTES]; /* the head of calls but the first */
    size_t n_again;
    char control[1024]; /* answers to frames of the server, sent first */
    size_t n_control;
    bool needs_flush;

    /* Reading. */
    uint8_t carry[GRPC_CARRY_BYTES]; /* a frame that did not come in one piece */
    size_t n_carry;
    struct grpc_call *data_call; /* of the DATA that is coming; NULL: unknown stream */
    size_t data_left;
    bool data_ends;
    int64_t consumed; /* since our last WINDOW_UPDATE of the connection */
};

/* grpc_conn_open - connects, and queues the preface. */
void grpc_conn_open(struct grpc_conn *c, const struct grpc_plan *plan, void *owner,
                    const struct sockaddr_in *to, bool tls);

/* grpc_conn_ask - queues one request on the call or stream with that number. */
void grpc_conn_ask(struct grpc_conn *c, unsigned int call, uint64_t now_ns);

/* grpc_conn_is_free - whether a call may begin there, or a stream takes another of max requests. */
bool grpc_conn_is_free(const struct grpc_conn *c, unsigned int call, unsigned int max);

/* grpc_conn_flush - sends what is queued, as far as the socket and the windows allow. */
void grpc_conn_flush(struct grpc_conn *c);

/* grpc_conn_read - reads all that has come. Exits when the server closes the connection. */
void grpc_conn_read(struct grpc_conn *c);

#endif
