/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model that is loaded and unloaded, with tests/plugins/gate: what it has when it is READY, and
 * that a step that fails leaves nothing behind.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/backend/instance.h"
#include "core/load/model_load.h"
#include "core/model/model_priv.h"
#include "core/options/server_options.h"
#include "core/repo/scan.h"
#include "core/sched/pull.h"
#include "core/server/server.h"
#include "core/server/server_priv.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"
#include "lib/repository.h"

#define TENSORS                                                                                    \
    "input { name: 'IN' data_type: TYPE_INT32 dims: -1 } "                                         \
    "output { name: 'OUT' data_type: TYPE_INT32 dims: -1 } "
#define CONFIG "backend: 'gate' " TENSORS

static struct test_repository repo, nothing;
static struct server *server;
static struct storage *storage;
static struct source *source; /* of the last load */

static int start(void **state)
{
    (void)state;
    repository_make(&repo);
    repository_make(&nothing);
    struct log_settings settings;
    log_get_settings(&settings);
    settings.info = false;
    log_set_settings(&settings);
    struct server_options *options = server_options_new();
    server_options_add_repository(options, nothing.path); /* the test loads by itself */
    server_options_set_string(&options->backend_directory, CONCH_BUILD_DIR "/tests/backends");
    assert_null(server_new(options, &server));
    server_options_free(options);
    assert_null(storage_open(repo.path, false, &storage));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    source_unref(TAKE(source));
    storage_unref(storage);
    assert_null(server_stop(server));
    server_free(server);
    repository_remove(&nothing);
    repository_remove(&repo);
    return 0;
}

static void put_file(const char *path, const char *text)
{
    repository_add_file(&repo, path, text, strlen(text));
}

/* Prepares the model as the repository does, and loads it. */
static struct status *load(const char *name, struct model **ret_model)
{
    struct scan_place place = {.storage = storage, .folder = name};
    struct model_config *config;
    struct scanned_model scanned;
    assert_null(scan_config(storage, name, NULL, server->options, &config));
    assert_null(scan_model(name, &place, config, server->options, true, &scanned));
    source_unref(TAKE(source));
    source = source_of_folder(storage, name);
    assert_null(source_fetch(source));
    struct config_facts facts = scan_facts(name, &scanned, server->options);
    struct status *st = model_load(&server->services, &server->backends, name, scanned.versions[0],
                                   source, TAKE(scanned.config), &facts, NULL, ret_model);
    scanned_model_done(&scanned);
    return st;
}

static void unload(struct model *m)
{
    model_stop(m);
    mutex_lock(&server->drain_mu);
    while (model_inflight(m))
        cond_wait(&server->drained, &server->drain_mu);
    mutex_unlock(&server->drain_mu);
    model_unload(m, &server->backends);
}

static size_t n_backends(void)
{
    struct backend_registry *reg = &server->backends;
    size_t n = 0;
    mutex_lock(&reg->mu);
    LIST_FOR_EACH (link, &reg->backends) {
        n++;
    }
    mutex_unlock(&reg->mu);
    return n;
}

/* A thread that asks the backend for readiness has a reference meanwhile. */
static void await_one_reference(const struct model *m)
{
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    while (model_refs(m) != 1)
        assert_true(monotonic_ns() < until_ns);
}

static void a_ready_model_has_its_parts(void **state)
{
    (void)state;
    struct model *m;
    repository_add(&repo, "m",
                   CONFIG "max_batch_size: 4 instance_group { count: 3 kind: KIND_CPU }", 7);
    assert_null(load("m", &m));
    assert_string_equal(m->name, "m");
    assert_int_equal(m->version, 7);
    assert_string_equal(m->version_text, "7");
    assert_ptr_equal(m->services->server, server);
    assert_string_equal(m->backend->name, "gate");
    assert_true(m->known_to_backend && m->initialized_in_backend);
    assert_true(m->auto_complete && m->batching && !m->decoupled);
    assert_int_equal(m->max_batch_size, 4);
    assert_int_equal(m->n_inputs, 1);
    assert_string_equal(m->inputs[0].name, "IN");
    assert_int_equal(m->n_instances, 3);
    assert_string_equal(m->instances[0]->name, "m_0_0");
    assert_string_equal(m->instances[2]->name, "m_0_2");
    assert_non_null(m->scheduler);
    assert_null(m->load_slot);
    assert_true(m->metrics.load_ns > 0);
    assert_false(atomic_load(&m->stopping));
    await_one_reference(m);
    assert_int_equal(n_backends(), 1);

    unload(m);
    assert_null(m->scheduler);
    assert_null(m->instances);
    assert_null(m->backend);
    assert_int_equal(m->n_instances, 0);
    assert_false(m->known_to_backend || m->initialized_in_backend);
    assert_true(atomic_load(&m->stopping));
    assert_int_equal(n_backends(), 0); /* no other model has the backend */
    model_unref(m);
}

/* Only another answer is announced. */
static void another_answer_of_the_backend_is_announced(void **state)
{
    (void)state;
    char path[256];
    struct model *m;
    repository_add(&repo, "ready", CONFIG, 1);
    uint32_t before = changes_generation(&server->changes);
    assert_null(load("ready", &m));
    assert_int_equal(changes_generation(&server->changes), before + 1); /* the first one */
    assert_true(readiness_ask(m));
    assert_int_equal(changes_generation(&server->changes), before + 1);
    put_file("ready/fail.ready", "");
    assert_false(readiness_ask(m));
    assert_int_equal(changes_generation(&server->changes), before + 2);
    assert_false(readiness_ask(m));
    assert_int_equal(changes_generation(&server->changes), before + 2);
    snprintf(path, sizeof(path), "%s/ready/fail.ready", repo.path);
    assert_int_equal(unlink(path), 0);
    assert_true(readiness_ask(m));
    assert_int_equal(changes_generation(&server->changes), before + 3);
    unload(m);
    model_unref(m);
}

static void models_share_their_backend(void **state)
{
    (void)state;
    struct model *a, *b;
    repository_add(&repo, "a", CONFIG, 1);
    repository_add(&repo, "b", CONFIG, 1);
    assert_null(load("a", &a));
    struct source *of_a = TAKE(source);
    assert_null(load("b", &b));
    assert_ptr_equal(a->backend, b->backend);
    assert_int_equal(n_backends(), 1);
    unload(a);
    model_unref(a);
    source_unref(of_a);
    assert_int_equal(n_backends(), 1);
    unload(b);
    model_unref(b);
    assert_int_equal(n_backends(), 0);
}

/* Each step of the load: the error of its failure, and that all earlier steps are undone. */
static void a_failed_step_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *name, *config, *text;
    } cases[] = {
        {"no_backend", "backend: 'nowhere' " TENSORS,
         "unable to find backend library for backend 'nowhere'"},
        {"initialize", CONFIG, "the gate is shut"},
        {"finish", "backend: 'gate' input { name: 'IN' dims: 1 } output { name: 'OUT' dims: 1 }",
         "data_type"},
        {"labels",
         "backend: 'gate' input { name: 'IN' data_type: TYPE_INT32 dims: 1 } output { name: 'OUT' "
         "data_type: TYPE_INT32 dims: 1 label_filename: 'gone.txt' }",
         "gone.txt"},
        {"strategy",
         CONFIG "max_batch_size: 2 dynamic_batching { } parameters { key: "
                "'TRITON_BATCH_STRATEGY_PATH' value { string_value: 'gone.so' } }",
         "Batching library path escapes model repository."},
        {"warmup",
         CONFIG "model_warmup { name: 's' batch_size: 1 inputs { key: 'IN' value { data_type: "
                "TYPE_INT32 dims: 1 input_data_file: 'gone' } } }",
         "gone"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct model *m = NULL;
        repository_add(&repo, cases[i].name, cases[i].config, 1);
        if (strcmp(cases[i].name, "initialize") == 0)
            put_file("initialize/fail.load", "the gate is shut\n");
        struct status *st = load(cases[i].name, &m);
        if (!st || !strstr(status_message(st), cases[i].text))
            fail_msg("%s: %s", cases[i].name, st ? status_message(st) : "was loaded");
        assert_null(m);
        status_free(st);
        assert_int_equal(n_backends(), 0);
    }
}

/* Opens the gate when the backend waits at it. */
static void *open_when_reached(void *path)
{
    char reached[512];
    snprintf(reached, sizeof(reached), "%s.reached", (const char *)path);
    while (access(reached, F_OK) != 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(unlink(path), 0);
    return NULL;
}

/* A backend whose initialisation failed may have half-made state, so its finalisation is called,
 * too. */
static void a_backend_that_failed_to_initialize_is_finalized(void **state)
{
    (void)state;
    char gate[256];
    pthread_t opener;
    struct model *m;
    repository_add(&repo, "m", CONFIG, 1);
    put_file("m/fail.load", "no\n");
    put_file("m/hold.unload", "");
    snprintf(gate, sizeof(gate), "%s/m/hold.unload", repo.path);
    assert_int_equal(pthread_create(&opener, NULL, open_when_reached, gate), 0);
    struct status *st = load("m", &m);
    assert_non_null(st);
    assert_string_equal(status_message(st), "no");
    status_free(st);
    assert_int_equal(pthread_join(opener, NULL), 0); /* the finalisation was called */
}

static void a_model_may_be_loaded_after_a_failed_load(void **state)
{
    (void)state;
    char gate[256];
    struct model *m;
    repository_add(&repo, "m", CONFIG, 1);
    put_file("m/fail.load", "not yet\n");
    status_free(load("m", &m));
    snprintf(gate, sizeof(gate), "%s/m/fail.load", repo.path);
    assert_int_equal(unlink(gate), 0);
    assert_null(load("m", &m));
    assert_int_equal(n_backends(), 1);
    unload(m);
    model_unref(m);
}

static void instances_keep_their_threads_where_configured(void **state)
{
    (void)state;
    struct model *m;
    repository_add(&repo, "a", CONFIG, 1);
    repository_add(&repo, "b",
                   CONFIG "parameters { key: 'CONCH_EXECUTION' value { string_value: 'thread' } }",
                   1);
    for (int i = 0; i < 2; i++) {
        assert_null(load(i ? "b" : "a", &m));
        assert_int_equal(model_wants_homes(m), i);
        unload(m);
        model_unref(m);
    }
}

/* What a server asks its models when it stops, and for statistics, before and after the model is
 * closed. */
static void a_model_answers_questions_before_and_after_its_close(void **state)
{
    (void)state;
    struct model *m;
    struct watch_use use;
    repository_add(&repo, "m", CONFIG, 1);
    assert_null(load("m", &m));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(model_n_open(m), 0);
        assert_null(model_stuck_instance(m));
        memset(&use, 0xff, sizeof(use));
        model_executing(m, 1, &use);
        assert_memory_equal(&use, &(struct watch_use){0}, sizeof(use));
        if (i == 0) {
            assert_false(atomic_load(&m->stopping));
            assert_int_equal(model_close(m), 0); /* a model without sequences is stopped at once */
            assert_true(atomic_load(&m->stopping));
        }
    }
    unload(m);
    model_unref(m);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        EACH(a_ready_model_has_its_parts),
        EACH(another_answer_of_the_backend_is_announced),
        EACH(models_share_their_backend),
        EACH(a_failed_step_leaves_nothing),
        EACH(a_backend_that_failed_to_initialize_is_finalized),
        EACH(a_model_may_be_loaded_after_a_failed_load),
        EACH(instances_keep_their_threads_where_configured),
        EACH(a_model_answers_questions_before_and_after_its_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
