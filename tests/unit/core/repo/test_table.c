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
#include "core/server.h"
#include "core/snapshot.h"
#include "lib/fake_model.h"

#define CONFIG                                                                                     \
    "input { name: 'I' data_type: TYPE_FP32 dims: -1 } "                                           \
    "output { name: 'O' data_type: TYPE_FP32 dims: -1 }"

enum { LATEST = CONCH_VERSION_LATEST };

static void finds(const struct table *t, const char *name, int64_t version, const struct model *m)
{
    struct model *found;
    struct status *st = table_find(t, name, strlen(name), version, &found);
    if (st)
        fail_msg("%s", status_message(st));
    assert_ptr_equal(found, m);
}

static void refuses(const struct table *t, const char *name, int64_t version, enum status_code code,
                    const char *text)
{
    struct model *found;
    struct status *st = table_find(t, name, strlen(name), version, &found);
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

/* What serves, as "name:version …" or the error, for a name ("": all). */
static void serves(const struct table *t, const char *name, int64_t version, const char *expected)
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

static void no_table_is_not_ready(void **state)
{
    (void)state;
    int64_t *versions;
    size_t n;
    refuses(NULL, "m", LATEST, STATUS_UNAVAILABLE, "Server not ready");
    struct status *st = table_versions(NULL, "m", 1, &versions, &n);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_free(st);
    serves(NULL, "", LATEST, "Server not ready");
    serves(NULL, "m", LATEST, "Server not ready");
}

/* Statistics are asked of what is READY, and have errors of their own. */
static void what_serves_is_listed(void **state)
{
    (void)state;
    static const int64_t versions[] = {1, 2};
    struct fake_model f;
    fake_model_make(&f, CONFIG, 1, NULL);
    struct table *t = table_new(4);
    serves(t, "", LATEST, "");
    table_set_name(t, 0, "coming", true);
    table_set_name(t, 1, "failed", false);
    table_set_name(t, 2, "m", true);
    table_set_name(t, 3, "twice", true);
    table_set_versions(t, 2, versions, 2);
    serves(t, "", LATEST, "");
    serves(t, "m", LATEST, "requested model 'm' is not available");
    table_set_ready(t, 2, 0, f.model);
    table_set_versions(t, 3, versions, 2);
    table_set_ready(t, 3, 0, f.model);
    table_set_ready(t, 3, 1, f.model);

    serves(t, "", LATEST, "m:1 m:1 m:1 ");
    serves(t, "m", LATEST, "m:1 ");
    serves(t, "m", 1, "m:1 ");
    serves(t, "m", 2, "requested model version is not available for model 'm'");
    serves(t, "m", 0, "requested model version is not available for model 'm'");
    serves(t, "m", -2, "requested model version is not available for model 'm'");
    serves(t, "twice", LATEST, "m:1 m:1 ");
    serves(t, "coming", LATEST, "requested model 'coming' is not available");
    serves(t, "failed", 1, "requested model 'failed' is not available");
    serves(t, "nobody", LATEST, "requested model 'nobody' is not available");
    table_free(t);
    assert_int_equal(atomic_load(&f.model->refs), 1);
    fake_model_end(&f);
}

#define UNKNOWN "Request for unknown model: "

/* The steps of a model's way up, and what is said of it at each. */
static void a_model_comes_up(void **state)
{
    (void)state;
    static const int64_t both[] = {3, 7};
    struct fake_model f;
    fake_model_make(&f, CONFIG, 1, NULL);
    struct table *t = table_new(2);
    table_set_name(t, 0, "m", true);
    table_set_name(t, 1, "unwanted", false);

    refuses(t, "nobody", LATEST, STATUS_NOT_FOUND, UNKNOWN "'nobody' is not found");
    refuses(t, "unwanted", LATEST, STATUS_NOT_FOUND, UNKNOWN "'unwanted' is not found");
    refuses(t, "unwanted", 1, STATUS_NOT_FOUND, UNKNOWN "'unwanted' is not found");
    refuses(t, "m", LATEST, STATUS_UNAVAILABLE, UNKNOWN "'m' is not at ready state");
    refuses(t, "m", 5, STATUS_UNAVAILABLE, UNKNOWN "'m' version 5 is not at ready state");

    table_set_versions(t, 0, both, 2);
    refuses(t, "m", LATEST, STATUS_UNAVAILABLE, UNKNOWN "'m' version 7 is not at ready state");
    refuses(t, "m", 3, STATUS_UNAVAILABLE, UNKNOWN "'m' version 3 is not at ready state");
    refuses(t, "m", 5, STATUS_NOT_FOUND, UNKNOWN "'m' version 5 is not found");

    table_set_ready(t, 0, 0, f.model);
    finds(t, "m", LATEST, f.model);
    finds(t, "m", 3, f.model);
    refuses(t, "m", 7, STATUS_UNAVAILABLE, UNKNOWN "'m' version 7 is not at ready state");
    int64_t *versions;
    size_t n;
    assert_null(table_versions(t, "m", 1, &versions, &n));
    assert_int_equal(n, 1);
    assert_int_equal(versions[0], 3);
    mem_free(versions);

    table_set_settled(t, 0);
    refuses(t, "m", 7, STATUS_UNAVAILABLE, UNKNOWN "'m' version 7 is not at ready state");
    finds(t, "m", LATEST, f.model);

    assert_int_equal(atomic_load(&f.model->refs), 2);
    table_free(t);
    assert_int_equal(atomic_load(&f.model->refs), 1);
    fake_model_end(&f);
}

static void a_model_that_does_not_come_up(void **state)
{
    (void)state;
    static const int64_t versions[] = {1};
    struct table *t = table_new(3);
    table_set_name(t, 0, "unreadable", true);
    table_set_name(t, 1, "failed", true);
    table_set_name(t, 2, "empty", true);
    table_set_versions(t, 1, versions, 1);
    table_set_versions(t, 2, NULL, 0);
    refuses(t, "empty", LATEST, STATUS_UNAVAILABLE, UNKNOWN "'empty' is not at ready state");
    for (size_t i = 0; i < 3; i++)
        table_set_settled(t, i);
    refuses(t, "unreadable", LATEST, STATUS_NOT_FOUND, UNKNOWN "'unreadable' is not found");
    refuses(t, "failed", LATEST, STATUS_NOT_FOUND, UNKNOWN "'failed' has no available versions");
    refuses(t, "failed", 1, STATUS_UNAVAILABLE, UNKNOWN "'failed' version 1 is not at ready state");
    refuses(t, "empty", LATEST, STATUS_NOT_FOUND, UNKNOWN "'empty' has no available versions");
    refuses(t, "empty", 1, STATUS_NOT_FOUND, UNKNOWN "'empty' version 1 is not found");
    table_free(t);
}

static void a_name_that_several_have(void **state)
{
    (void)state;
    static const int64_t versions[] = {1};
    struct fake_model f;
    fake_model_make(&f, CONFIG, 1, NULL);
    struct table *t = table_new(3);
    for (size_t i = 0; i < 3; i++)
        table_set_name(t, i, "m", true);
    refuses(t, "m", LATEST, STATUS_INVALID_ARG,
            "There are 3 identifiers of model 'm' in global map, model namespace must be provided "
            "to resolve ambiguity.");
    table_set_versions(t, 1, versions, 1);
    table_set_ready(t, 1, 0, f.model);
    table_set_settled(t, 1);
    table_set_settled(t, 2);
    refuses(t, "m", 1, STATUS_INVALID_ARG,
            "There are 2 identifiers of model 'm' in global map, model namespace must be provided "
            "to resolve ambiguity.");
    table_set_settled(t, 0); /* nothing came of the two others */
    finds(t, "m", LATEST, f.model);
    table_free(t);
    fake_model_end(&f);
}

/* ---- Readers while models come up ------------------------------------------------------------ */

enum { N_MODELS = 300, N_READERS = 3 };

static struct snapshot snapshot;
static char names[N_MODELS][8];
static atomic_int n_wrong;
static atomic_bool over;

/* A model is coming, then it serves; never is it unknown, and never does it go away again. */
static void read_all_the_time(void *arg)
{
    bool seen[N_MODELS] = {false};
    (void)arg;
    while (!atomic_load(&over)) {
        for (size_t i = 0; i < N_MODELS; i++) {
            struct model *m = NULL;
            const struct table *t = snapshot_enter(&snapshot);
            struct status *st = table_find(t, names[i], strlen(names[i]), LATEST, &m);
            snapshot_leave();
            bool fine = st ? !seen[i] && status_code(st) == STATUS_UNAVAILABLE : m != NULL;
            if (!fine)
                atomic_fetch_add(&n_wrong, 1);
            seen[i] |= !st;
            status_free(st);
        }
    }
}

static void models_come_up_while_others_look(void **state)
{
    (void)state;
    static const int64_t versions[] = {1, 2};
    struct thread readers[N_READERS];
    struct fake_model f;
    fake_model_make(&f, CONFIG, 1, NULL);
    struct table *t = table_new(N_MODELS);
    for (size_t i = 0; i < N_MODELS; i++) {
        snprintf(names[i], sizeof(names[i]), "m%zu", i);
        table_set_name(t, i, names[i], true);
    }
    snapshot_replace(&snapshot, t);
    for (size_t i = 0; i < N_READERS; i++)
        assert_null(thread_start(&readers[i], "reader", read_all_the_time, NULL));
    for (size_t i = 0; i < N_MODELS; i++) {
        table_set_versions(t, i, versions, 2);
        table_set_ready(t, i, 0, f.model);
        table_set_ready(t, i, 1, f.model);
        table_set_settled(t, i);
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < N_READERS; i++)
        thread_join(&readers[i]);
    table_free(snapshot_replace(&snapshot, NULL));
    assert_int_equal(atomic_load(&n_wrong), 0);
    fake_model_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_table_is_not_ready),
        cmocka_unit_test(what_serves_is_listed),
        cmocka_unit_test(a_model_comes_up),
        cmocka_unit_test(a_model_that_does_not_come_up),
        cmocka_unit_test(a_name_that_several_have),
        cmocka_unit_test(models_come_up_while_others_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
