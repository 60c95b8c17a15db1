/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances that come up on several threads: in their order, each once, taken down cleanly when one
 * of them fails. Meant to run under tsan, too.
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
#include "lib/fake_model.h"

static const char tensors[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                              "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

/* What initialisation does: waits until `meet` of them are inside, fails if it has this name. */
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

/* The model without instances, and a registry with so many threads. */
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

static void one_after_another(void **state)
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

static void at_the_same_time(void **state)
{
    begin(three_groups, 4, true);
    meet = 4;
    assert_null(instances_make(f.model, &reg));
    names_are(their_names, 4);
    assert_int_equal(most_inside, 4);
    end();
}

static void never_more_than_threads(void **state)
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

static void the_environment_overrules(void **state)
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

/* fake_model_end() ends them all, so what is left out must not be there. */
static void take_down(void)
{
    for (uint32_t i = 0; i < f.model->n_instances; i++)
        instance_free(f.model->instances[i]);
    f.model->n_instances = 0;
    end();
}

static void the_first_failure_counts(void **state)
{
    begin("instance_group { count: 5 }", 4, false);
    failing[0] = "m_0_2";
    fails_with("m_0_2 does not want to");
    assert_int_equal(n_initialized, 3); /* the others are not tried */
    assert_int_equal(n_finalized, 1);   /* the backend may have to tidy up */
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

static void too_many_are_refused(void **state)
{
    begin("instance_group [ { count: 2147483647 }, { count: 2147483647 } ]", 4, false);
    struct status *st = instances_make(f.model, &reg);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(status_message(st),
                        "model 'm' asks for 4294967294 instances, at most 4096");
    status_free(st);
    end();
}

static void long_names_are_bounded(void **state)
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

static void a_policy_that_cannot_be_had_is_named(void **state)
{
    begin("instance_group { host_policy: \"far\" }", 4, false);
    server_options_add_host_policy(f.server.options, "far", "cpu-cores", "1000-1023");
    fails_with(
        "Unable to set NUMA thread affinity: CPUs 1000-1023 do not exist, or this process may "
        "not use them (host policy 'far')");
    assert_int_equal(n_initialized, 0);
    take_down();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_another),
        cmocka_unit_test(at_the_same_time),
        cmocka_unit_test(never_more_than_threads),
        cmocka_unit_test(the_environment_overrules),
        cmocka_unit_test(the_first_failure_counts),
        cmocka_unit_test(too_many_are_refused),
        cmocka_unit_test(long_names_are_bounded),
        cmocka_unit_test(a_policy_that_cannot_be_had_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
