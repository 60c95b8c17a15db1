/* SPDX-License-Identifier: Apache-2.0 */
/* A watch that cannot start its thread says why. Its runs are tested in whole servers. */
#include "common/backend.c"
#include "common/doc.c"
#include "common/watch.c"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lib/thread_fault.h"

static void a_thread_that_does_not_start_has_its_reason_told(void **state)
{
    struct watch *w = NULL;

    (void)state;
    fail_threads(true);
    TRITONSERVER_Error *err = watch_new(&w);
    fail_threads(false);
    assert_non_null(err);
    assert_null(w);
    assert_int_equal(TRITONSERVER_ErrorCode(err), TRITONSERVER_ERROR_UNAVAILABLE);
    assert_non_null(strstr(TRITONSERVER_ErrorMessage(err), strerror(EAGAIN)));
    TRITONSERVER_ErrorDelete(err);

    assert_null(watch_new(&w));
    watch_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_does_not_start_has_its_reason_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
