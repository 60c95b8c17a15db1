/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of the HTTP frontend in each exchange and in each loop.
 */
#ifndef CONCH_FRONTENDS_HTTP_CALL_H
#define CONCH_FRONTENDS_HTTP_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/loop.h"
#include "base/mailbox.h"
#include "base/timer.h"
#include "core/request/request.h"
#include "frontends/http/coding.h"
#include "frontends/http/header_length.h"
#include "frontends/http/memo.h"
#include "frontends/net/exchange.h"
#include "frontends/ops/access.h"
#include "frontends/ops/answer.h"
#include "frontends/ops/classification.h"
#include "frontends/ops/forwarding.h"
#include "frontends/ops/ops.h"
#include "frontends/ops/restrictions.h"
#include "frontends/ops/tensor_blocks.h"
#include "frontends/ops/tensor_regions.h"
#include "frontends/tracing/tracer.h"

struct cors;
struct event_stream;
struct http_dialect;
struct infer_kind;
struct loop_share;
struct regex;
struct route;

/* Constant after the start. */
struct http_settings {
    struct server *server;
    size_t max_input_bytes; /* --http-max-input-size */
    struct restrictions restrictions;
    struct regions *regions;             /* of clients; borrowed; NULL: there are none */
    struct access *access;               /* --access-rules; NULL: none */
    const struct regex *forward_pattern; /* of headers that become parameters; NULL: none do */
    struct tracer *tracer;
    bool reads_more;   /* there is a forward_pattern, or traceparent counts */
    struct cors *cors; /* of pages of other origins; NULL: their replies get no headers */
    const struct http_dialect *dialect;
    void *dialect_data; /* the dialect's */
};

/* Per loop; the loop's thread only. */
struct http_ctx {
    const struct http_settings *settings;
    struct loop_share *share; /* with all that the loop serves; NULL: nothing is inline */
    struct access_view access;
    struct buf json; /* replies are printed into it; it keeps its memory */
    struct memo memo;
    struct trace_sampler sampler;
};

/* In which form a client wants the load of the model, in a header of the reply (load_metrics.h). */
enum load_metrics_form { LOAD_METRICS_NONE, LOAD_METRICS_JSON, LOAD_METRICS_TEXT };

/* An output that the request names. */
struct requested_output {
    const char *name;
    struct output_form form;
};

/* What the head says. A copy of it is one of few instructions. */
struct head_facts {
    const struct route *route; /* NULL: no such path */
    int64_t header_length;     /* of the JSON; 0 unless it is HEADER_LENGTH_FINE */
    bool is_restricted;        /* the client lacks the header that it needs for this route */
    bool wrong_method;
    bool names_repository;
    bool wants_json;                   /* Accept names application/json */
    bool wants_html;                   /* … text/html: it is a browser */
    bool shortest_floats;              /* … with floats=shortest: the format of FP32 */
    bool has_timeout;                  /* the header Conch-Timeout-Ms; see deadline.h */
    bool has_trace;                    /* the header traceparent; only with reads_more */
    uint8_t body_coding, reply_coding; /* enum http_coding */
    uint8_t header_length_kind;        /* enum header_length */
    uint8_t load_metrics;              /* enum load_metrics_form */
    uint8_t origin;                    /* with http_settings.cors: cors_find_origin() */
    bool is_preflight;                 /* … cors_is_preflight(); there is no route then */
};

enum { HTTP_REQUEST_MEMORY = 1536 }; /* names and shapes of the usual request */

/* The part of an exchange that belongs to this frontend. */
struct http_call {
    /* Set when the head is complete. First what most requests leave empty, side by side, since the
     * compiler then clears it by few instructions. */
    char *text_taken;            /* the text of a long document; ended by pool_release() */
    char *json_taken;            /* the text of a large reply; ended by pool_release() */
    char *packed_reply;          /* likewise */
    const char *region;          /* that the path names; NULL: none */
    struct forwarded *forwarded; /* headers that become parameters, in the exchange's arena */
    struct ops_model_ref target; /* a model that a header names instead of the path */
    struct ops_model_ref model;
    bool begun;      /* an inference: `request` is initialised */
    bool with_core;  /* … and server_infer() took it */
    bool no_memory;  /* for data from the head: the request is refused */
    bool is_gone;    /* the client, or its connection */
    bool is_refused; /* no access rule allows the request */
    struct head_facts facts;
    const char *header_length_text; /* set when the header is malformed */
    const char *asked_headers;      /* with facts.is_preflight: cors_keep_asked() */
    const char *timeout_text;       /* with facts.has_timeout: NULL, or the malformed header */
    uint64_t deadline_ns;           /* … of the loop's clock; set when it is not */
    uint64_t head_ns;               /* when it came: the start of the loop's iteration */

    /* An inference; see infer.c. */
    const struct infer_kind *kind; /* NULL: …/infer */
    bool is_copying;               /* a helper copies its tensors, before that */
    bool is_answered;              /* … and its final response has come to the loop */
    bool is_closed;                /* on_end was called before that */
    bool binary_default;
    struct traced *traced;             /* NULL: the request is not traced */
    struct trace_parent *trace_parent; /* with reads_more: in the exchange's arena, or NULL */
    uint32_t n_requested_outputs, requested_capacity;
    struct requested_output *requested_outputs; /* in the request's arena */
    struct classification classes;
    struct tensor_blocks blocks;   /* of JSON tensors */
    struct tensor_regions regions; /* of tensors in shared memory */
    struct answer answer;
    struct event_stream *events; /* …/generate_stream: in the exchange's arena; or NULL */
    struct timer deadline;       /* initialised while has_timeout */
    void (*on_deadline)(struct exchange *x);
    struct request request;
    _Alignas(16) char request_memory[HTTP_REQUEST_MEMORY];
};

static inline struct http_ctx *call_ctx(struct exchange *x)
{
    return x->env->net.handler_ctx;
}

#endif
