/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text and JSON forms of every type that protobuf has (tests/proto/all_types.proto).
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
#include "base/pbjson.h"
#include "base/pbtext.h"
#include "base/status.h"
#include "tests/proto/all_types.pb-c.h"

static const ProtobufCMessageDescriptor *const type = &test__all_types__descriptor;
static struct arena arena;

static int start(void **state)
{
    arena_init(&arena, NULL, 0, 1 << 20, NULL, NULL);
    return 0;
}

static int stop(void **state)
{
    arena_reset(&arena);
    return 0;
}

static ProtobufCMessage *from_text(const char *text)
{
    ProtobufCMessage *m = NULL;
    struct status *st = pbtext_parse(type, text, strlen(text), "t", &arena, NULL, &m);
    if (st)
        fail_msg("%s", status_message(st));
    return m;
}

static ProtobufCMessage *from_json(const char *text)
{
    ProtobufCMessage *m = NULL;
    struct status *st = pbjson_parse(type, text, strlen(text), &arena, &m);
    if (st)
        fail_msg("%s", status_message(st));
    return m;
}

/* Every field at a value other than its default, as the printer writes it. */
static const char all[] = "i32: -2147483648\n"
                          "s32: 2147483647\n"
                          "sf32: -1\n"
                          "u32: 4294967295\n"
                          "f32: 7\n"
                          "i64: -9223372036854775808\n"
                          "s64: 9223372036854775807\n"
                          "sf64: -5\n"
                          "u64: 18446744073709551615\n"
                          "f64: 8\n"
                          "single: 0.1\n"
                          "double: 0.33333333333333331\n"
                          "flag: true\n"
                          "colour: BLUE\n"
                          "text: \"\303\251\\n\\t\\r\\\"\\'\\\\\\001\"\n"
                          "raw: \"\\000\\377\\376a\"\n"
                          "inner {\n"
                          "  single: -inf\n"
                          "  double: nan\n"
                          "  colour: 77\n"
                          "}\n"
                          "raws: \"\"\n"
                          "raws: \"\\200\"\n"
                          "raws: \"abc\"\n"
                          "texts: \"\"\n"
                          "texts: \"b\"\n"
                          "inners {\n"
                          "}\n"
                          "inners {\n"
                          "  flag: true\n"
                          "}\n"
                          "colours: [NONE, RED, 5]\n"
                          "flags: [false, true]\n"
                          "by_flag {\n"
                          "  value: \"ab\"\n"
                          "}\n"
                          "by_flag {\n"
                          "  key: true\n"
                          "}\n"
                          "by_i32 {\n"
                          "  key: -3\n"
                          "  value: RED\n"
                          "}\n"
                          "by_f64 {\n"
                          "  key: 18446744073709551615\n"
                          "  value: 2.5\n"
                          "}\n"
                          "by_s64 {\n"
                          "  key: -9223372036854775808\n"
                          "  value: \"x\"\n"
                          "}\n"
                          "by_u32 {\n"
                          "  key: 4294967295\n"
                          "  value {\n"
                          "    i32: 1\n"
                          "  }\n"
                          "}\n"
                          "by_text {\n"
                          "  key: \"k\"\n"
                          "  value: 1e+10\n"
                          "}\n"
                          "raw_choice: \"\\001\"\n";

static void assert_all(const ProtobufCMessage *m)
{
    AUTO(buf) text = BUF_INIT(1 << 20);
    pbtext_print(m, NULL, &text);
    assert_string_equal(buf_text(&text), all);
}

static void all_types_print_as_text(void **state)
{
    assert_all(from_text(all));
}

/* In any order of input: signed keys by their sign, unsigned keys beyond it, strings by their
 * bytes. */
static void maps_print_in_the_order_of_their_keys(void **state)
{
    ProtobufCMessage *m = from_text(
        "by_flag { key: true } by_flag { }\n"
        "by_i32 { key: 2 value: RED } by_i32 { key: -3 value: RED }\n"
        "by_f64 { key: 18446744073709551615 value: 1 } by_f64 { key: 9 value: 1 }\n"
        "by_s64 { key: 9223372036854775807 } by_s64 { key: -9223372036854775808 }\n"
        "by_u32 { key: 4294967295 value { } } by_u32 { key: 9 value { } }\n"
        "by_text { key: 'b' value: 1 } by_text { key: '\303\251' value: 1 }\n"
        "by_text { key: 'aa' value: 1 } by_text { value: 1 } by_text { key: 'B' value: 1 }");
    AUTO(buf) text = BUF_INIT(1 << 16);
    pbtext_print(m, NULL, &text);
    assert_string_equal(
        buf_text(&text),
        "by_flag {\n}\nby_flag {\n  key: true\n}\n"
        "by_i32 {\n  key: -3\n  value: RED\n}\nby_i32 {\n  key: 2\n  value: RED\n}\n"
        "by_f64 {\n  key: 9\n  value: 1\n}\n"
        "by_f64 {\n  key: 18446744073709551615\n  value: 1\n}\n"
        "by_s64 {\n  key: -9223372036854775808\n}\n"
        "by_s64 {\n  key: 9223372036854775807\n}\n"
        "by_u32 {\n  key: 9\n  value {\n  }\n}\n"
        "by_u32 {\n  key: 4294967295\n  value {\n  }\n}\n"
        "by_text {\n  value: 1\n}\nby_text {\n  key: \"B\"\n  value: 1\n}\n"
        "by_text {\n  key: \"aa\"\n  value: 1\n}\n"
        "by_text {\n  key: \"b\"\n  value: 1\n}\n"
        "by_text {\n  key: \"\303\251\"\n  value: 1\n}\n");
}

static void all_types_print_as_json(void **state)
{
    AUTO(buf) json = BUF_INIT(1 << 20);
    pbjson_print(from_text(all), NULL, &json);
    assert_non_null(strstr(buf_text(&json), "\"raw\":\"AP/+YQ==\""));
    assert_non_null(strstr(buf_text(&json), "\"raws\":[\"\",\"gA==\",\"YWJj\"]"));
    assert_non_null(strstr(buf_text(&json), "\"by_flag\":{\"false\":\"YWI=\",\"true\":\"\"}"));
    assert_non_null(strstr(buf_text(&json), "\"by_u32\":{\"4294967295\":{"));
    assert_non_null(strstr(buf_text(&json), "\"single\":\"-Infinity\",\"double\":\"NaN\""));
    assert_non_null(strstr(buf_text(&json), "\"colours\":[\"NONE\",\"RED\",5]"));
    assert_all(from_json(buf_text(&json)));
}

static void all_types_survive_copy_and_wire(void **state)
{
    ProtobufCMessage *m = from_text(all);
    assert_all(pb_copy(&arena, m));

    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *packed = mem_alloc(n);
    assert_int_equal(protobuf_c_message_pack(m, packed), n);
    ProtobufCMessage *unpacked = protobuf_c_message_unpack(type, NULL, n, packed);
    mem_free(packed);
    assert_non_null(unpacked);
    assert_all(unpacked);
    protobuf_c_message_free_unpacked(unpacked, NULL);
}

static void bytes_are_base64_in_json(void **state)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"{\"raw\":\"\"}", ""},
        {"{\"raw\":\"YQ==\"}", "raw: \"a\"\n"},
        {"{\"raw\":\"YQ\"}", "raw: \"a\"\n"},
        {"{\"raw\":\"-_-_\"}", "raw: \"\\373\\377\\277\"\n"},
        {"{\"raw\":\"+/+/\"}", "raw: \"\\373\\377\\277\"\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO(buf) text = BUF_INIT(1 << 16);
        pbtext_print(from_json(cases[i].json), NULL, &text);
        assert_string_equal(buf_text(&text), cases[i].text);
    }
    static const char *const wrong[] = {"{\"raw\":\"a\"}", "{\"raw\":\"YQ=a\"}",
                                        "{\"raw\":\"Y Q=\"}"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        ProtobufCMessage *m = NULL;
        struct status *st = pbjson_parse(type, wrong[i], strlen(wrong[i]), &arena, &m);
        assert_non_null(st);
        assert_string_equal(status_message(st), "1:8: raw: the string is not base64");
        status_free(st);
    }
}

static void depth_is_bounded(void **state)
{
    AUTO(buf) text = BUF_INIT(1 << 20);
    AUTO(buf) json = BUF_INIT(1 << 20);
    for (int i = 0; i < 100; i++) {
        buf_adds(&text, "inner{");
        buf_adds(&json, i < 99 ? "{\"inner\":" : "{");
    }
    for (int i = 0; i < 100; i++) {
        buf_addc(&text, '}');
        buf_addc(&json, '}');
    }
    from_text(buf_text(&text));
    from_json(buf_text(&json));

    AUTO(buf) deeper = BUF_INIT(1 << 20);
    ProtobufCMessage *m = NULL;
    buf_addf(&deeper, "inner{%s}", buf_text(&text));
    struct status *st = pbtext_parse(type, deeper.data, deeper.size, "t", &arena, NULL, &m);
    assert_non_null(st);
    assert_string_equal(status_message(st), "t:1:606: Message is too deep, the limit is 100");
    status_free(st);

    buf_reset(&deeper);
    buf_addf(&deeper, "{\"inner\":%s}", buf_text(&json));
    st = pbjson_parse(type, deeper.data, deeper.size, &arena, &m);
    assert_non_null(st);
    assert_non_null(strstr(status_message(st), "nested too deep, the limit is 100"));
    status_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_types_print_as_text, start, stop),
        cmocka_unit_test_setup_teardown(maps_print_in_the_order_of_their_keys, start, stop),
        cmocka_unit_test_setup_teardown(all_types_print_as_json, start, stop),
        cmocka_unit_test_setup_teardown(all_types_survive_copy_and_wire, start, stop),
        cmocka_unit_test_setup_teardown(bytes_are_base64_in_json, start, stop),
        cmocka_unit_test_setup_teardown(depth_is_bounded, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
