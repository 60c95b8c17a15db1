/* SPDX-License-Identifier: Apache-2.0 */
#include "frontends/grpc/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

static void timeouts_have_digits_and_a_unit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } rows[] = {
        {"1H", 3600000000000},
        {"2M", 120000000000},
        {"3S", 3000000000},
        {"40m", 40000000},
        {"5u", 5000},
        {"60n", 60},
        {"0S", 0},
        {"99999999H", UINT64_MAX},
        {"99999999n", 99999999},
        {"1000000000n", 1000000000},
        {"1000000001n", UINT64_MAX},
        {"123456789S", 123456789000000000},
        {" 1 S ", 1000000000}, /* blanks, as gRPC's own library allows them */
        {"99999999999x", UINT64_MAX},
    };
    static const char *const wrong[] = {"", " ", "S", "1", "1s", "-1S", "1S x", "0x1S", "1.5S"};
    uint64_t ns;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_true(grpc_parse_timeout(span_of(rows[i].text), &ns));
        assert_true(ns == rows[i].ns);
    }
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        assert_false(grpc_parse_timeout(span_of(wrong[i]), &ns));
}

static void encodings_are_found_by_name_and_in_lists(void **state)
{
    (void)state;
    assert_int_equal(grpc_encoding_of(span_of("gzip")), GRPC_GZIP);
    assert_int_equal(grpc_encoding_of(span_of("deflate")), GRPC_DEFLATE);
    assert_int_equal(grpc_encoding_of(span_of("identity")), GRPC_IDENTITY);
    assert_int_equal(grpc_encoding_of(span_of("br")), 0);
    assert_int_equal(grpc_encoding_of(span_of("gzi")), 0);
    assert_int_equal(grpc_accepted_encodings(span_of("")), GRPC_IDENTITY);
    assert_int_equal(grpc_accepted_encodings(span_of("br, gzip")), GRPC_IDENTITY | GRPC_GZIP);
    assert_int_equal(grpc_accepted_encodings(span_of(GRPC_ACCEPT_ENCODING)),
                     GRPC_IDENTITY | GRPC_GZIP | GRPC_DEFLATE);
    assert_int_equal(grpc_accepted_encodings(span_of(",,deflate ,x")),
                     GRPC_IDENTITY | GRPC_DEFLATE);
    assert_string_equal(grpc_encoding_name(GRPC_GZIP), "gzip");
    assert_string_equal(grpc_encoding_name(GRPC_IDENTITY), "identity");
}

static void content_types_may_have_a_suffix(void **state)
{
    (void)state;
    assert_true(grpc_is_content_type(span_of("application/grpc")));
    assert_true(grpc_is_content_type(span_of("application/grpc+proto")));
    assert_true(grpc_is_content_type(span_of("application/grpc;charset=x")));
    assert_false(grpc_is_content_type(span_of("application/grpc-web")));
    assert_false(grpc_is_content_type(span_of("application/json")));
    assert_false(grpc_is_content_type(span_of("")));
}

static void messages_are_encoded_by_percent(void **state)
{
    (void)state;
    static const char text[] = "a b%~\n\x7f\xc3\xa9";
    char out[3 * sizeof(text)];
    size_t n = grpc_encode_message(text, sizeof(text) - 1, out);
    out[n] = '\0';
    assert_string_equal(out, "a b%25~%0A%7F%C3%A9");
    assert_int_equal(grpc_encode_message("", 0, out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timeouts_have_digits_and_a_unit),
        cmocka_unit_test(encodings_are_found_by_name_and_in_lists),
        cmocka_unit_test(content_types_may_have_a_suffix),
        cmocka_unit_test(messages_are_encoded_by_percent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
