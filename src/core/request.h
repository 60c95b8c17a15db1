/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An inference request: made by a frontend or by the C API, checked, queued, executed by a
 * backend, and answered exactly once. This is TRITONSERVER_InferenceRequest and
 * TRITONBACKEND_Request.
 *
 * Making one: request_init(), then the request_add_… and the fields marked "maker", then
 * server_infer(). All strings and arrays live in the request's arena, or outlive the request.
 *
 *     struct request r;                    embedded in the maker's own object
 *     request_init(&r, &my_ops, model, first, first_bytes, pool);
 *     request_add_input(&r, "INPUT0", 6, DTYPE_FP32, shape, 2, &in);
 *     request_add_data(&r, in, &buffer);
 *     st = server_infer(server, &r);       NULL: the ops below follow; error: it is yours as before
 *     …
 *     request_unref(&r);                   when you need it no longer; ops->destroy comes then,
 *                                          or when the last response and backend let go
 */
#ifndef CONCH_CORE_REQUEST_H
#define CONCH_CORE_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/heap.h"
#include "base/list.h"
#include "core/sched/watchdog.h"
#include "core/tensor.h"

struct instance;
struct model;
struct response_order;
struct output;
struct pool;
struct queue_level;
struct request;
struct response;
struct sequence;
struct states;
struct status;
struct tensor_spec;
struct trace;

/* The values are those of TRITONSERVER_ParameterType. */
enum parameter_type {
    PARAMETER_STRING,
    PARAMETER_INT,
    PARAMETER_BOOL,
    PARAMETER_DOUBLE,
    PARAMETER_BYTES,
};

struct parameter {
    const char *name;
    enum parameter_type type;
    union {
        const char *string;
        int64_t int64;
        bool boolean;
        double float64;
    };
};

struct input {
    const char *name;
    enum dtype dtype;
    struct request *request; /* whose it is */
    bool raw;                /* shape and type are to be deduced from the model's configuration */
    uint32_t n_dims;
    int64_t *shape; /* as the client gave it, batch dimension included */
    uint32_t n_buffers;
    uint32_t buffer_capacity;
    struct tensor_buffer *buffers; /* in the order of the bytes */
    struct tensor_buffer first;    /* where `buffers` points as long as one is enough */
    size_t size_bytes;             /* of all buffers without a host policy */
    uint32_t raw_length;           /* of a raw BYTES input: what stands in front of its bytes */

    /* Set by the check in server_infer(). */
    const struct tensor_spec *spec;
    uint32_t n_backend_dims;
    const int64_t *backend_shape; /* what the backend sees: reshaped, batch dimension included */
};

/* The values are those of TRITONSERVER_RequestFlag. */
enum { REQUEST_SEQUENCE_START = 1, REQUEST_SEQUENCE_END = 2 };

/* The values are those of TRITONSERVER_ResponseCompleteFlag and …RequestReleaseFlag. */
enum { RESPONSE_FINAL = 1 };
enum { RELEASE_ALL = 1, RELEASE_RESCHEDULE = 2 };

struct correlation_id {
    const char *string; /* NULL: the number counts */
    uint64_t number;    /* 0 = none */
};

/*
 * What the maker of a request does for it. Thread: any, also inside server_infer(). None of our
 * locks is held.
 */
struct request_ops {
    /*
     * Memory for an output: sets out->base (may be NULL for 0 bytes), out->memory_type and
     * out->memory_type_id (which come in as the backend prefers them), out->maker_data.
     * response_alloc_pooled() serves makers that ask for no memory of their own.
     */
    struct status *(*alloc_output)(struct request *r, struct output *out, size_t size_bytes);
    void (*free_output)(struct request *r, struct output *out);
    /*
     * A response, now the maker's (response_free()); NULL when only flags come. The call that
     * carries RESPONSE_FINAL is the last one, and comes exactly once.
     */
    void (*respond)(struct request *r, struct response *resp, uint32_t flags);
    /*
     * The request has ended: it has its final response, nobody reads its inputs, and it may be
     * changed and started again. Optional.
     */
    void (*release)(struct request *r, uint32_t flags);
    /* Nobody refers to the request any longer: its memory may be reused. */
    void (*destroy)(struct request *r);
};

/*
 * The inline budget of one iteration of a frontend's loop. A request without one is never executed
 * by the caller's thread.
 *
 * Models that make batches are not executed by the first request of an iteration, but when all
 * requests of the iteration are there: the loop is told by on_wait(), and calls
 * scheduler_run_deferred() (core/sched).
 */
struct inline_budget {
    uint64_t left_ns; /* how much longer the thread may spend executing models; set anew each
                         iteration */
    uint32_t n_waiting;
    struct model *waiting[8];  /* models that wait for scheduler_run_deferred(), each counted as if
                                  in flight */
    bool is_embedders;         /* no loop: a thread of the program that embeds the server */
    struct inline_watch watch; /* of what is executed inline; see inline_watch_open() */
    void (*on_wait)(struct inline_budget *budget); /* there is one now; NULL: nobody runs them */
};

/* Who holds a request; drawn in request.c. */
enum request_stage { REQUEST_IDLE, REQUEST_QUEUED, REQUEST_EXECUTING, REQUEST_RELEASED };

struct request {
    /* Set by request_init(), constant afterwards. */
    const struct request_ops *ops;
    struct model *model; /* a reference */
    struct pool *pool;   /* where responses and their outputs come from */
    struct arena arena;
    size_t compact_above_bytes; /* request_compact() */

    /* The maker's, until server_infer(). */
    void *maker_data;
    struct inline_budget *inline_budget; /* NULL: never inline */
    struct trace *trace; /* NULL: none; taken when the model accepts or refuses it */
    const char *id;      /* never NULL */
    uint32_t flags;      /* REQUEST_SEQUENCE_… */
    struct correlation_id correlation_id;
    uint64_t priority;
    uint64_t timeout_us;
    uint32_t n_inputs, input_capacity;
    struct input **inputs;
    uint32_t n_outputs, output_capacity;
    const char **outputs; /* requested; none = all */
    uint32_t n_parameters, parameter_capacity;
    struct parameter *parameters;

    /* Set by server_infer(). */
    struct response *spare; /* room in the arena for one response: response.c; or NULL */
    uint32_t batch_size;    /* 0 for a model without batching */
    uint64_t start_ns, queue_ns;

    /* The scheduler's, under its lock. */
    struct list link;
    struct queue_level *level; /* queue.h; and so are the next two */
    struct heap_node limit;
    uint64_t limit_ns;      /* when its time in the queue is over; UINT64_MAX: never */
    bool is_large;          /* too large to be executed inline; scheduler_waits_locked() */
    struct status *refusal; /* why it is answered without being executed */
    int refusal_reason;     /* enum failure_reason */
    struct response_order
        *order; /* where it has its position; NULL: its responses go when they come */

    /* Under response_order.mu (sched/response_order.h). */
    struct list order_link;
    struct list kept; /* responses that wait for those before them */
    bool complete;    /* the final one has come */

    struct sequence *waits_in; /* a sequence batcher's */

    /* A sequence batcher's, from the moment when the backend gets the request to its release. */
    struct sequence *sequence; /* whose request it is; NULL: of none */
    bool padding;              /* it stands for an empty slot: nobody's, not counted */
    uint32_t n_injected;       /* inputs that the backend has besides those of the maker */
    struct input *const *injected;
    struct states *states; /* NULL: the model has none */

    /* While a backend has it; under watch.mu (core/sched/watch.h). */
    struct list late_link;
    struct instance *kept_by;
    uint64_t taken_ns;
    uint64_t warn_from_ns, warn_after_ns; /* when the next warning is due */

    /* Any thread. */
    atomic_int refs; /* the maker; the core until the end; each response and factory */
    /* Who may still answer (core or backend, factories, responses unsent): a count in the lower
     * half, and in the upper one a number of this run, so that no other is taken for it. */
    atomic_uint_least64_t senders;
    _Atomic(struct instance *) taken_by; /* by whose backend; NULL: it has ended, or waits */
    atomic_uint late;                    /* enum in core/sched/watch.c; 0: it is not */
    atomic_bool progressed;  /* a response that is not the final one has gone since the last look */
    atomic_int stage;        /* enum request_stage */
    atomic_uint n_reported;  /* responses that the backend has reported statistics of */
    atomic_bool spare_taken; /* a response has the spare room, or there is none */
    atomic_bool answered;
    atomic_bool responded; /* at least one response; only of models that observe the first one */
    atomic_bool cancelled;
    atomic_bool waiting; /* in a scheduler; changed under its lock */
};

/*
 * request_init - an empty request for a model.
 *
 * @model        its reference is taken
 * @first        memory for the request's arena, which serves the usual request without malloc
 */
void request_init(struct request *r, const struct request_ops *ops, struct model *model,
                  void *first, size_t first_bytes, struct pool *pool);

/* request_names_sequence - it is of the sequence that its correlation_id says. */
static inline bool request_names_sequence(const struct request *r)
{
    const struct correlation_id *id = &r->correlation_id;
    return id->string ? id->string[0] : id->number != 0;
}

/* request_ref, request_unref - the last unref ends with ops->destroy(). Thread: any. */
void request_ref(struct request *r);
void request_unref(struct request *r);

/*
 * request_add_input - an input; name and shape are copied into the arena.
 *
 * Errors: STATUS_INVALID_ARG  input 'I' already exists in request; a dimension below -1; a number
 *                             of elements beyond INT64_MAX
 */
NODISCARD struct status *request_add_input(struct request *r, const char *name, size_t name_length,
                                           enum dtype dtype, const int64_t *shape, size_t n_dims,
                                           struct input **ret_input);
/* request_add_raw_input - an input whose type and shape follow from model and byte size. */
NODISCARD struct status *request_add_raw_input(struct request *r, const char *name,
                                               size_t name_length, struct input **ret_input);
struct input *request_find_input(const struct request *r, const char *name);
/* request_add_data - one more stretch of bytes, borrowed until ops->release(). */
NODISCARD struct status *request_add_data(struct request *r, struct input *in,
                                          const struct tensor_buffer *buffer);
/* Errors: STATUS_INVALID_ARG  output 'O' already exists in request */
NODISCARD struct status *request_add_output(struct request *r, const char *name,
                                            size_t name_length);
/* request_add_parameter - name and string are copied; a second one of that name comes beside it. */
NODISCARD struct status *request_add_parameter(struct request *r, const struct parameter *p);
NODISCARD struct status *request_set_id(struct request *r, const char *id, size_t length);
/* Errors: STATUS_UNSUPPORTED  longer than 128 characters */
NODISCARD struct status *request_set_correlation_string(struct request *r, const char *id,
                                                        size_t length);

/*
 * request_compact - gives back what the arena holds of earlier runs and replaced parts, when that
 * has become much: for makers that send one object again and again. The request is idle; what was
 * borrowed from it (its id, …) is gone.
 */
void request_compact(struct request *r);

/*
 * request_cancel - asks whoever has it to stop; an answer still comes, never inside this call.
 *
 * Thread: any.
 */
void request_cancel(struct request *r);

static inline bool request_is_cancelled(const struct request *r)
{
    return atomic_load_explicit(&r->cancelled, memory_order_relaxed);
}

/* request_log_name - "<id>" or "<id_unknown>", as error texts show it. */
const char *request_log_name(const struct request *r);

#endif
