/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form, as far as the comparison with protobuf's own parsers (tests/conformance) cannot
 * see it: positions, limits, memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/pbtext.h"
#include "base/status.h"
#include "proto/model_config.pb-c.h"

static struct arena arena;
static struct pb_positions positions;

static int start(void **state)
{
    arena_init(&arena, NULL, 0, 1 << 20, NULL, NULL);
    return 0;
}

static int stop(void **state)
{
    arena_reset(&arena);
    pb_positions_done(&positions);
    return 0;
}

static struct status *parse_n(const char *text, size_t n, ProtobufCMessage **ret)
{
    return pbtext_parse(&inference__model_config__descriptor, text, n, "f", &arena, &positions,
                        ret);
}

static Inference__ModelConfig *parse(const char *text)
{
    ProtobufCMessage *m = NULL;
    struct status *st = parse_n(text, strlen(text), &m);
    if (st)
        fail_msg("%s", status_message(st));
    return (Inference__ModelConfig *)m;
}

static void assert_error(struct status *st, const char *message)
{
    assert_non_null(st);
    assert_string_equal(status_message(st), message);
    status_free(st);
}

static void assert_place(const void *message, uint32_t field, size_t index, unsigned line,
                         unsigned column)
{
    const struct pb_position *at = pb_positions_find(&positions, message, field, index);
    assert_non_null(at);
    assert_int_equal(at->line, line);
    assert_int_equal(at->column, column);
}

static void each_error_has_its_position(void **state)
{
    Inference__ModelConfig *c = parse("name: 'm'\n"
                                      "\tmax_batch_size: 3 # a tab goes to column 9\n"
                                      "input [\n"
                                      "  { name: 'a' dims: [ 1,\n"
                                      "    2 ] },\n"
                                      "  { dims: 3 dims: 4 }\n"
                                      "]\n"
                                      "input { }\n");
    assert_place(c, 1, 0, 1, 1);
    assert_place(c, 4, 0, 2, 9);
    assert_int_equal(c->n_input, 3);
    assert_place(c, 5, 0, 4, 3);
    assert_place(c, 5, 1, 6, 3);
    assert_place(c, 5, 2, 8, 1);
    assert_place(c->input[0], 1, 0, 4, 5);
    assert_place(c->input[0], 4, 0, 4, 23);
    assert_place(c->input[0], 4, 1, 5, 5);
    assert_place(c->input[1], 4, 0, 6, 5);
    assert_place(c->input[1], 4, 1, 6, 13);
    assert_null(pb_positions_find(&positions, c, 2, 0));
}

static void tokens_in_errors_are_cut(void **state)
{
    char text[400] = "name: ";
    memset(text + 6, 'x', 300);
    ProtobufCMessage *m;
    assert_error(parse_n(text, strlen(text), &m),
                 "f:1:7: Expected string, got: "
                 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...");
}

static void a_byte_order_mark_is_skipped(void **state)
{
    assert_string_equal(parse("\xef\xbb\xbfname: 'm'")->name, "m");
}

static void a_nul_byte_does_not_end_the_text(void **state)
{
    ProtobufCMessage *m;
    assert_error(parse_n("name: 'm'\0x", 11, &m),
                 "f:1:10: Invalid control characters encountered in text");
}

static void a_map_keeps_the_last_value_of_a_key(void **state)
{
    /* Few keys are compared, many are hashed. */
    for (int n = 3; n <= 300; n *= 10) {
        AUTO(buf) text = BUF_INIT(1 << 20);
        for (int i = 0; i < n; i++)
            buf_addf(&text, "metric_tags { key: 'k%d' value: '%d' }\n", i % (n - 1), i);
        Inference__ModelConfig *c = parse(buf_text(&text));
        assert_int_equal(c->n_metric_tags, n - 1);
        char last[16];
        snprintf(last, sizeof(last), "%d", n - 1);
        assert_string_equal(c->metric_tags[0]->key, "k0");
        assert_string_equal(c->metric_tags[0]->value, last);
        assert_string_equal(c->metric_tags[1]->value, "1");
    }
    /* An omitted key or value is at its default; an omitted message is there all the same. */
    Inference__ModelConfig *c = parse("parameters { key: 'a' } parameters { }");
    assert_int_equal(c->n_parameters, 2);
    assert_string_equal(c->parameters[0]->value->string_value, "");
    assert_string_equal(c->parameters[1]->key, "");
}

static void memory_is_bounded(void **state)
{
    AUTO(buf) text = BUF_INIT(8 << 20);
    ProtobufCMessage *m;
    for (int i = 0; i < 200000; i++)
        buf_adds(&text, "input{}");
    assert_error(parse_n(buf_text(&text), text.size, &m),
                 "f: the message is larger than 1048576 bytes in memory");
    assert_true(positions.capacity <= 1 << 16);

    buf_reset(&text);
    buf_adds(&text, "input{dims:[1");
    for (int i = 0; i < 200000; i++)
        buf_adds(&text, ",1");
    buf_adds(&text, "]}");
    assert_error(parse_n(buf_text(&text), text.size, &m),
                 "f: the message is larger than 1048576 bytes in memory");
}

static void text_is_bounded(void **state)
{
    /* The length alone is refused. */
    ProtobufCMessage *m;
    assert_error(parse_n("", (size_t)PBTEXT_MAX_BYTES + 1, &m),
                 "f: 67108865 bytes of text, at most 67108864 are read");
}

static size_t n_until_failure, n_allocations;

static bool fail_nth(size_t size_bytes)
{
    return n_allocations++ != n_until_failure;
}

/* Each allocation fails once. The result is an error, or a message if the allocation only kept a
 * position. */
static void any_allocation_may_fail(void **state)
{
    static const char text[] = "name: 'a' 'b' parameters { key: 'k' value { string_value: 'v' } }"
                               "input [ { dims: [1, 2, 3, 4, 5, 6] }, { } ]"
                               "sequence_batching { direct { minimum_slot_utilization: 0.5 } }";
    for (n_until_failure = 0;; n_until_failure++) {
        ProtobufCMessage *m = NULL;
        n_allocations = 0;
        mem_set_test_hook(fail_nth);
        struct status *st = parse_n(text, strlen(text), &m);
        mem_set_test_hook(NULL);
        assert_true(!st == (m != NULL));
        status_free(st);
        arena_reset(&arena);
        pb_positions_done(&positions);
        if (n_allocations <= n_until_failure)
            break;
    }
    assert_true(n_until_failure > 2);
}

/* ---- All faults of a text -------------------------------------------------------------------- */

static void on_fault(void *arg, const struct pbtext_fault *fault)
{
    buf_addf(arg, "%u:%u %s%s%s\n", fault->line, fault->column, fault->text,
             fault->advice ? "; " : "", fault->advice ? fault->advice : "");
}

static void all_faults_are_reported(void **state)
{
    static const char *const cases[][2] = {
        {"name: 'm' backend: 'b'", ""},
        {"nme: 'x' { } backend: 1 name: 'm'",
         "1:1 Message type \"inference.ModelConfig\" has no field named \"nme\"; did you mean "
         "\"name\"?\n"
         "1:23 Expected string, got: 1\n"},
        /* the contents of an unknown field are no faults */
        {"foo { bar: [ 1, { x: 2 } ] < y: 3 > } foo: 'a' 'b' foo: [ ] name: 7",
         "1:1 Message type \"inference.ModelConfig\" has no field named \"foo\"\n"
         "1:39 Message type \"inference.ModelConfig\" has no field named \"foo\"\n"
         "1:52 Message type \"inference.ModelConfig\" has no field named \"foo\"\n"
         "1:67 Expected string, got: 7\n"},
        {"input [ { dims: [ 1, x, 3 ] nam: 'a' }, { data_type: FP32 } ] max_batch_size: 1 2",
         "1:22 Expected integer, got: x\n"
         "1:29 Message type \"inference.ModelInput\" has no field named \"nam\"; did you mean "
         "\"name\"?\n"
         "1:54 Unknown enumeration value of \"FP32\" for field \"data_type\"; did you mean "
         "\"TYPE_FP32\"?\n"
         "1:81 Expected identifier, got: 2\n"},
        {"input { name: 'a' } } name: 1", "1:21 Expected identifier, got: }\n"},
        {"input { name: 'a' foo: 1",
         "1:19 Message type \"inference.ModelInput\" has no field named \"foo\"\n"},
        {"input { input { input {",
         "1:9 Message type \"inference.ModelInput\" has no field named \"input\"\n"},
        {"input { name: 'a", "1:17 Unexpected end of string\n"},
        {"parameters 3 parameters [ 4 ] name: 1", "1:12 Expected \"{\", found \"3\"\n"
                                                  "1:27 Expected \"{\", found \"4\"\n"
                                                  "1:37 Expected string, got: 1\n"},
        {"dynamic_batching { priority_queue_policy 3 }", "1:42 Expected \"{\", found \"3\"\n"},
        {"name: 'a' name: 'b' platform: 1",
         "1:11 Non-repeated field \"name\" is specified multiple times, first at 1:1\n"
         "1:31 Expected string, got: 1\n"},
        {"max_batch_size: -99999999999 name: 5", "1:18 Integer out of range (99999999999), the "
                                                 "smallest here is -2147483648\n"
                                                 "1:36 Expected string, got: 5\n"},
        {"parameters k key: 2 parameters { key: 'a' }",
         "1:12 Expected \"{\", found \"k\"\n"
         "1:14 Message type \"inference.ModelConfig\" has no field named \"key\"; it belongs "
         "inside \"cc_model_filenames\"\n"},
        {"[a.b]: 1 name: 5",
         "1:1 Extension \"a.b\" is not defined or is not an extension of \"inference.ModelConfig\"\n"
         "1:16 Expected string, got: 5\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        AUTO(buf) told = BUF_INIT(1 << 16);
        ProtobufCMessage *m = NULL;
        struct status *st =
            pbtext_parse_all(&inference__model_config__descriptor, cases[i][0], strlen(cases[i][0]),
                             "f", &arena, &positions, on_fault, &told, &m);
        assert_null(st);
        assert_string_equal(buf_text(&told), cases[i][1]);
        assert_int_equal(m != NULL, told.size == 0);
    }
}

static void count(void *arg, const struct pbtext_fault *fault)
{
    (void)fault;
    ++*(size_t *)arg;
}

static void the_list_of_faults_is_bounded(void **state)
{
    enum { N = 100000 };
    AUTO(buf) text = BUF_INIT(1 << 24);
    size_t n = 0;
    for (int i = 0; i < N; i++)
        buf_adds(&text, "x { a { ");
    ProtobufCMessage *m = NULL;
    struct status *st = pbtext_parse_all(&inference__model_config__descriptor, buf_text(&text),
                                         text.size, "f", &arena, &positions, count, &n, &m);
    assert_null(st);
    assert_null(m);
    assert_int_equal(n, 1); /* its braces stay open to the end */
    buf_reset(&text);
    for (int i = 0; i < N; i++)
        buf_adds(&text, "x { a { } } ");
    st = pbtext_parse_all(&inference__model_config__descriptor, buf_text(&text), text.size, "f",
                          &arena, &positions, count, &n, &m);
    assert_null(st);
    assert_int_equal(n, 1 + PBTEXT_MAX_FAULTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_error_has_its_position, start, stop),
        cmocka_unit_test_setup_teardown(tokens_in_errors_are_cut, start, stop),
        cmocka_unit_test_setup_teardown(a_byte_order_mark_is_skipped, start, stop),
        cmocka_unit_test_setup_teardown(a_nul_byte_does_not_end_the_text, start, stop),
        cmocka_unit_test_setup_teardown(a_map_keeps_the_last_value_of_a_key, start, stop),
        cmocka_unit_test_setup_teardown(memory_is_bounded, start, stop),
        cmocka_unit_test_setup_teardown(text_is_bounded, start, stop),
        cmocka_unit_test_setup_teardown(all_faults_are_reported, start, stop),
        cmocka_unit_test_setup_teardown(the_list_of_faults_is_bounded, start, stop),
        cmocka_unit_test_setup_teardown(any_allocation_may_fail, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
