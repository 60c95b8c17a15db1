/* SPDX-License-Identifier: Apache-2.0 */
/* The names of data types. */
#include "core/model/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void each_type_is_found_by_its_name(void **state)
{
    (void)state;
    for (int t = DTYPE_INVALID + 1; t < N_DTYPES; t++) {
        const char *name = dtype_name((enum dtype)t);
        assert_int_equal(dtype_from_name(name, strlen(name)), t);
    }
}

/* Also with bytes that JSON and protobuf allow. */
static void another_name_is_no_type(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
    } names[] = {{"", 0},
                 {"FP3", 3},
                 {"fp32", 4},
                 {"FP321", 5},
                 {"FP32\0", 5},
                 {"\0FP32", 5},
                 {"FP\0"
                  "32",
                  5},
                 {"UINT16 ", 7},
                 {"FP32\0\0\0\0", 8}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(dtype_from_name(names[i].text, names[i].length), DTYPE_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_type_is_found_by_its_name),
        cmocka_unit_test(another_name_is_no_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
