/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the HTTP/2 session that its files share.
 *
 *      http2.c          the session: the functions that the connection calls, faults
 *      http2_receive.c  receiving: callbacks of nghttp2 note events, which are then delivered
 *      http2_head.c     the head of a stream while it comes; heads that are repeated
 *      http2_rules.c    what HTTP forbids in a head
 *      http2_send.c     sending: answers into frames, frames into the out-queue
 *      http2_window.c   windows: how many bytes may come
 *      http2_waste.c    limits of frames that carry nothing
 *      http2_pace.c     streams whose client does not go on
 *      http2_time.c     times: PINGs, age, the orderly end
 *      http2_memory.c   memory for nghttp2
 *
 * nghttp2 calls back in the middle of its work. Callbacks therefore only note what happened, in the
 * stream (struct http2_stream.notes); http2_deliver() calls the handler when nghttp2 has returned.
 */
#ifndef CONCH_FRONTENDS_NET_HTTP2_PRIV_H
#define CONCH_FRONTENDS_NET_HTTP2_PRIV_H

#include <nghttp2/nghttp2.h>

#include "base/compiler.h"
#include "frontends/net/http2.h"

/* ---- Memory: http2_memory.c ---------------------------------------------------------------- */

struct pool;

enum { SLAB_CLASSES = 10 };

/* Small blocks for nghttp2, carved out of blocks of the loop's pool. */
struct http2_slab {
    struct pool *pool;
    struct list chunks[SLAB_CLASSES]; /* those with a free block */
};

/* The memory of one session; nghttp2 gets it as user data. */
struct http2_memory {
    struct http2_slab *slab;
    size_t used_bytes, max_bytes;
    nghttp2_mem functions;
};

void http2_slab_init(struct http2_slab *slab, struct pool *pool);
void http2_slab_done(struct http2_slab *slab); /* all blocks must be free */
void http2_slab_trim(struct http2_slab *slab); /* releases empty chunks */
void http2_memory_init(struct http2_memory *m, struct http2_slab *slab, size_t max_bytes);

/* ---- Shared by a loop's sessions ------------------------------------------------------------ */

enum { SEGMENTS = 64 }; /* of bodies, in one portion of received bytes */

/* Bytes of a body, where they were read. */
struct http2_segment {
    const char *bytes;
    size_t n_bytes;
    int next; /* of the same stream; -1: none */
};

struct http2_shared {
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *options;
    struct http2_slab slab;
    struct http2_segment segments[SEGMENTS]; /* of the session that is receiving */
    int n_segments;
    struct list turns; /* streams that wait for memory, in the order of their turns */
    bool turns_due;    /* on_turn() of the first one was not called yet */
    uint64_t seed;     /* of the age of connections */
};

/* ---- Rules: http2_rules.c ------------------------------------------------------------------ */

/* What is known of a head so far; begins as zeros. */
struct head_rules {
    unsigned int pseudo; /* the pseudo headers that came, by their bits */
    bool is_regular;     /* a header came that is none: no pseudo header may follow */
    bool is_asterisk;    /* the path is "*" … */
    bool is_odd_path;    /* … or neither that nor begins with "/" */
    bool is_options, is_connect, is_web; /* the method; the scheme is http or https */
    bool has_length;
    int64_t length; /* of the body, as content-length says it */
};

/*
 * head_rules_add - takes a header of a head, or of trailers. False: the stream must be reset (RFC
 * 9113, 8.1.1).
 */
bool head_rules_add(struct head_rules *rules, struct span name, struct span value,
                    bool in_trailers);
/* head_rules_end - whether the complete head of a request is well-formed. */
bool head_rules_end(const struct head_rules *rules);

/* ---- Heads: http2_head.c ------------------------------------------------------------------- */

/*
 * The head of a stream while it comes, in one block of the pool: the headers grow from the
 * beginning of its bytes, their text from the end. RFC 9113 also counts 32 bytes for each header,
 * so max_header_bytes always suffice. Only streams whose head is coming have one.
 */
struct head_builder {
    size_t capacity, text_at; /* of the bytes; where the text begins */
    size_t size_bytes;        /* as RFC 9113, 6.5.2 counts, with the fields that are left out */
    struct http2_head head;
    _Alignas(16) char bytes[];
};

/* head_add - adds a header; *b is NULL before the first. False when there is no memory. */
NODISCARD bool head_add(struct head_builder **b, struct pool *pool, size_t max_bytes,
                        struct span name, struct span value);
/* head_done - releases the head, if there is one. */
void head_done(struct head_builder **b);

/* Of a head that is remembered, at most; nine fields of a usual client need 400 bytes. */
enum { MEMO_FIELDS = 16, MEMO_BYTES = 1024 };

/* A header as nghttp2 has it: both are references. */
struct memo_field {
    nghttp2_rcbuf *name, *value;
};

/*
 * A head that the client has sent, and may repeat. As long as the fields are referenced, nghttp2
 * gives the same two objects for a field that the client takes from the header table, so that a
 * head is compared by pointers. A head that is well-formed once is always so.
 */
struct head_memo {
    unsigned int refs, n_fields;
    struct memo_field fields[MEMO_FIELDS];
    struct http2_head head;
    _Alignas(16) char note[HTTP2_NOTE_BYTES];
    _Alignas(16) char text[]; /* of the head, up to MEMO_BYTES in all */
};

/* The head that is coming on a connection; there is one at a time. */
struct coming_head {
    bool repeats;          /* all its fields so far are those of the memo, in this order */
    bool is_bad;           /* it breaks a rule */
    unsigned int n_fields; /* so far; beyond MEMO_FIELDS it cannot be remembered */
    struct memo_field fields[MEMO_FIELDS]; /* unless it repeats */
    struct head_rules rules;
};

void head_memo_unref(struct head_memo *memo);
void coming_head_reset(struct coming_head *coming);
/*
 * head_memo_make - a memo with the coming head, whose fields are taken and whose builder is
 * released. NULL: not now.
 */
struct head_memo *head_memo_make(struct coming_head *coming, struct head_builder **builder,
                                 struct pool *pool);

/* ---- Streams ------------------------------------------------------------------------------- */

enum {
    NOTE_BEGIN = 1,
    NOTE_HALF_CLOSE = 2,
    NOTE_CLOSED = 4, /* nghttp2 has closed the stream: close_code says why */
    NOTE_SENT = 8,   /* none of its slices is in the out-queue any more */
    NOTE_ROOM = 16,
    NOTE_STOP = 32, /* the service stops */
};

/* The progress of a stream in one direction: http2_pace.c. */
struct http2_pace {
    uint64_t n_bytes;      /* moved since the last check */
    uint64_t recent_bytes; /* … between the two last checks */
    uint64_t last_ns;      /* the last progress; 0: the stream does not wait for the client */
    uint64_t rate_ns, rate_bytes; /* since when the rate is measured, and the bytes since then */
    uint64_t slow_ns;             /* since when the client has been slow; 0: it is not */
};

struct http2_stream {
    struct http2 *http2; /* the connection; NULL when it is gone */
    struct http2_env *env;
    struct list link;  /* in http2->streams, until the last reference is gone */
    struct list noted; /* in http2->noted */
    unsigned int refs;
    int32_t id;
    uint8_t notes;
    bool begun;         /* on_begin() was called: on_end() follows */
    bool input_over;    /* the client has ended its side */
    bool answered;      /* http2_stream_respond() was called */
    bool ended;         /* … http2_stream_end() */
    bool end_sent;      /* the last frame of the answer is made */
    bool reset;         /* … http2_stream_reset() */
    bool closed;        /* nothing can be sent or come; set when NOTE_CLOSED is delivered */
    bool over;          /* on_end() was called */
    bool deferred;      /* nghttp2 waits until there is something to send */
    bool sends_one;     /* http2_stream_sends_one() */
    bool is_incomplete; /* http2_stream_set_incomplete() */
    bool broken;        /* the client has broken a rule of HTTP: the stream is being reset */
    uint32_t close_code;
    struct head_builder *head; /* while the head comes, until on_begin() */
    struct head_memo *memo;    /* the head, if it is remembered, until on_begin() */

    /* Receiving. */
    int64_t length_left; /* of the body, as content-length says it; -1: it says nothing */
    int first_segment, last_segment; /* in shared->segments; -1: none */
    uint64_t expected_bytes;         /* announced, and still to come */
    uint64_t untaken_bytes;          /* came unexpected, and not taken */
    int64_t credit_bytes;            /* the client may send at least so many more */
    struct list turn;                /* in shared->turns */
    uint64_t turn_ns;                /* since when */

    /* Sending. */
    struct out_queue out;     /* not made into frames yet */
    size_t committed_bytes;   /* pieces of it that are in the out-queue */
    unsigned int n_committed; /* frames of them */
    struct frame *last_frame; /* the last of these; NULL when there is none */
    const struct http2_field *trailers;
    size_t n_trailers;
    struct list room; /* in http2->awaits_room or awaits_iteration */

    size_t weight_bytes; /* http2_stream_weigh() */
    struct http2_pace in, answer;
};

/* ---- Sessions ------------------------------------------------------------------------------ */

enum { ENDED_IDS = 8, GOAWAY_TEXT = 64, FRAME_HEAD = 9 };

/* The state that finds the heads of frames in the client's bytes: http2_waste.c. */
struct frame_walk {
    uint64_t left;            /* bytes to the next frame's head */
    uint8_t head[FRAME_HEAD]; /* of the next frame, as far as it has come */
    uint8_t n_head;
    bool in_head;                  /* a head of a stream has begun, its end must still come … */
    bool ends_head;                /* … with the rest of this frame */
    uint32_t last_id;              /* the number of the newest stream */
    uint32_t gap_begin, gap_end;   /* the newest range of numbers that the client left out */
    uint32_t ended_ids[ENDED_IDS]; /* the last streams that the client has ended */
    unsigned int next_ended;
    uint32_t late_id; /* a stream that got DATA after the client had ended it; 0: none */
};

/* The share of each kind of waste that a client has used. */
struct http2_meter {
    uint64_t paid_until_ns[HTTP2_N_WASTES]; /* the more waste, the further in the future */
};

/* The stages of an orderly end. */
enum drain_stage {
    DRAIN_NONE,
    DRAIN_NOTICED, /* sent: GOAWAY that allows all streams, and a PING behind it */
    DRAIN_LAST,    /* sent: GOAWAY with the last stream; no stream begins */
};

struct http2 {
    struct session session; /* first */
    struct http2_env *env;
    nghttp2_session *ng; /* NULL when there was no memory for it */
    struct http2_memory memory;

    struct list streams;
    struct list noted;
    struct list awaits_room;
    struct list awaits_iteration;
    unsigned int n_streams;           /* in `streams` */
    unsigned int n_open;              /* of them, not closed */
    uint64_t n_begun, n_begun_before; /* the latter: at the last check of times */
    struct frame_walk walk;
    size_t head_bytes; /* of the head that is coming, as RFC 9113, 6.5.2 counts */
    struct coming_head coming;
    struct head_memo *memo; /* the last head of a request; NULL: none */

    bool delivering;        /* http2_deliver() runs, and must not be entered again from a handler */
    bool failed;            /* nothing more is read; over when the out-queue is empty */
    bool has_input;         /* a byte has come */
    bool settings_received; /* the client's first SETTINGS */
    bool settings_acked;    /* the client has acknowledged ours */
    bool calm;              /* the fault below is the client's waste */
    enum http2_error fault; /* noted by a callback: fails the session … */
    const char *fault_text; /* … with this text; NULL: there is none */
    bool segments_full;     /* nghttp2 has paused; there may be more without further input */

    /* Bytes that may not be read in this iteration: held[0..n_held), in a pool block. */
    char *held;
    size_t n_held;

    /* Windows. */
    size_t stream_window_bytes, window_bytes;
    uint64_t expected_bytes, untaken_bytes; /* sums over the streams */
    int64_t credit_bytes;                   /* the client may send at least so many more */

    /* Sending. */
    size_t waiting_bytes; /* of the streams' pieces, not made into frames yet */
    struct frame *open;   /* the frame whose text is being put together */
    bool broke_off;       /* for want of memory, perhaps in the middle of a frame */

    size_t weight_bytes; /* of the streams */

    /* Streams that wait for the client, as the last check found them. */
    uint64_t checked_ns, burden;
    bool has_stalled;

    /* Time. */
    struct http2_meter meter;
    uint64_t began_ns, max_age_ns;
    uint64_t read_ns;   /* the last bytes from the client */
    uint64_t ping_ns;   /* when our unanswered PING was sent; 0: there is none */
    uint64_t n_pings;   /* PINGs of ours since we last sent data or headers */
    uint64_t pinged_ns; /* the client's last PING; 0: none since we last sent data or headers */
    unsigned int n_strikes;
    enum drain_stage drain;
    uint64_t drain_ns;      /* when this stage began */
    const char *drain_text; /* the text of the second GOAWAY */
    bool aged;              /* the connection drains for its age */

    struct out_piece goaway_piece;
    char goaway[17 + GOAWAY_TEXT];
};

static inline uint64_t http2_now_ns(const struct http2 *h)
{
    return *h->env->now_ns;
}

/* http2_requests_left - the number of requests that may begin in this iteration of the loop. */
static inline unsigned int http2_requests_left(const struct http2 *h)
{
    const struct net_env *net = &h->env->net;
    return net->requests_left ? *net->requests_left : UINT32_MAX;
}

/* http2_fail - ends the session by GOAWAY with that code; not from inside nghttp2. */
void http2_fail(struct http2 *h, enum http2_error code, const char *text);
/* http2_fail_by - the same for an error that nghttp2 has returned. */
void http2_fail_by(struct http2 *h, int error);
/*
 * http2_note_fault - fails the session when nghttp2 or the handler has returned; for calls from
 * inside them.
 */
void http2_note_fault(struct http2 *h, enum http2_error code, const char *text);

/* http2_note - notes an event of the stream for http2_deliver(). */
void http2_note(struct http2_stream *s, uint8_t note);

/* ---- Receiving: http2_receive.c ---- */

void http2_set_receive_callbacks(nghttp2_session_callbacks *callbacks);
/* http2_forget_heads - releases what nghttp2 has memory for, before its session ends. */
void http2_forget_heads(struct http2 *h);
/* http2_deliver - calls the handler for what was noted. */
void http2_deliver(struct http2 *h);
/* http2_cancel_all - ends all streams: the connection is gone, or is to be closed. */
void http2_cancel_all(struct http2 *h, enum http2_error why);

/* ---- Sending: http2_send.c ---- */

void http2_set_send_callbacks(nghttp2_session_callbacks *callbacks);
/* http2_commit - makes frames of the output that may leave. */
void http2_commit(struct http2 *h);
/* http2_add_raw - adds the piece behind all that is committed. */
void http2_add_raw(struct http2 *h, struct out_piece *piece);
/* http2_drop_output - drops the stream's pieces that are not in frames yet. */
void http2_drop_output(struct http2_stream *s);
/*
 * http2_check_submit - notes a failure of one of nghttp2's submit functions, and calls on_output().
 */
void http2_check_submit(struct http2 *h, int error);
static inline size_t http2_unsent(const struct http2 *h)
{
    return h->waiting_bytes + h->session.out.n_bytes;
}

/* ---- Windows: http2_window.c ---- */

/* http2_begin_windows - false without memory. */
NODISCARD bool http2_begin_windows(struct http2 *h);
void http2_begin_stream_window(struct http2_stream *s);
/* http2_data_came - counts n_bytes of the stream's body, which are about to be delivered. */
void http2_data_came(struct http2_stream *s, size_t n_bytes);
/* http2_refill - enlarges the client's window if it has become small. */
void http2_refill(struct http2 *h);
void http2_refill_stream(struct http2_stream *s);
/* http2_forget_window - ends the accounts of a stream that is closed or reset. */
void http2_forget_window(struct http2_stream *s);

/* ---- Waste: http2_waste.c ---- */

void http2_begin_walk(struct http2 *h);
/*
 * http2_walk_frames - counts the frames in the bytes, before nghttp2 reads them. False: a fault is
 * noted.
 */
NODISCARD bool http2_walk_frames(struct http2 *h, const char *bytes, size_t n_bytes);
/* http2_count_waste - counts one event. False: there were too many, and a fault is noted. */
bool http2_count_waste(struct http2 *h, enum http2_waste waste);
/*
 * http2_pay_for_waste - allows more PINGs and WINDOW_UPDATEs, for a frame with data or headers that
 * was sent.
 */
void http2_pay_for_waste(struct http2 *h);

/* ---- Streams that wait for the client: http2_pace.c ---- */

/* http2_check_streams - resets streams on which the client does not go on, and weighs all others.
 */
void http2_check_streams(struct http2 *h, uint64_t now_ns);
/* http2_relieve - resets the streams that have stalled; without one, the heaviest that waits. */
void http2_relieve(struct http2 *h);
uint64_t http2_get_burden(const struct session *session, bool *ret_stalled);

/* ---- Time: http2_time.c ---- */

/* http2_is_over - whether the limit is over; never when it is 0. */
static inline bool http2_is_over(uint64_t since_ns, uint64_t limit_ns, uint64_t now_ns)
{
    return limit_ns > 0 && now_ns >= since_ns && now_ns - since_ns >= limit_ns;
}

void http2_begin_times(struct http2 *h);
void http2_check_time(struct http2 *h, uint64_t now_ns);
/*
 * http2_ping_came - counts a PING of the client. False: it was one too many, and a fault is noted.
 */
NODISCARD bool http2_ping_came(struct http2 *h);
void http2_ping_acked(struct http2 *h, const uint8_t opaque[8]);
/* http2_begin_drain - sends the first GOAWAY of an orderly end; the text is constant. */
void http2_begin_drain(struct http2 *h, const char *text);

#endif
