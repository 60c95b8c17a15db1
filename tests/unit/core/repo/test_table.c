/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/server/server.h"
#include "lib/fake_model.h"

#define CONFIG                                                                                     \
    "input { name: 'I' data_type: TYPE_FP32 dims: -1 } "                                           \
    "output { name: 'O' data_type: TYPE_FP32 dims: -1 }"

enum { LATEST = CONCH_VERSION_LATEST };

static void finds(struct table *t, const char *name, int64_t version, struct model *m)
{
    struct model *found;
    struct status *st = table_find(t, name, strlen(name), version, &found);
    if (st)
        fail_msg("%s", status_message(st));
    assert_ptr_equal(found, m);
    model_unref(found);
}

static void refuses(struct table *t, const char *name, int64_t version, enum status_code code,
                    const char *text)
{
    struct model *found;
    struct status *st = table_find(t, name, strlen(name), version, &found);
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

/* Expects that a name ("": all names) serves these, as "name:version …", or gives the error. */
static void serves(struct table *t, const char *name, int64_t version, const char *expected)
{
    struct model **models;
    char seen[256] = "";
    struct status *st = table_serving(t, name, strlen(name), version, &models);
    if (st) {
        assert_string_equal(status_message(st), expected);
        status_free(st);
        return;
    }
    size_t n = 0;
    for (; models[n]; n++) {
        size_t used = strlen(seen);
        snprintf(seen + used, sizeof(seen) - used, "%s:%lld ", models[n]->name,
                 (long long)models[n]->version);
        model_unref(models[n]);
    }
    mem_free(models);
    assert_string_equal(seen, expected);
}

/* Sets the versions 1 to n. m serves those whose bit is set: bit 0 for version 1 … */
static void set(struct table *t, struct table_entry *e, bool coming, size_t n, unsigned int bits,
                struct model *m)
{
    struct table_view *view = table_view_new(n);
    view->known = true;
    view->coming = coming;
    for (size_t i = 0; i < n; i++) {
        view->versions[i].version = (int64_t)i + 1;
        if (!(bits >> i & 1))
            continue;
        model_ref(m);
        view->versions[i].model = m;
    }
    table_view_end(t, table_set(e, view));
}

static void set_unknown(struct table *t, struct table_entry *e)
{
    table_view_end(t, table_set(e, table_view_new(0)));
}

#define UNKNOWN   "Request for unknown model: "
#define NOT_READY "is not at ready state"

static void without_a_table_the_server_is_not_ready(void **state)
{
    (void)state;
    struct table t;
    int64_t *versions;
    size_t n;
    table_init(&t);
    for (int i = 0; i < 2; i++) {
        refuses(&t, "m", LATEST, STATUS_UNAVAILABLE, "Server not ready");
        struct status *st = table_versions(&t, "m", 1, &versions, &n);
        assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
        status_free(st);
        serves(&t, "m", LATEST, "Server not ready");

        struct table_entry *e;
        table_add(&t, 0, NULL, &e); /* the loading of a server without models ends */
        refuses(&t, "m", LATEST, STATUS_NOT_FOUND, UNKNOWN "'m' is not found");
        serves(&t, "", LATEST, "");
        table_close(&t);
    }
    table_done(&t);
}

/* Statistics are asked of models that are READY, and have errors of their own. */
static void serving_versions_are_listed(void **state)
{
    (void)state;
    struct fake_model f;
    struct table t;
    struct table_entry *e[4];
    fake_model_make(&f, CONFIG, 1, NULL);
    table_init(&t);
    table_add(&t, 4, (const char *const[]){"coming", "failed", "m", "twice"}, e);
    serves(&t, "", LATEST, "");
    set_unknown(&t, e[1]);
    set(&t, e[2], true, 2, 0, NULL);
    serves(&t, "", LATEST, "");
    serves(&t, "m", LATEST, "requested model 'm' is not available");
    set(&t, e[2], true, 2, 1, f.model);
    set(&t, e[3], true, 2, 3, f.model);

    serves(&t, "", LATEST, "m:1 m:1 m:1 ");
    serves(&t, "m", LATEST, "m:1 ");
    serves(&t, "m", 1, "m:1 ");
    serves(&t, "m", 2, "requested model version is not available for model 'm'");
    serves(&t, "m", 0, "requested model version is not available for model 'm'");
    serves(&t, "m", -2, "requested model version is not available for model 'm'");
    serves(&t, "twice", LATEST, "m:1 m:1 ");
    serves(&t, "coming", LATEST, "requested model 'coming' is not available");
    serves(&t, "failed", 1, "requested model 'failed' is not available");
    serves(&t, "nobody", LATEST, "requested model 'nobody' is not available");
    table_done(&t);
    assert_int_equal(model_refs(f.model), 1);
    fake_model_end(&f);
}

/* The steps of a model's load and unload, and the answer to requests at each step. */
static void a_model_is_loaded_reloaded_and_unloaded(void **state)
{
    (void)state;
    struct fake_model f;
    struct table t;
    struct table_entry *e;
    fake_model_make(&f, CONFIG, 1, NULL);
    table_init(&t);
    table_add(&t, 1, (const char *const[]){"m"}, &e);
    refuses(&t, "nobody", LATEST, STATUS_NOT_FOUND, UNKNOWN "'nobody' is not found");
    refuses(&t, "m", LATEST, STATUS_UNAVAILABLE, UNKNOWN "'m' " NOT_READY);
    refuses(&t, "m", 5, STATUS_UNAVAILABLE, UNKNOWN "'m' version 5 " NOT_READY);

    set(&t, e, true, 2, 0, NULL);
    refuses(&t, "m", LATEST, STATUS_UNAVAILABLE, UNKNOWN "'m' version 2 " NOT_READY);
    refuses(&t, "m", 1, STATUS_UNAVAILABLE, UNKNOWN "'m' version 1 " NOT_READY);
    refuses(&t, "m", 5, STATUS_NOT_FOUND, UNKNOWN "'m' version 5 is not found");

    set(&t, e, true, 2, 1, f.model);
    finds(&t, "m", LATEST, f.model);
    finds(&t, "m", 1, f.model);
    refuses(&t, "m", 2, STATUS_UNAVAILABLE, UNKNOWN "'m' version 2 " NOT_READY);
    int64_t *versions;
    size_t n;
    assert_null(table_versions(&t, "m", 1, &versions, &n));
    assert_int_equal(n, 1);
    assert_int_equal(versions[0], 1);
    mem_free(versions);

    set(&t, e, false, 3, 6, f.model); /* a reload drops one version and brings two */
    refuses(&t, "m", 1, STATUS_UNAVAILABLE, UNKNOWN "'m' version 1 " NOT_READY);
    finds(&t, "m", 2, f.model);
    finds(&t, "m", LATEST, f.model);
    assert_int_equal(model_refs(f.model), 3);

    set(&t, e, false, 3, 0, NULL); /* unloaded: the model is known, and no version serves */
    assert_int_equal(model_refs(f.model), 1);
    refuses(&t, "m", LATEST, STATUS_NOT_FOUND, UNKNOWN "'m' has no available versions");
    refuses(&t, "m", 2, STATUS_UNAVAILABLE, UNKNOWN "'m' version 2 " NOT_READY);
    refuses(&t, "m", 9, STATUS_NOT_FOUND, UNKNOWN "'m' version 9 is not found");

    set(&t, e, false, 1, 1, f.model);
    finds(&t, "m", 1, f.model);
    table_remove(&t, e);
    assert_int_equal(model_refs(f.model), 1);
    refuses(&t, "m", LATEST, STATUS_NOT_FOUND, UNKNOWN "'m' is not found");
    table_done(&t);
    fake_model_end(&f);
}

static void a_model_that_fails_to_load_is_unavailable(void **state)
{
    (void)state;
    struct table t;
    struct table_entry *e[3];
    table_init(&t);
    table_add(&t, 3, (const char *const[]){"empty", "failed", "unreadable"}, e);
    set(&t, e[0], true, 0, 0, NULL);
    refuses(&t, "empty", LATEST, STATUS_UNAVAILABLE, UNKNOWN "'empty' " NOT_READY);
    set(&t, e[0], false, 0, 0, NULL);
    set(&t, e[1], false, 1, 0, NULL);
    set_unknown(&t, e[2]);
    refuses(&t, "unreadable", LATEST, STATUS_NOT_FOUND, UNKNOWN "'unreadable' is not found");
    refuses(&t, "failed", LATEST, STATUS_NOT_FOUND, UNKNOWN "'failed' has no available versions");
    refuses(&t, "failed", 1, STATUS_UNAVAILABLE, UNKNOWN "'failed' version 1 " NOT_READY);
    refuses(&t, "empty", LATEST, STATUS_NOT_FOUND, UNKNOWN "'empty' has no available versions");
    refuses(&t, "empty", 1, STATUS_NOT_FOUND, UNKNOWN "'empty' version 1 is not found");
    table_done(&t);
}

static void a_name_of_several_models_is_ambiguous(void **state)
{
    (void)state;
    struct fake_model f;
    struct table t;
    struct table_entry *e[3];
    fake_model_make(&f, CONFIG, 1, NULL);
    table_init(&t);
    table_add(&t, 2, (const char *const[]){"m", "m"}, e);
    table_add(&t, 1, (const char *const[]){"m"}, &e[2]);
    refuses(&t, "m", LATEST, STATUS_INVALID_ARG,
            "There are 3 identifiers of model 'm' in global map, model namespace must be provided "
            "to resolve ambiguity.");
    set(&t, e[1], false, 1, 1, f.model);
    set_unknown(&t, e[2]);
    refuses(&t, "m", 1, STATUS_INVALID_ARG,
            "There are 2 identifiers of model 'm' in global map, model namespace must be provided "
            "to resolve ambiguity.");
    set_unknown(&t, e[0]); /* the two other models were not loaded */
    finds(&t, "m", LATEST, f.model);
    /* Whichever entry is removed, first, last or middle, the others are still found. */
    for (size_t gone = 0; gone < 3; gone++) {
        struct table_entry *more;
        table_add(&t, 1, (const char *const[]){"m"}, &more);
        set_unknown(&t, more);
        table_remove(&t, gone == 1 ? more : e[gone]);
        e[gone] = more;
        if (gone == 0)
            finds(&t, "m", LATEST, f.model);
    }
    serves(&t, "", LATEST, "m:1 ");
    table_done(&t);
    fake_model_end(&f);
}

/* Names are kept in order, in whatever order they are added. */
static void names_are_found_while_others_are_added_and_removed(void **state)
{
    (void)state;
    enum { N = 200 };
    static char names[N][8];
    struct table_entry *entries[N];
    struct fake_model f;
    struct table t;
    fake_model_make(&f, CONFIG, 1, NULL);
    table_init(&t);
    for (size_t i = 0; i < N; i++) {
        size_t at = i * 77 % N; /* each index once, in no order */
        snprintf(names[at], sizeof(names[at]), "m%03zu", at);
        table_add(&t, 1, (const char *const[]){names[at]}, &entries[at]);
        set(&t, entries[at], false, 1, 1, f.model);
    }
    for (size_t i = 0; i < N; i++)
        finds(&t, names[i], 1, f.model);
    for (size_t i = 0; i < N; i += 2)
        table_remove(&t, entries[i]);
    for (size_t i = 0; i < N; i++) {
        char text[64];
        snprintf(text, sizeof(text), UNKNOWN "'%s' is not found", names[i]);
        if (i % 2)
            finds(&t, names[i], 1, f.model);
        else
            refuses(&t, names[i], 1, STATUS_NOT_FOUND, text);
    }
    struct model **models;
    assert_null(table_serving(&t, "", 0, LATEST, &models));
    size_t n = 0;
    for (; models[n]; n++)
        model_unref(models[n]);
    mem_free(models);
    assert_int_equal(n, N / 2);
    table_done(&t);
    assert_int_equal(model_refs(f.model), 1);
    fake_model_end(&f);
}

/* ---- Readers while models come and go -------------------------------------------------------- */

enum { N_MODELS = 100, N_READERS = 3, N_ROUNDS = 10 };

static struct table table;
static char names[N_MODELS][8];
static atomic_int n_wrong;
static atomic_bool over;

/* A model is loading, then it serves, even when another one replaces it. It is never unknown. */
static void read_all_the_time(void *arg)
{
    bool seen[N_MODELS] = {false};
    (void)arg;
    while (!atomic_load(&over)) {
        for (size_t i = 0; i < N_MODELS; i++) {
            struct model *m = NULL;
            struct status *st = table_find(&table, names[i], strlen(names[i]), LATEST, &m);
            bool fine = st ? !seen[i] && status_code(st) == STATUS_UNAVAILABLE : m != NULL;
            if (!fine)
                atomic_fetch_add(&n_wrong, 1);
            seen[i] |= !st;
            status_free(st);
            model_unref(m);
        }
    }
}

static void readers_find_models_while_they_change(void **state)
{
    (void)state;
    struct thread readers[N_READERS];
    struct fake_model f[2];
    const char *list[N_MODELS];
    struct table_entry *entries[N_MODELS], *other;
    for (size_t i = 0; i < 2; i++)
        fake_model_make(&f[i], CONFIG, 1, NULL);
    for (size_t i = 0; i < N_MODELS; i++) {
        snprintf(names[i], sizeof(names[i]), "m%03zu", i);
        list[i] = names[i];
    }
    table_init(&table);
    table_add(&table, N_MODELS, list, entries);
    for (size_t i = 0; i < N_READERS; i++)
        assert_null(thread_start(&readers[i], "reader", read_all_the_time, NULL));
    for (size_t round = 0; round < N_ROUNDS; round++) {
        for (size_t i = 0; i < N_MODELS; i++)
            set(&table, entries[i], false, 1 + round % 2, 1 + (unsigned int)round % 2,
                f[round % 2].model);
        table_add(&table, 1, (const char *const[]){"other"}, &other);
        table_remove(&table, other);
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < N_READERS; i++)
        thread_join(&readers[i]);
    table_done(&table);
    assert_int_equal(atomic_load(&n_wrong), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(model_refs(f[i].model), 1);
        fake_model_end(&f[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_table_the_server_is_not_ready),
        cmocka_unit_test(serving_versions_are_listed),
        cmocka_unit_test(a_model_is_loaded_reloaded_and_unloaded),
        cmocka_unit_test(a_model_that_fails_to_load_is_unavailable),
        cmocka_unit_test(a_name_of_several_models_is_ambiguous),
        cmocka_unit_test(names_are_found_while_others_are_added_and_removed),
        cmocka_unit_test(readers_find_models_while_they_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
