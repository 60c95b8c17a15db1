/* SPDX-License-Identifier: Apache-2.0 */
/* With tests/cuda/fake_cuda.c as the driver. */
#include "base/cuda.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void the_driver_is_found_by_its_name(void **state)
{
    (void)state;
    /* Opened by its path, it is known by its name, too. */
    assert_non_null(dlopen(CONCH_BUILD_DIR "/tests/cuda/libcuda.so.1", RTLD_NOW));
    assert_int_equal(cuda_count_devices(), 2);
    assert_non_null(cuda_driver()->copy_to_host);
    assert_string_equal(cuda_result_text(101), "invalid device ordinal");
    assert_string_equal(cuda_result_text(-1), "unknown error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_driver_is_found_by_its_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
