/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of models and server while models load, with tests/plugins/gate, whose models load
 * when the test opens their gates.
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
#include "base/status.h"
#include "base/thread.h"
#include "core/model/model.h"
#include "core/options/server_options.h"
#include "core/server/server.h"
#include "lib/repository.h"

#define CONFIG                                                                                     \
    "backend: 'gate' "                                                                             \
    "input { name: 'IN' data_type: TYPE_INT32 dims: -1 } "                                         \
    "output { name: 'OUT' data_type: TYPE_INT32 dims: -1 }"

/* How the loading ended. */
struct outcome {
    struct mutex mu;
    struct cond changed;
    bool come;
    enum status_code code;
    char text[256];
};

static void on_loaded(void *arg, struct status *st)
{
    struct outcome *o = arg;
    mutex_lock(&o->mu);
    o->come = true;
    o->code = st ? status_code(st) : STATUS_UNKNOWN;
    snprintf(o->text, sizeof(o->text), "%s", st ? status_message(st) : "");
    cond_broadcast(&o->changed);
    mutex_unlock(&o->mu);
    status_free(st);
}

static void await(struct outcome *o, enum status_code code, const char *text)
{
    mutex_lock(&o->mu);
    while (!o->come)
        assert_true(cond_wait_until(&o->changed, &o->mu, monotonic_ns() + 60 * NS_PER_S));
    mutex_unlock(&o->mu);
    assert_string_equal(o->text, text);
    assert_int_equal(o->code, code);
}

struct fixture {
    struct test_repository repo;
    struct server_options *options;
    struct outcome outcome;
};

static void set_up(struct fixture *f)
{
    repository_make(&f->repo);
    f->options = server_options_new();
    server_options_add_repository(f->options, f->repo.path);
    server_options_set_string(&f->options->backend_directory, CONCH_BUILD_DIR "/tests/backends");
    f->outcome = (struct outcome){.come = false};
    mutex_init(&f->outcome.mu, 1, "test");
    cond_init(&f->outcome.changed);
}

static void tear_down(struct fixture *f)
{
    server_options_free(f->options);
    cond_done(&f->outcome.changed);
    mutex_done(&f->outcome.mu);
    repository_remove(&f->repo);
}

static void gate_path(const struct fixture *f, const char *gate, char path[512])
{
    snprintf(path, 512, "%s/%s", f->repo.path, gate);
}

static void shut(const struct fixture *f, const char *gate, const char *text)
{
    char path[512];
    gate_path(f, gate, path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void open_gate(const struct fixture *f, const char *gate)
{
    char path[512];
    gate_path(f, gate, path);
    assert_int_equal(unlink(path), 0);
}

/* Waits until the backend waits at this gate. */
static void await_arrival(const struct fixture *f, const char *gate)
{
    char path[528];
    snprintf(path, sizeof(path), "%s/%s.reached", f->repo.path, gate);
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    while (access(path, F_OK) != 0)
        assert_true(monotonic_ns() < until_ns);
}

static void says(struct status *st, enum status_code code, const char *text)
{
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

static void finds(struct server *s, const char *name, const char *text)
{
    struct model *m;
    struct status *st = server_find_model(s, name, strlen(name), CONCH_VERSION_LATEST, &m);
    assert_string_equal(st ? status_message(st) : "", text);
    status_free(st);
    if (!st)
        model_unref(m);
}

static void is_live_and_ready(struct server *s, bool live, bool ready)
{
    bool is;
    assert_null(server_is_live(s, &is));
    assert_int_equal(is, live);
    assert_null(server_is_ready(s, &is));
    assert_int_equal(is, ready);
}

/* Prints each row as "name:version:state:reason". */
static void read_index(struct server *s, char text[1024])
{
    struct model_index_row *rows;
    size_t n, used = 0;
    struct status *st = server_index(s, false, &rows, &n);
    snprintf(text, 1024, "%s", st ? status_message(st) : "");
    status_free(st);
    if (st)
        return;
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, 1024 - used, "%s:%d:%s:%s\n", rows[i].name,
                                 (int)rows[i].version, version_state_name(rows[i].state),
                                 rows[i].reason);
    mem_free(rows);
}

static void await_index(struct server *s, const char *expected)
{
    char text[1024];
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    do {
        read_index(s, text);
        if (monotonic_ns() > until_ns)
            assert_string_equal(text, expected);
    } while (strcmp(text, expected) != 0);
}

/* Prints "state total serving failed", then the rows as above. */
static void read_progress(struct server *s, size_t max_rows, char text[1024])
{
    struct server_progress p;
    assert_null(server_progress(s, max_rows, &p));
    size_t used = (size_t)snprintf(text, 1024, "%s%s %zu %zu %zu\n", p.ready ? "ready " : "",
                                   p.state, p.n_models, p.n_serving, p.n_failed);
    assert_true(p.n_loading <= p.n_rows);
    for (size_t i = 0; i < p.n_rows; i++)
        used += (size_t)snprintf(text + used, 1024 - used, "%s:%d:%s:%s\n", p.rows[i].name,
                                 (int)p.rows[i].version, version_state_name(p.rows[i].state),
                                 p.rows[i].reason);
    mem_free(p.rows);
}

static void await_progress(struct server *s, const char *expected)
{
    char text[1024];
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    do {
        read_progress(s, 8, text);
        if (monotonic_ns() > until_ns)
            assert_string_equal(text, expected);
    } while (strcmp(text, expected) != 0);
}

static void a_start_reports_its_progress(void **state)
{
    (void)state;
    struct fixture f;
    struct server *s;
    struct model_index_row *rows;
    size_t n;
    set_up(&f);
    repository_add(&f.repo, "bad", CONFIG, 1);
    repository_add(&f.repo, "late", CONFIG, 4);
    repository_add(&f.repo, "quick", CONFIG, 1);
    repository_add(&f.repo, "wrong", "nonsense", 1);
    shut(&f, "bad/fail.load", "no disk\n");
    shut(&f, "late/hold.load", "");
    f.options->exit_on_error = false;

    assert_null(server_create(f.options, &s));
    is_live_and_ready(s, true, false);
    finds(s, "quick", "Server not ready");
    says(server_index(s, false, &rows, &n), STATUS_UNAVAILABLE, "Server not ready");
    await_progress(s, "starting 0 0 0\n");

    assert_null(server_load_start(s, on_loaded, &f.outcome));
    says(server_load_start(s, on_loaded, &f.outcome), STATUS_ALREADY_EXISTS,
         "the server loads its models, or has done so");
    static const char expected[] =
        "starting 4 1 2\nlate:-1:LOADING:\nbad:1:UNAVAILABLE:Internal: no disk\n";
    char text[1024];
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    do {
        assert_true(monotonic_ns() < until_ns);
        read_progress(s, 8, text);
    } while (strncmp(text, expected, strlen(expected)) != 0);
    assert_non_null(strstr(text, "wrong:-1:UNAVAILABLE:"));
    assert_non_null(strstr(text, "wrong/config.pbtxt"));

    char *rows_of_index =
        mem_printf("bad:1:UNAVAILABLE:Internal: no disk\nlate:4:LOADING:\n"
                   "quick:1:READY:\nwrong:-1::Internal: failed to read text proto "
                   "from %s/wrong/config.pbtxt:1:1: Message type "
                   "\"inference.ModelConfig\" has no field named \"nonsense\"\n",
                   f.repo.path);
    await_index(s, rows_of_index);
    mem_free(rows_of_index);
    is_live_and_ready(s, true, false);
    finds(s, "quick", "");
    finds(s, "late", "Request for unknown model: 'late' version 4 is not at ready state");
    finds(s, "bad", "Request for unknown model: 'bad' has no available versions");
    finds(s, "wrong", "Request for unknown model: 'wrong' is not found");
    read_progress(s, 1, text); /* one row of each kind */
    assert_string_equal(text, expected);

    open_gate(&f, "late/hold.load");
    await(&f.outcome, STATUS_UNKNOWN, "");
    says(server_load(s), STATUS_UNAVAILABLE, "the server has loaded its models, or is stopping");
    is_live_and_ready(s, true, false); /* one model has failed, and one is unreadable */
    finds(s, "late", "");
    read_progress(s, 0, text);
    assert_string_equal(text, "running 4 2 2\n");

    assert_null(server_stop(s));
    assert_null(server_stop(s));
    server_free(s);
    tear_down(&f);
}

static void a_failed_model_ends_the_start(void **state)
{
    (void)state;
    struct fixture f;
    struct server *s;
    set_up(&f);
    repository_add(&f.repo, "bad", CONFIG, 1);
    repository_add(&f.repo, "good", CONFIG, 1);
    shut(&f, "bad/fail.load", "no disk\n");
    assert_null(server_create(f.options, &s));
    assert_null(server_load_start(s, on_loaded, &f.outcome));
    await(&f.outcome, STATUS_INTERNAL,
          "1 of 2 models failed:\n"
          "  bad version 1: Internal: no disk\n"
          "With --exit-on-error=false the server starts without them.");
    is_live_and_ready(s, false, false);
    says(server_index(s, false, NULL, NULL), STATUS_UNAVAILABLE, "Server not ready");
    await_progress(s, "failed 2 1 1\nbad:1:UNAVAILABLE:Internal: no disk\n");
    assert_null(server_stop(s));
    server_free(s);
    tear_down(&f);
}

static void a_start_loads_named_models_and_reports_missing_ones(void **state)
{
    (void)state;
    struct fixture f;
    struct server *s;
    set_up(&f);
    static const char *const present[] = {"a", "c", "e"};
    for (size_t i = 0; i < 3; i++)
        repository_add(&f.repo, present[i], CONFIG, 1);
    f.options->control_mode = CONTROL_EXPLICIT;
    f.options->exit_on_error = false;
    static const char *const wanted[] = {"f", "c", "0", "d", "c"};
    for (size_t i = 0; i < 5; i++)
        server_options_add_startup_model(f.options, wanted[i]);
    assert_int_equal(f.options->n_startup_models, 4);
    assert_null(server_new(f.options, &s));
    await_index(s, "a:-1::\nc:1:READY:\ne:-1::\n");
    char text[1024];
    read_progress(s, 2, text);
#define NOWHERE ":-1:UNAVAILABLE:Not found: model not found in any model repository.\n"
    assert_string_equal(text, "ready running 4 1 3\n0" NOWHERE "d" NOWHERE);
    is_live_and_ready(s, true, true);
    assert_null(server_stop(s));
    server_free(s);

    server_options_add_startup_model(f.options, "*");
    says(server_new(f.options, &s), STATUS_INVALID_ARG,
         "Wildcard model name '*' must be the ONLY startup model if specified at all.");
    tear_down(&f);
}

/* With exit-on-error=false the server starts, and reports that the repository is missing. */
static void a_missing_repository_is_reported(void **state)
{
    (void)state;
    struct fixture f;
    struct server *s;
    char text[1024];
    set_up(&f);
    repository_add(&f.repo, "a", CONFIG, 1);
    server_options_add_repository(f.options, "/nowhere/at/all");
    says(server_new(f.options, &s), STATUS_INTERNAL, "failed to stat file /nowhere/at/all");

    f.options->exit_on_error = false;
    f.options->control_mode = CONTROL_EXPLICIT;
    assert_null(server_new(f.options, &s));
    is_live_and_ready(s, false, false);
    finds(s, "a", "Server not ready");
    says(server_index(s, false, NULL, NULL), STATUS_UNAVAILABLE, "Server not ready");
    says(server_load_model(s, "a", NULL, 0), STATUS_UNAVAILABLE, "Server not ready");
    read_progress(s, 2, text);
    assert_string_equal(text, "failed 0 0 0\n");
    assert_null(server_stop(s));
    server_free(s);

    assert_null(server_create(f.options, &s));
    assert_null(server_load_start(s, on_loaded, &f.outcome));
    await(&f.outcome, STATUS_UNKNOWN, "");
    is_live_and_ready(s, false, false);
    assert_null(server_stop(s));
    server_free(s);
    tear_down(&f);
}

/* ---- Stopping meanwhile ---------------------------------------------------------------------- */

static void a_stop_that_timed_out_may_be_called_again(void **state)
{
    (void)state;
    struct fixture f;
    struct server *s;
    bool is;
    set_up(&f);
    repository_add(&f.repo, "a", CONFIG, 1);
    repository_add(&f.repo, "b", CONFIG, 1);
    shut(&f, "a/hold.load", "");
    f.options->load_threads = 1;
    f.options->exit_timeout_s = 0;
    assert_null(server_create(f.options, &s));
    assert_null(server_load_start(s, on_loaded, &f.outcome));
    await_progress(s, "starting 2 0 0\na:-1:LOADING:\n");
    await_arrival(&f, "a/hold.load"); /* now the load cannot be cancelled any more */

    static const char expired[] = "Exit timeout expired. Exiting immediately.";
    says(server_stop(s), STATUS_INTERNAL, expired);
    says(server_stop(s), STATUS_INTERNAL, expired);
    says(server_is_live(s, &is), STATUS_UNAVAILABLE, "Server exiting");
    says(server_is_ready(s, &is), STATUS_UNAVAILABLE, "Server exiting");
    says(server_model_is_ready(s, "a", 1, 1, &is), STATUS_UNAVAILABLE, "Server not ready");
    open_gate(&f, "a/hold.load");
    await(&f.outcome, STATUS_UNAVAILABLE, "Server exiting");
    /* For a moment a control thread may still ask the model whether it is ready. */
    struct status *st;
    for (uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S; (st = server_stop(s));) {
        assert_true(monotonic_ns() < until_ns);
        says(st, STATUS_INTERNAL, expired);
    }
    server_free(s);
    tear_down(&f);
}

/* A stop lets the load in progress end, and skips the others; the server reports them. */
static void a_stop_skips_the_models_not_loaded_yet(void **state)
{
    (void)state;
    struct fixture f;
    struct server *s;
    set_up(&f);
    repository_add(&f.repo, "a", CONFIG, 1);
    repository_add(&f.repo, "b", CONFIG, 1);
    shut(&f, "a/hold.load", "");
    f.options->load_threads = 1;
    assert_null(server_create(f.options, &s));
    assert_null(server_load_start(s, on_loaded, &f.outcome));
    await_arrival(&f, "a/hold.load"); /* the state LOADING alone may come a moment too early */
    await_index(s, "a:1:LOADING:\nb:-1::\n");
    server_stop_loading(s);
    is_live_and_ready(s, true, false);
    open_gate(&f, "a/hold.load");
    await(&f.outcome, STATUS_UNAVAILABLE, "Server exiting");
    await_index(s, "a:1:READY:\nb:-1::\n");
    is_live_and_ready(s, true, false);
    finds(s, "a", "");
    assert_null(server_stop(s));
    server_free(s);
    tear_down(&f);
}

static void a_server_that_never_loads(void **state)
{
    (void)state;
    struct fixture f;
    struct server *s;
    set_up(&f);
    repository_add(&f.repo, "a", CONFIG, 1);
    assert_null(server_create(f.options, &s));
    assert_null(server_stop(s));
    says(server_load(s), STATUS_UNAVAILABLE, "the server has loaded its models, or is stopping");
    server_free(s);
    assert_null(server_create(f.options, &s));
    server_free(s);
    tear_down(&f);
}

/* ---- Questions meanwhile --------------------------------------------------------------------- */

enum { N_ASKING = 3, N_ASKED = 60 };

struct asking {
    struct server *s;
    atomic_bool stops; /* from now on a model that was READY may be unloaded */
    atomic_bool over;
    atomic_ulong n_found, n_missed;
    struct thread threads[N_ASKING];
};

/* A model that is READY in the index can be asked at once. */
static void look_up_ready(struct asking *a, const struct model_index_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct model *m;
        if (rows[i].state != VERSION_READY)
            continue;
        struct status *st =
            server_find_model(a->s, rows[i].name, strlen(rows[i].name), rows[i].version, &m);
        if (!st)
            model_unref(m);
        else if (!atomic_load(&a->stops))
            atomic_fetch_add(&a->n_missed, 1);
        status_free(st);
    }
}

/* Asks the server everything that can be asked; no question may block or fail. */
static void ask_all_the_time(void *arg)
{
    struct asking *a = arg;
    for (unsigned int i = 0; !atomic_load(&a->over); i++) {
        char name[8];
        bool is;
        snprintf(name, sizeof(name), "m%u", i % N_ASKED);
        struct model *m;
        struct status *st = server_find_model(a->s, name, strlen(name), CONCH_VERSION_LATEST, &m);
        if (!st) {
            atomic_fetch_add(&a->n_found, 1);
            model_unref(m);
        }
        status_free(st);
        status_free(server_is_ready(a->s, &is));
        status_free(server_model_is_ready(a->s, name, strlen(name), 1, &is));

        struct model_index_row *rows;
        size_t n;
        st = server_index(a->s, i % 2, &rows, &n);
        if (!st) {
            look_up_ready(a, rows, n);
            mem_free(rows);
        }
        status_free(st);
        struct server_progress p;
        st = server_progress(a->s, 4, &p);
        if (!st)
            mem_free(p.rows);
        status_free(st);
    }
}

static void start_asking(struct asking *a, struct server *s)
{
    a->s = s;
    atomic_init(&a->stops, false);
    atomic_init(&a->over, false);
    atomic_init(&a->n_found, 0);
    atomic_init(&a->n_missed, 0);
    for (size_t i = 0; i < N_ASKING; i++)
        assert_null(thread_start(&a->threads[i], "asks", ask_all_the_time, a));
}

static void stop_asking(struct asking *a)
{
    atomic_store(&a->over, true);
    for (size_t i = 0; i < N_ASKING; i++)
        thread_join(&a->threads[i]);
    assert_int_equal(atomic_load(&a->n_missed), 0);
}

/* From the load of the first model to the unload of the last. */
static void every_question_is_answered_while_models_load(void **state)
{
    (void)state;
    struct fixture f;
    struct server *s;
    struct asking a;
    set_up(&f);
    for (int i = 0; i < N_ASKED; i++) {
        char name[8];
        snprintf(name, sizeof(name), "m%d", i);
        repository_add(&f.repo, name, CONFIG, 1);
    }
    assert_null(server_create(f.options, &s));
    start_asking(&a, s);
    assert_null(server_load_start(s, on_loaded, &f.outcome));
    await(&f.outcome, STATUS_UNKNOWN, "");
    unsigned long n = atomic_load(&a.n_found);
    while (atomic_load(&a.n_found) < n + 100)
        sched_yield();
    is_live_and_ready(s, true, true);
    atomic_store(&a.stops, true);
    assert_null(server_stop(s));
    stop_asking(&a);
    server_free(s);
    tear_down(&f);
}

/* On its own thread, because a stop of the server waits for that model. */
static void open_m30(void *arg)
{
    open_gate(arg, "m30/hold.load");
}

/* A stop in the middle: some models are loaded, some are not, and one is loading. */
static void a_stop_in_the_middle_of_many_loads_ends(void **state)
{
    (void)state;
    struct fixture f;
    struct server *s;
    struct asking a;
    set_up(&f);
    for (int i = 0; i < N_ASKED; i++) {
        char name[8];
        snprintf(name, sizeof(name), "m%d", i);
        repository_add(&f.repo, name, CONFIG, 1);
    }
    shut(&f, "m30/hold.load", "");
    f.options->load_threads = 1;
    assert_null(server_create(f.options, &s));
    start_asking(&a, s);
    assert_null(server_load_start(s, on_loaded, &f.outcome));
    char text[1024] = "";
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    while (!strstr(text, "m30:-1:LOADING:")) {
        assert_true(monotonic_ns() < until_ns);
        read_progress(s, 1, text);
    }
    struct thread opener;
    assert_null(thread_start(&opener, "opens", open_m30, &f));
    atomic_store(&a.stops, true);
    assert_null(server_stop(s));
    thread_join(&opener);
    await(&f.outcome, STATUS_UNAVAILABLE, "Server exiting");
    stop_asking(&a);
    server_free(s);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_reports_its_progress),
        cmocka_unit_test(a_failed_model_ends_the_start),
        cmocka_unit_test(a_start_loads_named_models_and_reports_missing_ones),
        cmocka_unit_test(a_missing_repository_is_reported),
        cmocka_unit_test(a_stop_that_timed_out_may_be_called_again),
        cmocka_unit_test(a_stop_skips_the_models_not_loaded_yet),
        cmocka_unit_test(a_server_that_never_loads),
        cmocka_unit_test(every_question_is_answered_while_models_load),
        cmocka_unit_test(a_stop_in_the_middle_of_many_loads_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
