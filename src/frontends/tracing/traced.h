/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request that is traced, with those that ensembles make for it. The core reports to it by the
 * functions of struct trace_ops; the frontend adds its stamps. When all have ended it goes to the
 * writer, which writes it to a file and frees it, or to the exporter, which sends it to a
 * collector.
 *
 *     trace_sample() ─► request.maker.trace = traced_trace() ─► server_infer() ─► …
 *                  └──► traced_stamp() … ─► traced_end()
 *
 * Threads: stamps and the end are the loop's. The core reports on any thread; the requests of one
 * trace on several at the same time. Each thread writes to the part of its request alone.
 */
#ifndef CONCH_FRONTENDS_TRACING_TRACED_H
#define CONCH_FRONTENDS_TRACING_TRACED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"
#include "core/trace/trace.h"
#include "frontends/tracing/trace_context.h"

struct pool;
struct traced;
struct trace_setting;

#define TRACE_MAX_BYTES ((size_t)64 << 20) /* of the records of all traces of a home */

/* Where traces go, and what they share: a part of the writer or of the exporter. */
struct trace_home {
    /* Takes a trace that has ended. */
    void (*put)(struct trace_home *home, struct traced *t);
    /* Takes 1 off a setting's n_open: a trace of it has ended, or it was replaced. */
    void (*end)(struct trace_home *home, struct trace_setting *s);
    /* Writes or sends what there is; later traces are dropped. The caller then ends its reference.
     */
    void (*stop)(struct trace_home *home);
    /* Counts a trace for which there was no memory. */
    void (*lose)(struct trace_home *home);
    void (*free)(struct trace_home *home); /* the last reference is gone */
    bool has_spans;                        /* traces become spans: mode opentelemetry */
    atomic_uint refs;                      /* the starter's; one of each trace */
    atomic_size_t size_bytes;              /* of the records of all traces */
};

/* trace_home_unref - ends a reference. */
void trace_home_unref(struct trace_home *home);

/* What a frontend stamps, in the order in which a file has it. */
enum trace_stamp {
    STAMP_HTTP_RECV_START,
    STAMP_HTTP_RECV_END,
    STAMP_GRPC_WAITREAD_START,
    STAMP_GRPC_WAITREAD_END,
    N_STAMPS_BEFORE, /* those behind follow the core's records */
    STAMP_RESPONSE_COMPLETE = N_STAMPS_BEFORE,
    STAMP_HTTP_SEND_START,
    STAMP_HTTP_SEND_END,
    STAMP_GRPC_SEND_START,
    STAMP_GRPC_SEND_END,
    N_STAMPS,
};

/* Their names in a trace. */
extern const char *const stamp_names[N_STAMPS];

/* What the core has reported: a time, or a tensor. */
struct trace_record {
    struct trace_record *next;
    enum trace_activity activity;
    uint64_t ns;
    bool is_tensor;
    int dtype;
    uint32_t n_dims;
    size_t size_bytes; /* of the tensor */
    const char *name;  /* of the tensor; of a custom activity, as JSON */
    const int64_t *shape;
    const void *data;
};

/* A request that was executed in the batch of another one. */
struct traced_link {
    struct traced_link *next;
    struct span_name to;
};

/* When the activities of a request were reported first; 0: never. */
struct part_times {
    uint64_t of[TRACE_REQUEST_END + 1];
    uint64_t last_ns;  /* of all reports */
    uint32_t n_custom; /* reports of backends */
};

/* The part of one request. */
struct trace_part {
    struct trace trace;
    struct traced *whole;
    struct trace_part *next;             /* in traced.parts */
    struct trace_record *records, **end; /* in mode opentelemetry only of custom activities */

    /* In mode opentelemetry. */
    struct part_times times;
    uint8_t span_id[SPAN_ID_BYTES];
    uint32_t n_batch;          /* requests of its batch; 0: it was executed alone */
    bool leads_batch;          /* the span of the batch belongs to this part */
    struct span_name batch;    /* that span */
    struct traced_link *links; /* with leads_batch: to the other requests that are traced */
};

enum { TRACED_NO_STATUS = -1 };

/* What a trace is in mode opentelemetry. */
struct traced_span {
    uint8_t trace_id[TRACE_ID_BYTES];
    uint8_t root_id[SPAN_ID_BYTES];   /* the span of the frontend */
    uint8_t parent_id[SPAN_ID_BYTES]; /* the client's span, with has_parent */
    bool has_parent;
    char *state;      /* the client's tracestate; NULL: none */
    const char *name; /* of the operation: an HTTP route, a method of gRPC; static */
    uint64_t ended_ns;
    int reply_status; /* of HTTP, or of gRPC; TRACED_NO_STATUS: there was none */
    char *error_text; /* NULL: no failure */
    enum status_code error;
};

/* A trace and its first part are one block of a pool: a usual request asks for no other memory. */
struct traced {
    struct list link;              /* in the writer's ring */
    struct trace_home *home;       /* a reference */
    struct trace_setting *setting; /* a reference; counts in its n_open */
    atomic_uint refs;              /* the frontend's; one of each part that has not ended */
    atomic_size_t size_bytes;      /* charged to the writer */
    atomic_bool is_cut;            /* there was no memory for a record */
    bool is_refused;
    struct trace_part *_Atomic parts; /* all, the last made first */
    struct trace_part root;
    uint64_t stamps[N_STAMPS]; /* 0: there is none */
    struct traced_span span;
};

/*
 * traced_new - makes a trace whose frontend and root have not ended.
 *
 * @pool    of its memory, which any thread may release
 * @parent  what the client says; NULL: nothing
 * Returns  NULL when the pool has no memory
 */
struct traced *traced_new(struct trace_home *home, struct trace_setting *setting, struct pool *pool,
                          const struct trace_parent *parent);

/* traced_trace - what the request of the core gets. */
static inline struct trace *traced_trace(struct traced *t)
{
    return &t->root.trace;
}

/*
 * traced_refused - ends the root of a trace whose request the core has not taken: nothing of it is
 * written, as in the reference. NULL is fine.
 */
void traced_refused(struct traced *t);

/* traced_stamp - Thread: the frontend's. t may be NULL. */
static inline void traced_stamp(struct traced *t, enum trace_stamp stamp, uint64_t ns)
{
    if (t && t->stamps[stamp] == 0)
        t->stamps[stamp] = ns;
}

/* traced_failed - the request gets this status, which is borrowed. t may be NULL. */
void traced_failed(struct traced *t, const struct status *st);

/* traced_end - the frontend has no more stamps. */
void traced_end(struct traced *t);

/* traced_free - frees all memory; the setting is not told. Thread: the last user's. */
void traced_free(struct traced *t);

#endif
