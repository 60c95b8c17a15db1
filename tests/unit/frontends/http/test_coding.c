/* SPDX-License-Identifier: Apache-2.0 */
#include "frontends/http/coding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"

static struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

static void bodies_name_their_coding(void **state)
{
    (void)state;
    assert_int_equal(coding_of_body((struct span){NULL, 0}), CODING_IDENTITY);
    assert_int_equal(coding_of_body(span_of("")), CODING_IDENTITY);
    assert_int_equal(coding_of_body(span_of("Identity")), CODING_IDENTITY);
    assert_int_equal(coding_of_body(span_of("GZIP")), CODING_GZIP);
    assert_int_equal(coding_of_body(span_of("deflate")), CODING_DEFLATE);
    assert_int_equal(coding_of_body(span_of("gzip, gzip")), CODING_UNKNOWN);
    assert_int_equal(coding_of_body(span_of("br")), CODING_UNKNOWN);
}

/* tests/system/test_compression.py asks the genuine Triton most of these. */
static void the_best_weight_chooses_the_coding_of_a_reply(void **state)
{
    (void)state;
    static const struct {
        const char *accepted;
        enum http_coding chosen;
    } rows[] = {
        {"", CODING_IDENTITY},
        {",", CODING_IDENTITY},
        {"gzip", CODING_GZIP},
        {"deflate, gzip", CODING_DEFLATE},
        {"gzip;q=0.9999999999999999999999, deflate;q=1", CODING_DEFLATE},
        {"gzip;q=0.5,deflate;q=0.500001", CODING_DEFLATE},
        {"gzip;q=00000000000000000000000000000000000000001, deflate;q=0.9", CODING_GZIP},
        {"gzip;q=99999999999999999999999999, deflate;q=99999999999999999999999998", CODING_GZIP},
        {"gzip;q=", CODING_IDENTITY},
        {"gzip;q", CODING_IDENTITY},
        {"gzip;q=.", CODING_IDENTITY},
        {"gzip;q=.1", CODING_GZIP},
        {"gzip;q=+1", CODING_GZIP},
        {"gzip;x=1;q=0", CODING_IDENTITY},
        {"gzip;q=0;q=1", CODING_GZIP},
        {"identity;q=0, *", CODING_IDENTITY},
        {"\tgzip\t;\tq = 1\t", CODING_GZIP},
        {"gzipped, x-gzip", CODING_IDENTITY},
    };
    assert_int_equal(coding_of_reply((struct span){NULL, 0}), CODING_IDENTITY);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        enum http_coding chosen = coding_of_reply(span_of(rows[i].accepted));
        if (chosen != rows[i].chosen)
            fail_msg("%s: %d", rows[i].accepted, (int)chosen);
    }
}

static void replies_name_their_coding(void **state)
{
    (void)state;
    struct span header = coding_header(CODING_DEFLATE);
    assert_int_equal(header.length, strlen("Content-Encoding: deflate\r\n"));
    assert_memory_equal(header.at, "Content-Encoding: deflate\r\n", header.length);
    assert_int_equal(coding_format(CODING_DEFLATE), COMPRESS_ZLIB);
    assert_int_equal(coding_format(CODING_GZIP), COMPRESS_GZIP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_name_their_coding),
        cmocka_unit_test(the_best_weight_chooses_the_coding_of_a_reply),
        cmocka_unit_test(replies_name_their_coding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
