/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server starts and loads its models with each allocation failing. The model serves, or the index
 * gives "out of memory", or the start fails. Afterwards all memory is freed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/options/server_options.h"
#include "core/repo/load_parameter.h"
#include "core/server/server.h"
#include "lib/fault.h"
#include "lib/repository.h"

static struct test_repository repository;

static int make_repository(void **state)
{
    (void)state;
    repository_make(&repository);
    repository_add(
        &repository, "whole",
        "backend: 'identity'\nmax_batch_size: 4\n"
        "input { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] }\n"
        "output { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] label_filename: 'labels' }\n"
        "instance_group [ { count: 3 kind: KIND_CPU } ]\n"
        "parameters { key: 'CONCH_EXECUTION' value { string_value: 'thread' } }\n"
        "model_warmup { name: 'made' batch_size: 2 count: 2 inputs { key: 'INPUT0' value "
        "{ data_type: TYPE_FP32 dims: [ 300 ] random_data: true } } }\n"
        "model_warmup { name: 'read' batch_size: 1 inputs { key: 'INPUT0' value "
        "{ data_type: TYPE_FP32 dims: [ 2 ] input_data_file: 'eight' } } }\n",
        3);
    repository_add_file(&repository, "whole/warmup/eight", "eight by", 8);
    repository_add_file(&repository, "whole/labels", "a\nb\n", 4);
    return 0;
}

static int remove_repository(void **state)
{
    (void)state;
    repository_remove(&repository);
    return 0;
}

/* Is it an error of a failed start? Its cause is in the log. */
static bool is_a_failed_start(const struct status *st)
{
    return strstr(status_message(st), "out of memory") ||
           strncmp(status_message(st), "failed to load all models\n", 26) == 0;
}

static struct status *load(void *arg)
{
    const bool *exit_on_error = arg;
    struct server_options *o = server_options_new();
    struct server *s = NULL;
    server_options_add_repository(o, repository.path);
    server_options_set_string(&o->backend_directory, CONCH_BUILD_DIR "/backends");
    o->exit_on_error = *exit_on_error;
    o->strict_readiness = true;
    struct status *st = server_new(o, &s);
    server_options_free(o);
    if (st) {
        if (!is_a_failed_start(st))
            fail_msg("%s", status_message(st));
        status_free(st);
        return status_no_memory();
    }

    size_t n = 0;
    struct model_index_row *rows = NULL;
    st = server_index(s, false, &rows, &n);
    if (st) { /* only the rows can lack memory */
        assert_ptr_equal(st, status_no_memory());
        assert_null(server_stop(s));
        server_free(s);
        return st;
    }
    assert_in_range(n, 0, 1); /* none if the folder could not be listed, which is in the log */
    struct server_progress progress;
    st = server_progress(s, 4, &progress);
    if (st)
        assert_ptr_equal(st, status_no_memory());
    else
        mem_free(progress.rows);
    bool serves = n == 1 && rows[0].state == VERSION_READY;
    /* A configuration that could not be read leaves a row with only a name (reference/behaviours
     * §27.1). */
    if (n == 1 && !serves && rows[0].state != VERSION_NONE &&
        !strstr(rows[0].reason, "out of memory"))
        fail_msg("%s: %s", version_state_name(rows[0].state), rows[0].reason);
    mem_free(rows);
    struct model *m = NULL;
    st = server_find_model(s, "whole", 5, CONCH_VERSION_LATEST, &m);
    if (st && st != status_no_memory())
        assert_false(serves);
    status_free(st);
    if (m)
        model_unref(m);
    st = server_stop(s);
    server_free(s);
    if (!st && !serves)
        st = status_no_memory();
    return st;
}

/* ---- By name, while the server runs ---------------------------------------------------------- */

static bool serves(struct server *s, const char *name)
{
    struct model *m = NULL;
    struct status *st = server_find_model(s, name, strlen(name), CONCH_VERSION_LATEST, &m);
    status_free(st);
    model_unref(m);
    return !st;
}

/* Waits until unloaded models are gone; returns NULL, or why that could not be asked. */
static struct status *await_end(struct server *s)
{
    for (bool retiring = true; retiring;) {
        struct model_index_row *rows;
        size_t n;
        struct status *st = server_index(s, false, &rows, &n);
        if (st)
            return st;
        retiring = false;
        for (size_t i = 0; i < n; i++)
            retiring |= rows[i].state == VERSION_UNLOADING;
        mem_free(rows);
    }
    return NULL;
}

/* Loads a model by name; on failure the cause is in the log, and no part of the model serves. */
static struct status *load_one(struct server *s, const char *name,
                               const struct load_parameter *parameters, size_t n)
{
    struct status *st = server_load_model(s, name, parameters, n);
    assert_int_equal(serves(s, name), st == NULL);
    if (!st)
        return NULL;
    if (!strstr(status_message(st), "out of memory") &&
        !strstr(status_message(st), "failed to poll from model repository"))
        fail_msg("%s", status_message(st));
    status_free(st);
    return status_no_memory();
}

static struct status *come_and_go(void *arg)
{
    static const char config[] =
        "{\"backend\": \"identity\", \"input\": [{\"name\": \"INPUT0\", \"data_type\": "
        "\"TYPE_FP32\", \"dims\": [-1]}], \"output\": [{\"name\": \"OUTPUT0\", \"data_type\": "
        "\"TYPE_FP32\", \"dims\": [-1]}]}";
    const struct load_parameter both[] = {
        {.name = "config", .type = PARAMETER_STRING, .bytes = config},
        {.name = "file:1/some/file", .type = PARAMETER_BYTES, .bytes = "abc", .size_bytes = 3}};
    struct server_options *o = server_options_new();
    struct server *s = NULL;
    (void)arg;
    server_options_add_repository(o, repository.path);
    server_options_set_string(&o->backend_directory, CONCH_BUILD_DIR "/backends");
    o->control_mode = CONTROL_EXPLICIT;
    struct status *st = server_new(o, &s);
    server_options_free(o);
    if (st) {
        status_free(st);
        return status_no_memory();
    }
    st = load_one(s, "whole", NULL, 0);
    if (!st)
        st = load_one(s, "new", both, 2);
    if (!st)
        st = server_load_model(s, "whole", both, 2); /* replaces the one that serves */
    assert_true(!st || !serves(s, "new") || serves(s, "whole"));
    struct status *end = server_unload_model(s, "whole", false);
    assert_null(end);
    end = server_unload_model(s, "new", false);
    assert_null(end);
    assert_false(serves(s, "whole") || serves(s, "new"));
    end = await_end(s);
    assert_null(server_stop(s));
    server_free(s);
    bool failed = st || end;
    status_free(st);
    status_free(end);
    return failed ? status_no_memory() : NULL;
}

/* The log has each failure; in this test that would be hundreds of lines. */

static int console[2];

static int silence(void **state)
{
    (void)state;
    fflush(NULL);
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int i = 0; i < 2; i++) {
        console[i] = fcntl(1 + i, F_DUPFD_CLOEXEC, 10);
        dup2(nowhere, 1 + i);
    }
    close(nowhere);
    return 0;
}

static int speak_again(void **state)
{
    (void)state;
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        dup2(console[i], 1 + i);
        close(console[i]);
    }
    return 0;
}

static void a_server_goes_on_without_its_failed_model(void **state)
{
    (void)state;
    bool exit_on_error = false;
    assert_true(fault_each_allocation(load, &exit_on_error) > 10);
}

static void a_server_ends_when_its_model_fails(void **state)
{
    (void)state;
    bool exit_on_error = true;
    assert_true(fault_each_allocation(load, &exit_on_error) > 10);
}

static void loads_by_name_survive_lack_of_memory(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(come_and_go, NULL) > 10);
}

static size_t largest; /* written by the only thread that loads */

static bool note_size(size_t size_bytes)
{
    size_t before = __atomic_load_n(&largest, __ATOMIC_RELAXED);
    if (size_bytes > before)
        __atomic_store_n(&largest, size_bytes, __ATOMIC_RELAXED);
    return true;
}

/* Memory is not allocated in advance for the sizes that a configuration allows. */
static void a_huge_batch_size_allocates_nothing(void **state)
{
    (void)state;
    struct test_repository huge;
    repository_make(&huge);
    repository_add(&huge, "huge",
                   "backend: 'identity'\nmax_batch_size: 2147483647\n"
                   "input { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] }\n"
                   "output { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] }\n",
                   1);
    struct server_options *o = server_options_new();
    struct server *s = NULL;
    server_options_add_repository(o, huge.path);
    server_options_set_string(&o->backend_directory, CONCH_BUILD_DIR "/backends");
    o->exit_on_error = true;
    mem_set_test_hook(note_size);
    struct status *st = server_new(o, &s);
    mem_set_test_hook(NULL);
    server_options_free(o);
    if (st)
        fail_msg("%s", status_message(st));
    assert_null(server_stop(s));
    server_free(s);
    repository_remove(&huge);
    assert_in_range(largest, 1, 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_server_goes_on_without_its_failed_model, silence,
                                        speak_again),
        cmocka_unit_test_setup_teardown(a_server_ends_when_its_model_fails, silence, speak_again),
        cmocka_unit_test_setup_teardown(loads_by_name_survive_lack_of_memory, silence, speak_again),
        cmocka_unit_test_setup_teardown(a_huge_batch_size_allocates_nothing, silence, speak_again),
    };
    return cmocka_run_group_tests(tests, make_repository, remove_repository);
}
