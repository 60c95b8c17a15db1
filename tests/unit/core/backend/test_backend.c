/* SPDX-License-Identifier: Apache-2.0 */
/* What cannot be seen from outside. tests/abi/test_libraries.py tests searches, settings and
 * loads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/options/server_options.h"

static struct server_options *options;
static struct backend_registry reg;

static int begin(void **state)
{
    (void)state;
    options = server_options_new();
    backend_registry_init(&reg, NULL, options);
    return 0;
}

static int end(void **state)
{
    (void)state;
    backend_registry_done(&reg);
    server_options_free(options);
    return 0;
}

/* If a backend's settings exceed their limit, the backend is not loaded with a part of them. */
static void too_many_settings_are_an_error(void **state)
{
    (void)state;
    char *value = mem_alloc(2 << 20);
    const struct backend_setting setting = {"b", "key", value};
    char library[] = "/nowhere/libtriton_b.so", directory[] = "/nowhere";
    const struct backend_files files = {.library = library, .directory = directory};
    struct backend *b = NULL;
    memset(value, 'x', (2 << 20) - 1);
    value[(2 << 20) - 1] = '\0';
    reg.settings = &setting;
    reg.n_settings = 1;

    struct status *st = backend_get(&reg, "b", &files, &b);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    assert_non_null(strstr(status_message(st), "settings of backend 'b'"));
    status_free(st);
    st = backend_get(&reg, "c", &files, &b); /* these settings are not c's */
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    assert_non_null(strstr(status_message(st), "/nowhere/libtriton_b.so"));
    status_free(st);
    assert_null(b);
    mem_free(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(too_many_settings_are_an_error, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
