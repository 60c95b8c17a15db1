/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repositories that are registered and unregistered: what the catalog keeps of them, also when all
 * of it happens at once. system/test_registration.py tests what clients see, next to the genuine
 * Triton.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/model/model.h"
#include "core/options/server_options.h"
#include "core/repo/repository_priv.h"
#include "core/server/server.h"
#include "core/server/server_priv.h"
#include "lib/repository.h"

#define CONFIG                                                                                     \
    "backend: 'identity' "                                                                         \
    "input { name: 'I' data_type: TYPE_FP32 dims: -1 } "                                           \
    "output { name: 'O' data_type: TYPE_FP32 dims: -1 }"

enum { N_REPOSITORIES = 3 };

struct fixture {
    struct test_repository repositories[N_REPOSITORIES]; /* the server starts with the first one */
    struct server *s;
};

/* Each repository has the model "every"; each also has one of "only0", "only1" … */
static void set_up(struct fixture *f, bool namespacing)
{
    struct server_options *o = server_options_new();
    for (size_t i = 0; i < N_REPOSITORIES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "only%zu", i);
        repository_make(&f->repositories[i]);
        repository_add(&f->repositories[i], "every", CONFIG, 1);
        repository_add(&f->repositories[i], name, CONFIG, 1);
    }
    server_options_add_repository(o, f->repositories[0].path);
    server_options_set_string(&o->backend_directory, CONCH_BUILD_DIR "/backends");
    o->control_mode = CONTROL_EXPLICIT;
    o->model_namespacing = namespacing;
    assert_null(server_new(o, &f->s));
    server_options_free(o);
}

static void tear_down(struct fixture *f)
{
    assert_null(server_stop(f->s));
    server_free(f->s);
    for (size_t i = 0; i < N_REPOSITORIES; i++)
        repository_remove(&f->repositories[i]);
}

static size_t n_in_catalog(const struct fixture *f)
{
    struct repository *repo = f->s->repository;
    mutex_lock(&repo->mu);
    size_t n = repo->n_models;
    mutex_unlock(&repo->mu);
    return n;
}

/* A control thread unloads models and removes them from the catalog. */
static void await_catalog(const struct fixture *f, size_t n)
{
    struct repository *repo = f->s->repository;
    mutex_lock(&repo->mu);
    while (repo->n_models != n)
        cond_wait(&repo->changed, &repo->mu);
    mutex_unlock(&repo->mu);
}

static bool is_ready(const struct fixture *f, const char *name)
{
    bool ready = false;
    status_free(server_model_is_ready(f->s, name, strlen(name), CONCH_VERSION_LATEST, &ready));
    return ready;
}

/* ---- What is kept ---------------------------------------------------------------------------- */

static void an_unregistered_repository_leaves_nothing_in_the_catalog(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, false);
    const char *path = f.repositories[1].path;
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof(name), "name%d", i);
        const struct model_mapping mapping = {.folder = "only1", .name = name};
        assert_null(server_register_repository(f.s, path, &mapping, 1));
        assert_null(server_load_model(f.s, name, NULL, 0));
        assert_int_equal(n_in_catalog(&f), 1);
        if (i % 2) { /* removed from the catalog when its unload ends */
            assert_null(server_unregister_repository(f.s, path));
            assert_true(is_ready(&f, name));
            assert_null(server_unload_model(f.s, name, false));
        } else { /* in the catalog as long as its folder can be loaded */
            assert_null(server_unload_model(f.s, name, false));
            assert_null(server_unregister_repository(f.s, path));
        }
        assert_false(is_ready(&f, name));
        await_catalog(&f, 0);
    }
    tear_down(&f);
}

static void models_of_other_repositories_stay_in_the_catalog(void **state)
{
    struct fixture f;
    (void)state;
    set_up(&f, false);
    const char *path = f.repositories[1].path;
    assert_null(server_load_model(f.s, "only0", NULL, 0));
    assert_null(server_register_repository(f.s, path, NULL, 0));
    assert_null(server_load_model(f.s, "only1", NULL, 0));
    assert_null(server_unload_model(f.s, "only0", false));
    assert_null(server_unregister_repository(f.s, path));
    assert_null(server_unload_model(f.s, "only1", false));
    await_catalog(&f, 1); /* the version is in state "unloaded" */
    tear_down(&f);
}

static void a_path_with_slashes_at_its_end_is_the_same_repository(void **state)
{
    struct fixture f;
    char path[80];
    (void)state;
    set_up(&f, false);
    snprintf(path, sizeof(path), "%s//", f.repositories[0].path);
    struct status *st = server_register_repository(f.s, path, NULL, 0);
    assert_int_equal(status_code(st), STATUS_ALREADY_EXISTS);
    status_free(st);
    assert_null(server_unregister_repository(f.s, path));
    assert_null(server_register_repository(f.s, path, NULL, 0));
    st = server_register_repository(f.s, f.repositories[0].path, NULL, 0);
    assert_int_equal(status_code(st), STATUS_ALREADY_EXISTS);
    status_free(st);
    assert_null(server_load_model(f.s, "every", NULL, 0));

    /* The same holds for the repositories that the server starts with. */
    struct server_options *o = server_options_new();
    struct roots *roots;
    server_options_add_repository(o, f.repositories[0].path);
    server_options_add_repository(o, path);
    server_options_add_repository(o, f.repositories[1].path);
    assert_null(roots_open(o, &roots));
    assert_int_equal(roots->count, 2);
    roots_unref(roots);
    server_options_free(o);
    tear_down(&f);
}

/* ---- At once --------------------------------------------------------------------------------- */

enum { N_THREADS = 4, N_STEPS = 150 };

struct client {
    struct fixture *f;
    uint32_t seed;
    struct thread thread;
};

static uint32_t roll(struct client *c, uint32_t n)
{
    c->seed = c->seed * 1664525u + 1013904223u;
    return (c->seed >> 16) % n;
}

/* Any result is right: another thread may have been faster. */
static void take_step(struct client *c)
{
    static const char *const names[] = {"every", "only0", "only1", "only2", "mapped"};
    static const struct model_mapping mapping = {.folder = "every", .name = "mapped"};
    struct server *s = c->f->s;
    const char *path = c->f->repositories[roll(c, N_REPOSITORIES)].path;
    const char *name = names[roll(c, ARRAY_SIZE(names))];
    struct model_index_row *rows;
    struct model *m;
    size_t n;
    switch (roll(c, 6)) {
    case 0:
        status_free(server_register_repository(s, path, &mapping, roll(c, 2)));
        return;
    case 1:
        status_free(server_unregister_repository(s, path));
        return;
    case 2:
        status_free(server_unload_model(s, name, false));
        return;
    case 3:
        assert_null(server_index(s, false, &rows, &n));
        mem_free(rows);
        return;
    case 4: {
        struct status *st = server_find_model(s, name, strlen(name), CONCH_VERSION_LATEST, &m);
        if (!st)
            model_unref(m);
        status_free(st);
        return;
    }
    default:
        status_free(server_load_model(s, name, NULL, 0));
    }
}

static void take_steps(void *arg)
{
    struct client *c = arg;
    for (int i = 0; i < N_STEPS; i++)
        take_step(c);
}

static void storm(bool namespacing)
{
    struct client clients[N_THREADS];
    struct fixture f;
    set_up(&f, namespacing);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        clients[i] = (struct client){.f = &f, .seed = i};
        assert_null(thread_start(&clients[i].thread, "client", take_steps, &clients[i]));
    }
    for (size_t i = 0; i < N_THREADS; i++)
        thread_join(&clients[i].thread);

    /* Afterwards the catalog is as it was before the threads. */
    for (size_t i = 0; i < N_REPOSITORIES; i++)
        status_free(server_unregister_repository(f.s, f.repositories[i].path));
    static const char *const names[] = {"every", "only0", "only1", "only2", "mapped"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_null(server_unload_model(f.s, names[i], false));
    await_catalog(&f, 0);
    assert_null(server_register_repository(f.s, f.repositories[2].path, NULL, 0));
    assert_null(server_load_model(f.s, "every", NULL, 0));
    assert_true(is_ready(&f, "every"));
    tear_down(&f);
}

static void many_threads_register_load_and_unload(void **state)
{
    (void)state;
    storm(false);
}

static void many_threads_register_load_and_unload_with_namespaces(void **state)
{
    (void)state;
    storm(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unregistered_repository_leaves_nothing_in_the_catalog),
        cmocka_unit_test(models_of_other_repositories_stay_in_the_catalog),
        cmocka_unit_test(a_path_with_slashes_at_its_end_is_the_same_repository),
        cmocka_unit_test(many_threads_register_load_and_unload),
        cmocka_unit_test(many_threads_register_load_and_unload_with_namespaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
