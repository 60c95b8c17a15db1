/* SPDX-License-Identifier: Apache-2.0 */
/* Restrictions: what options may say, and which clients are admitted. */
#include "frontends/ops/restrictions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

static void options_restrict_the_parts_that_they_name(void **state)
{
    (void)state;
    struct restrictions r = {0};
    assert_null(restrictions_add(&r, "protocol", "triton-grpc-protocol-",
                                 "health,model-repository:Admin-Key=a=b:c"));
    assert_null(restrictions_add(&r, "protocol", "triton-grpc-protocol-", "inference:k=v"));
    const struct restriction *health = restrictions_find(&r, OPS_API_HEALTH);
    const struct restriction *inference = restrictions_find(&r, OPS_API_INFERENCE);
    assert_non_null(health);
    assert_non_null(restrictions_find(&r, OPS_API_MODEL_REPOSITORY));
    assert_non_null(inference);
    assert_null(restrictions_find(&r, OPS_API_METADATA));
    assert_null(restrictions_find(&r, OPS_API_LOGGING));
    assert_null(restrictions_find(&r, OPS_API_OPEN));
    assert_string_equal(health->name, "triton-grpc-protocol-Admin-Key");
    assert_string_equal(health->wire_name, "triton-grpc-protocol-admin-key");
    assert_int_equal(health->name_length, strlen(health->name));
    assert_true(restriction_admits(health, "a=b:c", 5));
    assert_true(restriction_admits(inference, "vx", 1));
    restrictions_done(&r);
    assert_null(restrictions_find(&r, OPS_API_HEALTH));
}

static void other_values_are_refused(void **state)
{
    (void)state;
    struct restrictions r = {0};
    static const char *const wrong[] = {NULL, "", "valu", "valuE", "value ", "xalue"};
    assert_null(restrictions_add(&r, "api", "", "trace:key=value"));
    const struct restriction *trace = restrictions_find(&r, OPS_API_TRACE);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        assert_false(restriction_admits(trace, wrong[i], wrong[i] ? strlen(wrong[i]) : 0));
    assert_true(restriction_admits(trace, "value", 5));
    restrictions_done(&r);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"none:k=v", "unknown restricted api 'none' "},
        {"health,,trace:k=v", "unknown restricted api '' "},
        {"Health:k=v", "unknown restricted api 'Health' "},
        {"health,health:k=v",
         "restricted api 'health' can not be specified in multiple config groups"},
        {"", NULL},
        {"health", NULL},
        {"health:", NULL},
        {"health:k", NULL},
        {"health:k=", NULL},
        {"health:=v", NULL},
        {":k=v", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct restrictions r = {0};
        struct status *st = restrictions_add(&r, "api", "", cases[i].text);
        assert_int_equal(status_code(st), STATUS_INVALID_ARG);
        if (cases[i].error)
            assert_string_equal(status_message(st), cases[i].error);
        else
            assert_non_null(strstr(status_message(st), "'<config name>:<setting>=<value>'. Got"));
        status_free(st);
        restrictions_done(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_restrict_the_parts_that_they_name),
        cmocka_unit_test(other_values_are_refused),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
