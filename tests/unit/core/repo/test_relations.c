/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/relations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/storage/source.h"
#include "core/storage/storage.h"
#include "lib/repository.h"

/* The books only compare the addresses of ensembles. */
static struct repo_model *ensemble_of(char *which)
{
    return (struct repo_model *)(void *)which;
}

static char a[1], b[1];

static struct model_config *parse(const char *text)
{
    struct model_config *c;
    struct status *st = model_config_parse_text(text, strlen(text), "config.pbtxt", &c);
    assert_null(st);
    return c;
}

#define STEP(model) "step { model_name: '" model "' }"

static struct composition *compose(const char *steps, struct source *source)
{
    char text[512];
    snprintf(text, sizeof(text), "name: 'e' platform: 'ensemble' ensemble_scheduling { %s }",
             steps);
    struct model_config *config = parse(text);
    const int64_t versions[] = {1, 3};
    struct composition *c = composition_new(config, versions, 2, source);
    model_config_free(config);
    return c;
}

/* Expects that these ensembles name the model. */
static void names(const struct relations *r, const char *model, size_t n_expected, const char *one)
{
    size_t n;
    struct repo_model *const *list = relations_dependents(r, model, &n);
    assert_int_equal(n, n_expected);
    bool found = !one;
    for (size_t i = 0; i < n; i++)
        found |= (const char *)list[i] == one;
    assert_true(found);
}

static struct test_repository repository;

static struct source *make_source(void)
{
    struct storage *storage;
    repository_make(&repository);
    assert_null(storage_open(repository.path, false, &storage));
    struct source *source = source_of_folder(storage, "e");
    storage_unref(storage);
    return source;
}

static void a_composition_has_each_member_once(void **state)
{
    (void)state;
    struct source *source = make_source();
    struct composition *c = compose(STEP("x") STEP("y") STEP("x"), source);
    assert_int_equal(c->n_members, 2);
    assert_string_equal(c->members[0].name, "x");
    assert_string_equal(c->members[0].namespace, "");
    assert_string_equal(c->members[1].name, "y");
    assert_int_equal(c->n_versions, 2);
    assert_int_equal(c->versions[1], 3);
    assert_non_null(strstr(c->config, "\"ensemble_scheduling\""));
    assert_int_equal(atomic_load(&source->refs), 2);
    composition_free(c);
    assert_int_equal(atomic_load(&source->refs), 1);

    struct model_config *plain = parse("name: 'm' backend: 'identity'");
    assert_null(composition_new(plain, NULL, 0, source));
    model_config_free(plain);
    source_unref(source);
    repository_remove(&repository);
}

static void a_model_of_each_namespace_is_a_member(void **state)
{
    (void)state;
    struct source *source = make_source();
    struct composition *c = compose(STEP("x") STEP("x' model_namespace: 'there") STEP("x"), source);
    assert_int_equal(c->n_members, 2);
    assert_string_equal(c->members[1].name, "x");
    assert_string_equal(c->members[1].namespace, "there");
    struct relations r;
    relations_init(&r);
    relations_set(&r, ensemble_of(a), NULL, c);
    names(&r, "x", 1, a); /* once */
    relations_set(&r, ensemble_of(a), c, NULL);
    assert_int_equal(r.by_member.count, 0);
    relations_done(&r);
    composition_free(c);
    source_unref(source);
    repository_remove(&repository);
}

static void the_books_follow_an_ensemble(void **state)
{
    (void)state;
    struct source *source = make_source();
    struct composition *xy = compose(STEP("x") STEP("y"), source);
    struct composition *yz = compose(STEP("y") STEP("z"), source);
    struct relations r;
    relations_init(&r);
    names(&r, "x", 0, NULL);
    relations_set(&r, ensemble_of(a), NULL, xy);
    relations_set(&r, ensemble_of(b), NULL, yz);
    names(&r, "x", 1, a);
    names(&r, "y", 2, a);
    names(&r, "y", 2, b);
    names(&r, "z", 1, b);
    relations_set(&r, ensemble_of(a), xy, yz); /* loaded again, with other steps */
    names(&r, "x", 0, NULL);
    names(&r, "z", 2, a);
    relations_set(&r, ensemble_of(b), yz, NULL); /* unloaded */
    names(&r, "y", 1, a);
    relations_set(&r, ensemble_of(a), yz, NULL);
    assert_int_equal(r.by_member.count, 0);
    relations_set(&r, ensemble_of(a), NULL, xy); /* the end of the server frees the rest */
    relations_done(&r);
    composition_free(xy);
    composition_free(yz);
    source_unref(source);
    repository_remove(&repository);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_composition_has_each_member_once),
        cmocka_unit_test(a_model_of_each_namespace_is_a_member),
        cmocka_unit_test(the_books_follow_an_ensemble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
