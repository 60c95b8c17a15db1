/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session is what a protocol makes of the bytes of one connection. conn.h has the socket,
 * readiness and times; it drives the session by the protocol's table of functions. The session
 * makes no system call, so that tests and fuzzers run exactly the code that sockets run: bytes in,
 * events out to the frontend, bytes out by way of the out-queue. http1.h and http2.h are the two
 * protocols.
 *
 *      socket ──read_space, received, end_input──► session ──► the frontend's handler
 *      socket ◄──────── out-queue ◄──queue_output── session ◄── answers
 *
 * One write per connection and iteration of the loop: a session that has something to send calls
 * on_output, and the connection calls queue_output when all else of the iteration is done. No slot
 * may free the session; the connection ends it when is_over() says so, or with abort().
 *
 * Thread: the loop's, for everything here.
 */
#ifndef CONCH_FRONTENDS_NET_SESSION_H
#define CONCH_FRONTENDS_NET_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "frontends/net/counts.h"
#include "frontends/net/out_queue.h"

struct tls;
struct budget;
struct loop;
struct pool;
struct protocol;
struct session;

/* The data that the sessions of one service on one loop share, for any protocol. */
struct net_env {
    /* Constant once there are sessions. */
    const struct protocol *protocol;
    void *loop_ctx;        /* the context that all services on the loop share (loops.h) */
    void *handler_ctx;     /* the handler's own data of this loop */
    struct pool *pool;     /* bodies, outputs */
    struct budget *budget; /* the pool's; NULL: none */
    struct loop *loop;     /* NULL in tests without one */
    char *scratch;         /* sockets are read into this buffer; hot in the cache */
    size_t scratch_bytes;

    /* Requests that may begin in this iteration, of all services; NULL: without limit. */
    unsigned int *requests_left;
    unsigned int n_used; /* exchanges, or calls, that are not over */
    /*
     * Frees memory of other connections when the budget has no room for a body that has begun.
     * Returns whether there is room now. Optional.
     */
    bool (*make_room)(void *arg, struct session *for_whom, size_t bytes);
    void *make_room_arg;
    void (*on_space)(struct session *s); /* the session wants input again. Optional. */
    bool draining; /* the service stops: requests in progress are answered, and none begins … */
    bool goes_on;  /* … unless the client may have begun something to end */
    /* Called when a connection, an exchange or a call is gone, while draining. Optional. */
    void (*on_left)(void *arg);
    void *on_left_arg;

    struct net_counts counts; /* other threads read them */
};

/* How a client is judged that keeps memory here, whatever the protocol (conn_burden()). */
enum {
    CLIENT_LIGHT_BYTES = 4096,      /* less is no burden */
    CLIENT_SLOW_BYTES_PER_S = 1024, /* below it a client is slow */
};
static const uint64_t CLIENT_STALL_NS = 5 * NS_PER_S; /* so long a slow client has stalled */
/* While the service stops: how long an incomplete request may go without a byte. */
static const uint64_t CLIENT_DRAIN_PATIENCE_NS = NS_PER_S;

/* net_env_left - calls on_left: a connection, an exchange or a call is gone, while draining. */
static inline void net_env_left(const struct net_env *env)
{
    if (UNLIKELY(env->draining) && env->on_left)
        env->on_left(env->on_left_arg);
}

/* The part of a session that its connection knows; the first member of the protocol's struct. */
struct session {
    const struct protocol *protocol;
    void (*on_output)(struct session *s); /* it has something to send; may be called often */
    struct out_queue out;
    /* Who the client is, as TLS knows it, once the handshake is over; NULL: without TLS. */
    struct tls *tls;
    bool paused;       /* received bytes wait for a later iteration: resume() */
    bool large_output; /* the output is so large that it is sent at once */
    bool discards;     /* bytes came, or may come, that are not read: conn_linger_or_close() */
};

/* Why a connection refuses its client's input. */
enum session_refusal {
    REFUSAL_HEAD_TIME, /* a head has taken too long, … */
    REFUSAL_BODY_TIME, /* … a body */
    REFUSAL_STOPPING,  /* the server stops, and the client does not finish what it has begun */
    REFUSAL_MEMORY,    /* the budget is short: see protocol.get_burden */
};

/* The input that a client has begun and must complete. */
struct session_input {
    enum { INPUT_NONE, INPUT_HEAD, INPUT_BODY } kind;
    uint64_t number;  /* tells one request from the next */
    bool awaits_us;   /* the session wants no input for now, so the client is not slow */
    bool is_only_one; /* no other request is in progress */
};

struct protocol {
    size_t session_bytes;     /* of the protocol's struct around a struct session */
    size_t max_scratch_bytes; /* of the loop's scratch buffer that it reads into; 0: all */

    /* Begins a session. All members are zero, but for protocol and on_output. */
    void (*begin)(struct session *s, struct net_env *env);
    /*
     * Ends a session whose connection is gone: cancels requests in progress and drops the
     * out-queue.
     */
    void (*abort)(struct session *s);

    /* ---- Reading ---- */

    /* Whether bytes may be read now. A change to true while nothing comes: net_env.on_space(). */
    bool (*wants_input)(const struct session *s);
    /* Says where to put the next bytes: 1 or 2 pieces; 0 unless the session wants input. */
    int (*read_space)(struct session *s, struct iovec space[2]);
    /* Processes n_bytes, which were put there. */
    void (*received)(struct session *s, size_t n_bytes);
    /* Goes on in a later iteration with bytes that had to wait; harmless without any. */
    void (*resume)(struct session *s);
    /* The client sends no more, and all that it has sent was received. */
    void (*end_input)(struct session *s);
    /*
     * The bytes that the body being received still lacks, if they can be read straight to their
     * place; 0 outside of such a body.
     */
    uint64_t (*body_left)(const struct session *s);

    /* ---- Writing ---- */

    /*
     * Queues the output that may leave now. Called before each write, so also after each release.
     */
    void (*queue_output)(struct session *s);
    /*
     * Finds out whether a client that has closed its sending side still reads, by sending what may
     * be sent ahead. Optional.
     */
    void (*probe)(struct session *s);

    /* ---- States, asked for by times and shortages ---- */

    /* The client gets nothing more: the connection can be closed. */
    bool (*is_over)(const struct session *s);
    /* Nothing is in progress: the connection may be closed as idle. */
    bool (*is_idle)(const struct session *s);
    void (*get_input)(const struct session *s, struct session_input *ret_input);
    /* The bytes that the session keeps of requests and replies, complete or not. */
    size_t (*weigh)(const struct session *s);
    /*
     * For a session of many requests, which are slow one by one: the burden (conn_burden()) of
     * those that wait for the client, and whether some have stalled. refuse(REFUSAL_MEMORY) then
     * gives up the stalled ones, or the greatest burden, and the session goes on. Optional:
     * otherwise the connection judges the session as a whole.
     */
    uint64_t (*get_burden)(const struct session *s, bool *ret_stalled);

    /* ---- Ends ---- */

    /*
     * Takes no more input, answers with an error if possible, and is over soon. With get_burden,
     * REFUSAL_MEMORY ends some requests only.
     */
    void (*refuse)(struct session *s, enum session_refusal why);
    /* The service begins to stop (net_env.draining), or goes_on has changed. Optional. */
    void (*drain)(struct session *s);
    /*
     * The client has begun nothing for as long as it may: ends in an order that loses no request
     * that it begins at this moment. Called again until the session is over. Optional: otherwise
     * the connection is closed.
     */
    void (*end_idle)(struct session *s);
    /*
     * Checks the protocol's own times, about once a second. May send or refuse; is_over() is called
     * afterwards. Optional.
     */
    void (*check_time)(struct session *s, uint64_t now_ns);
    /*
     * The latest time of the next check_time(); UINT64_MAX when once a second suffices. Called
     * after bytes have come or left. Optional.
     */
    uint64_t (*get_next_ns)(const struct session *s);

    /* ---- What sessions share ---- */

    /*
     * Makes an environment with these members and the service's settings, which are the protocol's;
     * both are copied or outlive it. NULL when memory is exhausted.
     */
    struct net_env *(*env_new)(const struct net_env *members, const void *settings);
    /* Frees the environment; no session and no exchange may be in use. */
    void (*env_free)(struct net_env *env);
    /* Frees some of the memory that was not used since the last call; true when little is left. */
    bool (*settle)(struct net_env *env);
    /* Frees all memory that is not in use. */
    void (*trim)(struct net_env *env);
};

#endif
