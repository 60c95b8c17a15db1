/* SPDX-License-Identifier: Apache-2.0 */
#include "common/doc.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct doc *parse(const char *text)
{
    const char *why = NULL;
    struct doc *d = doc_parse(text, strlen(text), &why);

    if (!d)
        fail_msg("%s: %s", text, why);
    return d;
}

static void a_configuration_is_parsed(void **state)
{
    struct doc *d =
        parse(" {\"name\": \"m\", \"n\": -7, \"on\": true, \"in\": [{\"dims\": [1, \"-1\"]}],"
              " \"name\": \"second\"} ");
    const struct doc_value *root = doc_root(d), *dims;
    int64_t number = 0;

    (void)state;
    assert_int_equal(doc_count(root), 5);
    assert_string_equal(doc_string(doc_get(root, "name"), "?"), "m");
    assert_true(doc_int(doc_get(root, "n"), &number));
    assert_int_equal(number, -7);
    assert_true(doc_get(root, "on")->boolean);
    dims = doc_get(doc_first(doc_get(root, "in")), "dims");
    assert_int_equal(doc_count(dims), 2);
    assert_true(doc_int(doc_first(dims)->next, &number)); /* protobuf writes it as a string */
    assert_int_equal(number, -1);
    assert_int_equal(dims->raw_len, strlen("[1, \"-1\"]"));
    assert_memory_equal(dims->raw, "[1, \"-1\"]", dims->raw_len);
    doc_free(d);
}

static void missing_members_give_their_defaults(void **state)
{
    struct doc *d =
        parse("{\"list\": [], \"text\": \"x\", \"half\": 1.5, \"big\": 9223372036854775808}");
    const struct doc_value *root = doc_root(d);
    int64_t number = 42;

    (void)state;
    assert_null(doc_get(root, "nothing"));
    assert_null(doc_get(doc_get(root, "nothing"), "inside"));
    assert_null(doc_get(doc_get(root, "list"), "inside"));
    assert_null(doc_first(NULL));
    assert_int_equal(doc_count(NULL), 0);
    assert_string_equal(doc_string(doc_get(root, "list"), "otherwise"), "otherwise");
    assert_false(doc_int(doc_get(root, "text"), &number));
    assert_false(doc_int(doc_get(root, "half"), &number));
    assert_false(doc_int(doc_get(root, "big"), &number));
    assert_false(doc_int(NULL, &number));
    assert_int_equal(number, 42);
    doc_free(d);
}

static void strings_are_decoded(void **state)
{
    struct doc *d =
        parse("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\u0000z\"");
    const struct doc_value *v = doc_root(d);
    static const char expected[] = "a\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0z";

    (void)state;
    assert_int_equal(v->string_len, sizeof(expected) - 1);
    assert_memory_equal(v->string, expected, sizeof(expected));
    doc_free(d);
}

static void malformed_json_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "[",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "'a'",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "-",
        "tru",
        "nul",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\t\"",
        "1 2",
        "[1 2]",
        "{} {}",
        "NaN",
        "Infinity",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "[1}",
        "\xef\xbb\xbf{}",
    };
    char deep[130];
    const char *why;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct doc *d = doc_parse(bad[i], strlen(bad[i]), &why);

        if (d)
            fail_msg("accepted: %s", bad[i]);
        assert_non_null(why);
    }
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    assert_null(doc_parse(deep, 130, &why));
    assert_string_equal(why, "nested too deep");
    struct doc *d = doc_parse(deep + 1, 128, &why); /* one level less is accepted */
    assert_non_null(d);
    doc_free(d);
}

static void strings_are_written_with_escapes(void **state)
{
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    (void)state;
    assert_non_null(to);
    doc_write_string(to, "a\"\\\n\x01é");
    fclose(to);
    assert_string_equal(text, "\"a\\\"\\\\\\u000a\\u0001é\"");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration_is_parsed),
        cmocka_unit_test(missing_members_give_their_defaults),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(malformed_json_is_refused),
        cmocka_unit_test(strings_are_written_with_escapes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
