/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace reports what happens to one request, and when. Its maker sets a level, and gets each
 * activity as it happens. A request without a trace costs one branch at each such point. This is
 * TRITONSERVER_InferenceTrace.
 *
 *     maker: trace_init() ─► maker.trace ─► server_infer() ─► activities … ─► ops->release()
 *
 * One thread at a time has the request, and with it its trace. A request that an ensemble makes for
 * one of its steps has a trace of its own, a child of the ensemble's: the two may report at the
 * same time, from different threads.
 *
 * Source: reference/behaviours §22; reference/features §7.1
 */
#ifndef CONCH_CORE_TRACE_TRACE_H
#define CONCH_CORE_TRACE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct trace;

/* The values are those of TRITONSERVER_InferenceTraceLevel (bits) … */
enum trace_level {
    TRACE_DISABLED = 0,
    TRACE_MIN = 1,
    TRACE_MAX = 2,
    TRACE_TIMESTAMPS = 4,
    TRACE_TENSORS = 8,
};

/* … and of TRITONSERVER_InferenceTraceActivity. */
enum trace_activity {
    TRACE_REQUEST_START,
    TRACE_QUEUE_START,
    TRACE_COMPUTE_START,
    TRACE_COMPUTE_INPUT_END,
    TRACE_COMPUTE_OUTPUT_START,
    TRACE_COMPUTE_END,
    TRACE_REQUEST_END,
    TRACE_TENSOR_QUEUE_INPUT,
    TRACE_TENSOR_BACKEND_INPUT,
    TRACE_TENSOR_BACKEND_OUTPUT,
    TRACE_CUSTOM_ACTIVITY,
};

/* trace_level_name, trace_activity_name - "TIMESTAMPS", "REQUEST_START"; "<unknown>". */
const char *trace_level_name(unsigned int level);
const char *trace_activity_name(unsigned int activity);

/* One contiguous piece of a tensor; borrowed for the call of trace_ops.tensor. */
struct trace_tensor {
    const char *name;
    int dtype; /* enum dtype */
    const void *base;
    size_t size_bytes;
    const int64_t *shape;
    uint32_t n_dims;
    int memory_type; /* enum memory_type */
    int64_t memory_type_id;
};

/* What the maker of a trace implements. Thread: any; none of our locks is held. */
struct trace_ops {
    void (*activity)(struct trace *t, enum trace_activity activity, uint64_t ns);
    /* NULL: tensors are not wanted, whatever the level. */
    void (*tensor)(struct trace *t, enum trace_activity activity, const struct trace_tensor *what);
    /*
     * May be NULL. The request of t is about to be executed with others, all of which have ended
     * their wait. `first` is the first of them with a trace of this maker; it is told first, of
     * itself. While the calls for one batch last, no other thread reports to any of its traces.
     */
    void (*batch)(struct trace *t, struct trace *first, uint32_t n_requests);
    /* No call follows; the maker ends the trace with trace_done(). */
    void (*release)(struct trace *t);
    /* Makes a trace of the same maker and level, whose parent is t (trace_init()). */
    struct trace *(*spawn)(struct trace *t);
    /* Frees a trace that no request has, or one in `release`: calls trace_done(). */
    void (*free)(struct trace *t);
    /* May be NULL. Sets the context, by trace_set_context(), when it is first asked for. */
    void (*make_context)(struct trace *t);
};

enum { TRACE_TEXT_BYTES = 64 };

struct trace {
    /* Constant. */
    const struct trace_ops *ops;
    unsigned int level;
    uint64_t id, parent_id; /* unique in the process, from 1; 0 = no parent */

    /* Model and id of the request; "" and -1 before they are known. */
    const char *model_name;
    int64_t model_version;
    const char *request_id;
    char *context; /* NULL: none yet; trace_context() */

    /* Where the two texts lie: usually in the trace itself, so that no memory is asked for. */
    char *long_texts; /* NULL: they are in `texts` */
    char texts[TRACE_TEXT_BYTES];
};

void trace_init(struct trace *t, const struct trace_ops *ops, unsigned int level,
                uint64_t parent_id);
void trace_done(struct trace *t);

/*
 * trace_spawn - makes a child of the trace: with its maker and level, an id of its own, and without
 * model, request or context. The caller ends it with trace_free(), or a request takes it.
 *
 * Thread: any, while the parent is not released.
 */
struct trace *trace_spawn(struct trace *t);

/* trace_free - frees a trace that no request has. Its maker is not told. NULL is fine. */
void trace_free(struct trace *t);

/*
 * trace_context - what a tracing system wants to be passed on, usually a JSON object; "" for none.
 * Borrowed, until the context is set or the trace is done. Thread: the one that has the request.
 */
const char *trace_context(struct trace *t);
/* trace_set_context - the text is copied. */
void trace_set_context(struct trace *t, const char *context);

/*
 * trace_custom - reports TRACE_CUSTOM_ACTIVITY, if the level has TRACE_TIMESTAMPS. During that call
 * the context has one more member, "<ns>":"<name>": so the reference reports the name.
 */
void trace_custom(struct trace *t, const char *name, uint64_t ns);

/* trace_set_request - model and id of the request; copied. */
void trace_set_request(struct trace *t, const char *model_name, int64_t model_version,
                       const char *request_id);

/* trace_report - reports the activity, if the level has TRACE_TIMESTAMPS. */
void trace_report(struct trace *t, enum trace_activity activity, uint64_t ns);

#endif
