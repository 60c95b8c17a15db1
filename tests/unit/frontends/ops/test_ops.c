/* SPDX-License-Identifier: Apache-2.0 */
/* Version strings are refused before any model is looked up, so no server is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "core/server/server.h"
#include "frontends/ops/access.h"
#include "frontends/ops/ops.h"

static void invalid_versions_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *version, *text;
    } rows[] = {
        {"x", "failed to get model version from specified version string 'x' (details: stol), "
              "version should be an integral value > 0"},
        {"1x", "failed to get model version from specified version string '1x' (details: stol), "
               "version should be an integral value > 0"},
        {"-", "failed to get model version from specified version string '-' (details: stol), "
              "version should be an integral value > 0"},
        {"9223372036854775808",
         "failed to get model version from specified version string '9223372036854775808' "
         "(details: stol), version should be an integral value > 0"},
        {"-3", "invalid model version specified '-3' , version should be an integral value > 0"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct ops_model_ref ref = {"m", 1, rows[i].version, strlen(rows[i].version)};
        struct ops_model_metadata metadata;
        struct server_statistics statistics;
        struct model *model;
        bool ready;
        struct status *refused[] = {
            ops_model_find(NULL, &ref, &model),
            ops_infer_model(NULL, &ref, &(struct access_view){0}, "HTTP end point", &model),
            ops_model_ready(NULL, &ref, &ready),
            ops_model_metadata(NULL, &ref, &metadata),
            ops_statistics(NULL, &ref, &statistics),
        };
        for (size_t k = 0; k < ARRAY_SIZE(refused); k++) {
            assert_non_null(refused[k]);
            assert_int_equal(status_code(refused[k]), STATUS_INVALID_ARG);
            assert_string_equal(status_message(refused[k]), rows[i].text);
            status_free(refused[k]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(invalid_versions_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
