/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model instance: one copy of a model that executes one batch at a time, either on its own
 * worker thread or inline on a thread that has a request for it. The scheduler says which; an
 * instance that becomes idle pulls its next batch itself. This is TRITONBACKEND_ModelInstance.
 */
#ifndef CONCH_CORE_BACKEND_INSTANCE_H
#define CONCH_CORE_BACKEND_INSTANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "core/json_message.h"
#include "core/sched/loan.h"
#include "proto/model_config.pb-c.h"

struct home;
struct instance_slots;
struct model;
struct cpu_binding;
struct request;
struct status;
struct instance_stats;
struct instance_thread;
struct watch;

enum { INSTANCE_MAX_REQUESTS = 4096 }; /* in one execution */

/* The values are those of TRITONSERVER_InstanceGroupKind. */
enum instance_kind { INSTANCE_AUTO, INSTANCE_CPU, INSTANCE_GPU, INSTANCE_MODEL };

/* Who executes on the instance now; drawn in core/sched/scheduler.c. */
enum runner { RUNNER_NONE, RUNNER_CALLER, RUNNER_WORKER };

/* What the watch knows of a call of the backend; under watch.mu. */
struct watched_call {
    uint64_t since_ns; /* which one: when it began; 0: none */
    uint64_t watched_ns;
    uint64_t warn_after_ns; /* when the next warning is due, from its beginning */
    bool limit_seen;
    bool overdue; /* some of its requests were answered in the backend's place */
};

struct instance {
    /* Constant once initialised. */
    struct model *model;
    const Inference__ModelInstanceGroup *group; /* in the model's configuration */
    char *name;
    enum instance_kind kind;
    int32_t device_id;
    struct json_message host_policy_document; /* {"<its name>":{…}} */
    struct cpu_binding *cpu_binding; /* where it initialises and executes; NULL = anywhere */
    uint32_t batch_capacity;
    struct home *home;     /* the thread on which all of it runs; NULL: it has none for life */
    bool known_to_backend; /* its initialisation was called, and so is its end, whatever it said */
    uint32_t number;       /* among the model's; constant from its first use */
    struct watch *watch;   /* constant from the first request on; NULL in warm-up */
    struct instance_slots *instance_slots; /* a sequence batcher's: its slots of the instance */
    struct instance_stats *stats;

    /* The backend's. */
    void *state;
    atomic_size_t reported_bytes; /* memory that the backend says it uses */

    /* The watch's. */
    atomic_uint n_overdue; /* what it is stuck for; any thread reads it */
    struct watched_call call;

    /* What each execution writes stands on one cache line, away from what is only read and from
     * what belongs to others: instances that execute at the same time do so on different cores. */
    _Alignas(64) struct loan loan;
    /* Written by its runner, read by the watch (core/sched/watch.c). */
    atomic_uint_least64_t since_ns;  /* when the backend's call began; 0: there is none */
    atomic_uint n_executing;         /* its requests */
    atomic_bool watched;             /* the watch's: the runner takes watch.mu when it returns */
    uint32_t n_runs;                 /* the runner's: calls of the backend, for measure_call_ns() */
    enum runner runner;              /* under scheduler.mu */
    struct request **batch;          /* the runner's: 2 * batch_capacity; NULL before the first */
    struct request *batch_of_one[2]; /* where that points when there is never more than one */

    /* Under scheduler.mu. */
    long n_preempted;               /* the runner's; see learn_on_worker() */
    struct instance_thread *thread; /* NULL before the first work for it */
};

/*
 * instance_new - makes an instance of a group and initialises it in its backend, with the CPU
 * binding that its host policy names.
 *
 * Thread: control. Several may make instances of one model.
 * @index   within its group: the last part of its name
 * Errors:  STATUS_INVALID_ARG  a host policy that cannot be read
 *          STATUS_INTERNAL     CPUs or memory of its policy cannot be had
 *          and what the backend says; it has finalised the instance then
 */
NODISCARD struct status *instance_new(struct model *m, const Inference__ModelInstanceGroup *group,
                                      int index, struct instance **ret_instance);

/*
 * instance_enter_cpu_binding - the calling thread goes where the instance may execute;
 * cpu_binding_restore() goes back, after an error too.
 *
 * Errors: STATUS_INTERNAL  CPUs or memory that were there before are not to be had any longer
 */
NODISCARD struct status *instance_enter_cpu_binding(const struct instance *in,
                                                    struct cpu_binding *ret_before);

/* instance_report_memory - the backend says that the instance uses so much. Thread: any. */
void instance_report_memory(struct instance *in, size_t bytes);

/* instance_free - finalises it; no thread executes on it any longer. NULL is fine. */
void instance_free(struct instance *in);

/*
 * instance_execute - gives the batch to the backend; every request has been answered and released,
 * or is the backend's, when this returns.
 *
 * Thread: whoever runs the instance. No lock is held.
 * @batch      n requests that are queued, and behind them room for as many: the backend's own array
 * @start_ns   now, or nearly
 * @ret_bytes  of their inputs
 * Returns     the time that the backend took, in nanoseconds; 0 when nothing was left to execute
 */
uint64_t instance_execute(struct instance *in, struct request **batch, uint32_t n,
                          uint64_t start_ns, uint64_t *ret_bytes);

/*
 * instance_executes_here - this thread is in the backend's call for it, and in no other one within
 * that. NULL: no.
 */
bool instance_executes_here(const struct instance *in);

/* When a backend did what; CLOCK_MONOTONIC. */
struct execution_times {
    uint64_t exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns;
};

/*
 * instance_report_statistics, instance_report_batch - a request has been executed; a batch has.
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
