/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC call on a stream of HTTP/2: its head, its messages, its status. A struct grpc_kind knows
 * what the method means.
 *
 *      head ──► begin ──► on_message… ──► on_half_close
 *                 call_reply()                 one message and the status OK
 *                 call_fail()                  a status that is an error
 *                 cancel ◄── the client or its deadline has given up
 *      all is sent or dropped ──► close;   the last reference is gone ──► end
 *
 * The call is a part of its stream. A kind has a part of each of its calls, in a block of its own,
 * so that a stream on which nothing happens is small. A kind whose work goes on elsewhere keeps the
 * call by call_ref().
 *
 * Thread: the loop's.
 */
#ifndef CONCH_FRONTENDS_GRPC_CALL_H
#define CONCH_FRONTENDS_GRPC_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/timer.h"
#include "frontends/grpc/incoming.h"
#include "frontends/grpc/method.h"
#include "frontends/grpc/text.h"
#include "frontends/net/http2.h"
#include "frontends/ops/access.h"
#include "frontends/ops/restrictions.h"
#include "frontends/ops/stream_flow.h"
#include "frontends/tracing/tracer.h"

struct call_job;
struct compress;
struct forwarded;
struct packing;
struct inline_budget;
struct grpc_call;
struct loop_share;
struct regex;
struct server;
struct status;

/* The error for a message that comes while the server stops (reference/behaviours §6.25). */
#define GRPC_STOPPING_TEXT "GRPC server is shutting down and has stopped accepting new requests."

/* What a kind of calls does. */
struct grpc_kind {
    size_t part_bytes;   /* of the kind's part */
    size_t memory_bytes; /* of the call's arena, before it takes memory from the pool */
    bool has_tensors;    /* its messages are ModelInferRequests */
    bool takes_many;     /* a call may have any number of messages */
    /*
     * The longest message, packed or not, if the service allows it; 0: the service's limit alone. A
     * longer one is refused when its length is announced.
     */
    size_t max_message_bytes;
    /* The call begins; its part is not cleared. */
    void (*begin)(struct grpc_call *c);
    /* A message is complete and unpacked. `block` is the kind's, which releases it. */
    void (*on_message)(struct grpc_call *c, char *block, const char *bytes, size_t n_bytes);
    /*
     * The client has sent all its messages. Optional: a call that takes one message has it by then.
     */
    void (*on_half_close)(struct grpc_call *c);
    /*
     * Whether another message may begin a request. If not, the call is held, and the kind calls
     * call_resume() or http2_stream_await_room(). Optional: yes.
     */
    bool (*may_begin)(struct grpc_call *c);
    /*
     * The service stops: a call that may go on for as long as its client likes gets its status.
     * Also called for a call that begins meanwhile. May be called again, but not when the call has
     * its status. Optional.
     */
    void (*on_stop)(struct grpc_call *c);
    /* The call was cancelled before its answer, by the client or its deadline. Optional. */
    void (*cancel)(struct grpc_call *c);
    /* The stream is over: the answer was sent or dropped. Optional. */
    void (*close)(struct grpc_call *c);
    /* The last reference is gone. Optional. */
    void (*end)(struct grpc_call *c);
};

struct unary_method;

/* --grpc-infer-response-compression-level; the client's accepted encodings decide, too. */
enum grpc_compression {
    GRPC_COMPRESSION_NONE,
    GRPC_COMPRESSION_LOW,    /* gzip, else deflate */
    GRPC_COMPRESSION_MEDIUM, /* deflate, else gzip; so is … */
    GRPC_COMPRESSION_HIGH,
};

enum { GRPC_MAX_METADATA = 4 };

/*
 * Metadata that a kind sends with its messages, and behind them. An answer of a status alone has
 * none. Names and values live as long as the call.
 */
struct grpc_metadata {
    struct http2_field head[GRPC_MAX_METADATA], trailers[GRPC_MAX_METADATA];
    uint32_t n_head, n_trailers;
};

/* Constant after the start. */
struct grpc_settings {
    struct server *server;
    struct grpc_methods methods;
    size_t max_message_bytes;
    struct restrictions restrictions;
    struct regions *regions;             /* of shared memory; borrowed */
    struct access *access;               /* --access-rules; NULL: none */
    struct tracer *tracer;               /* NULL: nothing is traced */
    bool reads_more;                     /* there is a forward_pattern, or traceparent counts */
    const struct regex *forward_pattern; /* of metadata that become parameters; NULL: none do */
    struct stream_flow_limits flow;      /* of each decoupled request */
    enum grpc_compression compression;   /* of answers to inferences */
};

/* Per loop; the loop's thread only. */
struct grpc_ctx {
    const struct grpc_settings *settings;
    struct http2_env *env;
    struct loop *loop;
    struct access_view access;
    struct compress *compress; /* for small messages, … */
    struct packing *packing;   /* … for others, the loop's own; NULL: for all */
    struct loop_share *share;  /* the loop's inline budget; NULL: this thread executes no models */
    struct trace_sampler sampler;
    /* Names that calls of Health/Watch watch (health_watch.c). */
    struct list watched;
    size_t n_watched;
    size_t n_unseen;              /* of them, in this round of looks */
    uint64_t round_ns;            /* when it began */
    bool has_changed;             /* something has, since it began */
    struct timer watch_timer;     /* set while there are names … */
    struct subscription *changes; /* … and not NULL then: of the server's changes */
};

enum {
    GRPC_CALL_MEMORY = 1024,     /* memory_bytes of kinds that have one answer */
    GRPC_ARENA_BYTES = 64 << 20, /* the most memory of an inference's answer besides its tensors */
    GRPC_REQUEST_BYTES = 1536,   /* names and shapes of the usual request */
    GRPC_MESSAGE_BYTES = 2048,   /* the views of the usual ModelInferRequest … */
    GRPC_VIEW_BYTES = 64 << 20,  /* … and the most of any */
    GRPC_EARLY_BYTES = 64 << 10, /* messages from this size on are released before their answers */
};

struct grpc_call {
    struct http2_stream *stream;
    struct grpc_ctx *ctx;
    const struct grpc_kind *kind;     /* NULL: the call was refused at its head */
    const struct unary_method *unary; /* of calls of grpc_unary_kind; else NULL */
    enum ops_api api;                 /* the part of the protocol */
    struct incoming incoming;
    struct arena arena;     /* for answers; lives as long as the call */
    unsigned int encoding;  /* of the client's packed messages; GRPC_IDENTITY: none is named */
    unsigned int accepted;  /* set of the encodings that the client accepts */
    unsigned int refs;      /* the stream's, until on_end(); the kind's */
    int sent_status;        /* -1: none was sent */
    bool wants_true_status; /* the metadata triton_grpc_error is true */
    bool has_message;       /* a message was complete */
    bool has_answer;        /* the head of the answer was sent */
    bool is_half_closed;    /* the client has closed its sending side */
    bool is_deaf;           /* call_ignore_input() */
    bool is_held;           /* no message may begin a request now */
    bool has_pending;       /* `pending` is a message that came just before */
    bool is_resuming;       /* call_resume() is at work */
    bool is_close_due;      /* kind->close() waits for `packing` */
    bool has_begun;         /* kind->begin() was called */
    bool has_ended;         /* a status was sent, or the client is gone */
    struct incoming_message pending;
    struct call_job *packing, *unpacking; /* of a helper thread; NULL: it has none */
    struct buf held; /* the bytes that have come since, which are not taken: a window at the most */
    size_t held_at;  /* where the rest of them begins */
    uint64_t deadline_ns; /* of the header grpc-timeout; 0: none */
    struct timer deadline;
    struct forwarded *forwarded; /* metadata that become parameters, in the arena */
    struct trace_parent
        *trace_parent;            /* the trace that the call belongs to, in the arena, or NULL */
    struct access_rights *rights; /* the models that it may name; NULL: all, and none */
    /* The client's head; NULL but during kind->begin(). */
    const struct http2_head *head;
    /* The kind's, of the answer; NULL: none. */
    const struct grpc_metadata *metadata;
    struct http2_field trailers[2];
    void *part; /* the kind's, aligned to 16 bytes; set when has_begun */
};

/* The block of a part: this, the part, the arena's first memory. */
struct grpc_part {
    struct grpc_call *call;
    _Alignas(16) char bytes[];
};

/* grpc_call_of - the call whose part that is. */
static inline struct grpc_call *grpc_call_of(void *part)
{
    return ((struct grpc_part *)(void *)((char *)part - offsetof(struct grpc_part, bytes)))->call;
}

/*
 * grpc_ctx_init - makes the context of a service's environment, without loop_share. The caller ends
 * it with grpc_ctx_done(), when no call is left.
 */
void grpc_ctx_init(struct grpc_ctx *ctx, const struct grpc_settings *settings,
                   struct http2_env *env);
void grpc_ctx_done(struct grpc_ctx *ctx);

/*
 * grpc_inline_budget - the budget for requests that this thread may execute; NULL: the thread
 * executes none.
 */
struct inline_budget *grpc_inline_budget(const struct grpc_ctx *ctx);

/*
 * grpc_handler - makes events of calls from those of HTTP/2's streams. env->net.handler_ctx is a
 * struct grpc_ctx.
 */
extern const struct http2_handler grpc_handler;

/*
 * call_reply - sends one message and the status OK. The pieces must lie in the call's arena, or
 * live until kind->close(); with tensors, their array, too.
 */
void call_reply(struct grpc_call *c, const struct iovec *pieces, uint32_t n_pieces);

/* A message that a helper thread has tried to pack. */
struct grpc_packed {
    const struct iovec *pieces; /* as they were given */
    uint32_t n_pieces;
    char *block; /* of the pool; NULL: the message did not become smaller, or there is no memory */
    size_t n_bytes;
};

typedef void (*grpc_packed_fn)(struct grpc_call *c, const struct grpc_packed *packed);

/* call_packs_elsewhere - whether call_pack() is to pack a message of n_bytes, not call_frame(). */
bool call_packs_elsewhere(const struct grpc_call *c, size_t n_bytes);

/*
 * call_pack - has a helper thread pack a message, one at a time for each call. on_packed() follows
 * on the loop, also when the call has ended meanwhile, and takes the block. kind->close() and
 * kind->end() follow that. Without memory on_packed() is called before this returns.
 *
 * @pieces  stay, with their bytes, until on_packed()
 */
void call_pack(struct grpc_call *c, const struct iovec *pieces, uint32_t n_pieces,
               grpc_packed_fn on_packed);

/* A message with its prefix, ready for http2_stream_send(). */
struct grpc_framed {
    struct out_piece *pieces; /* none is empty */
    uint32_t count;
    size_t n_bytes;
    char *packed; /* a block of the pool, released with the pieces; NULL: not packed */
};

/*
 * call_frame - frames a message for the call. Packs it if the client and the settings allow an
 * encoding.
 *
 * @arena  gets everything but the pieces' bytes
 * Errors: STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *call_frame(struct grpc_call *c, struct arena *arena,
                                    const struct iovec *pieces, uint32_t n_pieces,
                                    struct grpc_framed *ret);

/* call_frame_packed - the same for a message of call_pack(); its block is taken on success. */
NODISCARD struct status *call_frame_packed(struct arena *arena, const struct grpc_packed *packed,
                                           struct grpc_framed *ret);

/* call_send - sends a framed message. The caller sets the release of each piece before. */
void call_send(struct grpc_call *c, const struct grpc_framed *framed);

/* call_finish - sends the status OK after the messages that were sent. */
void call_finish(struct grpc_call *c);

/*
 * call_resume - continues a call that is held, if a message may begin a request again: kind
 * may_begin() has said no before. While the call is held the client may send no more than its
 * window. May deliver messages and the half-close before it returns.
 */
void call_resume(struct grpc_call *c);

/* call_ignore_input - drops incomplete and held messages, and all that comes from now on. */
void call_ignore_input(struct grpc_call *c);

/* call_fail - sends the status of an error, which is taken; no message follows. */
void call_fail(struct grpc_call *c, struct status *st);

/*
 * call_check_model - whether the access rules allow the call to name that model. To be asked before
 * anything is done with the name. A call keeps the rights that it has had at its head.
 *
 * @name   NULL: the message names none
 * Errors: STATUS_UNAVAILABLE  This protocol is restricted: …
 */
NODISCARD static inline struct status *call_check_model(const struct grpc_call *c, const char *name,
                                                        size_t length)
{
    return LIKELY(!c->rights) ? NULL : access_rights_cover(c->rights, name, length);
}

/* call_ref, call_unref - references; kind->end() follows the last one. */
void call_ref(struct grpc_call *c);
void call_unref(struct grpc_call *c);

#endif
