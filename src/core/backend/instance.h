/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model instance: one copy of a model that executes one batch at a time, either on its own
 * worker thread or inline on a thread that has a request for it. The scheduler decides which. The
 * thread that runs an instance pulls the next batch itself. This is TRITONBACKEND_ModelInstance.
 */
#ifndef CONCH_CORE_BACKEND_INSTANCE_H
#define CONCH_CORE_BACKEND_INSTANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"
#include "core/backend/json_message.h"
#include "core/model/tensor.h"
#include "core/threads/control.h"
#include "proto/model_config.pb-c.h"

struct home;
struct instance;
struct instance_slots;
struct leave_ops;
struct left;
struct limit;
struct model;
struct model_config;
struct cpu_binding;
struct request;
struct status;
struct instance_stats;
struct instance_thread;

enum { INSTANCE_MAX_REQUESTS = 4096 }; /* in one execution */

/* A call of the backend that takes less is short: about what a hand-off between cores costs. */
#define SHORT_CALL_NS 40000ULL

/* The values are those of TRITONSERVER_InstanceGroupKind. */
enum instance_kind { INSTANCE_AUTO, INSTANCE_CPU, INSTANCE_GPU, INSTANCE_MODEL };

/* Which thread executes on the instance now; drawn in core/sched/scheduler.c. */
enum runner { RUNNER_NONE, RUNNER_CALLER, RUNNER_WORKER };

/* Who watches the calls of backends; core/sched/watch.h. */
struct call_watcher {
    const struct call_watcher_ops *ops; /* constant */
    atomic_bool armed;                  /* false: the next call tells the watcher of its begin */
};

/* Thread: the instance's runner, without locks. */
struct call_watcher_ops {
    /* A call begins, and the watcher is not armed. */
    void (*arm)(struct call_watcher *w, uint64_t now_ns);
    /* The instance is `watched`, and its call has returned. */
    void (*on_returned)(struct instance *in);
    /* The call that began at start_ns has returned, and the request, to which the caller has a
     * reference, seems to be with the backend still. */
    void (*on_kept)(struct instance *in, struct request *r, uint64_t start_ns);
};

/* What the watch has seen of a call of the backend; under watch.mu. */
struct watched_call {
    uint64_t since_ns; /* when the call began, which identifies it; 0: none */
    uint64_t watched_ns;
    uint64_t warn_after_ns; /* how long after its beginning the next warning is due */
    bool limit_seen;
    bool overdue; /* the watch has answered some of its requests in the backend's place */
};

enum loan_state { LOAN_NONE, LOAN_FREE, LOAN_USED, LOAN_WANTED };

/* To which thread it is lent; core/sched/loan.h has the functions. */
struct loan {
    atomic_int state; /* enum loan_state */
    /* Under the scheduler's lock. */
    unsigned int slot;    /* its index in loans.slots, unless NONE */
    unsigned int thread;  /* the number of the thread that had it last … */
    unsigned int n_quiet; /* … and how often in a row, with no other work in between */
};

/* What the backend's finish function says. */
enum finish { FINISH_OVER, FINISH_LATER, FINISH_ON_THREAD };
/* Returns an enum finish. may_wait: the thread waits for the answer, so that the execution is over
 * when this returns */
typedef int finish_fn(struct instance *in, bool may_wait);

/* Executions that leave (core/backend/leave.h). */
struct leave_part {
    finish_fn *finish;           /* constant once initialised; NULL: none leaves */
    const struct leave_ops *ops; /* constant from the first request on */
    /* The runner's. */
    int descriptor;
    struct left *left; /* the watch of the descriptor; NULL: none so far */
    bool has_left;     /* the execution that it runs has left */
    bool is_due;       /* under scheduler.mu: the worker finishes the execution */
};

struct instance {
    /* Constant once initialised. */
    struct model *model;
    struct model_config
        *config; /* a reference: one that the model has, or had when this was made */
    const Inference__ModelInstanceGroup *group; /* in it */
    char *name;
    enum instance_kind kind;
    int32_t device_id;
    struct json_message host_policy_document; /* {"<its name>":{…}} */
    struct cpu_binding *cpu_binding; /* where it initialises and executes; NULL = anywhere */
    uint32_t batch_capacity;
    struct home *home;     /* its thread for life; NULL: none */
    bool known_to_backend; /* initialised in the backend, even in vain: to be finalised there */
    uint32_t number;       /* among the model's instances; under scheduler.mu */
    struct call_watcher *watcher;          /* constant from the first request on; NULL in warm-up */
    struct instance_slots *instance_slots; /* a sequence batcher's: its slots of the instance */
    struct instance_stats *stats;
    struct limit *limit; /* the rate limiter's; NULL: it executes whenever it is idle */

    /* The backend's. */
    void *state;
    atomic_size_t reported_bytes[N_MEMORY_PLACES]; /* memory that the backend says it uses */

    /* Its end while the model serves (core/sched/pull_change.c). */
    void (*on_unused)(struct instance *in); /* constant from the first request on */
    atomic_uint n_users;                    /* see instance_ref() */
    bool is_draining; /* set under scheduler.mu, by control: it leaves after its sequences */
    bool is_leaving;  /* under scheduler.mu: it gets no more work */
    struct list leaving_link; /* likewise: in a list of its scheduler */
    struct list watched_link; /* under watch.mu: of those that leave and execute yet */
    struct control_job end;   /* ends it */

    /* The watch's. */
    atomic_uint n_overdue; /* its requests beyond the limit: it is stuck while there are any */
    struct watched_call call;

    /* What each execution writes stands on a cache line of its own, apart from constant fields and
     * from other instances: instances execute at the same time on different cores. */
    _Alignas(64) struct loan loan;
    /* Written by its runner, read by the watch (core/sched/watch.c). */
    atomic_uint_least64_t since_ns;  /* when the backend's call began; 0: there is none */
    atomic_uint n_executing;         /* its requests */
    atomic_bool watched;             /* the watch's: the runner takes watch.mu when it returns */
    uint32_t n_runs;                 /* the runner's: calls of the backend, for measure_call_ns() */
    enum runner runner;              /* under scheduler.mu */
    struct request **batch;          /* the runner's: 2 * batch_capacity; NULL before the first */
    struct request *batch_of_one[2]; /* what `batch` points to if batch_capacity is 1 */

    struct leave_part leave;
    long n_preempted; /* the runner's; see learn_on_worker() */
    bool ends_soon;   /* its worker's: the model is short; see core/sched/afterwards.h */

    /* Under scheduler.mu. */
    struct instance_thread *thread; /* NULL before the first work for it */
};

/*
 * instance_new - makes an instance of a group and initialises it in its backend, with the CPU
 * binding of its host policy. The caller ends it with instance_free().
 *
 * Thread: control. Several threads may make instances of one model at the same time.
 * @config  that of the group; the instance has a reference
 * @index   the last part of its name
 * @device  its GPU; 0 for an instance on CPUs
 * Errors:  STATUS_INVALID_ARG  a host policy that cannot be read
 *          STATUS_INTERNAL     CPUs or memory of its policy are not available
 *          and those of the backend, which has finalised the instance then
 */
NODISCARD struct status *instance_new(struct model *m, struct model_config *config,
                                      const Inference__ModelInstanceGroup *group, int index,
                                      int device, struct instance **ret_instance);

/*
 * instance_ref, instance_unref - count what uses an instance that a change of the model may take
 * out of service: its scheduler has the first reference; a question for its readiness has one, and
 * what the watch has found and a request that the backend keeps. The last unref calls
 * in->on_unused. A model that is unloaded has no such users any more, and does not wait for them.
 *
 * Thread: any. instance_unref() is called without locks from scheduler.mu on.
 */
void instance_ref(struct instance *in);
void instance_unref(struct instance *in);

/*
 * model_wants_homes - has each instance a thread for life? If the model's parameter CONCH_EXECUTION
 * is `thread`, or its backend asks for that.
 */
bool model_wants_homes(const struct model *m);

/*
 * instance_enter_cpu_binding - binds the calling thread to the CPUs and memory of the instance. The
 * caller ends that with cpu_binding_restore(), after an error, too.
 *
 * Errors: STATUS_INTERNAL  CPUs or memory are not available any longer
 */
NODISCARD struct status *instance_enter_cpu_binding(const struct instance *in,
                                                    struct cpu_binding *ret_before);

/* instance_report_memory - the backend reports how much memory the instance uses in each place.
 * Thread: any. */
void instance_report_memory(struct instance *in, const size_t bytes[N_MEMORY_PLACES]);

/* instance_free - finalises and frees the instance. No thread executes on it any longer. NULL is
 * fine. */
void instance_free(struct instance *in);

/*
 * instance_end - does the same while the model serves. The struct is left for the model's next
 * instance: a thread that has found it lent a moment ago may still look at its loan
 * (core/sched/loan.h). instances_free_spare() frees what is left of the model's.
 */
void instance_end(struct instance *in);
void instances_free_spare(struct model *m);

/*
 * instance_execute - gives the batch to the backend. When this returns, every request has been
 * answered and released, or the backend still has it. If the execution has left
 * (in->leave.has_left), it is still under way, until instance_finish() says that it is over.
 *
 * Thread: the instance's runner. No lock is held.
 * @batch      n requests that are queued, and behind them room for as many: the backend's own array
 * @start_ns   now, or nearly
 * @ret_bytes  size of all their inputs
 * Returns     the time that the backend took, in nanoseconds; 0 when nothing was left to execute
 */
uint64_t instance_execute(struct instance *in, struct request **batch, uint32_t n,
                          uint64_t start_ns, uint64_t *ret_bytes);

/*
 * instance_finish - has the backend finish the execution that has left (core/backend/leave.h).
 *
 * Thread: the instance's runner. No lock is held.
 * @start_ns, @ret_took_ns  now, and how long it took
 */
enum finish instance_finish(struct instance *in, bool may_wait, uint64_t start_ns,
                            uint64_t *ret_took_ns);

/*
 * instance_executes_here - is this thread in a call of the backend for this instance, with no call
 * for another one inside it? NULL: no.
 */
bool instance_executes_here(const struct instance *in);

/* instance_executing - the instance in whose backend this thread is, in the innermost call; NULL:
 * none. */
const struct instance *instance_executing(void);

/* The steps of an execution, as the backend reports them; CLOCK_MONOTONIC. */
struct execution_times {
    uint64_t exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns;
};

/*
 * instance_report_statistics, instance_report_batch - count an executed request; an executed batch.
 *
 * Thread: any. Takes instance.stats.mu.
 * Source: TRITONBACKEND_ModelInstanceReportStatistics, …ReportBatchStatistics;
 *         reference/behaviours §16.2 to §16.6
 */
void instance_report_statistics(struct instance *in, const struct request *r, bool success,
                                const struct execution_times *times);
void instance_report_batch(struct instance *in, uint64_t batch_size,
                           const struct execution_times *times);

#endif
