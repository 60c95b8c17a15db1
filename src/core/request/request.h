/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An inference request: made by a frontend or by the C API, checked, queued, executed by a
 * backend, and answered exactly once. This is TRITONSERVER_InferenceRequest and
 * TRITONBACKEND_Request.
 *
 * Making one: request_init(), then the request_add_… and the fields of `maker`, then
 * server_infer(). All strings and arrays live in the request's arena, or outlive the request.
 *
 *     struct request r;                    embedded in the maker's own object
 *     request_init(&r, &my_ops, model, first, first_bytes, pool);
 *     request_add_input(&r, "INPUT0", 6, DTYPE_FP32, shape, 2, &in);
 *     request_add_data(&r, in, &buffer);
 *     st = server_infer(server, &r);       NULL: the core calls the ops below; error: the request
 *                                          is still the maker's
 *     …
 *     request_unref(&r);                   when the maker needs it no longer; the last reference
 *                                          (maker, core, responses, factories) calls ops->destroy
 */
#ifndef CONCH_CORE_REQUEST_REQUEST_H
#define CONCH_CORE_REQUEST_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/heap.h"
#include "base/list.h"
#include "core/model/model_cache.h"
#include "core/model/tensor.h"
#include "core/threads/watchdog.h"

struct instance;
struct loop;
struct model;
struct response_order;
struct output;
struct pool;
struct held_response;
struct posted_look_up;
struct queue_level;
struct request;
struct response;
struct sequence;
struct states;
struct steps;
struct status;
struct step_times;
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
    struct request *request; /* that this input belongs to */
    bool raw;                /* shape and type are to be deduced from the model's configuration */
    uint32_t n_dims;
    const int64_t *shape; /* as the client gave it, batch dimension included */
    uint32_t n_buffers;
    uint32_t buffer_capacity;
    struct tensor_buffer *buffers; /* in the order of the bytes */
    struct tensor_buffer first;    /* where `buffers` points as long as one is enough */
    size_t size_bytes;             /* of all buffers without a host policy */
    uint32_t raw_length;           /* of a raw BYTES input: the length in front of its bytes */

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
 * What the maker of a request implements. Thread: any, also inside server_infer(). The core holds
 * none of its locks during these calls.
 */
struct request_ops {
    /*
     * Allocates memory for an output: sets out->base (may be NULL for 0 bytes), out->memory_type,
     * out->memory_type_id and out->maker_data. On entry the two memory fields have what the backend
     * prefers. response_alloc_pooled() serves makers that have no memory of their own.
     */
    struct status *(*alloc_output)(struct request *r, struct output *out, size_t size_bytes);
    void (*free_output)(struct request *r, struct output *out);
    /*
     * Receives a response, which the maker owns from here and ends with response_free(). resp is
     * NULL when there are only flags. RESPONSE_FINAL is set in exactly one call, the last one.
     */
    void (*respond)(struct request *r, struct response *resp, uint32_t flags);
    /*
     * The request has ended: it has had its final response, and the core and the backend do not
     * read its inputs any more. The maker may change it and start it again. Optional.
     */
    void (*release)(struct request *r, uint32_t flags);
    /* The call of the backend that has executed the request has returned, and the backend still has
     * the request. Called on the thread of the call; no release comes before it returns. Optional.
     */
    void (*on_kept)(struct request *r);
    /* The last reference to the request is gone: its memory may be reused. */
    void (*destroy)(struct request *r);
};

/*
 * The inline budget of one iteration of a frontend's loop. A request without one is never executed
 * by the caller's thread.
 *
 * A model that makes batches is executed after all requests of an iteration have been submitted,
 * not by the first of them. The scheduler calls on_wait() for the first such model, and the loop
 * then calls pull_run_deferred() (core/sched).
 */
struct inline_budget {
    uint64_t left_ns; /* how much longer the thread may execute models; set anew for each
                         iteration */
    uint64_t now_ns;  /* the end of what it has just executed, until it is used; 0: unknown */
    uint32_t n_waiting;
    struct model *waiting[8];  /* models that wait for pull_run_deferred(), each counted as if
                                  in flight */
    bool is_embedders;         /* no loop: a thread of the program that embeds the server */
    bool is_workers;           /* no loop: the worker of an instance, between its executions */
    struct inline_watch watch; /* of what is executed inline; see inline_watch_open() */
    /* `waiting` has its first model. NULL: this thread has no loop, and defers no models. */
    void (*on_wait)(struct inline_budget *budget);
    struct loop *loop;  /* where executions may leave (core/backend/leave.h); NULL: they may not */
    uint64_t iteration; /* of the loop, for which left_ns was set */
    struct list left;   /* the loop's: the instances whose executions it finishes */
};

/*
 * What the scheduler of a model implements for the model's requests; constant. Thread: any, without
 * locks unless it says otherwise. Requests in a warm-up have no scheduler, and none of these calls.
 */
struct scheduler_request_ops {
    /* The request has been cancelled and waits in the scheduler: another thread soon answers it.
     * Thread: any that has a reference to it, also with a lock of a level below scheduler.mu. */
    void (*on_cancelled)(struct request *r);
    /* Sends a response of a request that has a position in a response order. Takes resp. */
    void (*respond)(struct request *r, struct response *resp, uint32_t flags);
    /* A request that is marked as late has ended. */
    void (*on_late_end)(struct request *r);
    /* Only for schedulers of sequences: a request with states is about to be executed; the backend
     * has released a request of a sequence, or a padding; it has given the request back. */
    void (*fill_states)(struct request *r);
    void (*on_released)(struct request *r);
    void (*on_rescheduled)(struct request *r);
};

/* Which part of the core holds a request; drawn in life.c. */
enum request_stage { REQUEST_IDLE, REQUEST_QUEUED, REQUEST_EXECUTING, REQUEST_RELEASED };

/* In request.life.late: the backend still has it after its call; the watch has answered it, since
 * it was beyond the execution limit. */
enum { REQUEST_KEPT = 1, REQUEST_OVERDUE = 2 };

/* The maker's, until server_infer(); constant from then on, but for the trace, and for flags and id
 * while the request belongs to a sequence (sched/sequence.c). */
struct maker_part {
    void *data;                          /* the maker's own */
    struct inline_budget *inline_budget; /* NULL: never inline */
    struct trace *trace; /* NULL: none; taken when the model accepts or refuses the request */
    struct step_times *step_times; /* of the ensemble's request that it is a step of; or NULL */
    const char *id;                /* never NULL */
    uint32_t flags;                /* REQUEST_SEQUENCE_… */
    bool goes_on;                  /* it is accepted while its model stops (on_behalf.h) */
    bool may_wait; /* its thread may wait for the response cache: it is an embedder's own */
    struct correlation_id correlation_id;
    uint64_t priority;
    uint64_t timeout_us; /* of the time in the queue, if the model allows that; 0: none */
    /* Of the server's clock: not executed from then on; 0: none. The maker cancels it then, so that
     * it leaves its queue, and its steps theirs. */
    uint64_t deadline_ns;
    uint32_t n_inputs, input_capacity;
    struct input **inputs;
    uint32_t n_outputs, output_capacity;
    const char **outputs; /* requested; none = all */
    uint32_t n_parameters, parameter_capacity;
    struct parameter *parameters;
};

/* What server_infer() finds out of a request. Constant once a scheduler has it, but for queue_ns.
 */
struct admitted_part {
    struct response *spare; /* room in the arena for one response: response.c; or NULL */
    uint32_t batch_size;    /* 0 for a model without batching */
    uint64_t start_ns, queue_ns;
};

/* Of a request of a model that has a response cache (core/cache/cache.h). */
struct cache_part {
    /* The cache does not have its response, which is to be kept. Set before the scheduler has the
     * request; false once it has had several responses, of which none could stand for it. */
    atomic_bool missed;
    atomic_bool has_response; /* … one; only while `missed` */
    /* A copy of its only response, which waits for the final flag; whoever exchanges it by NULL
     * frees it. */
    _Atomic(struct held_response *) held;
    /* A thread of the cache looks it up; changed under cache.mu. NULL: none does. */
    _Atomic(struct posted_look_up *) posted;
    /* Constant once a scheduler has it. */
    struct cache_key key;
    uint64_t look_up_ns; /* how long the look-up took */
};

/* The scheduler's, under scheduler.mu; of a refused request, the thread's that answers it. */
struct queue_part {
    struct list link;
    struct queue_level *level; /* this and the next two: see sched/queue.h */
    struct heap_node limit;
    uint64_t limit_ns;      /* when its time in the queue ends; UINT64_MAX: never */
    bool is_large;          /* too large to be executed inline; pull_waits_locked() */
    struct status *refusal; /* the error with which it is answered instead of being executed */
    int refusal_reason;     /* enum failure_reason */
};

/* Its position in a response order, under response_order.mu (sched/response_order.h). */
struct order_part {
    /* Constant once a scheduler has it. NULL: it has no position, its responses are sent at once.
     */
    struct response_order *in;
    struct list link;
    struct list kept; /* responses that wait for those of earlier requests */
    bool complete;    /* the backend has sent the final response */
};

/* A sequence batcher's: the first under scheduler.mu, the others set under it, and constant from
 * the call of the backend to the request's release. */
struct sequence_part {
    struct sequence *waits_in;
    struct sequence *sequence; /* that the request belongs to; NULL: of none */
    bool padding;              /* it stands for an empty slot: no client made it, not counted */
    uint32_t n_injected;       /* inputs that the backend has besides those of the maker */
    struct input *const *injected;
    struct states *states; /* NULL: the model has none */
};

/* While a backend has the request; under watch.mu (sched/watch.h). */
struct watched_part {
    struct list link; /* among the late ones */
    struct instance *kept_by;
    uint64_t taken_ns;
    uint64_t warn_from_ns, warn_after_ns; /* when the next warning is due */
};

enum { REQUEST_LAST_ROOM_BYTES = 192 };

/* The requests that a backend makes on behalf of this one; implemented by core/request/on_behalf.c.
 * Constant. */
struct request_calls {
    /* The request is being cancelled. Thread: any that has a reference to it, without locks of the
     * level of steps.mu or above. */
    void (*cancel)(struct request_calls *c, struct request *parent);
    /* The request's memory is about to be reused. */
    void (*unref)(struct request_calls *c);
};

/* Any thread. */
struct life_part {
    atomic_int refs; /* the maker; the core until the end; each response and factory */
    /* Lower half: how many may still answer (core or backend, factories, unsent responses). Upper
     * half: the number of this run, which tells it from other runs of the same object. */
    atomic_uint_least64_t senders;
    _Atomic(struct instance *) taken_by; /* executes it; NULL: the request has ended, or waits */
    atomic_uint late;                    /* REQUEST_KEPT …; 0: it is not late */
    atomic_bool progressed;  /* a response other than the final one was sent since the last look */
    atomic_int stage;        /* enum request_stage */
    atomic_uint n_reported;  /* responses whose statistics the backend has reported */
    atomic_bool spare_taken; /* a response uses `admitted.spare`, or there is none */
    atomic_bool lacks_response; /* there was no memory for one */
    atomic_bool last_taken;     /* a response uses `last_room` */
    atomic_bool answered;
    atomic_bool responded; /* it has a response; set only for models that measure the first one */
    atomic_bool cancelled;
    atomic_bool waiting;           /* in a scheduler; changed under its lock */
    _Atomic(struct steps *) steps; /* executed for it; a reference, see core/request/steps.h */
    /* Made by its backend on its behalf (core/request/on_behalf.h); a reference. NULL: none has
     * been, since the object was made. */
    _Atomic(struct request_calls *) calls;
};

struct request {
    /* Set by request_init(), constant afterwards. */
    const struct request_ops *ops;
    struct model *model; /* a reference */
    struct pool *pool;   /* where responses and their outputs come from */
    struct arena arena;
    size_t compact_above_bytes; /* request_compact() */

    struct maker_part maker;
    struct admitted_part admitted;
    struct cache_part cache;
    struct queue_part queue;
    struct order_part order;
    struct sequence_part seq;
    struct watched_part watched;
    struct life_part life;

    /* For an error when there is no memory (response_make_last()); not zeroed. */
    _Alignas(16) char last_room[REQUEST_LAST_ROOM_BYTES];
};

/*
 * request_init - an empty request for a model.
 *
 * @model        its reference is taken
 * @first        memory for the request's arena, which serves the usual request without malloc
 */
void request_init(struct request *r, const struct request_ops *ops, struct model *model,
                  void *first, size_t first_bytes, struct pool *pool);

/* request_names_sequence - does the request have a correlation id? */
static inline bool request_names_sequence(const struct request *r)
{
    const struct correlation_id *id = &r->maker.correlation_id;
    return id->string ? id->string[0] : id->number != 0;
}

/* request_ref, request_unref - the last unref ends with ops->destroy(). Thread: any. */
void request_ref(struct request *r);
void request_unref(struct request *r);

/*
 * request_add_input - adds an input; name and shape are copied into the arena. The request owns it.
 *
 * Errors: STATUS_INVALID_ARG  input 'I' already exists in request; a dimension below -1; a number
 *                             of elements beyond INT64_MAX
 */
NODISCARD struct status *request_add_input(struct request *r, const char *name, size_t name_length,
                                           enum dtype dtype, const int64_t *shape, size_t n_dims,
                                           struct input **ret_input);
/*
 * request_add_known_input - adds an input that is not there yet, by the model's description of it.
 * The shape is borrowed until ops->release().
 *
 * Errors: as those of request_add_input()
 */
NODISCARD struct status *request_add_known_input(struct request *r, const struct tensor_spec *spec,
                                                 enum dtype dtype, const int64_t *shape,
                                                 size_t n_dims, struct input **ret_input);
/* request_add_raw_input - adds an input whose type and shape follow from model and byte size. */
NODISCARD struct status *request_add_raw_input(struct request *r, const char *name,
                                               size_t name_length, struct input **ret_input);
struct input *request_find_input(const struct request *r, const char *name);
/* request_add_data - appends a stretch of bytes to an input; borrowed until ops->release(). */
NODISCARD struct status *request_add_data(struct request *r, struct input *in,
                                          const struct tensor_buffer *buffer);
/* Errors: STATUS_INVALID_ARG  output 'O' already exists in request */
NODISCARD struct status *request_add_output(struct request *r, const char *name,
                                            size_t name_length);
/* request_add_parameter - name and string are copied. A second parameter of the same name does not
 * replace the first. */
NODISCARD struct status *request_add_parameter(struct request *r, const struct parameter *p);
NODISCARD struct status *request_set_id(struct request *r, const char *id, size_t length);
/* request_set_correlation_string - the id is copied. Errors: STATUS_UNSUPPORTED  longer than 128
 * characters */
NODISCARD struct status *request_set_correlation_string(struct request *r, const char *id,
                                                        size_t length);

/*
 * request_compact - frees arena memory of earlier runs and replaced parts, once that exceeds
 * r->compact_above_bytes. For makers that send one object many times. The request must be idle.
 * Pointers borrowed from it (its id, …) are invalid afterwards.
 */
void request_compact(struct request *r);

/*
 * request_cancel - asks the scheduler or backend that has the request to stop, and those that have
 * its steps (core/request/steps.h). A final response still comes, but never inside this call.
 *
 * Thread: any.
 */
void request_cancel(struct request *r);

static inline bool request_is_cancelled(const struct request *r)
{
    return atomic_load_explicit(&r->life.cancelled, memory_order_relaxed);
}

/* request_is_late - has the deadline, which the request must have, passed? Reads the clock. */
bool request_is_late(const struct request *r);

/*
 * request_is_given_up - nobody waits for the answer: the request is cancelled, or its deadline has
 * passed. Such a request is not executed. Thread: any.
 */
static inline bool request_is_given_up(const struct request *r)
{
    return request_is_cancelled(r) || (UNLIKELY(r->maker.deadline_ns != 0) && request_is_late(r));
}

static inline bool request_is_overdue(const struct request *r)
{
    return atomic_load_explicit(&r->life.late, memory_order_relaxed) & REQUEST_OVERDUE;
}

/* parameter_append - adds a copy to an array in the arena. NULL: no memory. */
struct parameter *parameter_append(struct arena *a, struct parameter **items, uint32_t *n,
                                   uint32_t *capacity, const struct parameter *p);
/* parameter_append_named - the same, but the name is borrowed for the life of the array. */
struct parameter *parameter_append_named(struct arena *a, struct parameter **items, uint32_t *n,
                                         uint32_t *capacity, const struct parameter *p);

/* request_log_name - "<id>" or "<id_unknown>", as error texts show it. */
const char *request_log_name(const struct request *r);

#endif
