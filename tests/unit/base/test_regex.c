/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions: what matches, what is refused, and that time does not explode. */
#include "base/regex.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

static struct regex *must_compile(const char *pattern)
{
    struct regex *r = NULL;
    struct status *st = regex_new(pattern, false, &r);
    if (st)
        fail_msg("%s", status_message(st));
    return r;
}

/* Texts behind the pattern that match, then NULL, then those that do not, then NULL. */
static const struct {
    const char *pattern, *yes[6], *no[6];
} cases[] = {
    {"", {"", "a"}, {NULL}},
    {"abc", {"abc", "xabcx"}, {"", "ab", "axbc", "ABC"}},
    {"^abc$", {"abc"}, {"xabc", "abcx", "abc\n\n"}},
    {"a|b|cd", {"a", "xb", "cd"}, {"c", "d", ""}},
    {"^(a|bc|)$", {"", "a", "bc"}, {"b", "abc"}},
    {"^a*$", {"", "aaaa"}, {"b", "ab"}},
    {"^a+b?$", {"a", "ab", "aaab"}, {"", "b", "abb"}},
    {"^(ab)*c$", {"c", "ababc"}, {"abac", "ab"}},
    {"^(?:a*)*$", {"", "aaa"}, {"ab"}},
    {"^a{2}$", {"aa"}, {"a", "aaa"}},
    {"^a{2,}$", {"aa", "aaaaa"}, {"a"}},
    {"^(ab){1,3}$", {"ab", "abab", "ababab"}, {"", "abababab"}},
    {"^a{0}b$", {"b"}, {"ab"}},
    {"^a{,2}$", {"a{,2}"}, {"aa"}},
    {"^a{x}$", {"a{x}"}, {"a"}},
    {"^a*?b+?c??$", {"b", "aabbc"}, {"c"}},
    {"^[a-c]$", {"a", "b", "c"}, {"d", "-", ""}},
    {"^[^a-c]$", {"d", "-", "\xe9"}, {"a", "b"}},
    {"^[]a]$", {"]", "a"}, {"b"}},
    {"^[^]a]$", {"b"}, {"]", "a"}},
    {"^[a-]$", {"a", "-"}, {"b"}},
    {"^[\\d\\-x]+$", {"1-x", "0"}, {"a", ""}},
    {"^[[:alpha:]_]+$", {"aZ_"}, {"1"}},
    {"^[[:^digit:]]$", {"a"}, {"1"}},
    {"^\\d\\D\\s\\S\\w\\W$", {"1a b_-"}, {"aa b_-", "1a b--"}},
    {"^.$", {"a", "\xff"}, {"\n", "", "ab"}},
    {"(?s)^.$", {"a", "\n"}, {""}},
    {"(?i)^x-[a-m]+$", {"X-abc", "x-ABM"}, {"x-z"}},
    {"^(?i:a)b$", {"Ab", "ab"}, {"aB"}},
    {"^(?i)a(?-i)b$", {"Ab"}, {"AB"}},
    {"^((?i)a)b$", {"Ab"}, {"AB"}},
    {"(?m)^b$", {"a\nb\nc"}, {"ab"}},
    {"\\Ab\\z", {"b"}, {"ab", "b\n"}},
    {"\\bcat\\b", {"a cat", "cat."}, {"concat", "cats"}},
    {"\\Bcat", {"concat"}, {"cat", "a cat"}},
    {"^(?P<name>a)(?<other>b)$", {"ab"}, {"a"}},
    {"^\\Qa.b*\\E+$", {"a.b*", "a.b***"}, {"axb*", "a.b"}},
    {"^\\Qa|(\\E$", {"a|("}, {"a"}},
    {"^\\x41\\x{42}\\103\\.\\_\\t$", {"ABC._\t"}, {"ABCx_\t"}},
    {"^\\a\\f\\n\\r\\v\\C$", {"\a\f\n\r\v\xff"}, {""}},
    {"^x-(request|trace)-id$", {"x-request-id", "x-trace-id"}, {"x-request-ids", "x--id"}},
    {"my_header.*", {"my_header", "my_header_1", "amy_headers"}, {"my-header"}},
    {"^(.*_)?key$", {"key", "a_b_key"}, {"akey", "keys"}},
};

static void texts_match_or_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct regex *r = must_compile(cases[i].pattern);
        for (const char *const *t = cases[i].yes; *t; t++) {
            if (!regex_matches(r, *t, strlen(*t)))
                fail_msg("'%s' does not match '%s'", cases[i].pattern, *t);
        }
        for (const char *const *t = cases[i].no; *t; t++) {
            if (regex_matches(r, *t, strlen(*t)))
                fail_msg("'%s' matches '%s'", cases[i].pattern, *t);
        }
        regex_free(r);
    }
}

static void wrong_patterns_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "(",      ")",      "a)",  "(a",     "[",        "[]",   "[a",    "[b-a]",    "*",
        "+a",     "a|*",    "a**", "a{3,2}", "\\",       "\\y",  "\\x{}", "(?<>a)",   "(?P<a",
        "(?P=a)", "(a)\\1", "\\1", "(?z)",   "[[:no:]]", "[\\]", "(?i",   "a{65536}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct regex *r = NULL;
        struct status *st = regex_new(wrong[i], false, &r);
        if (!st)
            fail_msg("'%s' is accepted", wrong[i]);
        assert_int_equal(status_code(st), STATUS_INVALID_ARG);
        status_free(st);
    }
    char deep[8001];
    memset(deep, '(', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    for (size_t n = 50; n < sizeof(deep); n *= 2) {
        struct regex *r = NULL;
        struct status *st = regex_new(deep + sizeof(deep) - 1 - n, false, &r);
        assert_non_null(st);
        status_free(st);
    }
}

static void each_prefix_of_a_pattern_is_read_or_refused(void **state)
{
    (void)state;
    static const char whole[] = "^(?i:a|[b-d[:alpha:]]\\x{41}){2,3}\\Qx\\E?(?P<n>\\d+)\\b$";
    for (size_t n = 0; n < sizeof(whole); n++) {
        char *pattern = strndup(whole, n);
        struct regex *r = NULL;
        struct status *st = regex_new(pattern, false, &r);
        if (!st)
            (void)regex_matches(r, "abax1", 5);
        regex_free(r);
        status_free(st);
        free(pattern);
    }
}

/* A method that tries one way after the other takes 2^30 steps here. */
static void time_does_not_explode(void **state)
{
    (void)state;
    char text[4096];
    memset(text, 'a', sizeof(text));
    struct regex *r = must_compile("(a?){30}a{30}(a*)*(a|aa)+$b");
    assert_false(regex_matches(r, text, sizeof(text)));
    regex_free(r);
    r = must_compile("^(a?){30}a{30}$");
    assert_true(regex_matches(r, text, 30));
    assert_true(regex_matches(r, text, 60));
    assert_false(regex_matches(r, text, 61));
    assert_false(regex_matches(r, text, 29));
    regex_free(r);
}

static void case_is_ignored_on_request(void **state)
{
    (void)state;
    struct regex *r = NULL;
    assert_null(regex_new("^X-(?-i)a[b-c]", true, &r));
    assert_true(regex_matches(r, "x-ab", 4));
    assert_false(regex_matches(r, "x-AB", 4));
    regex_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_match_or_not),
        cmocka_unit_test(wrong_patterns_are_refused),
        cmocka_unit_test(each_prefix_of_a_pattern_is_read_or_refused),
        cmocka_unit_test(time_does_not_explode),
        cmocka_unit_test(case_is_ignored_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
