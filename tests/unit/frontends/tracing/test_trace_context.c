/* SPDX-License-Identifier: Apache-2.0 */
/* W3C's headers: what counts, what is ignored, and what backends get. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "frontends/tracing/trace_context.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN  "b7ad6b7169203331"

static void a_traceparent_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool counts;
    } cases[] = {
        {"00-" TRACE "-" SPAN "-01", true},
        {"00-" TRACE "-" SPAN "-00", true},
        {"cc-" TRACE "-" SPAN "-ff", true},
        {"cc-" TRACE "-" SPAN "-01-what follows", true},
        {"00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01", true},
        {"", false},
        {"00-" TRACE "-" SPAN "-0", false},
        {"00-" TRACE "-" SPAN "-01-", false},
        {"cc-" TRACE "-" SPAN "-01x", false},
        {"ff-" TRACE "-" SPAN "-01", false},
        {"00_" TRACE "-" SPAN "-01", false},
        {"00-" TRACE "_" SPAN "-01", false},
        {"00-" TRACE "-" SPAN "_01", false},
        {"00-" TRACE "-" SPAN "-0g", false},
        {"0g-" TRACE "-" SPAN "-01", false},
        {"00-00000000000000000000000000000000-" SPAN "-01", false},
        {"00-" TRACE "-0000000000000000-01", false},
        {"00-0af7651916cd43dd8448eb211c80319g-" SPAN "-01", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct trace_parent p = {0};
        trace_parent_read(&p, cases[i].text, strlen(cases[i].text));
        if (p.has_span != cases[i].counts)
            fail_msg("%s", cases[i].text);
        if (p.has_span)
            assert_memory_equal(p.span.span_id, "\xb7\xad\x6b\x71\x69\x20\x33\x31", SPAN_ID_BYTES);
    }
}

static void expect_state(const char *first, const char *second, const char *want)
{
    struct trace_parent p = {0};
    trace_parent_take(&p, "TraceState", 10, first, strlen(first));
    trace_parent_take(&p, "tracestate", 10, second, strlen(second));
    trace_parent_take(&p, "tracestat", 9, "z=1", 3);
    assert_string_equal(p.state, want);
    assert_int_equal(p.state_length, strlen(want));
}

static void members_of_all_headers_are_one_state(void **state)
{
    (void)state;
    expect_state("a=1", "", "a=1");
    expect_state("a=1", "b=2", "a=1,b=2");
    expect_state(" a=1 ,\t b@v=x y\t, ,", ",c=\"\\", "a=1,b@v=x y,c=\"\\");
    expect_state("a", "b=2", "");
    expect_state("a=1", "b==", "");
    expect_state("=1", "b=2", "");
    expect_state("a=", "b=2", "");
    expect_state("A=1", "b=2", "");
    expect_state("a=\x01", "b=2", "");
}

static void a_state_that_is_too_long_is_ignored(void **state)
{
    (void)state;
    char text[TRACE_STATE_BYTES + 2] = "a=";
    memset(text + 2, 'x', TRACE_STATE_BYTES - 2);
    expect_state(text, "", text);
    expect_state(text, "b=2", "");
    text[TRACE_STATE_BYTES] = 'x';
    expect_state(text, "", "");
    struct trace_parent p = {0};
    for (int i = 0; i < TRACE_STATE_MEMBERS; i++)
        trace_parent_add_state(&p, "a=1", 3);
    assert_int_equal(p.state_length, 4 * TRACE_STATE_MEMBERS - 1);
    trace_parent_add_state(&p, "a=1", 3);
    assert_int_equal(p.state_length, 0);
}

static void a_backend_gets_both_as_json(void **state)
{
    (void)state;
    char text[TRACE_CONTEXT_BYTES], long_state[TRACE_STATE_BYTES + 1];
    struct trace_parent p = {0};
    trace_parent_read(&p, "00-" TRACE "-" SPAN "-00", 55);
    trace_context_print(&p.span, "a=\"\\", text);
    assert_string_equal(text, "{\"traceparent\":\"00-" TRACE "-" SPAN
                              "-01\",\"tracestate\":\"a=\\\"\\\\\"}");
    memset(long_state, '"', TRACE_STATE_BYTES);
    long_state[TRACE_STATE_BYTES] = '\0';
    trace_context_print(&p.span, long_state, text);
    assert_string_equal(text + strlen(text) - 4, "\\\"\"}");
    assert_true(strlen(text) > 2 * TRACE_STATE_BYTES);
}

static void ids_differ(void **state)
{
    (void)state;
    uint8_t a[TRACE_ID_BYTES], b[TRACE_ID_BYTES];
    for (int i = 0; i < 1000; i++) {
        trace_id_new(a);
        trace_id_new(b);
        assert_memory_not_equal(a, b, sizeof(a));
        assert_memory_not_equal(a, a + SPAN_ID_BYTES, SPAN_ID_BYTES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_traceparent_is_read),
        cmocka_unit_test(members_of_all_headers_are_one_state),
        cmocka_unit_test(a_state_that_is_too_long_is_ignored),
        cmocka_unit_test(a_backend_gets_both_as_json),
        cmocka_unit_test(ids_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
