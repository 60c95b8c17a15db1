/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/repository_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/options/server_options.h"
#include "core/server/server.h"
#include "core/server/server_priv.h"
#include "lib/fake_clock.h"
#include "lib/repository.h"

#define CONFIG                                                                                     \
    "backend: \"identity\" max_batch_size: 0 "                                                     \
    "input [ { name: \"I\" data_type: TYPE_FP32 dims: [ -1 ] } ] "                                 \
    "output [ { name: \"O\" data_type: TYPE_FP32 dims: [ -1 ] } ]"

static struct clock_fake fake;

static struct server *start(const struct test_repository *roots, size_t n_roots, bool namespacing)
{
    struct server *s = NULL;
    struct server_options *o = server_options_new();
    for (size_t i = 0; i < n_roots; i++)
        server_options_add_repository(o, roots[i].path);
    server_options_set_string(&o->backend_directory, CONCH_BUILD_DIR "/backends");
    o->exit_on_error = false;
    o->model_namespacing = namespacing;
    clock_fake_init(&fake, 1000 * NS_PER_S);
    o->clock = &fake.clock;
    struct status *st = server_new(o, &s);
    server_options_free(o);
    if (st)
        fail_msg("%s", status_message(st));
    return s;
}

static void stop(struct server *s)
{
    assert_null(server_stop(s));
    server_free(s);
}

static void assert_index(struct server *s, bool ready_only, const char *expected)
{
    size_t n, used = 0;
    char text[1024] = "";
    struct model_index_row *rows;
    assert_null(server_index(s, ready_only, &rows, &n));
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s:%d:%s:%s\n", rows[i].name,
                                 (int)rows[i].version, version_state_name(rows[i].state),
                                 rows[i].reason);
    mem_free(rows);
    assert_string_equal(text, expected);
}

#define DUPLICATE ":-1:UNAVAILABLE:model appears in two or more repositories\n"

static void a_model_in_several_roots_is_not_served(void **state)
{
    (void)state;
    struct test_repository roots[3];
    for (size_t i = 0; i < 3; i++) {
        repository_make(&roots[i]);
        repository_add(&roots[i], "every", CONFIG, 1);
    }
    repository_add(&roots[0], "broken", "nonsense", 1);
    repository_add(&roots[2], "alone", CONFIG, 7);

    struct server *s = start(roots, 3, false);
    char *expected =
        mem_printf("alone:7:READY:\nbroken:-1::Internal: failed to read text proto from "
                   "%s/broken/config.pbtxt:1:1: Message type "
                   "\"inference.ModelConfig\" has no field named \"nonsense\"\n"
                   "every" DUPLICATE,
                   roots[0].path);
    assert_index(s, false, expected);
    mem_free(expected);
    assert_index(s, true, "alone:7:READY:\nevery" DUPLICATE);
    bool ready = false;
    assert_null(server_is_ready(s, &ready));
    assert_true(ready); /* as in the reference: only the index and the log have such a model */
    stop(s);

    s = start(roots, 3, true);
    assert_index(s, true, "alone:7:READY:\nevery:1:READY:\nevery:1:READY:\nevery:1:READY:\n");
    struct model *m;
    struct status *st = server_find_model(s, "every", 5, 1, &m);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_string_equal(status_message(st),
                        "There are 3 identifiers of model 'every' in global map, model namespace "
                        "must be provided to resolve ambiguity.");
    status_free(st);
    stop(s);
    for (size_t i = 0; i < 3; i++)
        repository_remove(&roots[i]);
}

/* An answer holds for a while for a loop's probe, which may not wait. A thread that may wait
 * asks again. */
static void a_readiness_answer_holds_for_a_while(void **state)
{
    (void)state;
    struct test_repository root;
    repository_make(&root);
    repository_add(&root, "m", CONFIG, 1);
    struct server *s = start(&root, 1, false);
    struct repository *repo = s->repository;
    atomic_store(&repo->must_ask, true); /* as if a backend had to be asked */
    assert_true(repository_all_ready(repo, false));

    atomic_fetch_xor(&repo->last_answer, 1); /* "not ready" */
    clock_fake_advance(&fake, 19 * NS_PER_MS);
    assert_false(repository_all_ready(repo, false));
    assert_true(repository_all_ready(repo, true));
    clock_fake_advance(&fake, NS_PER_MS);
    assert_true(repository_all_ready(repo, false));

    /* What has changed makes it void. */
    atomic_fetch_xor(&repo->last_answer, 1);
    assert_false(repository_all_ready(repo, false));
    changes_announce(&s->changes);
    assert_true(repository_all_ready(repo, false));
    stop(s);
    repository_remove(&root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_in_several_roots_is_not_served),
        cmocka_unit_test(a_readiness_answer_holds_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
