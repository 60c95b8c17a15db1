/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "frontends/http/route.h"

static const struct route routes[] = {
    {METHOD_POST, "/v2/models/{m}[/versions/{v}]/infer", NULL, OPS_API_OPEN, NULL, false, NULL},
    {METHOD_GET, "/v2/health/live", NULL, OPS_API_OPEN, NULL, false, NULL},
    {METHOD_GET, "/v2/models/stats", NULL, OPS_API_OPEN, NULL, false, NULL},
    {METHOD_GET, "/v2/models/{m}[/versions/{v}]", NULL, OPS_API_OPEN, NULL, false, NULL},
    {METHOD_POST, "/v2/repository/index", NULL, OPS_API_OPEN, NULL, true, NULL},
    {METHOD_POST, "/v2/repository/{r}/index", NULL, OPS_API_OPEN, NULL, true, NULL},
    {METHOD_POST, "/v2/repository/{r}/models/{m}/load", NULL, OPS_API_OPEN, NULL, true, NULL},
};

static void patterns_fit_whole_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int route; /* -1 = none */
        const char *model, *version, *repository;
    } rows[] = {
        {"/v2/models/m/infer", 0, "m", "", ""},
        {"/v2/models/m/versions/12/infer", 0, "m", "12", ""},
        {"/v2/models/versions/versions/1", 3, "versions", "1", ""},
        {"/v2/models/versions", 3, "versions", "", ""},
        {"/v2/models/infer", 3, "infer", "", ""},
        {"/v2/models/stats", 2, "", "", ""},
        {"/v2/models/a.b-c%20d", 3, "a.b-c%20d", "", ""},
        {"/v2/health/live", 1, "", "", ""},
        {"/v2/health/live/", -1, "", "", ""},
        {"/v2/health/liv", -1, "", "", ""},
        {"/v2/models/", -1, "", "", ""},
        {"/v2/models//infer", -1, "", "", ""},
        {"/v2/models/m/versions/", -1, "", "", ""},
        {"/v2/models/m/versions/x", -1, "", "", ""},
        {"/v2/models/m/versions/1x", -1, "", "", ""},
        {"/v2/models/m/versions/1/", -1, "", "", ""},
        {"/v2/models/m/infer/", -1, "", "", ""},
        {"", -1, "", "", ""},
        {"/v2/repository/index", 4, "", "", ""},
        {"/v2/repository/r/index", 5, "", "", "r"},
        {"/v2/repository//index", -1, "", "", ""},
        {"/v2/repository/index/index", 5, "", "", "index"},
        {"/v2/repository/r/models/m/load", 6, "m", "", "r"},
        {"/v2/repository/r/models//load", -1, "", "", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct span path = {rows[i].path, strlen(rows[i].path)};
        struct route_match m = route_find(routes, ARRAY_SIZE(routes), METHOD_GET, path);
        if (rows[i].route < 0) {
            assert_null(m.route);
            continue;
        }
        assert_ptr_equal(m.route, &routes[rows[i].route]);
        assert_int_equal(m.model.length, strlen(rows[i].model));
        assert_memory_equal(m.model.at ? m.model.at : "", rows[i].model, m.model.length);
        assert_int_equal(m.repository.length, strlen(rows[i].repository));
        assert_int_equal(m.repository.at != NULL, *rows[i].repository != 0);
        assert_memory_equal(m.repository.at ? m.repository.at : "", rows[i].repository,
                            m.repository.length);
        assert_int_equal(m.version.length, strlen(rows[i].version));
        assert_memory_equal(m.version.at ? m.version.at : "", rows[i].version, m.version.length);
    }
}

static void a_path_may_have_two_methods(void **state)
{
    (void)state;
    static const struct route settings[] = {
        {METHOD_POST, "/v2/models/{m}", NULL, OPS_API_OPEN, NULL, false, NULL},
        {METHOD_GET, "/v2/{r}/{m}", NULL, OPS_API_OPEN, NULL, false, NULL},
        {METHOD_GET, "/v2/models/{m}", NULL, OPS_API_OPEN, NULL, false, NULL},
    };
    static const char text[] = "/v2/models/m";
    struct span path = {text, sizeof(text) - 1};
    struct route_match m = route_find(settings, ARRAY_SIZE(settings), METHOD_GET, path);
    assert_ptr_equal(m.route, &settings[1]);
    assert_int_equal(m.repository.length, strlen("models"));
    m = route_find(settings, ARRAY_SIZE(settings), METHOD_OTHER, path);
    assert_ptr_equal(m.route, &settings[0]);
    assert_null(m.repository.at);
    assert_ptr_equal(m.model.at, text + sizeof(text) - 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_fit_whole_paths),
        cmocka_unit_test(a_path_may_have_two_methods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
