/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that are loaded and unloaded while the server runs, with tests/plugins/gate, whose models
 * load and execute when the test opens their gates.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/model/model.h"
#include "core/model/model_services.h"
#include "core/options/server_options.h"
#include "core/repo/load_parameter.h"
#include "core/repo/repository_priv.h"
#include "core/request/life.h"
#include "core/request/request.h"
#include "core/request/response.h"
#include "core/server/server.h"
#include "core/server/server_priv.h"
#include "core/storage/storage.h"
#include "lib/repository.h"

#define CONFIG                                                                                     \
    "backend: 'gate' version_policy { all {} } "                                                   \
    "input { name: 'IN' data_type: TYPE_INT32 dims: -1 } "                                         \
    "output { name: 'OUT' data_type: TYPE_INT32 dims: -1 }"

struct fixture {
    struct test_repository repo;
    struct server *s;
    struct pool *pool;
};

static void start_with(struct fixture *f, enum control_mode mode)
{
    struct server_options *o = server_options_new();
    server_options_add_repository(o, f->repo.path);
    server_options_set_string(&o->backend_directory, CONCH_BUILD_DIR "/tests/backends");
    o->control_mode = mode;
    o->exit_on_error = false;
    f->pool = pool_new("test", 1 << 20, 0);
    assert_null(server_new(o, &f->s));
    server_options_free(o);
}

static void set_up(struct fixture *f)
{
    repository_make(&f->repo);
    repository_add(&f->repo, "m", CONFIG, 1);
    repository_add(&f->repo, "n", CONFIG, 1);
    start_with(f, CONTROL_EXPLICIT);
}

static void tear_down(struct fixture *f)
{
    assert_null(server_stop(f->s));
    server_free(f->s);
    pool_free(f->pool);
    repository_remove(&f->repo);
}

/* ---- The model's folder ---------------------------------------------------------------------- */

static void write_file(const struct fixture *f, const char *path, const char *text)
{
    repository_add_file((struct test_repository *)(uintptr_t)&f->repo, path, text, strlen(text));
}

static void remove_file(const struct fixture *f, const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", f->repo.path, name);
    assert_int_equal(unlink(path), 0);
}

static void change(const struct fixture *f, const char *path)
{
    static int n;
    char text[16];
    snprintf(text, sizeof(text), "%d", ++n);
    write_file(f, path, text);
}

/* Waits until the backend waits at this gate. */
static void await_arrival(const struct fixture *f, const char *gate)
{
    char path[528];
    snprintf(path, sizeof(path), "%s/%s.reached", f->repo.path, gate);
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    while (access(path, F_OK) != 0)
        assert_true(monotonic_ns() < until_ns);
    assert_int_equal(unlink(path), 0);
}

/* ---- Questions ------------------------------------------------------------------------------- */

/* The reason of a failed load, and what would allow it, stand behind the reference's text. */
static void says(struct status *st, enum status_code code, const char *text)
{
    const char *message = st ? status_message(st) : "";
    size_t length = strlen(text);
    if (strncmp(message, text, length) != 0 || (message[length] && !strchr(":;", message[length])))
        fail_msg("'%s' instead of '%s'", message, text);
    if (st)
        assert_int_equal(status_code(st), code);
    status_free(st);
}

static void fine(struct status *st)
{
    says(st, STATUS_UNKNOWN, "");
}

static void loads(const struct fixture *f, const char *name)
{
    fine(server_load_model(f->s, name, NULL, 0));
}

static void read_index(const struct fixture *f, char text[1024])
{
    struct model_index_row *rows;
    size_t n, used = 0;
    fine(server_index(f->s, false, &rows, &n));
    text[0] = '\0';
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, 1024 - used, "%s:%d:%s:%s ", rows[i].name,
                                 (int)rows[i].version, version_state_name(rows[i].state),
                                 rows[i].reason);
    mem_free(rows);
}

static void has_index(const struct fixture *f, const char *expected)
{
    char text[1024];
    read_index(f, text);
    assert_string_equal(text, expected);
}

static void await_index(const struct fixture *f, const char *expected)
{
    char text[1024];
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    do {
        read_index(f, text);
        if (monotonic_ns() > until_ns)
            assert_string_equal(text, expected);
    } while (strcmp(text, expected) != 0);
}

static void finds(const struct fixture *f, const char *name, int64_t version, const char *text)
{
    struct model *m = NULL;
    struct status *st = server_find_model(f->s, name, strlen(name), version, &m);
    assert_string_equal(st ? status_message(st) : "", text);
    status_free(st);
    model_unref(m);
}

static void is_ready(const struct fixture *f, bool expected)
{
    bool ready;
    fine(server_is_ready(f->s, &ready));
    assert_int_equal(ready, expected);
}

/* ---- Requests -------------------------------------------------------------------------------- */

struct asked {
    struct request request;
    struct mutex mu; /* level 1: no lock of ours is held in a callback */
    struct cond changed;
    bool answered, destroyed;
    char error[256];
    int32_t data;
    char memory[2048];
};

static void respond(struct request *r, struct response *resp, uint32_t flags)
{
    struct asked *a = CONTAINER_OF(r, struct asked, request);
    mutex_lock(&a->mu);
    if (resp && resp->error)
        snprintf(a->error, sizeof(a->error), "%s", status_message(resp->error));
    a->answered |= (flags & RESPONSE_FINAL) != 0;
    cond_broadcast(&a->changed);
    mutex_unlock(&a->mu);
    response_free(resp);
}

static void destroy(struct request *r)
{
    struct asked *a = CONTAINER_OF(r, struct asked, request);
    mutex_lock(&a->mu);
    a->destroyed = true;
    cond_broadcast(&a->changed);
    mutex_unlock(&a->mu);
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .respond = respond,
    .destroy = destroy,
};

/* Takes the model's reference; afterwards the request is idle. */
static void make_for(const struct fixture *f, struct asked *a, struct model *m)
{
    static const int64_t shape[] = {1, 1}; /* with the batch dimension, if there is one */
    struct input *in;
    struct tensor_buffer data = {.base = &a->data, .size_bytes = sizeof(a->data)};
    *a = (struct asked){.data = 7};
    mutex_init(&a->mu, 1, "asked.mu");
    cond_init(&a->changed);
    request_init(&a->request, &ops, m, a->memory, sizeof(a->memory), f->pool);
    fine(request_add_input(&a->request, "IN", 2, DTYPE_INT32, shape, m->batching ? 2 : 1, &in));
    fine(request_add_data(&a->request, in, &data));
}

/* Returns the status of the look-up. */
static struct status *try_to_make(const struct fixture *f, struct asked *a, const char *name)
{
    struct model *m;
    struct status *st = server_find_model(f->s, name, strlen(name), CONCH_VERSION_LATEST, &m);
    if (!st)
        make_for(f, a, m);
    return st;
}

static void make(const struct fixture *f, struct asked *a, const char *name)
{
    fine(try_to_make(f, a, name));
}

static void start(const struct fixture *f, struct asked *a)
{
    fine(server_infer(f->s, &a->request));
}

static void await(struct asked *a, const bool *what)
{
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    mutex_lock(&a->mu);
    while (!*what)
        assert_true(cond_wait_until(&a->changed, &a->mu, until_ns));
    mutex_unlock(&a->mu);
}

static void end(struct asked *a)
{
    request_unref(&a->request);
    await(a, &a->destroyed);
    cond_done(&a->changed);
    mutex_done(&a->mu);
}

static void is_served(struct asked *a)
{
    await(a, &a->answered);
    assert_string_equal(a->error, "");
    end(a);
}

/* ---- Loads on other threads ------------------------------------------------------------------ */

struct op {
    const struct fixture *f;
    const char *name;
    bool unload;
    struct thread thread;
    struct status *st;
    atomic_bool ended;
};

static void run_op(void *arg)
{
    struct op *o = arg;
    o->st = o->unload ? server_unload_model(o->f->s, o->name, false)
                      : server_load_model(o->f->s, o->name, NULL, 0);
    atomic_store(&o->ended, true);
}

static void start_op(struct op *o, const struct fixture *f, const char *name, bool unload)
{
    *o = (struct op){.f = f, .name = name, .unload = unload};
    assert_null(thread_start(&o->thread, "op", run_op, o));
}

static void await_op(struct op *o, enum status_code code, const char *text)
{
    thread_join(&o->thread);
    says(o->st, code, text);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

#define UNKNOWN "Request for unknown model: "

static void a_model_is_loaded_and_unloaded(void **state)
{
    (void)state;
    struct fixture f;
    struct asked a, b;
    set_up(&f);
    has_index(&f, "m:-1:: n:-1:: ");
    is_ready(&f, true);
    loads(&f, "m");
    has_index(&f, "m:1:READY: n:-1:: ");
    write_file(&f, "m/hold.execute", "");
    make(&f, &a, "m");
    start(&f, &a);
    await_arrival(&f, "m/hold.execute");

    fine(server_unload_model(f.s, "m", false));
    has_index(&f, "m:1:UNLOADING: n:-1:: ");
    is_ready(&f, true);
    finds(&f, "m", CONCH_VERSION_LATEST, UNKNOWN "'m' has no available versions");
    finds(&f, "m", 1, UNKNOWN "'m' version 1 is not at ready state");
    fine(server_unload_model(f.s, "m", false));
    has_index(&f, "m:1:UNLOADING: n:-1:: ");

    loads(&f, "m"); /* again, while the old version still executes */
    has_index(&f, "m:1:READY: n:-1:: ");
    make(&f, &b, "m");
    start(&f, &b);
    fine(server_unload_model(f.s, "m", false));
    has_index(&f, "m:1:UNLOADING: n:-1:: ");
    remove_file(&f, "m/hold.execute");
    is_served(&a);
    is_served(&b);
    await_index(&f, "m:1:UNAVAILABLE:unloaded n:-1:: ");
    is_ready(&f, true);
    tear_down(&f);
}

/* A request that has found a model is served by it, however late. */
static void a_waiting_request_keeps_its_model(void **state)
{
    (void)state;
    struct fixture f;
    struct asked a, b;
    set_up(&f);
    loads(&f, "m");
    make(&f, &a, "m");
    change(&f, "m/1/file");
    loads(&f, "m");
    make(&f, &b, "m");
    fine(server_unload_model(f.s, "m", false));
    has_index(&f, "m:1:UNLOADING: n:-1:: ");
    start(&f, &a);
    is_served(&a);
    has_index(&f, "m:1:UNLOADING: n:-1:: ");
    start(&f, &b);
    is_served(&b);
    await_index(&f, "m:1:UNAVAILABLE:unloaded n:-1:: ");

    /* Only the end of the server does not wait for such a request. */
    loads(&f, "m");
    loads(&f, "n");
    make(&f, &a, "m");
    make(&f, &b, "n");
    fine(server_unload_model(f.s, "m", false));
    assert_null(server_stop(f.s));
    struct status *st = server_infer(f.s, &a.request);
    assert_non_null(strstr(status_message(st), "Server is stopping"));
    status_free(st);
    end(&a);
    end(&b);
    server_free(f.s);
    pool_free(f.pool);
    repository_remove(&f.repo);
}

/* No request can join the batch any more, so the batch does not wait. */
static void an_unload_does_not_wait_for_a_batch_to_fill(void **state)
{
    (void)state;
    struct fixture f;
    struct asked a, late;
    set_up(&f);
    repository_add(&f.repo, "d",
                   CONFIG " max_batch_size: 8 "
                          "dynamic_batching { max_queue_delay_microseconds: 3600000000 }",
                   1);
    loads(&f, "d");
    make(&f, &a, "d");
    make(&f, &late, "d");
    start(&f, &a);
    assert_false(a.answered);
    fine(server_unload_model(f.s, "d", false));
    is_served(&a);
    start(&f, &late);
    is_served(&late);
    await_index(&f, "d:1:UNAVAILABLE:unloaded m:-1:: n:-1:: ");
    tear_down(&f);
}

static void only_changed_versions_are_reloaded(void **state)
{
    (void)state;
    struct fixture f;
    struct asked a;
    set_up(&f);
    repository_add_file(&f.repo, "m/2/x", "", 0);
    loads(&f, "m");
    has_index(&f, "m:1:READY: m:2:READY: n:-1:: ");
    write_file(&f, "m/hold.load", "");
    remove_file(&f, "m/hold.load");
    loads(&f, "m"); /* the files are as they were */
    make(&f, &a, "m");
    struct model *two = a.request.model, *m;
    end(&a);

    change(&f, "m/1/file");
    repository_add_file(&f.repo, "m/3/x", "", 0);
    loads(&f, "m");
    has_index(&f, "m:1:READY: m:2:READY: m:3:READY: n:-1:: ");
    fine(server_find_model(f.s, "m", 1, 2, &m));
    assert_ptr_equal(m, two);
    model_unref(m);

    remove_file(&f, "m/1/file");
    repository_add_file(&f.repo, "m/config.pbtxt", CONFIG " ", sizeof(CONFIG));
    repository_add_file(&f.repo, "m/config.pbtxt",
                        "backend: 'gate' version_policy { specific { versions: [ 2, 3 ] } } "
                        "input { name: 'IN' data_type: TYPE_INT32 dims: -1 } "
                        "output { name: 'OUT' data_type: TYPE_INT32 dims: -1 }",
                        172);
    loads(&f, "m");
    await_index(&f, "m:1:UNAVAILABLE:unloaded m:2:READY: m:3:READY: n:-1:: ");
    finds(&f, "m", 1, UNKNOWN "'m' version 1 is not at ready state");
    is_ready(&f, true);
    tear_down(&f);
}

/* A storage that counts how often a folder is fetched, and fetches none while it is cut off. */
static struct {
    const struct storage_ops *real;
    unsigned int n_fetched;
    bool is_cut_off;
} store;

static struct status *fetch_counted(const struct storage *s, const char *path, char **ret_folder)
{
    if (store.is_cut_off)
        return status_new(STATUS_UNAVAILABLE, "no route to the store");
    store.n_fetched++;
    return store.real->fetch(s, path, ret_folder);
}

static void an_up_to_date_model_is_not_fetched(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    struct storage *storage = f.s->repository->roots->list[0]->storage;
    store.real = storage->ops;
    struct storage_ops counted = *store.real;
    counted.fetch = fetch_counted;
    storage->ops = &counted;

    repository_add_file(&f.repo, "m/2/x", "", 0);
    loads(&f, "m");
    assert_int_equal(store.n_fetched, 1); /* for both versions */
    loads(&f, "m");
    assert_int_equal(store.n_fetched, 1); /* they are up to date */

    store.is_cut_off = true;
    loads(&f, "m"); /* nothing is needed of the store */
    change(&f, "m/1/file");
    says(
        server_load_model(f.s, "m", NULL, 0), STATUS_INVALID_ARG,
        "load failed for model 'm': version 1 is at UNAVAILABLE state: Unavailable: no route to the "
        "store;\n");
    finds(&f, "m", 1, "");
    finds(&f, "m", 2, "");

    store.is_cut_off = false;
    loads(&f, "m");
    assert_int_equal(store.n_fetched, 2);
    has_index(&f, "m:1:READY: m:2:READY: n:-1:: ");
    storage->ops = store.real;
    tear_down(&f);
}

#define SERVES_AS_BEFORE "serves as before, since its last load failed: Internal: "

static void a_failed_reload_keeps_the_old_version(void **state)
{
    (void)state;
    struct fixture f;
    struct asked a;
    set_up(&f);
    loads(&f, "m");
    make(&f, &a, "m");
    struct model *before = a.request.model;
    start(&f, &a);
    is_served(&a);
    write_file(&f, "m/fail.load", "no disk\n");
    static const char text[] =
        "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: no disk;\n";
    for (int i = 0; i < 2; i++) { /* each call tries the load again */
        says(server_load_model(f.s, "m", NULL, 0), STATUS_INVALID_ARG, text);
        has_index(&f, "m:1:READY:" SERVES_AS_BEFORE "no disk n:-1:: ");
        is_ready(&f, true);
    }
    repository_add_file(&f.repo, "m/2/x", "", 0);
    says(server_load_model(f.s, "m", NULL, 0), STATUS_INVALID_ARG,
         "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: no disk;"
         "version 2 is at UNAVAILABLE state: Internal: no disk;\n");
    has_index(&f,
              "m:1:READY:" SERVES_AS_BEFORE "no disk m:2:UNAVAILABLE:Internal: no disk n:-1:: ");
    is_ready(&f, false);
    make(&f, &a, "m");
    assert_ptr_equal(a.request.model, before);
    end(&a);

    write_file(&f, "m/config.pbtxt", "nonsense");
    says(server_load_model(f.s, "m", NULL, 0), STATUS_INTERNAL,
         "failed to load 'm', failed to poll from model repository");
    finds(&f, "m", CONCH_VERSION_LATEST, "");

    write_file(&f, "m/config.pbtxt", CONFIG);
    remove_file(&f, "m/fail.load");
    loads(&f, "m");
    has_index(&f, "m:1:READY: m:2:READY: n:-1:: ");
    is_ready(&f, true);
    tear_down(&f);
}

/* All versions load, or none. An unload removes the reason of a failure from the index. */
static void a_failed_load_gives_its_reason(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    write_file(&f, "m/fail.load", "no disk\n");
    says(server_load_model(f.s, "m", NULL, 0), STATUS_INVALID_ARG,
         "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: no disk;\n");
    has_index(&f, "m:1:UNAVAILABLE:Internal: no disk n:-1:: ");
    finds(&f, "m", CONCH_VERSION_LATEST, UNKNOWN "'m' has no available versions");
    is_ready(&f, false);
    fine(server_unload_model(f.s, "m", false));
    has_index(&f, "m:1:UNAVAILABLE:unloaded n:-1:: ");
    is_ready(&f, true);
    says(server_load_model(f.s, "nobody", NULL, 0), STATUS_INTERNAL,
         "failed to load 'nobody', failed to poll from model repository");
    fine(server_unload_model(f.s, "nobody", false));
    is_ready(&f, true);
    tear_down(&f);
}

static void changes_of_one_model_wait_for_each_other(void **state)
{
    (void)state;
    struct fixture f;
    struct op first, second, third;
    set_up(&f);
    write_file(&f, "m/hold.load", "");
    start_op(&first, &f, "m", false);
    await_arrival(&f, "m/hold.load");
    has_index(&f, "m:1:LOADING: n:-1:: ");
    is_ready(&f, true); /* the model that serves stays ready */
    finds(&f, "m", CONCH_VERSION_LATEST, UNKNOWN "'m' version 1 is not at ready state");
    start_op(&second, &f, "m", false);
    start_op(&third, &f, "m", true);
    loads(&f, "n"); /* another model does not wait */
    has_index(&f, "m:1:LOADING: n:1:READY: ");
    assert_false(atomic_load(&first.ended));
    assert_false(atomic_load(&second.ended));
    assert_false(atomic_load(&third.ended));
    remove_file(&f, "m/hold.load");
    await_op(&first, STATUS_UNKNOWN, "");
    await_op(&second, STATUS_UNKNOWN, "");
    await_op(&third, STATUS_UNKNOWN, "");
    fine(server_unload_model(f.s, "m", false));
    await_index(&f, "m:1:UNAVAILABLE:unloaded n:1:READY: ");
    tear_down(&f);
}

/* The old version serves until the new one is ready; no request fails. */
static void a_slow_reload_interrupts_no_request(void **state)
{
    (void)state;
    struct fixture f;
    struct op op;
    struct asked a, b;
    set_up(&f);
    loads(&f, "m");
    write_file(&f, "m/hold.load", "");
    start_op(&op, &f, "m", false);
    await_arrival(&f, "m/hold.load");
    has_index(&f, "m:1:READY: n:-1:: ");
    is_ready(&f, true);
    make(&f, &a, "m");
    struct model *before = a.request.model;
    start(&f, &a);
    is_served(&a);
    make(&f, &a, "m");
    assert_ptr_equal(a.request.model, before);
    remove_file(&f, "m/hold.load");
    await_op(&op, STATUS_UNKNOWN, "");
    has_index(&f, "m:1:READY: n:-1:: ");
    make(&f, &b, "m");
    assert_ptr_not_equal(b.request.model, before);
    end(&b);
    end(&a);
    tear_down(&f);
}

static void a_stop_ends_loads_in_progress(void **state)
{
    (void)state;
    struct fixture f;
    struct op op, queued;
    set_up(&f);
    write_file(&f, "m/hold.load", "");
    start_op(&op, &f, "m", false);
    await_arrival(&f, "m/hold.load");
    start_op(&queued, &f, "m", false);
    server_set_exit_timeout(f.s, 0);
    says(server_stop(f.s), STATUS_INTERNAL, "Exit timeout expired. Exiting immediately.");
    says(server_load_model(f.s, "n", NULL, 0), STATUS_UNAVAILABLE, "Server not ready");
    says(server_unload_model(f.s, "n", false), STATUS_UNAVAILABLE, "Server not ready");
    remove_file(&f, "m/hold.load");
    thread_join(&op.thread);
    thread_join(&queued.thread);
    status_free(op.st); /* the load succeeded, or was cancelled in time */
    status_free(queued.st);
    server_set_exit_timeout(f.s, 30);
    tear_down(&f);
}

static void run_stop(void *arg)
{
    assert_null(server_stop(arg));
}

/* Each model's unload waits until the other one's has begun. */
static void a_stop_unloads_models_at_the_same_time(void **state)
{
    (void)state;
    struct fixture f;
    struct thread stop;
    set_up(&f);
    loads(&f, "m");
    loads(&f, "n");
    write_file(&f, "m/hold.unload", "");
    write_file(&f, "n/hold.unload", "");
    assert_null(thread_start(&stop, "stop", run_stop, f.s));
    await_arrival(&f, "m/hold.unload");
    await_arrival(&f, "n/hold.unload");
    remove_file(&f, "m/hold.unload");
    remove_file(&f, "n/hold.unload");
    thread_join(&stop);
    tear_down(&f);
}

static void a_model_loads_from_files_of_the_request(void **state)
{
    (void)state;
    struct fixture f;
    static const char config[] =
        "{\"backend\": \"gate\", \"input\": [{\"name\": \"IN\", \"data_type\": \"TYPE_INT32\", "
        "\"dims\": [-1]}], \"output\": [{\"name\": \"OUT\", \"data_type\": \"TYPE_INT32\", "
        "\"dims\": [-1]}]}";
    const struct load_parameter both[] = {
        {.name = "config", .type = PARAMETER_STRING, .bytes = config},
        {.name = "file:5/weights", .type = PARAMETER_BYTES, .bytes = "w", .size_bytes = 1}};
    set_up(&f);
    says(server_load_model(f.s, "new", both, 1), STATUS_INTERNAL, /* no files */
         "failed to load 'new', failed to poll from model repository");
    fine(server_load_model(f.s, "new", both, 2));
    has_index(&f, "m:-1:: n:-1:: new:5:READY: ");
    struct model *m;
    char directory[512];
    fine(server_find_model(f.s, "new", 3, 5, &m));
    snprintf(directory, sizeof(directory), "%s", m->directory);
    assert_int_equal(access(directory, F_OK), 0);
    fine(server_unload_model(f.s, "new", false));
    has_index(&f, "m:-1:: n:-1:: new:5:UNLOADING: ");
    assert_int_equal(access(directory, F_OK), 0);
    model_unref(m);
    await_index(&f, "m:-1:: n:-1:: "); /* the model is removed from the index */
    finds(&f, "new", CONCH_VERSION_LATEST, UNKNOWN "'new' is not found");
    assert_int_not_equal(access(directory, F_OK), 0);

    loads(&f, "m");
    fine(server_load_model(f.s, "m", both, 2)); /* replaces the model in the repository */
    await_index(&f, "m:1:UNAVAILABLE:unloaded m:5:READY: n:-1:: ");
    loads(&f, "m"); /* the repository's model again */
    await_index(&f, "m:1:READY: m:5:UNAVAILABLE:unloaded n:-1:: ");
    tear_down(&f);
}

static void invalid_model_names_are_refused(void **state)
{
    (void)state;
    static const char *const blank[] = {"", " ", "\t \n"}, *const wrong[] = {".",    "..",
                                                                             "a/b",  "/",
                                                                             "../m", "m/",
                                                                             " ..",  ".. ",
                                                                             "\t.\n"},
                             *const names[] = {"...", "..m", "m..1", ". .", "m "};
    struct fixture f;
    char text[128];
    set_up(&f);
    for (size_t i = 0; i < ARRAY_SIZE(blank); i++)
        says(server_load_model(f.s, blank[i], NULL, 0), STATUS_INVALID_ARG,
             "Model name cannot be empty. Please enter a valid name to deploy.");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(text, sizeof(text), "failed to load '%s', failed to poll from model repository",
                 names[i]);
        says(server_load_model(f.s, names[i], NULL, 0), STATUS_INTERNAL, text);
    }
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        snprintf(text, sizeof(text),
                 "invalid model name '%s', model name must not contain path traversal characters",
                 wrong[i]);
        says(server_load_model(f.s, wrong[i], NULL, 0), STATUS_INVALID_ARG, text);
        fine(server_unload_model(f.s, wrong[i], false));
    }
    tear_down(&f);
}

/* ---- A storm --------------------------------------------------------------------------------- */

enum { N_CLIENTS = 3, N_RELOADS = 30 };

struct storm {
    struct fixture f;
    atomic_bool over;
    atomic_ulong n_served, n_unknown, n_wrong;
    struct thread clients[N_CLIENTS];
};

/* "m" is reloaded without a failed request; "n" is loaded and unloaded, and may be missing. */
static void ask_once(struct storm *s, const char *name, bool may_be_missing)
{
    struct asked a;
    struct status *st = try_to_make(&s->f, &a, name);
    if (st) {
        bool fits = may_be_missing && strncmp(status_message(st), UNKNOWN, strlen(UNKNOWN)) == 0;
        atomic_fetch_add(fits ? &s->n_unknown : &s->n_wrong, 1);
        status_free(st);
        return;
    }
    st = server_infer(s->f.s, &a.request);
    if (!st)
        await(&a, &a.answered);
    atomic_fetch_add(st || a.error[0] ? &s->n_wrong : &s->n_served, 1);
    status_free(st);
    end(&a);
}

static void ask_all_the_time(void *arg)
{
    struct storm *s = arg;
    while (!atomic_load(&s->over)) {
        ask_once(s, "m", false);
        ask_once(s, "n", true);
    }
}

static void reload_n(void *arg)
{
    struct storm *s = arg;
    for (int i = 0; i < N_RELOADS; i++) {
        loads(&s->f, "n");
        fine(server_unload_model(s->f.s, "n", false));
    }
}

static void requests_succeed_during_many_changes(void **state)
{
    (void)state;
    struct storm s = {.over = false};
    struct thread other;
    set_up(&s.f);
    loads(&s.f, "m");
    for (size_t i = 0; i < N_CLIENTS; i++)
        assert_null(thread_start(&s.clients[i], "client", ask_all_the_time, &s));
    assert_null(thread_start(&other, "other", reload_n, &s));
    for (int i = 0; i < N_RELOADS; i++) {
        change(&s.f, i % 2 ? "m/1/file" : "m/2/file"); /* the latest version, or an older one */
        loads(&s.f, "m");
    }
    thread_join(&other);
    unsigned long n = atomic_load(&s.n_served);
    while (atomic_load(&s.n_served) < n + 10)
        sched_yield();
    atomic_store(&s.over, true);
    for (size_t i = 0; i < N_CLIENTS; i++)
        thread_join(&s.clients[i]);
    assert_int_equal(atomic_load(&s.n_wrong), 0);
    await_index(&s.f, "m:1:READY: m:2:READY: n:1:UNAVAILABLE:unloaded ");
    tear_down(&s.f);
}

/* The other modes load their models once, at the start. */
static void only_explicit_mode_loads_by_request(void **state)
{
    (void)state;
    struct test_repository repo;
    struct server_options *o = server_options_new();
    struct server *s;
    static const char text[] = "explicit model load / unload is not allowed if polling is enabled";
    repository_make(&repo);
    repository_add(&repo, "m", CONFIG, 1);
    server_options_add_repository(o, repo.path);
    server_options_set_string(&o->backend_directory, CONCH_BUILD_DIR "/tests/backends");
    assert_null(server_create(o, &s));
    says(server_load_model(s, "m", NULL, 0), STATUS_UNAVAILABLE, "Server not ready");
    assert_null(server_load(s));
    says(server_load_model(s, "m", NULL, 0), STATUS_UNAVAILABLE, text);
    says(server_load_model(s, "", NULL, 0), STATUS_UNAVAILABLE, text);
    says(server_unload_model(s, "m", false), STATUS_UNAVAILABLE, text);
    says(server_poll(s), STATUS_UNAVAILABLE, "polling is disabled");
    assert_null(server_control(s));
    assert_null(server_stop(s));
    server_free(s);
    server_options_free(o);
    repository_remove(&repo);
}

/* ---- Following the repository ---------------------------------------------------------------- */

static void move_model(const struct fixture *f, const char *from, const char *to)
{
    char old[512], new[512];
    snprintf(old, sizeof(old), "%s/%s", f->repo.path, from);
    snprintf(new, sizeof(new), "%s/%s", f->repo.path, to);
    assert_int_equal(rename(old, new), 0);
}

static void poll_mode_serves_what_the_repository_holds(void **state)
{
    (void)state;
    struct fixture f;
    struct asked a;
    repository_make(&f.repo);
    repository_add(&f.repo, "m", CONFIG, 1);
    start_with(&f, CONTROL_POLL);
    has_index(&f, "m:1:READY: ");
    says(server_load_model(f.s, "m", NULL, 0), STATUS_UNAVAILABLE,
         "explicit model load / unload is not allowed if polling is enabled");

    make(&f, &a, "m");
    struct model *before = a.request.model;
    end(&a);
    fine(server_poll(f.s)); /* nothing has changed */
    make(&f, &a, "m");
    assert_ptr_equal(a.request.model, before);
    repository_add(&f.repo, "n", CONFIG, 3);
    repository_add_file(&f.repo, "m/2/x", "", 0);
    has_index(&f, "m:1:READY: n:-1:: ");
    fine(server_poll(f.s));
    has_index(&f, "m:1:READY: m:2:READY: n:3:READY: ");
    is_ready(&f, true);

    write_file(&f, "n/config.pbtxt", "nonsense"); /* the model that serves goes on */
    repository_add(&f.repo, "wrong", "nonsense", 1);
    fine(server_poll(f.s));
    char expected[1024], why_n[512], why_wrong[512];
    static const char why[] = "failed to read text proto from %s/%s/config.pbtxt:1:1: Message type "
                              "\"inference.ModelConfig\" has no field named \"nonsense\"";
    snprintf(why_n, sizeof(why_n), why, f.repo.path, "n");
    snprintf(why_wrong, sizeof(why_wrong), why, f.repo.path, "wrong");
    snprintf(expected, sizeof(expected),
             "m:1:READY: m:2:READY: n:3:READY:" SERVES_AS_BEFORE "%s wrong:-1::Internal: %s ",
             why_n, why_wrong);
    has_index(&f, expected);
    is_ready(&f, true); /* an unreadable model does not count for readiness */
    write_file(&f, "wrong/config.pbtxt", CONFIG);
    write_file(&f, "wrong/fail.load", "no disk\n");
    fine(server_poll(f.s));
    snprintf(expected, sizeof(expected),
             "m:1:READY: m:2:READY: n:3:READY:" SERVES_AS_BEFORE
             "%s wrong:1:UNAVAILABLE:Internal: no disk ",
             why_n);
    has_index(&f, expected);
    is_ready(&f, false);
    write_file(&f, "wrong/config.pbtxt", "nonsense"); /* … but its version has failed */
    fine(server_poll(f.s));
    is_ready(&f, false);
    write_file(&f, "wrong/config.pbtxt", CONFIG);
    remove_file(&f, "wrong/fail.load");
    fine(server_poll(f.s));
    is_ready(&f, true);

    move_model(&f, "wrong", "..gone");
    move_model(&f, "m", "o");
    write_file(&f, "n/config.pbtxt", CONFIG);
    fine(server_poll(f.s));
    await_index(&f, "m:1:UNLOADING: m:2:UNAVAILABLE:unloaded n:3:READY: o:1:READY: o:2:READY: ");
    start(&f, &a); /* the request had found it before */
    is_served(&a);
    await_index(&f, "n:3:READY: o:1:READY: o:2:READY: ");
    finds(&f, "m", CONCH_VERSION_LATEST, UNKNOWN "'m' has no available versions");
    is_ready(&f, true);
    tear_down(&f);
}

static struct status *find_for_step(const struct fixture *f, const char *name, int64_t version,
                                    struct model **ret_model)
{
    const struct model_services *services = &f->s->services;
    return services->find_model(services, name, strlen(name), version, ret_model);
}

static void a_step_keeps_the_model_that_it_has_found(void **state)
{
    (void)state;
    struct fixture f;
    struct asked a;
    struct model *found, *m = NULL;
    set_up(&f);
    loads(&f, "m");
    fine(find_for_step(&f, "m", CONCH_VERSION_LATEST, &found));
    assert_int_equal(found->version, 1);
    repository_add_file(&f.repo, "m/2/x", "", 0);
    loads(&f, "m");
    fine(find_for_step(&f, "m", CONCH_VERSION_LATEST, &m));
    assert_int_equal(m->version, 2);
    model_unref(m);
    fine(find_for_step(&f, "m", 1, &m));
    assert_ptr_equal(m, found);
    model_unref(m);

    fine(server_unload_model(f.s, "m", false));
    await_index(&f, "m:1:UNLOADING: m:2:UNAVAILABLE:unloaded n:-1:: ");
    says(find_for_step(&f, "m", CONCH_VERSION_LATEST, &m), STATUS_NOT_FOUND,
         UNKNOWN "'m' has no available versions");
    make_for(&f, &a, found);
    start(&f, &a);
    is_served(&a);
    await_index(&f, "m:1:UNAVAILABLE:unloaded m:2:UNAVAILABLE:unloaded n:-1:: ");
    tear_down(&f);
}

static void a_model_in_two_repositories_is_not_served(void **state)
{
    (void)state;
    struct fixture f;
    struct test_repository other;
    struct server_options *o = server_options_new();
    repository_make(&f.repo);
    repository_make(&other);
    repository_add(&f.repo, "m", CONFIG, 1);
    server_options_add_repository(o, f.repo.path);
    server_options_add_repository(o, other.path);
    server_options_set_string(&o->backend_directory, CONCH_BUILD_DIR "/tests/backends");
    o->control_mode = CONTROL_POLL;
    f.pool = pool_new("test", 1 << 20, 0);
    assert_null(server_new(o, &f.s));
    server_options_free(o);
    has_index(&f, "m:1:READY: ");
    repository_add(&other, "m", CONFIG, 2);
    for (int i = 0; i < 2; i++) {
        fine(server_poll(f.s));
        await_index(&f, "m:-1:UNAVAILABLE:model appears in two or more repositories ");
        is_ready(&f, true);
    }
    move_model(&f, "m", "..gone");
    fine(server_poll(f.s));
    await_index(&f, "m:1:UNAVAILABLE:unloaded m:2:READY: ");
    is_ready(&f, true);
    repository_remove(&other);
    fine(server_poll(f.s)); /* a repository that cannot be listed leaves its models as they are */
    has_index(&f, "m:1:UNAVAILABLE:unloaded m:2:READY: ");
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_loaded_and_unloaded),
        cmocka_unit_test(a_waiting_request_keeps_its_model),
        cmocka_unit_test(an_unload_does_not_wait_for_a_batch_to_fill),
        cmocka_unit_test(only_changed_versions_are_reloaded),
        cmocka_unit_test(an_up_to_date_model_is_not_fetched),
        cmocka_unit_test(a_step_keeps_the_model_that_it_has_found),
        cmocka_unit_test(a_failed_reload_keeps_the_old_version),
        cmocka_unit_test(a_failed_load_gives_its_reason),
        cmocka_unit_test(changes_of_one_model_wait_for_each_other),
        cmocka_unit_test(a_slow_reload_interrupts_no_request),
        cmocka_unit_test(a_stop_ends_loads_in_progress),
        cmocka_unit_test(a_stop_unloads_models_at_the_same_time),
        cmocka_unit_test(a_model_loads_from_files_of_the_request),
        cmocka_unit_test(invalid_model_names_are_refused),
        cmocka_unit_test(requests_succeed_during_many_changes),
        cmocka_unit_test(only_explicit_mode_loads_by_request),
        cmocka_unit_test(poll_mode_serves_what_the_repository_holds),
        cmocka_unit_test(a_model_in_two_repositories_is_not_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
