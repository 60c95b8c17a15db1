/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conch_check() as a program that embeds the library calls it. system/test_check.py tests what it
 * finds.
 */
#include "conch/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const examples[] = {CONCH_SOURCE_DIR "/examples/models"};

static struct conch_check_options options(void)
{
    return (struct conch_check_options){
        .size = sizeof(struct conch_check_options), .repositories = examples, .n_repositories = 1};
}

/* Returns the result and what was printed, which the caller frees. */
static enum conch_check_result run(struct conch_check_options *o, char **ret_printed)
{
    size_t size;
    o->out = open_memstream(ret_printed, &size);
    assert_non_null(o->out);
    enum conch_check_result result = conch_check(o);
    fclose(o->out);
    return result;
}

static void the_examples_have_no_findings(void **state)
{
    (void)state;
    struct conch_check_options o = options();
    char *printed;
    assert_int_equal(run(&o, &printed), CONCH_CHECK_FINE);
    assert_memory_equal(printed, "8 models, 0 errors, 0 warnings, ", 32);
    free(printed);
}

static void findings_are_printed_to_the_given_sink(void **state)
{
    (void)state;
    static const char *const nowhere[] = {"/no/such/folder"};
    struct conch_check_options o = options();
    char *printed;
    o.repositories = nowhere;
    o.format = CONCH_CHECK_GITHUB;
    assert_int_equal(run(&o, &printed), CONCH_CHECK_UNUSABLE);
    assert_non_null(strstr(printed, "::error file=/no/such/folder,title=E-repository::"));
    free(printed);
}

static void invalid_options_are_refused(void **state)
{
    (void)state;
    static const char *const codes[][1] = {{"E-syntax"}, {"W-nothing"}};
    struct conch_check_options o = options();
    o.size = 1; /* an unknown version's */
    assert_int_equal(conch_check(&o), CONCH_CHECK_UNUSABLE);
    o = options();
    o.n_repositories = 0;
    assert_int_equal(conch_check(&o), CONCH_CHECK_UNUSABLE);
    for (size_t i = 0; i < 2; i++) {
        o = options();
        o.ignored = codes[i];
        o.n_ignored = 1;
        assert_int_equal(conch_check(&o), CONCH_CHECK_UNUSABLE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_have_no_findings),
        cmocka_unit_test(findings_are_printed_to_the_given_sink),
        cmocka_unit_test(invalid_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
