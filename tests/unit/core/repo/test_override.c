/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/override.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/repo/load_parameter.h"

#define CONFIG                                                                                     \
    {                                                                                              \
        .name = "config", .type = PARAMETER_STRING, .bytes = "{}"                                  \
    }

static void says(struct status *st, enum status_code code, const char *text)
{
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

/* Expects that a file's path is resolved to this one, or gives this error. */
static void leads_to(const char *name, const char *expected)
{
    const struct load_parameter list[] = {CONFIG, {.name = name, .type = PARAMETER_BYTES}};
    struct override o;
    struct status *st = override_read(list, 2, &o);
    if (st) {
        says(st, STATUS_INVALID_ARG, expected);
        return;
    }
    assert_int_equal(o.n_files, 1);
    assert_string_equal(o.files[0].path, expected);
    override_done(&o);
}

#define OUT(name, normal)                                                                          \
    "Invalid file parameter '" name "' with normalized path '" normal                              \
    "' must stay within model directory."
#define NO_FILE(name) "Invalid file parameter '" name "' names no file."

static void paths_stay_inside_the_model(void **state)
{
    (void)state;
    leads_to("file:1/model.onnx", "1/model.onnx");
    leads_to("file:/1//./model.onnx", "1/model.onnx");
    leads_to("file:1/../2/x", "2/x");
    leads_to("file:a/b/c/../../d", "a/d");
    leads_to("file:..a/...", "..a/...");
    leads_to("file:..", OUT("file:..", ".."));
    leads_to("file:../x", OUT("file:../x", "../x"));
    leads_to("file:1/../../x", OUT("file:1/../../x", "../x"));
    leads_to("file:../../../etc/x", OUT("file:../../../etc/x", "../../../etc/x"));
    leads_to("file:../m/1/x", OUT("file:../m/1/x", "../m/1/x")); /* out, and in again */
    leads_to("file:", NO_FILE("file:"));
    leads_to("file:/", NO_FILE("file:/"));
    leads_to("file:a/..", NO_FILE("file:a/.."));
    leads_to("file:1/", NO_FILE("file:1/"));
}

static void load_parameters_are_validated(void **state)
{
    (void)state;
    struct override o;
    assert_null(override_read(NULL, 0, &o));
    assert_null(o.config);
    assert_int_equal(o.n_files, 0);
    override_done(&o);

    const struct load_parameter twice[] = {
        CONFIG, {.name = "config", .type = PARAMETER_STRING, .bytes = "later"}};
    assert_null(override_read(twice, 2, &o));
    assert_string_equal(o.config, "{}");
    override_done(&o);

    const struct load_parameter alone[] = {{.name = "file:1/x", .type = PARAMETER_BYTES}};
    says(override_read(alone, 1, &o), STATUS_INVALID_ARG,
         "Load parameter 'config' must be specified for model file override");
    static const struct {
        enum parameter_type type;
        const char *name, *type_name;
    } wrong[] = {
        {PARAMETER_STRING, "other", "STRING"}, {PARAMETER_STRING, "file:1/x", "STRING"},
        {PARAMETER_BYTES, "config", "BYTES"},  {PARAMETER_INT, "config", "INT"},
        {PARAMETER_BOOL, "unload", "BOOL"},    {PARAMETER_DOUBLE, "", "DOUBLE"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        const struct load_parameter list[] = {CONFIG,
                                              {.name = wrong[i].name, .type = wrong[i].type}};
        char *text = mem_printf("Unrecognized load parameter '%s' with type '%s'", wrong[i].name,
                                wrong[i].type_name);
        says(override_read(list, 2, &o), STATUS_INVALID_ARG, text);
        mem_free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_stay_inside_the_model),
        cmocka_unit_test(load_parameters_are_validated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
