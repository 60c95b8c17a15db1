/* SPDX-License-Identifier: Apache-2.0 */
#include "python/text.c"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void parameters_become_an_object(void **state)
{
    struct text t = {0};
    const int64_t number = INT64_MIN;
    const bool flag = true;
    static const double floats[] = {1, 0.1, 1e300, (double)INFINITY, -(double)INFINITY};

    (void)state;
    assert_true(text_add_member(&t, true, "a\"\\\n", TRITONSERVER_PARAMETER_STRING, "\x01 ü"));
    assert_true(text_add_member(&t, false, "n", TRITONSERVER_PARAMETER_INT, &number));
    assert_true(text_add_member(&t, false, "b", TRITONSERVER_PARAMETER_BOOL, &flag));
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        assert_true(text_add_member(&t, false, "d", TRITONSERVER_PARAMETER_DOUBLE, &floats[i]));
    assert_true(text_add(&t, "}", 2)); /* with the zero byte */
    assert_string_equal(t.bytes,
                        "{\"a\\\"\\\\\\u000a\":\"\\u0001 ü\",\"n\":-9223372036854775808,\"b\":true,"
                        "\"d\":1.0,\"d\":0.10000000000000001,\"d\":1.0000000000000001e+300,"
                        "\"d\":Infinity,\"d\":-Infinity}");
    text_done(&t);
}

static void it_keeps_its_memory(void **state)
{
    struct text t = {0};

    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_true(text_add(&t, "0123456789", 10));
    assert_int_equal(t.len, 10000);
    const char *bytes = t.bytes;
    t.len = 0;
    for (int i = 0; i < 1000; i++)
        assert_true(text_add(&t, "0123456789", 10));
    assert_ptr_equal(t.bytes, bytes);
    text_done(&t);
    assert_null(t.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_become_an_object),
        cmocka_unit_test(it_keeps_its_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
