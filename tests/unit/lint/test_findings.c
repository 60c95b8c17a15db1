/* SPDX-License-Identifier: Apache-2.0 */
#include "lint/findings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct lint_position at(const char *file, uint32_t line, uint32_t column)
{
    return (struct lint_position){.file = file, .line = line, .column = column};
}

static void findings_are_sorted_by_position(void **state)
{
    (void)state;
    struct lint_findings f = {.model = "m"};
    lint_add(&f, LINT_CONFIG, at("b", 2, 1), NULL, "five");
    lint_add(&f, LINT_CONFIG, at("b", 1, 9), NULL, "three");
    lint_add(&f, LINT_DELAY, at("b", 1, 9), NULL, "four");
    lint_add(&f, LINT_CONFIG, at("b", 0, 0), NULL, "two");
    lint_add(&f, LINT_CONFIG, at("a", 7, 7), "advice", "%s", "one");
    lint_sort(&f);
    static const char *const texts[] = {"one", "two", "three", "four", "five"};
    assert_int_equal(f.n, 5);
    for (size_t i = 0; i < f.n; i++) {
        assert_string_equal(f.items[i].text, texts[i]);
        assert_string_equal(f.items[i].model, "m");
    }
    assert_string_equal(f.items[0].advice, "advice");
    assert_null(f.items[1].advice);
    assert_int_equal(f.n_errors, 4);
    assert_int_equal(f.n_warnings, 1);
    lint_findings_done(&f);
}

static void findings_beyond_the_limit_are_counted(void **state)
{
    (void)state;
    struct lint_findings f = {0};
    for (int i = 0; i < LINT_MAX_FINDINGS; i++) {
        assert_true(lint_wants(&f, LINT_DELAY));
        lint_add(&f, i % 2 ? LINT_DELAY : LINT_CONFIG, at("a", 0, 0), NULL, "%d", i);
    }
    assert_false(lint_wants(&f, LINT_DELAY));
    for (int i = 0; i < 10; i++)
        lint_add(&f, LINT_CONFIG, at("a", 0, 0), NULL, "%d", i);
    assert_int_equal(f.n, LINT_MAX_FINDINGS);
    assert_int_equal(f.n_errors, LINT_MAX_FINDINGS / 2 + 10);
    assert_int_equal(f.n_warnings, LINT_MAX_FINDINGS / 2);
    lint_findings_done(&f);
}

static void ignored_findings_do_not_count(void **state)
{
    (void)state;
    bool ignored[N_LINT_CODES] = {[LINT_DELAY] = true};
    struct lint_findings f = {.ignored = ignored};
    assert_false(lint_wants(&f, LINT_DELAY));
    assert_true(lint_wants(&f, LINT_LABELS));
    lint_add(&f, LINT_DELAY, at("a", 0, 0), NULL, "no");
    lint_add(&f, LINT_LABELS, at("a", 0, 0), NULL, "yes");
    assert_int_equal(f.n, 1);
    assert_int_equal(f.n_warnings, 1);
    assert_string_equal(f.items[0].text, "yes");
    assert_null(f.items[0].model);
    lint_findings_done(&f);
}

static void texts_are_bounded_and_end_without_blanks(void **state)
{
    (void)state;
    static char name[100000];
    struct lint_findings f = {0};
    memset(name, 'x', sizeof(name) - 1);
    lint_add(&f, LINT_CONFIG, at("a", 0, 0), NULL, "%s", name);
    lint_add(&f, LINT_CONFIG, at("a", 0, 0), NULL, "searched: 'a'  ");
    assert_true(strlen(f.items[0].text) < 10000);
    assert_string_equal(f.items[1].text, "searched: 'a'");
    lint_findings_done(&f);
}

static void codes_are_found_by_name(void **state)
{
    (void)state;
    for (int code = 0; code < N_LINT_CODES; code++) {
        const struct conch_check_code *c = &lint_codes[code];
        assert_int_equal(lint_code_named(c->name, strlen(c->name)), code);
        assert_int_equal(lint_code_named(c->name, strlen(c->name) - 1), N_LINT_CODES);
        assert_int_equal(c->name[0], c->is_warning ? 'W' : 'E');
    }
    assert_int_equal(lint_code_named("", 0), N_LINT_CODES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(findings_are_sorted_by_position),
        cmocka_unit_test(findings_beyond_the_limit_are_counted),
        cmocka_unit_test(ignored_findings_do_not_count),
        cmocka_unit_test(texts_are_bounded_and_end_without_blanks),
        cmocka_unit_test(codes_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
