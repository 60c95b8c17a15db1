/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances that are initialised on several threads: in their order, each once, and finalised when
 * one of them fails. Meant to run under tsan, too.
 */
#include "core/backend/instance_group.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/server/server.h"
#include "lib/fake_model.h"

static const char tensors[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                              "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

/* What initialisation does: it waits until `meet` instances are inside, and fails for the
 * instance of this name. */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t entered = PTHREAD_COND_INITIALIZER;
static int meet, n_inside, most_inside, n_initialized, n_finalized;
static const char *failing[2];

static struct status *initialize(struct instance *in)
{
    pthread_mutex_lock(&mu);
    n_initialized++;
    n_inside++;
    most_inside = MAX(most_inside, n_inside);
    pthread_cond_broadcast(&entered);
    while (most_inside < meet)
        pthread_cond_wait(&entered, &mu);
    n_inside--;
    pthread_mutex_unlock(&mu);
    for (size_t i = 0; i < ARRAY_SIZE(failing); i++) {
        if (failing[i] && strcmp(in->name, failing[i]) == 0)
            return status_new(STATUS_INTERNAL, "%s does not want to", in->name);
    }
    return NULL;
}

static struct status *finalize(struct instance *in)
{
    (void)in;
    pthread_mutex_lock(&mu);
    n_finalized++;
    pthread_mutex_unlock(&mu);
    return NULL;
}

static struct fake_model f;
static struct backend_registry reg;

/* Makes the model without instances, and a registry with this many load threads. */
static void begin(const char *groups, unsigned int load_threads, bool parallel)
{
    char config[1024];
    snprintf(config, sizeof(config), "%s%s", tensors, groups);
    fake_model_make(&f, config, 0, NULL);
    mem_free(f.model->instances);
    f.model->instances = NULL;
    f.backend.fns.instance_initialize = initialize;
    f.backend.fns.instance_finalize = finalize;
    f.backend.attribute.parallel_instance_loading = parallel;
    f.server.options->load_threads = load_threads;
    backend_registry_init(&reg, &f.server, f.server.options);
    meet = n_inside = most_inside = n_initialized = n_finalized = 0;
    failing[0] = failing[1] = NULL;
}

static void end(void)
{
    assert_int_equal(atomic_load(&reg.n_free_helpers), f.server.options->load_threads - 1);
    fake_model_end(&f);
    backend_registry_done(&reg);
    assert_int_equal(n_finalized, n_initialized);
}

static void names_are(const char *const *names, uint32_t n)
{
    assert_int_equal(f.model->n_instances, n);
    for (uint32_t i = 0; i < n; i++)
        assert_string_equal(f.model->instances[i]->name, names[i]);
}

static const char three_groups[] =
    "instance_group [ { name: \"a\" count: 2 }, { kind: KIND_MODEL }, { name: \"a\" passive: true } ]";
static const char *const their_names[] = {"a_0", "a_1", "m_1_0", "a_0"};

static void instances_are_initialised_one_after_another(void **state)
{
    begin(three_groups, 4, false);
    assert_null(instances_make(f.model, &reg));
    names_are(their_names, 4);
    assert_int_equal(most_inside, 1);
    assert_int_equal(f.model->instances[1]->kind, INSTANCE_CPU);
    assert_int_equal(f.model->instances[2]->kind, INSTANCE_MODEL);
    assert_string_equal(f.model->instances[1]->host_policy_document.json, "{\"cpu\":{}}");
    assert_string_equal(f.model->instances[2]->host_policy_document.json, "{\"model\":{}}");
    assert_true(f.model->instances[3]->group->passive);
    end();
}

static void instances_are_initialised_in_parallel(void **state)
{
    begin(three_groups, 4, true);
    meet = 4;
    assert_null(instances_make(f.model, &reg));
    names_are(their_names, 4);
    assert_int_equal(most_inside, 4);
    end();
}

static void at_most_load_threads_initialise_instances(void **state)
{
    begin("instance_group { count: 60 }", 3, true);
    meet = 3;
    assert_null(instances_make(f.model, &reg));
    assert_int_equal(most_inside, 3);
    assert_string_equal(f.model->instances[59]->name, "m_0_59");
    end();

    begin("instance_group { count: 60 }", 1, true);
    assert_null(instances_make(f.model, &reg));
    assert_int_equal(most_inside, 1);
    end();
}

static void the_environment_overrules_parallel_loading(void **state)
{
    setenv("TRITON_PARALLEL_INSTANCE_LOADING", "1", 1);
    begin(three_groups, 4, false);
    meet = 4;
    assert_null(instances_make(f.model, &reg));
    end();
    static const char *const noes[] = {"0", "true", ""};
    for (size_t i = 0; i < ARRAY_SIZE(noes); i++) {
        setenv("TRITON_PARALLEL_INSTANCE_LOADING", noes[i], 1);
        begin(three_groups, 4, true);
        assert_null(instances_make(f.model, &reg));
        assert_int_equal(most_inside, 1);
        end();
    }
    unsetenv("TRITON_PARALLEL_INSTANCE_LOADING");
}

static void fails_with(const char *message)
{
    struct status *st = instances_make(f.model, &reg);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_INTERNAL);
    assert_string_equal(status_message(st), message);
    status_free(st);
}

/* Restores the instances that failed: fake_model_end() finalises them all. */
static void take_down(void)
{
    for (uint32_t i = 0; i < f.model->n_instances; i++)
        instance_free(f.model->instances[i]);
    f.model->n_instances = 0;
    end();
}

static void the_first_failure_is_reported(void **state)
{
    begin("instance_group { count: 5 }", 4, false);
    failing[0] = "m_0_2";
    fails_with("m_0_2 does not want to");
    assert_int_equal(n_initialized, 3); /* the other instances are not tried */
    assert_int_equal(n_finalized, 1);   /* the backend may have state to free */
    assert_null(f.model->instances[2]);
    assert_null(f.model->instances[4]);
    take_down();

    begin("instance_group { count: 4 }", 4, true);
    meet = 4;
    failing[0] = "m_0_3";
    failing[1] = "m_0_1";
    fails_with("m_0_1 does not want to");
    assert_int_equal(n_finalized, 2);
    take_down();
}

static void too_many_instances_are_refused(void **state)
{
    begin("instance_group [ { count: 2147483647 }, { count: 2147483647 } ]", 4, false);
    struct status *st = instances_make(f.model, &reg);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(status_message(st),
                        "model 'm' asks for 4294967294 instances, at most 4096");
    status_free(st);
    end();
}

static void long_instance_names_are_cut(void **state)
{
    begin("instance_group { count: 4096 }", 4, false);
    char *before = f.model->config->pb->instance_group[0]->name;
    char *name = mem_zalloc(5001);
    memset(name, 'x', 5000);
    f.model->config->pb->instance_group[0]->name = name;
    struct status *st = instances_make(f.model, &reg);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(
        status_message(st),
        "model 'm': the names of its instances take 20529152 bytes, at most 16777216");
    status_free(st);
    f.model->config->pb->instance_group[0]->name = before;
    mem_free(name);
    end();
}

static void an_impossible_host_policy_is_named(void **state)
{
    begin("instance_group { host_policy: \"far\" }", 4, false);
    server_options_add_host_policy(f.server.options, "far", "cpu-cores", "1000-1023");
    fails_with(
        "Unable to set NUMA thread affinity: CPUs 1000-1023 do not exist, or this process may "
        "not use them (host policy 'far')");
    assert_int_equal(n_initialized, 0);
    take_down();
}

/* ---- A thread for life ----------------------------------------------------------------------- */

enum { N_HOMES = 3 };

/* Where each call for an instance was made; remembers the first call on another thread. */
static struct {
    struct instance *in;
    pthread_t thread;
    int n_calls, n_elsewhere, n_executed;
} homes[N_HOMES];

static void note_call(struct instance *in, bool executed)
{
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < N_HOMES; i++) {
        if (homes[i].in && homes[i].in != in)
            continue;
        if (!homes[i].in)
            homes[i].thread = pthread_self();
        homes[i].in = in;
        homes[i].n_calls++;
        homes[i].n_executed += executed;
        homes[i].n_elsewhere += !pthread_equal(homes[i].thread, pthread_self());
        break;
    }
    pthread_mutex_unlock(&mu);
}

static struct status *initialize_at_home(struct instance *in)
{
    note_call(in, false);
    return initialize(in);
}

static struct status *finalize_at_home(struct instance *in)
{
    note_call(in, false);
    return finalize(in);
}

static struct status *execute_at_home(struct instance *in, struct request **requests, uint32_t n)
{
    note_call(in, true);
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

static void begin_at_home(const char *more, bool parallel)
{
    char config[1024];
    snprintf(config, sizeof(config), "%s%s", more,
             "instance_group [ { count: 3 } ]\n"
             "model_warmup { name: 's' batch_size: 1 count: 2 inputs { key: 'A' value { data_type: "
             "TYPE_FP32 dims: [ 1 ] zero_data: true } } }\n");
    begin(config, 4, parallel);
    f.backend.fns.instance_initialize = initialize_at_home;
    f.backend.fns.instance_finalize = finalize_at_home;
    f.backend.fns.instance_execute = execute_at_home;
    memset(homes, 0, sizeof(homes));
    scheduler_free(f.model->scheduler);
    f.model->scheduler = NULL;
}

static void ask(struct fake_request *fr)
{
    static const float value = 1;
    struct tensor_buffer data = {.base = &value, .size_bytes = sizeof(value)};
    struct input *in;
    int64_t one = 1;
    fake_request_make(fr, &f);
    assert_null(request_add_input(&fr->request, "A", 1, DTYPE_FP32, &one, 1, &in));
    assert_null(request_add_data(&fr->request, in, &data));
    assert_null(server_infer(&f.server, &fr->request));
}

static void live_and_die(void)
{
    enum { N_AT_ONCE = 8, N_ROUNDS = 20 };
    struct fake_request asked[N_AT_ONCE];
    assert_null(instances_make(f.model, &reg));
    assert_null(scheduler_new(f.model, &f.model->scheduler));
    pull_scheduler_of(f.model)->thread_idle_ns = 0; /* other threads would end after each request */
    scheduler_use_instances(f.model->scheduler);
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int i = 0; i < N_AT_ONCE; i++)
            ask(&asked[i]);
        for (int i = 0; i < N_AT_ONCE; i++) {
            fake_request_wait(&asked[i]);
            assert_false(asked[i].failed);
            fake_request_end(&asked[i]);
        }
    }
    end();
    int n_executed = 0;
    for (size_t i = 0; i < N_HOMES; i++) {
        assert_int_equal(homes[i].n_elsewhere, 0);
        assert_int_equal(homes[i].n_calls, 2 + homes[i].n_executed);
        assert_true(homes[i].n_executed >= 2); /* warmed up on this thread, too */
        assert_false(pthread_equal(homes[i].thread, pthread_self()));
        n_executed += homes[i].n_executed;
        for (size_t k = 0; k < i; k++)
            assert_false(pthread_equal(homes[i].thread, homes[k].thread));
    }
    assert_int_equal(n_executed, N_HOMES * 2 + N_ROUNDS * N_AT_ONCE);
}

#define THREAD "parameters { key: 'CONCH_EXECUTION' value { string_value: 'thread' } }\n"

static void an_instance_lives_on_its_own_thread(void **state)
{
    (void)state;
    for (int parallel = 0; parallel < 2; parallel++) {
        begin_at_home(THREAD, parallel);
        live_and_die();
        begin_at_home("", parallel); /* the backend demands it */
        f.backend.attribute.instance_threads = true;
        live_and_die();
    }
}

static void a_failed_load_finalises_on_the_instances_threads(void **state)
{
    (void)state;
    begin_at_home(THREAD, true);
    failing[0] = "m_0_1";
    fails_with("m_0_1 does not want to");
    take_down();
    for (size_t i = 0; i < N_HOMES; i++)
        assert_int_equal(homes[i].n_elsewhere, 0);
}

static void an_instance_with_its_own_thread_never_runs_inline(void **state)
{
    (void)state;
    begin("parameters { key: 'CONCH_EXECUTION' value { string_value: 'inline' } }\n", 1, false);
    f.backend.attribute.instance_threads = true;
    scheduler_free(f.model->scheduler);
    f.model->scheduler = NULL;
    struct status *st = scheduler_new(f.model, &f.model->scheduler);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(status_message(st),
                        "parameter 'CONCH_EXECUTION' is 'inline', but instances have threads of "
                        "their own in backend 'fake': it executes on a thread of its own");
    status_free(st);
    f.backend.attribute.instance_threads = false;
    assert_null(scheduler_new(f.model, &f.model->scheduler));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instances_are_initialised_one_after_another),
        cmocka_unit_test(instances_are_initialised_in_parallel),
        cmocka_unit_test(at_most_load_threads_initialise_instances),
        cmocka_unit_test(the_environment_overrules_parallel_loading),
        cmocka_unit_test(the_first_failure_is_reported),
        cmocka_unit_test(too_many_instances_are_refused),
        cmocka_unit_test(long_instance_names_are_cut),
        cmocka_unit_test(an_impossible_host_policy_is_named),
        cmocka_unit_test(an_instance_lives_on_its_own_thread),
        cmocka_unit_test(a_failed_load_finalises_on_the_instances_threads),
        cmocka_unit_test(an_instance_with_its_own_thread_never_runs_inline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
