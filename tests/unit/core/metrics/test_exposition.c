/* SPDX-License-Identifier: Apache-2.0 */
#include "core/metrics/exposition.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/compiler.h"

static void numbers_print_as_in_c(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0"},
        {-0.0, "0"},
        {42, "42"},
        {-7, "-7"},
        {0.1, "0.1"},
        {1e-6, "1e-06"},
        {0.00031464, "0.00031464"},
        {1e9, "1000000000"},
        {9007199254740991.0, "9007199254740991"},
        {1e17, "1e+17"},
        {2.5e20, "2.5e+20"},
        {1.0 / 3, "0.3333333333333333"},
        {0.1 + 0.2, "0.30000000000000004"}, /* with sixteen digits it would be another number */
        {DBL_MAX, "1.7976931348623157e+308"},
        {DBL_MIN, "2.2250738585072014e-308"},
        {(double)NAN, "Nan"},
        {(double)INFINITY, "+Inf"},
        {-(double)INFINITY, "-Inf"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO(buf) out = BUF_INIT(100);
        exposition_number(&out, cases[i].value);
        assert_string_equal(buf_text(&out), cases[i].text);
    }
}

static void labels_are_escaped(void **state)
{
    (void)state;
    AUTO(buf) out = BUF_INIT(200);
    exposition_label(&out, true, "a", "");
    exposition_label(&out, false, "b", "\"\\\n\t}{,=#");
    exposition_label(&out, false, "c", "\xc3\xbc\xff\xc3");
    assert_string_equal(buf_text(&out),
                        "a=\"\",b=\"\\\"\\\\\\n\t}{,=#\",c=\"\xc3\xbc\\\\xFF\\\\xC3\"");
}

static void a_line_has_name_labels_and_value(void **state)
{
    (void)state;
    static const double le = 0.5;
    AUTO(buf) out = BUF_INIT(1000);
    exposition_family(&out, "f", "it \"is\"\na \\ thing", METRIC_HISTOGRAM);
    exposition_line(&out, "f", "_count", "", NULL, 3);
    exposition_line(&out, "f", "_bucket", "", &le, 2);
    exposition_line(&out, "f", "_bucket", "a=\"b\"", &le, 2);
    exposition_line(&out, "f", "", "a=\"b\"", NULL, -1.5);
    assert_string_equal(buf_text(&out), "# HELP f it \"is\"\\na \\\\ thing\n"
                                        "# TYPE f histogram\n"
                                        "f_count 3\n"
                                        "f_bucket{le=\"0.5\"} 2\n"
                                        "f_bucket{a=\"b\",le=\"0.5\"} 2\n"
                                        "f{a=\"b\"} -1.5\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_print_as_in_c),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(a_line_has_name_labels_and_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
