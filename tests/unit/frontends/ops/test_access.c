/* SPDX-License-Identifier: Apache-2.0 */
/* The file of access rules: read at the start, and again when it changes. */
#include "frontends/ops/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/status.h"

static char folder[] = "/tmp/conch-access-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/rules", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    rmdir(folder);
    return 0;
}

static void replace(const char *text)
{
    char new[80];
    snprintf(new, sizeof(new), "%s.new", path);
    FILE *f = fopen(new, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(rename(new, path), 0);
}

static const char *find_nothing(const void *head, const char *name, size_t n, size_t *ret_length)
{
    (void)head;
    (void)name;
    (void)n;
    (void)ret_length;
    return NULL;
}

static bool allows(struct access_view *v, enum ops_api api)
{
    struct access_client nobody = {.find_header = find_nothing};
    return access_allows(access_view_get(v), api, &nobody, NULL, 0);
}

static void wait_for(struct access_view *v, enum ops_api api)
{
    uint64_t until_ns = monotonic_ns() + 60 * NS_PER_S;
    while (!allows(v, api))
        assert_true(monotonic_ns() < until_ns);
}

static void the_file_is_read_again(void **state)
{
    (void)state;
    struct access *a;
    struct access_view view, other;
    replace("allow anyone to health\n");
    assert_null(access_start(path, NS_PER_MS / 5, &a));
    access_view_init(&view, a);
    access_view_init(&other, a);
    assert_true(allows(&view, OPS_API_HEALTH));
    assert_false(allows(&view, OPS_API_LOGGING));

    /* What is unfit changes nothing; what follows it is used. */
    replace("allow everybody to all\n");
    unlink(path);
    replace("allow anyone to logging\n");
    wait_for(&view, OPS_API_LOGGING);
    assert_false(allows(&view, OPS_API_HEALTH));
    wait_for(&other, OPS_API_LOGGING);
    replace("allow anyone to trace\n");
    wait_for(&view, OPS_API_TRACE);
    assert_false(allows(&view, OPS_API_LOGGING));

    access_view_done(&other); /* which never saw the last rules */
    access_view_done(&view);
    access_stop(a);
}

static void an_unfit_file_ends_the_start(void **state)
{
    (void)state;
    struct access *a;
    char text[200];
    replace("allow anyone to health\nallow anyone to helth\n");
    struct status *st = access_start(path, 0, &a);
    snprintf(text, sizeof(text), "access rules '%s': line 2: there is no category 'helth'", path);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    status_free(st);
    unlink(path);
    st = access_start(path, 0, &a);
    assert_non_null(strstr(status_message(st), "No such file"));
    status_free(st);
}

static void without_rules_there_is_no_view(void **state)
{
    (void)state;
    struct access_view view;
    access_view_init(&view, NULL);
    assert_null(view.source);
    access_view_done(&view);
    access_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_is_read_again),
        cmocka_unit_test(an_unfit_file_ends_the_start),
        cmocka_unit_test(without_rules_there_is_no_view),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
