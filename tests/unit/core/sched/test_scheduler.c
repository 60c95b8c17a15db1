/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances that pull requests, from many threads at once: every request is executed exactly once,
 * no instance executes two batches at a time, and no request is forgotten. Meant to run under tsan.
 */
#include "core/sched/pull.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/cpu_binding.h"
#include "base/status.h"
#include "core/sched/instance_thread.h"
#include "core/server/server.h"
#include "core/model/model_statistics.h"
#include "lib/fake_model.h"

static const char config_format[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                                    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

enum { N_THREADS = 4, N_EACH = 300, N_INSTANCES = 2 };

static atomic_int n_executed, n_at_once[N_INSTANCES], n_clashes, n_on_caller;
static atomic_int n_instances_at_once, n_two_at_once, n_threads;
static __thread bool i_submit, i_executed;

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    int which = in->name[2] - '0';
    if (atomic_fetch_add(&n_at_once[which], 1) != 0)
        atomic_fetch_add(&n_clashes, 1);
    if (atomic_fetch_add(&n_instances_at_once, 1) != 0)
        atomic_fetch_add(&n_two_at_once, 1);
    if (i_submit)
        atomic_fetch_add(&n_on_caller, 1);
    else if (!i_executed)
        atomic_fetch_add(&n_threads, 1);
    i_executed = true;
    atomic_fetch_add(&n_executed, (int)n);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    memset(requests, 0, n * sizeof(*requests)); /* the array is the backend's */
    atomic_fetch_sub(&n_instances_at_once, 1);
    atomic_fetch_sub(&n_at_once[which], 1);
    return NULL;
}

static struct status *answer(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    atomic_fetch_add(&n_executed, (int)n);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

static void prepare(struct fake_request *fr, struct fake_model *f, struct inline_budget *budget)
{
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    int64_t one = 1;
    fake_request_make(fr, f);
    fr->request.maker.inline_budget = budget;
    assert_null(request_add_input(&fr->request, "A", 1, DTYPE_FP32, &one, 1, &in));
    assert_null(request_add_data(&fr->request, in, &data));
}

struct submitter {
    pthread_t thread;
    struct fake_model *model;
    bool may_inline;
};

static void *submit_many(void *arg)
{
    struct submitter *s = arg;
    i_submit = true;
    for (int i = 0; i < N_EACH; i++) {
        struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS};
        struct fake_request fr;
        prepare(&fr, s->model, s->may_inline ? &budget : NULL);
        assert_null(server_infer(&s->model->server, &fr.request));
        fake_request_wait(&fr);
        assert_int_equal(fr.n_responses, 1);
        assert_false(fr.failed);
        fake_request_end(&fr);
    }
    return NULL;
}

static void storm(const char *execution, int n_submitters, bool exclusive, uint64_t thread_idle_ns)
{
    struct fake_model f;
    struct submitter submitters[N_THREADS];
    char config[512];
    snprintf(config, sizeof(config),
             "%sparameters { key: \"CONCH_EXECUTION\" value { string_value: \"%s\" } }\n",
             config_format, execution);
    atomic_store(&n_executed, 0);
    atomic_store(&n_on_caller, 0);
    fake_model_make(&f, config, N_INSTANCES, execute);
    pull_scheduler_of(f.model)->exclusive = exclusive;
    pull_scheduler_of(f.model)->thread_idle_ns = thread_idle_ns;
    atomic_store(&n_threads, 0);
    atomic_store(&n_instances_at_once, 0);
    atomic_store(&n_two_at_once, 0);
    for (int i = 0; i < n_submitters; i++) {
        submitters[i] = (struct submitter){.model = &f, .may_inline = i % 2 == 0};
        pthread_create(&submitters[i].thread, NULL, submit_many, &submitters[i]);
    }
    for (int i = 0; i < n_submitters; i++)
        pthread_join(submitters[i].thread, NULL);
    fake_model_end(&f);
    assert_int_equal(atomic_load(&n_executed), n_submitters * N_EACH);
    assert_int_equal(atomic_load(&n_clashes), 0);
    if (exclusive)
        assert_int_equal(atomic_load(&n_two_at_once), 0);
}

static void each_request_is_executed_once(void **state)
{
    (void)state;
    storm("auto", N_THREADS, false, INSTANCE_THREAD_IDLE_NS);
    storm("inline", N_THREADS, false, INSTANCE_THREAD_IDLE_NS);
    assert_true(atomic_load(&n_on_caller) > 0);
    storm("thread", N_THREADS, false, INSTANCE_THREAD_IDLE_NS);
    assert_int_equal(atomic_load(&n_on_caller), 0);
    assert_in_range(atomic_load(&n_threads), 1, N_INSTANCES);
}

/* Each thread ends as soon as it finds no request, so that nearly every request meets a thread
 * that ends. */
static void no_request_is_lost_when_threads_end(void **state)
{
    (void)state;
    storm("thread", N_THREADS, false, 0);
    storm("auto", N_THREADS, false, 0);
    storm("thread", N_THREADS, true, 0);
    storm("thread", 2, false, 20 * NS_PER_US);
}

static void a_device_blocking_backend_executes_one_at_a_time(void **state)
{
    (void)state;
    storm("auto", N_THREADS, true, INSTANCE_THREAD_IDLE_NS);
    storm("thread", N_THREADS, true, INSTANCE_THREAD_IDLE_NS);
}

/* ------------------------------------------------------------------------------------------ */

static void ask_once(struct fake_model *f)
{
    struct fake_request fr;
    prepare(&fr, f, NULL);
    assert_null(server_infer(&f->server, &fr.request));
    fake_request_wait(&fr);
    assert_false(fr.failed);
    fake_request_end(&fr);
}

static bool thread_has_ended(struct pull_scheduler *s, const struct instance *in)
{
    mutex_lock(&s->mu);
    bool ended = instance_thread_has_ended_locked(in->thread);
    mutex_unlock(&s->mu);
    return ended;
}

/* Every other request finds no thread. The others arrive when a thread has found no request and
 * is about to end. */
static void no_request_is_lost_before_and_after_the_end(void **state)
{
    (void)state;
    struct fake_model f;
    fake_model_make(&f, config_format, 1, execute);
    pull_scheduler_of(f.model)->thread_idle_ns = 0;
    atomic_store(&n_threads, 0);
    for (int i = 0; i < N_EACH; i++) {
        ask_once(&f);
        while (i % 2 == 0 && !thread_has_ended(pull_scheduler_of(f.model), f.model->instances[0]))
            sched_yield();
    }
    fake_model_end(&f);
    assert_in_range(atomic_load(&n_threads), N_EACH / 2, N_EACH);
}

/* A thread of one model that ends joins the ended thread of another model. Models end in
 * between, too. */
static void threads_of_several_models_end(void **state)
{
    (void)state;
    enum { N_MODELS = 3, N_ROUNDS = 4 };
    struct fake_model models[N_MODELS];
    struct submitter submitters[N_MODELS];
    atomic_store(&n_executed, 0);
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int i = 0; i < N_MODELS; i++) {
            fake_model_make(&models[i], config_format, 1, answer);
            pull_scheduler_of(models[i].model)->thread_idle_ns = 0;
            submitters[i] = (struct submitter){.model = &models[i]};
            pthread_create(&submitters[i].thread, NULL, submit_many, &submitters[i]);
        }
        for (int i = 0; i < N_MODELS; i++) {
            pthread_join(submitters[i].thread, NULL);
            fake_model_end(&models[i]);
        }
    }
    assert_int_equal(atomic_load(&n_executed), N_ROUNDS * N_MODELS * N_EACH);
}

/* Waits until the thread of an instance waits for work. */
static void await_waiting_thread(struct pull_scheduler *s)
{
    for (bool waits = false; !waits; sched_yield()) {
        mutex_lock(&s->mu);
        waits = s->idle_look_ns != UINT64_MAX;
        mutex_unlock(&s->mu);
    }
}

static void an_idle_instance_has_no_thread(void **state)
{
    (void)state;
    struct fake_model f;
    struct clock_fake fake;
    clock_fake_init(&fake, 1000 * NS_PER_S);
    fake_model_make_timed(&f, &fake, config_format, 1, execute);
    struct pull_scheduler *s = pull_scheduler_of(f.model);
    struct instance *in = f.model->instances[0];
    assert_null(in->thread); /* before the first work */
    assert_null(in->batch);
    for (int i = 0; i < 3; i++) {
        ask_once(&f);
        await_waiting_thread(s);
        clock_fake_advance(&fake, INSTANCE_THREAD_IDLE_NS - 1);
        clock_fake_await(&fake, 1); /* the timer waits for the end of that time */
        assert_false(thread_has_ended(s, in));
        clock_fake_advance(&fake, 1);
        while (!thread_has_ended(s, in))
            sched_yield();
    }
    fake_model_end(&f);
}

/* ------------------------------------------------------------------------------------------ */

static cpu_set_t seen_cpus;

static struct status *look_around(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    (void)n;
    sched_getaffinity(0, sizeof(seen_cpus), &seen_cpus);
    fake_answer(requests[0]);
    return NULL;
}

/* Returns a CPU that this process may use: the last one, so that on machines with several CPUs
 * it is not the first. */
static int last_cpu(void)
{
    cpu_set_t all;
    int last = 0;
    sched_getaffinity(0, sizeof(all), &all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all))
            last = cpu;
    }
    return last;
}

static void a_bound_instance_executes_on_its_cpu(void **state)
{
    (void)state;
    struct fake_model f;
    struct server_options *o = server_options_new();
    char config[512], cpu[16];
    snprintf(cpu, sizeof(cpu), "%d", last_cpu());
    server_options_add_host_policy(o, "cpu", "cpu-cores", cpu);
    fake_model_make_with(&f, o, config_format, 1, look_around);
    for (int i = 0; i < 10; i++) { /* short, yet never inline */
        struct inline_budget budget = {.left_ns = EXECUTION_BUDGET_NS};
        struct fake_request fr;
        CPU_ZERO(&seen_cpus);
        prepare(&fr, &f, &budget);
        assert_null(server_infer(&f.server, &fr.request));
        fake_request_wait(&fr);
        fake_request_end(&fr);
        assert_int_equal(CPU_COUNT(&seen_cpus), 1);
        assert_true(CPU_ISSET(last_cpu(), &seen_cpus));
    }
    fake_model_end(&f);

    /* The thread started with the binding of the thread that asked. Threads of other instances
     * begin unbound all the same. */
    snprintf(config, sizeof(config), "%sinstance_group { host_policy: 'none' }", config_format);
    struct cpu_binding here = {.has_cpus = false}, before;
    cpu_binding_add_cpus(&here, (unsigned int)last_cpu(), (unsigned int)last_cpu());
    fake_model_make(&f, config, 1, look_around);
    assert_null(cpu_binding_enter(&here, &before));
    ask_once(&f);
    cpu_binding_restore(&before);
    assert_true(CPU_EQUAL(&seen_cpus, &before.cpus));
    fake_model_end(&f);
}

/* Sets a stack size that no machine has room for: threads cannot be started until it is 0 again. */
static void set_stack_bytes(size_t bytes)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, bytes), 0);
    assert_int_equal(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
}

static void without_threads_the_maker_of_a_request_executes(void **state)
{
    (void)state;
    struct fake_model f;
    struct server_options *o = server_options_new();
    pthread_attr_t before;
    cpu_set_t here, after;
    size_t stack_bytes;
    char cpu[16];
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    pthread_attr_getstacksize(&before, &stack_bytes);
    pthread_attr_destroy(&before);
    sched_getaffinity(0, sizeof(here), &here);

    snprintf(cpu, sizeof(cpu), "%d", last_cpu());
    server_options_add_host_policy(o, "cpu", "cpu-cores", cpu);
    fake_model_make_with(&f, o, config_format, 1, look_around);
    set_stack_bytes((size_t)1 << 46);
    ask_once(&f);
    set_stack_bytes(stack_bytes);
    assert_null(f.model->instances[0]->thread);
    assert_int_equal(CPU_COUNT(&seen_cpus), 1); /* bound to its CPU all the same … */
    assert_true(CPU_ISSET(last_cpu(), &seen_cpus));
    sched_getaffinity(0, sizeof(after), &after);
    assert_true(CPU_EQUAL(&after, &here)); /* … and afterwards the thread's binding is restored */

    ask_once(&f);
    assert_non_null(f.model->instances[0]->thread);
    fake_model_end(&f);
}

static void passive_instances_execute_nothing(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    char config[512];
    snprintf(config, sizeof(config), "%sinstance_group { passive: true }", config_format);
    fake_model_make(&f, config, 2, execute);
    prepare(&fr, &f, NULL);
    struct status *st = server_infer(&f.server, &fr.request);
    assert_int_equal(status_code(st), STATUS_UNSUPPORTED);
    assert_string_equal(status_message(st),
                        "[request id: <id_unknown>] model 'm' executes nothing: "
                        "all its instances are passive");
    status_free(st);
    fake_request_end(&fr);
    fake_model_end(&f);
}

/* ------------------------------------------------------------------------------------------ */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static char order[16];
static atomic_int n_in_order;

static struct status *execute_in_order(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    (void)n;
    pthread_mutex_lock(&gate); /* locked while requests queue up */
    pthread_mutex_unlock(&gate);
    order[atomic_fetch_add(&n_in_order, 1)] = requests[0]->maker.id[0];
    fake_answer(requests[0]);
    return NULL;
}

static void cancelled_requests_are_skipped_in_order(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request requests[5];
    fake_model_make(&f, config_format, 1, execute_in_order);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 5; i++) {
        prepare(&requests[i], &f, NULL);
        assert_null(request_set_id(&requests[i].request, &"abcde"[i], 1));
        assert_null(server_infer(&f.server, &requests[i].request));
    }
    /* The first request is executed, or about to be. Only requests that wait behind it can be
     * cancelled. */
    while (atomic_load(&f.model->pending) != 4)
        sched_yield();
    request_cancel(&requests[2].request);
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < 5; i++) {
        fake_request_wait(&requests[i]);
        assert_int_equal(requests[i].n_responses, 1);
        assert_int_equal(requests[i].failed, i == 2);
    }
    assert_int_equal(requests[2].last_code, STATUS_CANCELLED);
    assert_string_equal(requests[2].last_error, "");
    assert_string_equal(order, "abde");
    assert_int_equal(atomic_load(&f.model->pending), 0);

    struct statistics statistics;
    assert_null(model_statistics(f.model, &statistics));
    assert_int_equal(statistics.fail.count, 1);
    assert_int_equal(statistics.failures[FAILURE_CANCELED], 1);
    assert_true(statistics.fail.ns > 0);
    assert_int_equal(statistics.success.count, 0); /* the backend has reported no other request */
    statistics_done(&statistics);
    fake_model_end(&f);
    for (int i = 0; i < 5; i++)
        fake_request_end(&requests[i]);
}

/* ------------------------------------------------------------------------------------------ */

static atomic_bool answered, ended, ended_too_early;

/* Answers, so that the model has no request, and returns later. */
static struct status *answer_and_linger(struct instance *in, struct request **requests, uint32_t n)
{
    (void)n;
    struct model *m = in->model;
    fake_answer(requests[0]);
    atomic_store(&answered, true);
    while (!atomic_load(&m->stopping))
        sched_yield();
    for (int i = 0; i < 2000 && !atomic_load(&ended); i++)
        sched_yield();
    atomic_store(&ended_too_early, atomic_load(&ended));
    return NULL;
}

static void *end_when_answered(void *arg)
{
    while (!atomic_load(&answered))
        sched_yield();
    fake_model_end(arg);
    atomic_store(&ended, true);
    return NULL;
}

static void a_model_ends_after_the_caller_that_executes_it(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    struct inline_budget budget = {.left_ns = EXECUTION_SHORT_NS};
    pthread_t thread;
    char config[512];
    snprintf(config, sizeof(config),
             "%sparameters { key: \"CONCH_EXECUTION\" value { string_value: \"inline\" } }\n",
             config_format);
    fake_model_make(&f, config, 1, answer_and_linger);
    model_ref(f.model); /* keeps the struct, which the execution above reads */
    struct model *m = f.model;
    prepare(&fr, &f, &budget);
    pthread_create(&thread, NULL, end_when_answered, &f);
    assert_null(server_infer(&f.server, &fr.request));
    pthread_join(thread, NULL);
    assert_false(atomic_load(&ended_too_early));
    fake_request_end(&fr);
    model_unref(m);
}

/* ------------------------------------------------------------------------------------------ */

static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static atomic_int n_at_gate;

static struct status *answer_behind_gate(struct instance *in, struct request **requests, uint32_t n)
{
    atomic_fetch_add(&n_at_gate, 1);
    pthread_mutex_lock(&door);
    pthread_mutex_unlock(&door);
    return answer(in, requests, n);
}

/* A cancelled request is answered however long the model is busy. */
static void a_cancelled_request_is_answered_while_the_model_is_busy(void **state)
{
    (void)state;
    static const char *const schedulers[] = {"", "max_batch_size: 0 dynamic_batching { }\n"};
    for (size_t i = 0; i < ARRAY_SIZE(schedulers); i++) {
        struct fake_model f;
        struct fake_request running, waiting, cancelled;
        char config[512];
        snprintf(config, sizeof(config), "%s%s", schedulers[i], config_format);
        atomic_store(&n_executed, 0);
        atomic_store(&n_at_gate, 0);
        fake_model_make(&f, config, 1, answer_behind_gate);
        pthread_mutex_lock(&door);
        prepare(&running, &f, NULL);
        assert_null(server_infer(&f.server, &running.request));
        while (!atomic_load(&n_at_gate))
            sched_yield();
        prepare(&cancelled, &f, NULL);
        assert_null(server_infer(&f.server, &cancelled.request));
        prepare(&waiting, &f, NULL);
        assert_null(server_infer(&f.server, &waiting.request));

        request_cancel(&running.request); /* the backend has this request */
        request_cancel(&cancelled.request);
        request_cancel(&cancelled.request);
        fake_request_wait(&cancelled);
        assert_true(cancelled.failed);
        assert_int_equal(cancelled.last_code, STATUS_CANCELLED);
        assert_int_equal(cancelled.n_responses, 1);
        request_cancel(&cancelled.request); /* too late, and without effect */
        assert_int_equal(running.n_final, 0);

        pthread_mutex_unlock(&door);
        fake_request_end(&cancelled);
        fake_request_wait(&running);
        fake_request_end(&running);
        fake_request_wait(&waiting);
        fake_request_end(&waiting);
        fake_model_end(&f);
        assert_int_equal(atomic_load(&n_executed), 2);
    }
}

/* ------------------------------------------------------------------------------------------ */

static pthread_mutex_t callback = PTHREAD_MUTEX_INITIALIZER;
static atomic_int n_in_callback;
static const struct request_ops *usual;

static void respond_at_leisure(struct request *r, struct response *resp, uint32_t flags)
{
    atomic_fetch_add(&n_in_callback, 1);
    pthread_mutex_lock(&callback);
    pthread_mutex_unlock(&callback);
    usual->respond(r, resp, flags);
}

struct pair {
    struct fake_model f;
    struct fake_request running, waiting, next;
};

static void make_pair(struct pair *p, struct pair *of_server)
{
    fake_model_make(&p->f, config_format, 1, answer_behind_gate);
    p->f.model->services = &of_server->f.server.services; /* so that both models share its timers */
    int at_gate = atomic_load(&n_at_gate);
    prepare(&p->running, &p->f, NULL);
    assert_null(server_infer(&p->f.server, &p->running.request));
    while (atomic_load(&n_at_gate) == at_gate)
        sched_yield();
    prepare(&p->waiting, &p->f, NULL);
    prepare(&p->next, &p->f, NULL);
}

static void end_pair(struct pair *p)
{
    fake_request_wait(&p->running);
    fake_request_end(&p->running);
    fake_request_end(&p->waiting);
    fake_request_end(&p->next);
    p->f.model->services = &p->f.server.services;
    fake_model_end(&p->f);
}

/* A client whose callback for a cancellation takes long holds up no request of another model. */
static void a_slow_callback_holds_up_no_other_model(void **state)
{
    (void)state;
    struct pair slow, other;
    atomic_store(&n_at_gate, 0);
    pthread_mutex_lock(&door);
    pthread_mutex_lock(&callback);
    make_pair(&slow, &slow);
    make_pair(&other, &slow);
    usual = slow.waiting.request.ops;
    struct request_ops at_leisure = *usual;
    at_leisure.respond = respond_at_leisure;
    slow.waiting.request.ops = &at_leisure;
    assert_null(server_infer(&slow.f.server, &slow.waiting.request));
    assert_null(server_infer(&slow.f.server, &slow.next.request));
    assert_null(server_infer(&slow.f.server, &other.waiting.request));
    assert_null(server_infer(&slow.f.server, &other.next.request));
    request_cancel(&slow.waiting.request);
    while (!atomic_load(&n_in_callback))
        sched_yield();
    request_cancel(&slow.next.request);
    request_cancel(&other.waiting.request);
    fake_request_wait(&other.waiting);
    assert_int_equal(other.waiting.last_code, STATUS_CANCELLED);
    request_cancel(&other.next.request);
    fake_request_wait(&other.next);
    assert_int_equal(slow.waiting.n_final, 0);
    assert_int_equal(slow.next.n_final, 0); /* each model has one helper, which works in order */

    pthread_mutex_unlock(&callback);
    fake_request_wait(&slow.waiting);
    fake_request_wait(&slow.next);
    pthread_mutex_unlock(&door);
    end_pair(&other);
    end_pair(&slow);
}

/* ------------------------------------------------------------------------------------------ */

static pthread_t executed_by[8];
static atomic_int n_noted;
static struct fake_model *hot;
static struct fake_request others[2];

/* Sends two requests while the first thread executes. */
static void *bring_two(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++)
        assert_null(server_infer(&hot->server, &others[i].request));
    return NULL;
}

static struct status *note_thread(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    (void)n;
    int which = atomic_fetch_add(&n_noted, 1);
    executed_by[which] = pthread_self();
    if (which == 0) {
        pthread_t other;
        pthread_create(&other, NULL, bring_two, NULL);
        pthread_join(other, NULL);
    }
    fake_answer(requests[0]);
    return NULL;
}

static void run_hot(uint64_t left_ns)
{
    struct fake_model f;
    struct fake_request fr;
    struct inline_budget budget = {.left_ns = left_ns};
    char config[512];
    snprintf(config, sizeof(config),
             "%sparameters { key: \"CONCH_EXECUTION\" value { string_value: \"inline\" } }\n",
             config_format);
    fake_model_make(&f, config, 1, note_thread);
    hot = &f;
    atomic_store(&n_noted, 0);
    prepare(&fr, &f, &budget);
    for (int i = 0; i < 2; i++)
        prepare(&others[i], &f, NULL);
    assert_null(server_infer(&f.server, &fr.request));
    for (int i = 0; i < 2; i++) {
        fake_request_wait(&others[i]);
        fake_request_end(&others[i]);
    }
    fake_request_wait(&fr);
    fake_request_end(&fr);
    fake_model_end(&f);
    assert_int_equal(atomic_load(&n_noted), 3);
    assert_true(pthread_equal(executed_by[0], pthread_self()));
}

static void an_inline_thread_also_executes_queued_requests(void **state)
{
    (void)state;
    run_hot(3600 * NS_PER_S);
    assert_true(pthread_equal(executed_by[1], pthread_self()));
    assert_true(pthread_equal(executed_by[2], pthread_self()));
}

static void beyond_its_budget_a_thread_leaves_requests_to_the_worker(void **state)
{
    (void)state;
    run_hot(1);
    assert_false(pthread_equal(executed_by[1], pthread_self()));
    assert_false(pthread_equal(executed_by[2], pthread_self()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_is_executed_once),
        cmocka_unit_test(a_device_blocking_backend_executes_one_at_a_time),
        cmocka_unit_test(no_request_is_lost_when_threads_end),
        cmocka_unit_test(no_request_is_lost_before_and_after_the_end),
        cmocka_unit_test(threads_of_several_models_end),
        cmocka_unit_test(an_idle_instance_has_no_thread),
        cmocka_unit_test(a_bound_instance_executes_on_its_cpu),
        cmocka_unit_test(without_threads_the_maker_of_a_request_executes),
        cmocka_unit_test(passive_instances_execute_nothing),
        cmocka_unit_test(cancelled_requests_are_skipped_in_order),
        cmocka_unit_test(a_cancelled_request_is_answered_while_the_model_is_busy),
        cmocka_unit_test(a_slow_callback_holds_up_no_other_model),
        cmocka_unit_test(a_model_ends_after_the_caller_that_executes_it),
        cmocka_unit_test(an_inline_thread_also_executes_queued_requests),
        cmocka_unit_test(beyond_its_budget_a_thread_leaves_requests_to_the_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
