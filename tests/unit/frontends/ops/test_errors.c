/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "frontends/ops/errors.h"

static void every_code_has_its_numbers(void **state)
{
    (void)state;
    static const struct {
        int http, grpc;
    } expected[] = {
        [STATUS_UNKNOWN] = {400, 2},        [STATUS_INTERNAL] = {500, 13},
        [STATUS_NOT_FOUND] = {404, 5},      [STATUS_INVALID_ARG] = {400, 3},
        [STATUS_UNAVAILABLE] = {503, 14},   [STATUS_UNSUPPORTED] = {501, 12},
        [STATUS_ALREADY_EXISTS] = {400, 6}, [STATUS_CANCELLED] = {400, 1},
        [STATUS_TIMED_OUT] = {504, 4},      [STATUS_EXHAUSTED] = {503, 8},
    };
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
        const struct ops_error *e = ops_error_of((enum status_code)i);
        assert_int_equal(e->http_status, expected[i].http);
        assert_int_equal(e->grpc_status, expected[i].grpc);
    }
    /* A code that the server does not know, for example from a newer plugin. */
    assert_int_equal(ops_error_of((enum status_code)77)->http_status, 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_code_has_its_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
