/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session of one HTTP/2 connection (session.h): bytes in, events of streams out, bytes out. It
 * knows frames, header compression, windows and limits. It knows no calls and no messages:
 * frontends give the bytes of a stream a meaning.
 *
 *                                          on_cancel: the client, or the connection, is gone
 *                                        ┌──►───────────────────┐
 *      on_begin ──► on_data… ──► on_half_close                  ├──► on_end
 *                  http2_stream_respond(), _send()…, _end() ──► sent
 *                  http2_stream_reset() ────────────────────────┘
 *
 * Events are delivered when nghttp2 has parsed a portion of the received bytes, never from inside
 * nghttp2. So a handler may answer, reset and end any stream from any event but the release of a
 * piece.
 *
 * A handler that begins a request takes one from net_env.requests_left. When none is left, the rest
 * of the received bytes waits for the next iteration of the loop.
 *
 * Receiving copies nothing: on_data() gets the bytes where the socket's read left them, and copies
 * those that it needs.
 *
 * A window is a promise of memory. A client may send `stream_window_bytes` unasked on a stream, and
 * `connection_window_bytes` on a connection. A handler that knows the length of a message and has
 * memory for it calls http2_stream_expect(). Then the whole message may come, whatever other
 * streams do. Bytes that were not expected make the window smaller until http2_stream_take(). So a
 * client sends no more when the handler takes nothing. Large messages get their memory one after
 * the other (http2_stream_await_turn()). So two messages never wait for each other while each holds
 * half of the memory.
 *
 * A client that wastes our work loses its connection by GOAWAY with ENHANCE_YOUR_CALM. Waste is a
 * flood of frames that carry nothing, streams that are reset as soon as they begin, large header
 * blocks, and PINGs without need.
 *
 * Thread: the loop's, for everything here.
 */
#ifndef CONCH_FRONTENDS_NET_HTTP2_H
#define CONCH_FRONTENDS_NET_HTTP2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "frontends/net/out_queue.h"
#include "frontends/net/session.h"
#include "frontends/net/span.h"

struct tls;
struct http2;
struct http2_shared;
struct http2_stream;

/* Error codes of RFC 9113, 7. */
enum http2_error {
    HTTP2_NO_ERROR,
    HTTP2_PROTOCOL_ERROR,
    HTTP2_INTERNAL_ERROR,
    HTTP2_FLOW_CONTROL_ERROR,
    HTTP2_SETTINGS_TIMEOUT,
    HTTP2_STREAM_CLOSED,
    HTTP2_FRAME_SIZE_ERROR,
    HTTP2_REFUSED_STREAM,
    HTTP2_CANCEL,
    HTTP2_COMPRESSION_ERROR,
    HTTP2_CONNECT_ERROR,
    HTTP2_ENHANCE_YOUR_CALM,
};

/* ---- Limits ------------------------------------------------------------------------------- */

/* The kinds of waste: events that a client may cause only so often. */
enum http2_waste {
    HTTP2_WASTE_RESET,  /* RST_STREAM ends a stream; sent by the client, or by us for its fault */
    HTTP2_WASTE_PING,   /* each frame with data or headers that we send pays for 2 */
    HTTP2_WASTE_WINDOW, /* WINDOW_UPDATE; likewise */
    HTTP2_WASTE_SETTINGS,
    HTTP2_WASTE_EMPTY, /* DATA without a byte that does not end its stream either */
    HTTP2_WASTE_OTHER, /* PRIORITY, GOAWAY, frames of unknown types, frames of closed streams */
    HTTP2_N_WASTES,
};

struct http2_rate {
    unsigned int per_s; /* 0: no limit */
    unsigned int burst; /* events that may come at once after a pause */
};

struct http2_limits {
    unsigned int max_streams; /* of a connection */
    size_t max_header_bytes;  /* of one head, as RFC 9113, 6.5.2 counts: 32 more for each field */
    unsigned int max_continuations; /* frames of one head, besides the first */
    size_t header_table_bytes;      /* of the decompression of heads, and of the compression */
    size_t max_state_bytes;         /* memory for frames, streams and tables of a connection */
    size_t stream_window_bytes;     /* see above … */
    size_t connection_window_bytes;
    size_t short_window_bytes; /* … both, for connections that begin while the budget is short */
    size_t commit_bytes;       /* the most bytes of answers that are made into frames ahead */
    size_t room_bytes;         /* see http2_stream_await_room() */
    struct http2_rate wastes[HTTP2_N_WASTES];
};

/* Times in nanoseconds; 0: no limit, or never. */
struct http2_times {
    uint64_t settings_ns; /* from our SETTINGS to the client's acknowledgement */
    uint64_t stall_ns;    /* without a byte of a message in progress, or of an answer for want of a
                             window */
    uint64_t min_rate;    /* bytes per second of such a message or answer … */
    uint64_t rate_ns;     /* … as an average over this time */
    uint64_t turn_ns;     /* see http2_stream_await_turn() */

    /*
     * PINGs of ours: one follows keepalive_ns without a byte from the client, while there is a
     * stream. When no byte comes within keepalive_timeout_ns the connection is closed.
     */
    uint64_t keepalive_ns, keepalive_timeout_ns;
    bool keepalive_without_streams;
    unsigned int max_pings_without_data; /* 0: no limit */

    /*
     * PINGs of the client: one that follows the last sooner than this is a strike, unless we have
     * sent data or headers in between.
     */
    uint64_t min_ping_interval_ns;
    uint64_t min_idle_ping_interval_ns; /* the same for a connection without a stream, unless
                                           keepalive_without_streams */
    unsigned int max_ping_strikes;      /* a further strike ends in GOAWAY; 0: no limit */

    uint64_t max_age_ns;   /* ± 10 %; from this age on no stream begins, … */
    uint64_t age_grace_ns; /* … and this much later the connection is closed */
    uint64_t notice_ns; /* the longest time from the first GOAWAY of an orderly end to the second */
};

/* http2_limits_init, http2_times_init - set the defaults, which are those of the options. */
void http2_limits_init(struct http2_limits *limits);
void http2_times_init(struct http2_times *times);

/* ---- Heads -------------------------------------------------------------------------------- */

/* A field of a head that was received; its name is in lower case. */
struct http2_header {
    struct span name, value;
};

/* A head that was received; valid during on_begin() only. */
struct http2_head {
    struct span method, scheme, authority, path; /* of length 0 when the head lacks them */
    const struct http2_header *headers;          /* the others, in the order of their arrival */
    size_t n_headers;
    bool is_too_large; /* the fields beyond max_header_bytes are missing */
    bool ends;         /* the client sends no body: on_half_close() follows */
    /*
     * HTTP2_NOTE_BYTES that stay with a head which the client repeats, and are zeros at first: the
     * handler keeps there what it has read in the head. NULL: the head is not remembered.
     */
    void *note;
};

enum { HTTP2_NOTE_BYTES = 64 };

/* http2_head_find - the value of the first header of that name; its `at` is NULL without one. */
struct span http2_head_find(const struct http2_head *head, const char *name, size_t name_length);

/* http2_head_find_only - the same, but `at` is also NULL when several headers have the name. */
struct span http2_head_find_only(const struct http2_head *head, const char *name,
                                 size_t name_length);

/* A field of a head or of trailers to be sent. */
struct http2_field {
    const char *name, *value; /* the name in lower case */
    size_t name_length, value_length;
    bool is_single; /* the value does not recur, so compression need not remember it */
};

#define HTTP2_FIELD(name, value)                                                                   \
    {                                                                                              \
        name, value, sizeof(name) - 1, sizeof(value) - 1, false                                    \
    }

/* ---- Handlers ----------------------------------------------------------------------------- */

/* The callbacks of a frontend. */
struct http2_handler {
    size_t part_bytes; /* of http2_stream_part(): the handler's own memory in each stream */

    /* A stream begins; its part is not cleared. */
    void (*on_begin)(struct http2_stream *s, const struct http2_head *head);
    /* Bytes of the body came; they are valid during this call only. */
    void (*on_data)(struct http2_stream *s, const char *bytes, size_t n_bytes);
    /* The client sends no more on this stream. */
    void (*on_half_close)(struct http2_stream *s);
    /*
     * The stream ended before its answer: the client reset it, is gone, or was too slow. Pieces
     * that are sent on the stream from now on are dropped. Not called after http2_stream_reset().
     */
    void (*on_cancel)(struct http2_stream *s, enum http2_error why);
    /*
     * The stream's turn to take memory has come (http2_stream_await_turn()). The handler takes
     * memory, calls http2_stream_expect() and returns true; or it returns false, and the stream
     * stays the first in the line. is_last: turn_ns is over, so the stream leaves the line in any
     * case. Optional.
     */
    bool (*on_turn)(struct http2_stream *s, bool is_last);
    /*
     * The connection has room for answers again (http2_stream_await_room()), or the loop may begin
     * requests again (http2_stream_await_iteration()). Optional.
     */
    void (*on_room)(struct http2_stream *s);
    /*
     * The service begins to stop, or its stop is told again: the handler ends a stream that would
     * go on for as long as its client likes. Optional.
     */
    void (*on_stop)(struct http2_stream *s);
    /*
     * All pieces are sent or dropped, and released: the connection no longer uses the stream.
     * Called once for each on_begin().
     */
    void (*on_end)(struct http2_stream *s);
};

/*
 * The settings of a service (protocol.env_new). They must outlive the environments that are made
 * with them.
 */
struct http2_settings {
    const struct http2_handler *handler;
    struct http2_limits limits;
    struct http2_times times;
    const uint64_t *now_ns; /* the time; NULL: the loop's */
};

/* The data that the HTTP/2 connections of one service on one loop share. */
struct http2_env {
    struct net_env net; /* first */

    /* Constant once there are connections. */
    const struct http2_handler *handler;
    const struct http2_limits *limits;
    const struct http2_times *times;
    const uint64_t *now_ns;

    struct http2_shared *shared;
};

/*
 * http2_env_give_turns - gives turns to the streams that wait for one, as long as they get memory.
 * Call it when memory was freed, but not from inside a handler. check_time() also gives turns.
 */
void http2_env_give_turns(struct http2_env *env);

/* The table by which a connection drives its session; its settings are struct http2_settings. */
extern const struct protocol http2_protocol;

/*
 * http2_get_next_ns - the latest time to call check_time() for times that are kept to the
 * millisecond; UINT64_MAX when once a second suffices.
 */
uint64_t http2_get_next_ns(const struct session *session);

/* ---- Streams ------------------------------------------------------------------------------ */

/* http2_stream_part - the handler's part: part_bytes large, aligned to 64 bytes. */
void *http2_stream_part(struct http2_stream *s);
struct http2_stream *http2_stream_of_part(void *part);

struct http2_env *http2_stream_env(const struct http2_stream *s);

/* http2_stream_peer - TLS of the connection, which is there: not after on_end(). NULL: none. */
struct tls *http2_stream_peer(const struct http2_stream *s);
int32_t http2_stream_id(const struct http2_stream *s);

/*
 * http2_stream_ref, http2_stream_unref - references that keep the stream's memory, with the part,
 * beyond on_end(). A connection with 2 * max_streams streams in memory refuses further ones.
 */
void http2_stream_ref(struct http2_stream *s);
void http2_stream_unref(struct http2_stream *s);

/* http2_stream_window - how many bytes the client may send on the stream before any is taken. */
size_t http2_stream_window(const struct http2_stream *s);

/* http2_stream_is_open - whether something can still be sent on the stream. */
bool http2_stream_is_open(const struct http2_stream *s);

/* ---- Receiving ---- */

/*
 * http2_stream_sends_one - declares that the client sends exactly one message. The window is not
 * refilled for a second one, and a stream on which nothing comes is reset after stall_ns.
 */
void http2_stream_sends_one(struct http2_stream *s);

/*
 * http2_stream_set_incomplete - declares that a message has begun whose rest the client is to send,
 * or that it is complete. A client that does not go on with it for stall_ns has its stream reset.
 */
void http2_stream_set_incomplete(struct http2_stream *s, bool is_incomplete);

/*
 * http2_stream_at_hand - the bytes of the stream that have come and are delivered next, behind
 * those of the present on_data(). Some more may have come that are not known yet.
 */
size_t http2_stream_at_hand(const struct http2_stream *s);

/*
 * http2_stream_expect - allows n_bytes more to come, which the client has announced and for which
 * the handler has memory. They count as taken when they come.
 */
void http2_stream_expect(struct http2_stream *s, uint64_t n_bytes);

/* http2_stream_expected - the expected bytes that have not come yet. */
uint64_t http2_stream_expected(const struct http2_stream *s);

/*
 * http2_stream_take - declares that n_bytes of those that came unexpected are used, or kept in
 * memory that is accounted for. As many others may then come. There must be so many: expected bytes
 * do not count.
 */
void http2_stream_take(struct http2_stream *s, size_t n_bytes);

/*
 * http2_stream_await_turn - puts the stream at the end of the loop's line for memory. on_turn() is
 * called when the stream is the first. A stream that ends leaves the line.
 */
void http2_stream_await_turn(struct http2_stream *s);

/* ---- Sending ---- */

/*
 * http2_stream_respond - sends the head of the answer, once.
 *
 * @status  a constant of three digits, such as "200"
 * @fields  are copied; their names and values must stay until on_end()
 * @ends    nothing follows the head
 */
void http2_stream_respond(struct http2_stream *s, const char *status,
                          const struct http2_field *fields, size_t n_fields, bool ends);

/*
 * http2_stream_send - sends the piece after the stream's earlier ones. The piece is the stream's
 * until its release. The pieces of a stream are released in their order, and at once when the
 * stream is not open. The release must not call any function of this header but
 * http2_stream_unref().
 */
void http2_stream_send(struct http2_stream *s, struct out_piece *piece);

/*
 * http2_stream_end - ends the answer with trailers, or without when n_fields is 0.
 *
 * @fields  must stay until on_end(); their array, too
 */
void http2_stream_end(struct http2_stream *s, const struct http2_field *fields, size_t n_fields);

/*
 * http2_stream_reset - resets the stream and drops the pieces that are not sent yet. on_end()
 * follows.
 */
void http2_stream_reset(struct http2_stream *s, enum http2_error why);

/* http2_stream_unsent - bytes of the stream's pieces that have not left. */
size_t http2_stream_unsent(const struct http2_stream *s);

/*
 * http2_connection_unsent - the bytes of all answers of the stream's connection that have not left;
 * 0 when it is gone.
 */
size_t http2_connection_unsent(const struct http2_stream *s);

/*
 * http2_stream_await_room - has on_room() called when http2_connection_unsent() is at most
 * limits.room_bytes.
 */
void http2_stream_await_room(struct http2_stream *s);

/*
 * http2_stream_await_iteration - has on_room() called in an iteration of the loop that may begin
 * requests (net_env.requests_left). For handlers that find several requests in the bytes of one
 * on_data().
 */
void http2_stream_await_iteration(struct http2_stream *s);

/*
 * http2_stream_weigh - sets the bytes that the stream keeps of an incomplete message. The stream
 * may be reset for them when memory is short.
 */
void http2_stream_weigh(struct http2_stream *s, size_t n_bytes);

#endif
