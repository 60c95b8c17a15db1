/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which models are listed from the folders of the repositories: names, order, entries that are no
 * models, models in several repositories, and models that a mapping gives another name. On a local
 * file system.
 */
#include "core/repo/listing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/options/server_options.h"
#include "core/repo/roots.h"
#include "core/server/server.h"
#include "core/storage/storage.h"
#include "lib/repository.h"

static struct test_repository first, second;
static struct server_options *options;
static struct roots *roots;

static const char *at(const struct test_repository *repo, const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", repo->path, name);
    return path;
}

static void put(const struct test_repository *repo, const char *name)
{
    assert_int_equal(mkdir(at(repo, name), 0755), 0);
}

static int make(void **state)
{
    (void)state;
    repository_make(&first);
    repository_make(&second);
    options = server_options_new();
    server_options_add_repository(options, first.path);
    server_options_add_repository(options, second.path);
    assert_null(roots_open(options, &roots));
    return 0;
}

static int end(void **state)
{
    (void)state;
    roots_unref(roots);
    server_options_free(options);
    repository_remove(&first);
    if (access(second.path, F_OK) == 0)
        repository_remove(&second);
    return 0;
}

/* Makes the roots; a mapping of the second one gives this folder this name. */
static void map(const char *folder, const char *name)
{
    const struct model_mapping mapping = {.folder = folder, .name = name};
    struct roots *without = roots_without(roots, roots->list[1]);
    struct storage *s = NULL;
    assert_null(storage_open(second.path, false, &s));
    roots_unref(roots);
    roots = roots_with(without, root_new(s, &mapping, 1));
    roots_unref(without);
}

static void expect(const struct listing *p, const char *const names[])
{
    size_t n = 0;
    for (; names[n]; n++) {
        assert_true(n < p->n_models);
        assert_string_equal(p->models[n].name, names[n]);
    }
    assert_int_equal(p->n_models, n);
}

static void poll_all(struct listing *p)
{
    listing_of_roots(roots_ref(roots), options, false, p);
}

static void poll_one(const char *name, struct listing *p)
{
    listing_of_model(roots_ref(roots), options, name, p);
}

static void all_repositories_are_listed_by_name(void **state)
{
    (void)state;
    struct listing p;
    put(&second, "b");
    put(&first, "c");
    put(&first, "a");
    put(&first, "B");
    poll_all(&p);
    expect(&p, (const char *const[]){"B", "a", "b", "c", NULL});
    assert_int_equal(p.n_unlisted, 0);
    for (size_t i = 0; i < p.n_models; i++) {
        assert_null(p.models[i].failure);
        assert_string_equal(p.models[i].folder, p.models[i].name);
        assert_string_equal(p.models[i].storage->root, i == 2 ? second.path : first.path);
    }
    listing_done(&p);
    listing_done(&p); /* a listing of zeros */
}

static void entries_that_are_no_models_are_left_out(void **state)
{
    (void)state;
    struct listing p;
    static const char *const folders[] = {"m", ".git", "lost+found", "..data", ".mine", "..mine"};
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
        put(&first, folders[i]);
    repository_add_file(&first, "README.md", "", 0);
    repository_add_file(&first, ".mine/config.pbtxt", "", 0); /* a configuration makes it a model */
    repository_add_file(&first, "..mine/config.pbtxt", "", 0);
    assert_int_equal(symlink("nowhere", at(&first, "stray")), 0);
    assert_int_equal(symlink("m", at(&first, "other")), 0);
    poll_all(&p);
    expect(&p, (const char *const[]){".mine", "m", "other", NULL});
    listing_done(&p);
}

static void a_listed_model_that_cannot_be_served_has_a_reason(void **state)
{
    (void)state;
    struct listing p;
    put(&first, "a\xff"
                "b");
    assert_int_equal(symlink(second.path, at(&first, "out")), 0);
    listing_of_roots(roots_ref(roots), options, true, &p);
    assert_int_equal(p.n_models, 2);
    for (size_t i = 0; i < p.n_models; i++) {
        bool is_out = strcmp(p.models[i].name, "out") == 0;
        assert_non_null(p.models[i].failure);
        assert_non_null(strstr(p.models[i].failure, is_out ? "out" : "the folder is not UTF-8"));
        assert_false(p.models[i].duplicate);
    }
    listing_done(&p);
}

static void a_name_in_several_repositories_is_a_duplicate(void **state)
{
    (void)state;
    struct listing p;
    put(&first, "m");
    put(&second, "m");
    put(&second, "n");
    poll_all(&p);
    expect(&p, (const char *const[]){"m", "n", NULL});
    assert_true(p.models[0].duplicate);
    assert_string_equal(p.models[0].failure, "model appears in two or more repositories");
    assert_null(p.models[1].failure);
    listing_done(&p);

    poll_one("m", &p);
    expect(&p, (const char *const[]){"m", NULL});
    assert_true(p.models[0].duplicate);
    listing_done(&p);

    options->model_namespacing = true;
    poll_all(&p);
    expect(&p, (const char *const[]){"m", "m", "n", NULL});
    assert_false(p.models[0].duplicate || p.models[1].duplicate);
    assert_ptr_not_equal(p.models[0].storage, p.models[1].storage);
    listing_done(&p);
}

static void one_model_is_listed_by_its_name(void **state)
{
    (void)state;
    struct listing p;
    put(&first, "m");
    put(&second, "n");
    repository_add_file(&first, "file", "", 0);
    poll_one("n", &p);
    expect(&p, (const char *const[]){"n", NULL});
    assert_string_equal(p.models[0].storage->root, second.path);
    listing_done(&p);
    static const char *const none[] = {"nothing", "file", "..", ".git"};
    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        poll_one(none[i], &p);
        expect(&p, (const char *const[]){NULL});
        listing_done(&p);
    }
}

static void a_mapping_gives_another_name(void **state)
{
    (void)state;
    struct listing p;
    put(&first, "folder");
    put(&second, "folder");
    map("folder", "name");
    poll_all(&p);
    expect(&p, (const char *const[]){"folder", "name", NULL}); /* no duplicate */
    assert_null(p.models[0].failure);
    assert_string_equal(p.models[0].storage->root, first.path);
    assert_string_equal(p.models[1].folder, "folder");
    assert_string_equal(p.models[1].storage->root, second.path);
    listing_done(&p);

    poll_one("name", &p);
    expect(&p, (const char *const[]){"name", NULL});
    assert_string_equal(p.models[0].folder, "folder");
    listing_done(&p);
    poll_one("folder", &p); /* only the other repository has this name */
    expect(&p, (const char *const[]){"folder", NULL});
    assert_string_equal(p.models[0].storage->root, first.path);
    listing_done(&p);

    /* Only the mapping is meant, although another repository has a folder of that name. */
    put(&first, "name");
    poll_one("name", &p);
    expect(&p, (const char *const[]){"name", NULL});
    assert_string_equal(p.models[0].storage->root, second.path);
    listing_done(&p);
    /* … also when the mapped folder is gone. */
    assert_int_equal(rmdir(at(&second, "folder")), 0);
    poll_one("name", &p);
    expect(&p, (const char *const[]){NULL});
    listing_done(&p);
}

static void a_missing_repository_is_an_error(void **state)
{
    (void)state;
    struct listing p;
    put(&first, "m");
    repository_remove(&second);
    poll_all(&p);
    expect(&p, (const char *const[]){"m", NULL});
    assert_int_equal(p.n_unlisted, 1);
    listing_done(&p);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, make, end)
    const struct CMUnitTest tests[] = {
        EACH(all_repositories_are_listed_by_name),
        EACH(entries_that_are_no_models_are_left_out),
        EACH(a_listed_model_that_cannot_be_served_has_a_reason),
        EACH(a_name_in_several_repositories_is_a_duplicate),
        EACH(one_model_is_listed_by_its_name),
        EACH(a_mapping_gives_another_name),
        EACH(a_missing_repository_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
