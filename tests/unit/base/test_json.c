/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON's structure: walking, strings, tensors. Each error has the words and the offset that the
 * genuine Triton 2.51 gives for the same text. test_json_number.c and
 * test_json_print.c test numbers.
 */
#include <math.h>
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
#include "base/json.h"
#include "base/mem.h"

static char memory[4096];
static struct arena arena;

static int start_arena(void **unused)
{
    (void)unused;
    arena_init(&arena, memory, sizeof(memory), 0, NULL, NULL);
    return 0;
}

static struct json over(const char *text)
{
    struct json j;
    json_init(&j, text, strlen(text), &arena);
    return j;
}

#define assert_str(s, literal)                                                                     \
    do {                                                                                           \
        assert_int_equal((s).length, sizeof(literal) - 1);                                         \
        assert_memory_equal((s).at, literal, sizeof(literal) - 1);                                 \
    } while (0)

/* ---- errors --------------------------------------------------------------------------------- */

static const struct {
    const char *text, *error;
    size_t offset;
} oracle[] = {
    /* Taken from the genuine server's answers to inference requests with this body. */
    {"{", "Missing a name for object member.", 1},
    {"]", "Invalid value.", 0},
    {"}", "Invalid value.", 0},
    {"[}", "Invalid value.", 1},
    {"{]", "Missing a name for object member.", 1},
    {"{\"a\"}", "Missing a colon after a name of object member.", 4},
    {"{\"a\":}", "Invalid value.", 5},
    {"{\"a\":1,}", "Missing a name for object member.", 7},
    {"{\"a\":1 \"b\":2}", "Missing a comma or '}' after an object member.", 7},
    {"{\"a\":1}}", "The document root must not be followed by other values.", 7},
    {"{1:2}", "Missing a name for object member.", 1},
    {"{,}", "Missing a name for object member.", 1},
    {"[,]", "Invalid value.", 1},
    {"[1,]", "Invalid value.", 3},
    {"[1 2]", "Missing a comma or ']' after an array element.", 3},
    {"[] []", "The document root must not be followed by other values.", 3},
    {"1 2", "The document root must not be followed by other values.", 2},
    {" ", "The document is empty.", 1},
    {"[[[[", "Invalid value.", 4},
    {"  nul", "Invalid value.", 5},
    {"[tru]", "Invalid value.", 4},
    {"[True]", "Invalid value.", 1},
    {"[truex]", "Missing a comma or ']' after an array element.", 5},
    {"[nan]", "Invalid value.", 2},
    {"[N]", "Invalid value.", 2},
    {"[Na]", "Invalid value.", 3},
    {"[I]", "Invalid value.", 2},
    {"[In]", "Invalid value.", 3},
    {"[Infi]", "Invalid value.", 5},
    {"[Infx]", "Missing a comma or ']' after an array element.", 4},
    {"[Infin]", "Invalid value.", 6},
    {"[NaN]", NULL, 0},
    {"[-NaN]", NULL, 0},
    {"[Inf]", NULL, 0},
    {"[-Infinity]", NULL, 0},
    {"[-]", "Invalid value.", 2},
    {"[--1]", "Invalid value.", 2},
    {"[-x]", "Invalid value.", 2},
    {"[+1]", "Invalid value.", 1},
    {"[.5]", "Invalid value.", 1},
    {"[-.5]", "Invalid value.", 2},
    {"[01]", "Missing a comma or ']' after an array element.", 2},
    {"[-01]", "Missing a comma or ']' after an array element.", 3},
    {"[1.]", "Miss fraction part in number.", 3},
    {"[1.e1]", "Miss fraction part in number.", 3},
    {"[1e]", "Miss exponent in number.", 3},
    {"[1e+]", "Miss exponent in number.", 4},
    {"[1e-]", "Miss exponent in number.", 4},
    {"[1e5.]", "Missing a comma or ']' after an array element.", 4},
    {"[1.5.5]", "Missing a comma or ']' after an array element.", 4},
    {"[1e400]", "Number too big to be stored in double.", 1},
    {"[-1e400]", "Number too big to be stored in double.", 1},
    {"[1e-99999999999]", NULL, 0},
    {"[0x10]", "Missing a comma or ']' after an array element.", 2},
    {"[1_0]", "Missing a comma or ']' after an array element.", 2},
    {"[\"\\\"]", "Missing a closing quotation mark in string.", 5},
    {"[\"\\x\"]", "Invalid escape character in string.", 2},
    {"[\"\\u12\"]", "Incorrect hex digit after \\u escape in string.", 2},
    {"[\"\\u00g0\"]", "Incorrect hex digit after \\u escape in string.", 2},
    {"[\"\\ud800\"]", "The surrogate pair in string is invalid.", 2},
    {"[\"\\ud800x\"]", "The surrogate pair in string is invalid.", 2},
    {"[\"\\ud800\\n\"]", "The surrogate pair in string is invalid.", 2},
    {"[\"\\ud800\\u0041\"]", "The surrogate pair in string is invalid.", 2},
    {"[\"\\ud800\\u00g0\"]", "Incorrect hex digit after \\u escape in string.", 2},
    {"[\"\\udc00\"]", NULL, 0},
    {"[\"a\nb\"]", "Invalid escape character in string.", 3},
    {"['a']", "Invalid value.", 1},
    {"/* c */1", "Invalid value.", 0},
    {"\0131", "Invalid value.", 0},
    {"[1,2,3,{\"a\":[{\"b\":\"c\"},", "Invalid value.", 23},
    {"\357\273\277[1", "Missing a comma or ']' after an array element.", 5},
};

static void errors_are_those_of_the_reference(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ARRAY_SIZE(oracle); i++) {
        struct json_error error = {"none", 0};
        bool ok = json_check(oracle[i].text, strlen(oracle[i].text), &error);
        if (ok != !oracle[i].error)
            fail_msg("%s: %s", oracle[i].text, ok ? "accepted" : error.text);
        if (!ok && (strcmp(error.text, oracle[i].error) != 0 || error.offset != oracle[i].offset))
            fail_msg("%s: %s at %zu, wanted %s at %zu", oracle[i].text, error.text, error.offset,
                     oracle[i].error, oracle[i].offset);
        /* Walking refuses the same texts. */
        struct json j = over(oracle[i].text);
        ok = json_skip_value(&j) && json_end(&j);
        assert_int_equal(ok, !oracle[i].error);
        assert_int_equal(j.failure, ok ? JSON_OK : JSON_SYNTAX);
    }
}

static void an_empty_text_is_refused(void **unused)
{
    (void)unused;
    struct json_error error;
    assert_false(json_check("", 0, &error));
    assert_string_equal(error.text, "The document is empty.");
    assert_int_equal(error.offset, 0);
    struct json j = over("");
    assert_int_equal(json_peek(&j), JSON_NONE);
    assert_false(json_enter_object(&j));
    assert_int_equal(j.failure, JSON_SYNTAX);
}

static void a_zero_byte_ends_the_text(void **unused)
{
    (void)unused;
    struct json_error error;
    assert_true(json_check("[1]\0x", 5, &error));
    assert_false(json_check("[1\0]", 4, &error));
    assert_int_equal(error.offset, 2);
    assert_false(json_check("\"a\0b\"", 5, &error));
    assert_string_equal(error.text, "Missing a closing quotation mark in string.");
    assert_int_equal(error.offset, 2);
}

/* No text may be read beyond its end: each prefix lies right before the end of its memory
 * (asan). */
static void every_prefix_is_refused(void **unused)
{
    (void)unused;
    static const char text[] = "{\"a\":[1,-2.5e3,true,false,null,NaN,-Infinity,\"x\\n\\ud83d"
                               "\\ude00\"],\"b\":{\"c\":{}},\"d\":[[0.1234567890123456789]]}";
    size_t length = sizeof(text) - 1;
    struct json_error error;
    assert_true(json_check(text, length, &error));
    for (size_t n = 0; n < length; n++) {
        char *copy = mem_alloc(n + !n);
        memcpy(copy, text, n);
        assert_false(json_check(copy, n, &error));
        assert_true(error.offset <= n);
        struct json j;
        json_init(&j, copy, n, &arena);
        assert_false(json_skip_value(&j));
        mem_free(copy);
    }
}

static void nesting_has_no_limit_of_its_own(void **unused)
{
    (void)unused;
    static const size_t depths[] = {2,     63, 64, 65, JSON_INLINE_DEPTH, JSON_INLINE_DEPTH + 1,
                                    300000};
    for (size_t i = 0; i < ARRAY_SIZE(depths); i++) {
        size_t n = depths[i];
        char *text = mem_alloc(2 * n);
        for (size_t k = 0; k < n; k++) {
            text[k] = '[';
            text[n + k] = ']';
        }
        struct json_error error;
        assert_true(json_check(text, 2 * n, &error));
        text[2 * n - 1] = '}';
        assert_false(json_check(text, 2 * n, &error));
        assert_int_equal(error.offset, 2 * n - 1);
        assert_string_equal(error.text, "Missing a comma or ']' after an array element.");
        mem_free(text);
    }
}

static bool no_memory(size_t size_bytes)
{
    (void)size_bytes;
    return false;
}

static void nesting_without_memory_is_an_error(void **unused)
{
    (void)unused;
    enum { DEEP = 5000 };
    static char text[2 * DEEP];
    memset(text, '[', DEEP);
    memset(text + DEEP, ']', DEEP);
    struct json j;
    struct json_error error;
    mem_set_test_hook(no_memory);
    json_init(&j, text, sizeof(text), NULL);
    bool skipped = json_skip_value(&j);
    bool checked = json_check(text, sizeof(text), &error);
    mem_set_test_hook(NULL);
    assert_false(skipped);
    assert_false(checked);
    assert_int_equal(j.failure, JSON_OUT_OF_MEMORY);
    assert_string_equal(error.text, json_failure_text(JSON_OUT_OF_MEMORY));
}

/* ---- walking -------------------------------------------------------------------------------- */

static void objects_and_arrays_are_walked(void **unused)
{
    (void)unused;
    struct json j = over(" { \"name\" : \"x\" , \"n\":[ 1 , [ ] ,{ } , [2]],\"e\":{},\"t\":true, "
                         "\"z\":null, \"u\":18446744073709551615 , \"skip\":[1,{\"a\":[]}] } ");
    struct json_str key, s;
    bool b = false;
    int64_t i = 0;
    uint64_t u = 0;
    assert_true(json_enter_object(&j));
    assert_true(json_next_member(&j, &key));
    assert_true(json_str_is(key, "name"));
    assert_true(json_str_equals(key, "name"));
    assert_false(json_str_is(key, "nam"));
    assert_true(json_read_string(&j, &s));
    assert_str(s, "x");
    assert_true(json_next_member(&j, &key));
    assert_true(json_enter_array(&j));
    assert_true(json_next_element(&j));
    assert_int_equal(json_peek(&j), JSON_NUMBER);
    assert_true(json_read_int64(&j, &i));
    assert_int_equal(i, 1);
    assert_true(json_next_element(&j));
    assert_true(json_enter_array(&j));
    assert_false(json_next_element(&j));
    assert_true(json_next_element(&j));
    assert_true(json_enter_object(&j));
    assert_false(json_next_member(&j, &key));
    assert_true(json_next_element(&j));
    struct json here = j; /* a position to return to */
    assert_true(json_skip_value(&j));
    assert_false(json_next_element(&j));
    assert_true(json_next_member(&j, &key));
    assert_true(json_str_is(key, "e"));
    j = here;
    assert_true(json_enter_array(&j));
    assert_true(json_next_element(&j));
    assert_true(json_read_int64(&j, &i));
    assert_int_equal(i, 2);
    assert_false(json_next_element(&j));
    assert_false(json_next_element(&j));
    assert_true(json_next_member(&j, &key));
    assert_true(json_enter_object(&j));
    assert_false(json_next_member(&j, &key));
    assert_true(json_next_member(&j, &key));
    assert_true(json_read_bool(&j, &b));
    assert_true(b);
    assert_true(json_next_member(&j, &key));
    assert_int_equal(json_peek(&j), JSON_NULL);
    assert_true(json_read_null(&j));
    assert_true(json_next_member(&j, &key));
    assert_false(json_read_null(&j));
    assert_int_equal(j.failure, JSON_OK);
    assert_true(json_read_uint64(&j, &u));
    assert_true(u == UINT64_MAX);
    assert_true(json_next_member(&j, &key));
    struct json_str raw;
    assert_true(json_read_raw(&j, &raw));
    assert_str(raw, "[1,{\"a\":[]}]");
    assert_false(json_next_member(&j, &key));
    assert_true(json_end(&j));
}

static void a_byte_order_mark_is_skipped(void **unused)
{
    (void)unused;
    struct json j = over("\xef\xbb\xbf[]");
    assert_true(json_enter_array(&j));
    assert_false(json_next_element(&j));
    assert_true(json_end(&j));
}

static void each_wrong_type_has_its_error(void **unused)
{
    (void)unused;
    static const char *const values[] = {"null", "true", "1.5", "\"s\"", "[]", "{}"};
    static const struct {
        enum json_failure failure;
        const char *text;
    } want[] = {
        {JSON_NOT_BOOL, "attempt to access JSON non-boolean as boolean"},
        {JSON_NOT_INT, "attempt to access JSON non-signed-integer as signed-integer"},
        {JSON_NOT_UINT, "attempt to access JSON non-unsigned-integer as unsigned-integer"},
        {JSON_NOT_NUMBER, "attempt to access JSON non-number as double"},
        {JSON_NOT_STRING, "attempt to access JSON non-string as string"},
        {JSON_NOT_ARRAY, "attempt to access JSON non-array as array"},
        {JSON_NOT_OBJECT, "attempt to access JSON non-object as object"},
    };
    for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
        for (size_t k = 0; k < ARRAY_SIZE(want); k++) {
            struct json j = over(values[v]), start = j;
            bool b;
            int64_t i;
            uint64_t u;
            double d;
            struct json_str s;
            bool ok = k == 0   ? json_read_bool(&j, &b)
                      : k == 1 ? json_read_int64(&j, &i)
                      : k == 2 ? json_read_uint64(&j, &u)
                      : k == 3 ? json_read_double(&j, &d)
                      : k == 4 ? json_read_string(&j, &s)
                      : k == 5 ? json_enter_array(&j)
                               : json_enter_object(&j);
            bool fits = (v == 1 && k == 0) || (v == 2 && k == 3) || (v == 3 && k == 4) ||
                        (v == 4 && k == 5) || (v == 5 && k == 6);
            assert_int_equal(ok, fits);
            if (fits)
                continue;
            assert_int_equal(j.failure, want[k].failure);
            assert_string_equal(json_failure_text(j.failure), want[k].text);
            assert_ptr_equal(j.p, start.p);
            /* The error stays. */
            assert_int_equal(json_peek(&j), JSON_NONE);
            assert_false(json_skip_value(&j));
            assert_false(json_next_element(&j));
            assert_false(json_end(&j));
            assert_int_equal(j.failure, want[k].failure);
        }
    }
}

static void a_syntax_error_is_not_a_type_error(void **unused)
{
    (void)unused;
    static const char *const texts[] = {"", "}", "x", ",", "+1", "tru", "nul", "\"a", "1."};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct json_str s;
        struct json_number n;
        bool b;
        struct json j = over(texts[i]);
        enum json_type type = json_peek(&j);
        bool ok = type == JSON_STRING   ? json_read_string(&j, &s)
                  : type == JSON_NUMBER ? json_read_number(&j, &n)
                  : type == JSON_BOOL   ? json_read_bool(&j, &b)
                  : type == JSON_NULL   ? json_read_null(&j)
                                        : json_enter_array(&j);
        assert_false(ok);
        assert_int_equal(j.failure, JSON_SYNTAX);
    }
}

/* ---- strings -------------------------------------------------------------------------------- */

static void strings_without_escapes_are_not_copied(void **unused)
{
    (void)unused;
    const char *text = "\"caf\xc3\xa9 \x7f\xff and more of it\"";
    struct json j = over(text);
    struct json_str s;
    assert_true(json_read_string(&j, &s));
    assert_ptr_equal(s.at, text + 1);
    assert_int_equal(s.length, strlen(text) - 2);
}

static void escapes_are_decoded(void **unused)
{
    (void)unused;
    struct json j = over("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00\\u0000"
                         "end\\udc00\"");
    struct json_str s;
    assert_true(json_read_string(&j, &s));
    assert_str(s, "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0end\xed\xb0\x80");
    struct json_str key;
    j = over("{\"a\\u0062\":1}");
    assert_true(json_enter_object(&j));
    assert_true(json_next_member(&j, &key));
    assert_str(key, "ab");
}

static void escapes_need_room(void **unused)
{
    (void)unused;
    struct json_str s;
    struct json j;
    json_init(&j, "\"a\\n\"", 5, NULL);
    assert_false(json_read_string(&j, &s));
    assert_int_equal(j.failure, JSON_OUT_OF_MEMORY);
    char little[16];
    struct arena small;
    arena_init(&small, little, sizeof(little), 0, NULL, NULL);
    json_init(&j, "\"a\\n4567890123456789\"", 21, &small);
    assert_false(json_read_string(&j, &s));
    assert_int_equal(j.failure, JSON_OUT_OF_MEMORY);
}

/* A special character at every position of a run, so that every byte of a word is examined. */
static void strings_of_every_length_are_read(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < 40; n++) {
        for (size_t at = 0; at < n; at++) {
            char text[64];
            size_t length = 0;
            text[length++] = '"';
            for (size_t i = 0; i < n; i++)
                text[length++] = i == at ? '\x1f' : (char)(0x80 + i);
            text[length++] = '"';
            struct json_error error;
            assert_false(json_check(text, length, &error));
            assert_int_equal(error.offset, 1 + at);
            text[1 + at] = '"';
            struct json j;
            struct json_str s;
            json_init(&j, text, length, NULL);
            assert_true(json_read_string(&j, &s));
            assert_int_equal(s.length, at);
        }
    }
}

/* ---- tensors -------------------------------------------------------------------------------- */

static void tensors_are_flattened(void **unused)
{
    (void)unused;
    float f[8];
    size_t n;
    struct json j = over("[[1,2.5],[[-3e2]], 4 ,[],[NaN,Infinity]] ");
    assert_true(json_read_f32s(&j, f, 8, &n));
    assert_true(json_end(&j));
    assert_int_equal(n, 6);
    assert_true(f[0] == 1 && f[1] == 2.5F && f[2] == -300 && f[3] == 4 && isnan(f[4]) &&
                isinf(f[5]));
    j = over("[]");
    assert_true(json_read_f32s(&j, f, 0, &n));
    assert_int_equal(n, 0);
    /* By way of double, as Triton reads it: the nearest float of this decimal is the next one. */
    j = over("[1.0000000596046448,1e39]");
    assert_true(json_read_f32s(&j, f, 8, &n));
    assert_true(f[0] == 1.0F && isinf(f[1]));
    double d[2];
    j = over("[0.1,1e300]");
    assert_true(json_read_f64s(&j, d, 2, &n));
    assert_true(d[0] == 0.1 && d[1] == 1e300);
}

static void integers_keep_their_low_bits(void **unused)
{
    (void)unused;
    size_t n;
    int8_t i8[4];
    int16_t i16[4];
    int32_t i32[4];
    int64_t i64[4];
    uint8_t u8[4];
    uint16_t u16[4];
    uint32_t u32[4];
    uint64_t u64[4];
    struct json j = over("[128, -129, 4294967296,-9223372036854775808]");
    struct json start = j;
    assert_true(json_read_i8s(&j, i8, 4, &n));
    assert_true(n == 4 && i8[0] == -128 && i8[1] == 127 && i8[2] == 0 && i8[3] == 0);
    j = start;
    assert_true(json_read_i16s(&j, i16, 4, &n));
    assert_true(i16[0] == 128 && i16[1] == -129 && i16[2] == 0);
    j = start;
    assert_true(json_read_i32s(&j, i32, 4, &n));
    assert_true(i32[0] == 128 && i32[1] == -129 && i32[2] == 0);
    j = start;
    assert_true(json_read_i64s(&j, i64, 4, &n));
    assert_true(i64[2] == 4294967296 && i64[3] == INT64_MIN);
    j = over("[256,65537,4294967297,18446744073709551615]");
    start = j;
    assert_true(json_read_u8s(&j, u8, 4, &n));
    assert_true(u8[0] == 0 && u8[1] == 1 && u8[2] == 1 && u8[3] == 255);
    j = start;
    assert_true(json_read_u16s(&j, u16, 4, &n));
    assert_true(u16[0] == 256 && u16[1] == 1 && u16[2] == 1);
    j = start;
    assert_true(json_read_u32s(&j, u32, 4, &n));
    assert_true(u32[1] == 65537 && u32[2] == 1 && u32[3] == UINT32_MAX);
    j = start;
    assert_true(json_read_u64s(&j, u64, 4, &n));
    assert_true(u64[2] == 4294967297 && u64[3] == UINT64_MAX);
    j = over("[-0]");
    assert_true(json_read_u8s(&j, u8, 4, &n));
    assert_int_equal(u8[0], 0);
}

static void booleans_and_strings_are_read(void **unused)
{
    (void)unused;
    uint8_t b[3];
    size_t n, bytes;
    struct json j = over("[true,[false],true]");
    assert_true(json_read_bools(&j, b, 3, &n));
    assert_true(n == 3 && b[0] == 1 && b[1] == 0 && b[2] == 1);
    char out[32];
    j = over("[\"ab\",[\"\"],\"\\u00e9\\n\"]");
    struct json start = j;
    assert_true(json_read_strings(&j, NULL, 0, 3, &n, &bytes));
    assert_int_equal(n, 3);
    assert_int_equal(bytes, 17);
    j = start;
    assert_true(json_read_strings(&j, out, bytes, 3, &n, &bytes));
    assert_memory_equal(out, "\2\0\0\0ab\0\0\0\0\3\0\0\0\xc3\xa9\n", 17);
    j = start;
    assert_false(json_read_strings(&j, out, 16, 3, &n, &bytes));
    assert_int_equal(j.failure, JSON_TOO_MANY);
    j = start;
    assert_false(json_read_strings(&j, out, sizeof(out), 2, &n, &bytes));
    assert_int_equal(j.failure, JSON_TOO_MANY);
    j = over("[\"a\",1]");
    assert_false(json_read_strings(&j, out, sizeof(out), 2, &n, &bytes));
    assert_int_equal(j.failure, JSON_NOT_STRING);
    j = over("[\"a\",\"\\x\"]");
    assert_false(json_read_strings(&j, out, sizeof(out), 2, &n, &bytes));
    assert_int_equal(j.failure, JSON_SYNTAX);
}

static enum json_failure read_as(char kind, const char *text, size_t max)
{
    char out[64];
    size_t n = 0, bytes;
    struct json j = over(text);
    bool ok = kind == 'f'   ? json_read_f32s(&j, (float *)(void *)out, max, &n)
              : kind == 'd' ? json_read_f64s(&j, (double *)(void *)out, max, &n)
              : kind == 'i' ? json_read_i32s(&j, (int32_t *)(void *)out, max, &n)
              : kind == 'u' ? json_read_u16s(&j, (uint16_t *)(void *)out, max, &n)
              : kind == 'b' ? json_read_bools(&j, (uint8_t *)out, max, &n)
                            : json_read_strings(&j, out, sizeof(out), max, &n, &bytes);
    assert_int_equal(ok, j.failure == JSON_OK);
    return j.failure;
}

static void wrong_tensors_are_refused(void **unused)
{
    (void)unused;
    static const struct {
        char kind;
        const char *text;
        size_t max;
        enum json_failure failure;
    } cases[] = {
        {'f', "[1,2]", 1, JSON_TOO_MANY},
        {'f', "[1,[2]]", 1, JSON_TOO_MANY},
        {'f', "[1,\"x\"]", 1, JSON_TOO_MANY}, /* counted before it is parsed */
        {'f', "[\"x\"]", 1, JSON_NOT_NUMBER},
        {'f', "[1,true]", 4, JSON_NOT_NUMBER},
        {'f', "[null]", 4, JSON_NOT_NUMBER},
        {'f', "[{}]", 4, JSON_NOT_NUMBER},
        {'f', "1", 4, JSON_NOT_ARRAY},
        {'f', "{}", 4, JSON_NOT_ARRAY},
        {'f', "[1,]", 4, JSON_SYNTAX},
        {'f', "[1 2]", 4, JSON_SYNTAX},
        {'f', "[1,2", 4, JSON_SYNTAX},
        {'f', "[1}", 4, JSON_SYNTAX},
        {'f', "[[1,2]", 4, JSON_SYNTAX},
        {'f', "[1e999]", 4, JSON_SYNTAX},
        {'f', "[1.]", 4, JSON_SYNTAX},
        {'f', "[-]", 4, JSON_SYNTAX},
        {'f', "[01]", 4, JSON_SYNTAX},
        {'d', "[false]", 4, JSON_NOT_NUMBER},
        {'i', "[1.0]", 4, JSON_NOT_INT},
        {'i', "[1e0]", 4, JSON_NOT_INT},
        {'i', "[NaN]", 4, JSON_NOT_INT},
        {'i', "[true]", 4, JSON_NOT_INT},
        {'i', "[9223372036854775808]", 4, JSON_NOT_INT},
        {'i', "[99999999999999999999]", 4, JSON_NOT_INT},
        {'i', "[1,1.5]", 4, JSON_NOT_INT},
        {'u', "[-1]", 4, JSON_NOT_UINT},
        {'u', "[1,\"\"]", 4, JSON_NOT_UINT},
        {'u', "[18446744073709551616]", 4, JSON_NOT_UINT},
        {'u', "[1e]", 4, JSON_SYNTAX},
        {'b', "[1]", 4, JSON_NOT_BOOL},
        {'b', "[true,false]", 1, JSON_TOO_MANY},
        {'b', "[tru]", 4, JSON_SYNTAX},
        {'s', "[1]", 4, JSON_NOT_STRING},
        {'s', "[\"a]", 4, JSON_SYNTAX},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        enum json_failure failure = read_as(cases[i].kind, cases[i].text, cases[i].max);
        if (failure != cases[i].failure)
            fail_msg("%c %s: %d, not %d", cases[i].kind, cases[i].text, failure, cases[i].failure);
        /* The same far from the text's end, where the quick path is taken. */
        char text[256];
        snprintf(text, sizeof(text), "%s%128s", cases[i].text, "");
        assert_int_equal(read_as(cases[i].kind, text, cases[i].max), cases[i].failure);
    }
    assert_string_equal(json_failure_text(JSON_TOO_MANY),
                        "Shape does not match true shape of 'data' field");
}

static void tensors_may_nest_a_hundred_times(void **unused)
{
    (void)unused;
    for (int depth = 99; depth <= 101; depth++) {
        char text[256];
        int length = 0;
        for (int i = 0; i < depth; i++)
            text[length++] = '[';
        text[length++] = '1';
        for (int i = 0; i < depth; i++)
            text[length++] = ']';
        text[length] = '\0';
        assert_int_equal(read_as('f', text, 1), depth > 100 ? JSON_TOO_DEEP : JSON_OK);
    }
    assert_string_equal(json_failure_text(JSON_TOO_DEEP),
                        "JSON nesting depth exceeds maximum allowed limit (100)");
}

/* ---- writing -------------------------------------------------------------------------------- */

static void strings_are_written_with_escapes(void **unused)
{
    (void)unused;
    AUTO(buf) b = BUF_INIT(1000);
    static const char text[] = "a\"b\\c/\b\f\n\r\t\0\x01\x1f\x7f\xc3\xa9\xff";
    json_write_string(&b, text, sizeof(text) - 1);
    assert_string_equal(buf_text(&b), "\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0000\\u0001\\u001F\x7f"
                                      "\xc3\xa9\xff\"");
}

static void tensors_are_written(void **unused)
{
    (void)unused;
    AUTO(buf) b = BUF_INIT(100000);
    json_write_f32s(&b, (const float[]){1, 0.1F, -NAN, -INFINITY}, 4);
    json_write_f64s(&b, (const double[]){0.1}, 1);
    json_write_f64s(&b, NULL, 0);
    json_write_i8s(&b, (const int8_t[]){-128, 127}, 2);
    json_write_i16s(&b, (const int16_t[]){INT16_MIN}, 1);
    json_write_i32s(&b, (const int32_t[]){INT32_MIN}, 1);
    json_write_i64s(&b, (const int64_t[]){INT64_MIN, 0}, 2);
    json_write_u8s(&b, (const uint8_t[]){255}, 1);
    json_write_u16s(&b, (const uint16_t[]){65535}, 1);
    json_write_u32s(&b, (const uint32_t[]){UINT32_MAX}, 1);
    json_write_u64s(&b, (const uint64_t[]){UINT64_MAX}, 1);
    json_write_bools(&b, (const uint8_t[]){1, 0, 2}, 3);
    json_write_bools(&b, NULL, 0);
    assert_string_equal(buf_text(&b),
                        "[1.0,0.10000000149011612,NaN,-Infinity][0.1][][-128,127][-32768]"
                        "[-2147483648][-9223372036854775808,0][255][65535][4294967295]"
                        "[18446744073709551615][true,false,true][]");
}

/* The longest numbers, at every maximum of the buffer: all of the text or nothing, without a
 * write beyond the end. */
static void tensors_are_written_up_to_the_maximum(void **unused)
{
    (void)unused;
    enum { N = 150 };
    double values[N];
    for (int i = 0; i < N; i++)
        values[i] = i % 2 ? -2.2250738585072014e-308 : -0.0000012345678901234567;
    AUTO(buf) all = BUF_INIT(1 << 20);
    json_write_f64s(&all, values, N);
    assert_false(all.failed);
    for (size_t max = 0; max < all.size + 3; max += max + 40 < all.size ? 37 : 1) {
        AUTO(buf) b = BUF_INIT(max);
        json_write_f64s(&b, values, N);
        assert_int_equal(b.failed, max < all.size);
        if (!b.failed)
            assert_string_equal(buf_text(&b), buf_text(&all));
        assert_true(b.size <= max);
    }
    mem_set_test_hook(no_memory);
    AUTO(buf) b = BUF_INIT(1 << 20);
    json_write_f64s(&b, values, N);
    mem_set_test_hook(NULL);
    assert_true(b.failed);
}

static void tensors_are_read_as_they_were_written(void **unused)
{
    (void)unused;
    enum { N = 1000 };
    float values[N], again[N];
    uint32_t bits = 12345;
    for (int i = 0; i < N; i++) {
        bits = bits * 1664525 + 1013904223;
        memcpy(&values[i], &bits, 4);
        if (!isfinite(values[i]))
            values[i] = (float)i / 255;
    }
    AUTO(buf) b = BUF_INIT(1 << 20);
    json_write_f32s(&b, values, N);
    struct json j;
    size_t n;
    json_init(&j, b.data, b.size, NULL);
    assert_true(json_read_f32s(&j, again, N, &n));
    assert_true(json_end(&j));
    assert_int_equal(n, N);
    assert_memory_equal(values, again, sizeof(values));
}

static void commas_are_written_between_members(void **unused)
{
    (void)unused;
    AUTO(buf) b = BUF_INIT(1000);
    struct json_writer w = {.out = &b};
    json_put_open(&w, '{');
    json_put_name(&w, "a\n");
    json_put_open(&w, '[');
    json_put_close(&w, ']');
    json_put_name(&w, "b");
    json_put_open(&w, '[');
    json_put_int64(&w, -1);
    json_put_uint64(&w, UINT64_MAX);
    json_put_double(&w, 2);
    json_put_bool(&w, true);
    json_put_text(&w, "x");
    json_put_string(&w, "y\0", 2);
    json_put_open(&w, '{');
    json_put_close(&w, '}');
    json_put_value(&w);
    json_write_u8s(&b, (const uint8_t[]){1, 2}, 2);
    json_put_close(&w, ']');
    json_put_name_n(&w, "cd", 1);
    json_put_bool(&w, false);
    json_put_close(&w, '}');
    assert_string_equal(buf_text(&b), "{\"a\\n\":[],\"b\":[-1,18446744073709551615,2.0,true,\"x\","
                                      "\"y\\u0000\",{},[1,2]],\"c\":false}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(errors_are_those_of_the_reference, start_arena),
        cmocka_unit_test_setup(an_empty_text_is_refused, start_arena),
        cmocka_unit_test_setup(a_zero_byte_ends_the_text, start_arena),
        cmocka_unit_test_setup(every_prefix_is_refused, start_arena),
        cmocka_unit_test_setup(nesting_has_no_limit_of_its_own, start_arena),
        cmocka_unit_test_setup(nesting_without_memory_is_an_error, start_arena),
        cmocka_unit_test_setup(objects_and_arrays_are_walked, start_arena),
        cmocka_unit_test_setup(a_byte_order_mark_is_skipped, start_arena),
        cmocka_unit_test_setup(each_wrong_type_has_its_error, start_arena),
        cmocka_unit_test_setup(a_syntax_error_is_not_a_type_error, start_arena),
        cmocka_unit_test_setup(strings_without_escapes_are_not_copied, start_arena),
        cmocka_unit_test_setup(escapes_are_decoded, start_arena),
        cmocka_unit_test_setup(escapes_need_room, start_arena),
        cmocka_unit_test_setup(strings_of_every_length_are_read, start_arena),
        cmocka_unit_test_setup(tensors_are_flattened, start_arena),
        cmocka_unit_test_setup(integers_keep_their_low_bits, start_arena),
        cmocka_unit_test_setup(booleans_and_strings_are_read, start_arena),
        cmocka_unit_test_setup(wrong_tensors_are_refused, start_arena),
        cmocka_unit_test_setup(tensors_may_nest_a_hundred_times, start_arena),
        cmocka_unit_test_setup(strings_are_written_with_escapes, start_arena),
        cmocka_unit_test_setup(tensors_are_written, start_arena),
        cmocka_unit_test_setup(tensors_are_written_up_to_the_maximum, start_arena),
        cmocka_unit_test_setup(tensors_are_read_as_they_were_written, start_arena),
        cmocka_unit_test_setup(commas_are_written_between_members, start_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
