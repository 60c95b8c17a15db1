/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's account: the memory that it has, and a report of memory that is not freed at its end.
 */
#include "core/model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/model/labels.h"
#include "core/model/model_priv.h"
#include "core/model/statistics.h"
#include "core/storage/storage.h"
#include "lib/death.h"
#include "lib/fake_model.h"
#include "lib/repository.h"

static const char config[] =
    "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1000 ] }\n"
    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1000 ] }\n"
    "parameters { key: \"CONCH_EXECUTION\" value { string_value: \"thread\" } }";

enum { TENSOR_BYTES = 4000 };

/* The account while the one request of a test had its output. */
static struct model_memory while_answering;

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    static const int64_t shape[] = {1000};
    struct response *resp;
    struct output *out;
    assert_int_equal(n, 1);
    assert_null(response_new(requests[0], &resp));
    assert_null(response_add_output(resp, "X", DTYPE_FP32, shape, 1, &out));
    assert_null(output_alloc(out, TENSOR_BYTES));
    model_memory(in->model, &while_answering);
    assert_null(response_send(resp, RESPONSE_FINAL, NULL));
    return request_release(requests[0]);
}

static void serve_one_request(struct fake_model *f)
{
    static float values[1000];
    static const int64_t shape[] = {1000};
    struct fake_request fr;
    struct input *in;
    struct tensor_buffer data = {.base = values, .size_bytes = sizeof(values)};
    fake_request_make(&fr, f);
    assert_null(request_add_input(&fr.request, "A", 1, DTYPE_FP32, shape, 1, &in));
    assert_null(request_add_data(&fr.request, in, &data));
    assert_null(server_infer(&f->server, &fr.request));
    fake_request_wait(&fr);
    assert_false(fr.failed);
    fake_request_end(&fr);
}

static void the_account_has_each_kind_of_memory(void **state)
{
    (void)state;
    struct fake_model f;
    struct model_memory one, three, after;
    fake_model_make(&f, config, 1, execute);
    model_memory(f.model, &one);
    fake_model_end(&f);

    fake_model_make(&f, config, 3, execute);
    model_memory(f.model, &three);
    /* Only the statistics of further instances outlive them. */
    assert_in_range(three.kinds[MEM_CONFIG].now_bytes,
                    one.kinds[MEM_CONFIG].now_bytes + 2 * sizeof(struct instance_stats),
                    one.kinds[MEM_CONFIG].now_bytes + 2 * sizeof(struct instance_stats) + 1024);
    assert_in_range(one.kinds[MEM_CONFIG].now_bytes, strlen(config), 16384);
    assert_true(one.kinds[MEM_INSTANCES].now_bytes >
                sizeof(struct instance) + sizeof(struct pull_scheduler));
    assert_true(three.kinds[MEM_INSTANCES].now_bytes >
                one.kinds[MEM_INSTANCES].now_bytes + 2 * sizeof(struct instance));
    assert_int_equal(three.kinds[MEM_TENSORS].now_bytes, 0);

    serve_one_request(&f);
    assert_in_range(while_answering.kinds[MEM_TENSORS].now_bytes, TENSOR_BYTES, 2 * TENSOR_BYTES);
    model_memory(f.model, &after);
    assert_int_equal(after.kinds[MEM_TENSORS].now_bytes, 0);
    assert_int_equal(after.kinds[MEM_TENSORS].peak_bytes,
                     while_answering.kinds[MEM_TENSORS].now_bytes);
    assert_int_equal(after.kinds[MEM_CONFIG].now_bytes, three.kinds[MEM_CONFIG].now_bytes);
    /* The first execution of an instance allocates a thread and a batch. */
    assert_in_range(after.kinds[MEM_INSTANCES].now_bytes,
                    three.kinds[MEM_INSTANCES].now_bytes + sizeof(struct thread),
                    three.kinds[MEM_INSTANCES].now_bytes + 512);
    fake_model_end(&f);
}

static void reports_of_instances_are_added_up(void **state)
{
    (void)state;
    struct fake_model f;
    struct model_memory memory;
    fake_model_make(&f, config, 2, execute);
    atomic_store(&f.model->reported_bytes[PLACE_CPU], 1000);
    instance_report_memory(f.model->instances[0], (size_t[N_MEMORY_PLACES]){20, 0, 7});
    instance_report_memory(f.model->instances[1], (size_t[N_MEMORY_PLACES]){5, 0, 7});
    model_memory(f.model, &memory);
    assert_int_equal(memory.reported_bytes[PLACE_CPU], 1025);
    assert_int_equal(memory.reported_bytes[PLACE_GPU], 14);
    instance_report_memory(f.model->instances[0], (size_t[N_MEMORY_PLACES]){3}); /* instead of 20 */
    model_memory(f.model, &memory);
    assert_int_equal(memory.reported_bytes[PLACE_CPU], 1008);
    assert_int_equal(memory.reported_bytes[PLACE_GPU], 7);

    struct model *m = f.model;
    model_ref(m);
    fake_model_end(&f);
    model_memory(m, &memory); /* the instances are freed, and their reports with them */
    assert_int_equal(memory.reported_bytes[PLACE_CPU], 1000);
    assert_int_equal(memory.reported_bytes[PLACE_GPU], 0);
    assert_int_equal(memory.kinds[MEM_INSTANCES].now_bytes, 0);
    assert_true(memory.kinds[MEM_CONFIG].now_bytes > 0);
    model_unref(m);
}

/* --------------------------------------------------------------------------- an open model */

enum { N_USERS = 4, N_TIMES = 3000 };

struct user {
    struct thread thread;
    struct model *model; /* a reference */
    atomic_int *n_ready;
};

/* Uses the model as requests do: each use has a reference, and is counted, sometimes on another
 * thread. */
static void use_model(void *arg)
{
    struct user *u = arg;
    atomic_fetch_add(u->n_ready, 1);
    while (atomic_load(u->n_ready) < N_USERS) {
    }
    for (int i = 0; i < N_TIMES; i++) {
        model_ref(u->model);
        model_request_begun(u->model);
        model_request_ended(u->model);
        model_unref(u->model);
    }
    model_unref(u->model);
}

static atomic_int n_alone;

static void count_alone(struct model *m)
{
    assert_int_equal(model_refs(m), 1);
    atomic_fetch_add(&n_alone, 1);
}

/* The model is closed in the middle. The end of the last use is seen exactly once, by a user or
 * by the closer. */
static void the_last_user_of_an_open_model_is_seen_once(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct fake_model f;
        struct user users[N_USERS];
        atomic_int n_ready = 0;
        fake_model_make(&f, config, 1, execute);
        model_open(f.model);
        f.model->on_alone = count_alone;
        atomic_store(&n_alone, 0);
        for (int i = 0; i < N_USERS; i++) {
            model_ref(f.model);
            users[i] = (struct user){.model = f.model, .n_ready = &n_ready};
            assert_null(thread_start(&users[i].thread, "user", use_model, &users[i]));
        }
        while (atomic_load(&n_ready) < N_USERS - round % 2) {
        }
        bool alone = model_retire(f.model);
        for (int i = 0; i < N_USERS; i++)
            thread_join(&users[i].thread);
        assert_int_equal(atomic_load(&n_alone), !alone);
        assert_int_equal(model_refs(f.model), 1);
        fake_model_end(&f);
    }
}

static void stop_model(void *arg)
{
    fake_model_end(arg); /* returns when the model has no user */
}

/* A stop waits for the requests inside the model, and for nothing else. */
static void a_stop_waits_for_the_requests_inside(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        struct fake_model f;
        struct user users[N_USERS];
        struct thread stopper;
        atomic_int n_ready = 0;
        fake_model_make(&f, config, 1, execute);
        model_open(f.model);
        struct model *m = f.model;
        model_ref(m);
        model_request_begun(m);
        for (int i = 0; i < N_USERS; i++) {
            model_ref(m);
            users[i] = (struct user){.model = m, .n_ready = &n_ready};
            assert_null(thread_start(&users[i].thread, "user", use_model, &users[i]));
        }
        assert_null(thread_start(&stopper, "stopper", stop_model, &f));
        for (int i = 0; i < N_USERS; i++)
            thread_join(&users[i].thread);
        assert_int_equal(model_inflight(m), 1);
        assert_non_null(m->scheduler);
        model_request_ended(m);
        thread_join(&stopper);
        assert_int_equal(model_inflight(m), 0);
        assert_int_equal(model_refs(m), 1);
        model_unref(m);
    }
}

/* ------------------------------------------------------------------------------------- leaks */

static void *lost; /* reachable, so that a leak sanitizer does not report it */

static void lose(void *arg)
{
    const enum mem_kind *kind = arg;
    struct fake_model f;
    fake_model_make(&f, config, 1, execute);
    {
        MEM_CHARGE(f.model->owner, *kind);
        lost = mem_alloc(123);
    }
    fake_model_end(&f);
}

/* Runs lose() with the log in a file, and gives the file's text. */
static void lose_and_read_log(enum mem_kind kind, struct buf *ret_log)
{
    char path[] = "/tmp/conch-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_null(log_open_file(path));
    lose(&kind);
    assert_null(log_open_file(""));
    assert_null(file_read(path, ret_log));
    unlink(path);
    mem_free(TAKE(lost));
}

static void end_request(void *arg)
{
    model_request_ended(arg);
}

/* A thread that sees the model without users may free the server. So the last user reports its
 * end under the lock of the stop, and touches the server no more. */
static void the_last_user_ends_under_the_lock_of_the_stop(void **state)
{
    (void)state;
    enum { LOOKS = 30 }; /* of a millisecond each, in which a thread that does not wait is seen */
    struct fake_model f;
    struct thread last;
    fake_model_make(&f, config, 1, execute);
    model_open(f.model);
    model_request_begun(f.model);
    model_note_stopping(f.model);
    mutex_lock(&f.server.drain_mu);
    assert_null(thread_start(&last, "last", end_request, f.model));
    size_t n = 1;
    for (int i = 0; i < LOOKS && n == 1; i++) {
        usleep(1000);
        n = model_inflight(f.model);
    }
    mutex_unlock(&f.server.drain_mu);
    thread_join(&last);
    assert_int_equal(n, 1);
    assert_int_equal(model_inflight(f.model), 0);
    fake_model_end(&f);
}

static void our_leak_is_reported(void **state)
{
    (void)state;
    static const struct {
        enum mem_kind kind;
        const char *text;
    } cases[] = {
        {MEM_CONFIG,
         "model 'm' version 1 has ended, and 123 bytes of its configuration are not back"},
        {MEM_INSTANCES,
         "model 'm' version 1 has ended, and 123 bytes of its instances are not back"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        enum mem_kind kind = cases[i].kind;
#ifdef CONCH_DEBUG
        assert_aborts(lose, &kind, cases[i].text);
#else
        AUTO(buf) log = BUF_INIT(1 << 16);
        lose_and_read_log(kind, &log);
        assert_non_null(strstr(buf_text(&log), cases[i].text));
#endif
    }
}

/* A backend's leak is logged and does not abort the server. */
static void a_backends_leak_is_reported(void **state)
{
    (void)state;
    AUTO(buf) log = BUF_INIT(1 << 16);
    lose_and_read_log(MEM_BACKEND, &log);
    assert_non_null(strstr(buf_text(&log), "model 'm' version 1 has ended, and 123 bytes of its "
                                           "backend objects are not back"));
}

/* ---- Labels of an ensemble --------------------------------------------------------------------
 */

static const char labelled[] =
    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 3 ] label_filename: \"classes\" }\n"
    "output { name: \"Y\" data_type: TYPE_FP32 dims: [ 3 ] }";
/* Its output T is the model's X, and Z is Y. OWN is X, too, and has a file of its own. */
static const char ensemble[] =
    "name: 'e' platform: 'ensemble' input { name: 'I' data_type: TYPE_FP32 dims: 1 } "
    "output { name: 'T' data_type: TYPE_FP32 dims: 3 } "
    "output { name: 'Z' data_type: TYPE_FP32 dims: 3 } "
    "output { name: 'OWN' data_type: TYPE_FP32 dims: 3 label_filename: 'own' } "
    "ensemble_scheduling { step { model_name: 'm' model_version: 1 "
    "  input_map { key: 'A' value: 'I' } output_map { key: 'Y' value: 'Z' } "
    "  output_map { key: 'X' value: 'T' } } "
    "step { model_name: 'm' model_version: 1 input_map { key: 'A' value: 'I' } "
    "  output_map { key: 'X' value: 'OWN' } } }";

static void put_label_file(const char *root, const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, folder);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/%s/%s", root, folder, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static struct model *make_model(struct fake_model *f, const char *name, const char *text,
                                struct storage *storage)
{
    struct model_config *c;
    assert_null(model_config_parse_text(text, strlen(text), "config.pbtxt", &c));
    struct model *m = model_new(&f->server.services, name, 1, "/nowhere", c);
    m->storage = storage;
    return m;
}

static void an_ensemble_has_the_labels_of_its_steps(void **state)
{
    struct test_repository repo;
    struct storage *storage;
    struct fake_model f;
    (void)state;
    repository_make(&repo);
    put_label_file(repo.path, "m", "classes", "cat\ndog\n");
    put_label_file(repo.path, "e", "own", "other\n");
    assert_null(storage_open(repo.path, false, &storage));
    fake_model_make(&f, config, 1, execute);
    struct model *member = make_model(&f, "m", labelled, storage);
    assert_null(model_make_specs(member));
    struct model *e = make_model(&f, "e", ensemble, storage);
    struct model *members[] = {member, member};
    e->members = members;
    e->n_members = 2;
    assert_null(model_make_specs(e));
    e->n_members = 0;
    e->members = NULL;
    model_unref(member); /* a response may outlive the models of the steps */

    const struct labels *l = model_find_output(e, "T")->labels;
    assert_non_null(l);
    assert_int_equal(l->count, 2);
    assert_string_equal(l->lines[1], "dog");
    assert_null(model_find_output(e, "Z")->labels);
    l = model_find_output(e, "OWN")->labels;
    assert_int_equal(l->count, 1);
    assert_string_equal(l->lines[0], "other");
    model_unref(e);
    fake_model_end(&f);
    storage_unref(storage);
    repository_remove(&repo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_account_has_each_kind_of_memory),
        cmocka_unit_test(the_last_user_of_an_open_model_is_seen_once),
        cmocka_unit_test(a_stop_waits_for_the_requests_inside),
        cmocka_unit_test(the_last_user_ends_under_the_lock_of_the_stop),
        cmocka_unit_test(reports_of_instances_are_added_up),
        cmocka_unit_test(our_leak_is_reported),
        cmocka_unit_test(a_backends_leak_is_reported),
        cmocka_unit_test(an_ensemble_has_the_labels_of_its_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
