/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a configuration with each allocation failing: it ends in "out of memory", never in a
 * configuration that lacks something without a word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/status.h"
#include "core/config/config.h"
#include "lib/fault.h"

static const char text[] =
    "name: 'm' backend: 'onnxruntime' max_batch_size: 8\n"
    "input [ { name: 'IN' data_type: TYPE_FP32 dims: [ -1, 3 ] },\n"
    "        { name: 'SECOND' data_type: TYPE_STRING dims: [ 1 ] reshape { shape: [ ] } } ]\n"
    "output [ { name: 'OUT' data_type: TYPE_FP32 dims: [ 10 ] label_filename: 'labels.txt' } ]\n"
    "instance_group [ { count: 2 kind: KIND_CPU } ]\n"
    "version_policy { latest { num_versions: 1 } }\n"
    "parameters { key: 'one' value { string_value: 'a \\\"quoted\\\" text' } }\n"
    "parameters { key: 'two' value { string_value: 'b' } }\n";

static const char from_backend[] =
    "{\"max_batch_size\":4,\"input\":[{\"name\":\"IN\",\"data_type\":\"TYPE_FP32\",\"dims\":[-1,3]}],"
    "\"output\":[{\"name\":\"OUT\",\"data_type\":\"TYPE_FP32\",\"dims\":[10]}]}";

static const char *const files[] = {"model.onnx"};
static const struct config_facts facts = {
    .model_name = "m", .version_files = files, .n_version_files = 1, .auto_complete = true};

/* What a life without faults prints; every other life that says it went well must print the same.
 */
static char *expected;

static struct status *grow_up(struct model_config *c, bool merge)
{
    AUTO(buf) printed = BUF_INIT(1 << 20);
    struct status *st = model_config_prepare(c, &facts);
    if (!st)
        st = model_config_place(c, &facts);
    if (!st && merge)
        st = model_config_merge_from_backend(c, from_backend, strlen(from_backend));
    if (!st)
        st = model_config_finish(c, &facts);
    if (!st) {
        model_config_print_json(c, &printed);
        st = buf_status(&printed);
    }
    if (!st) {
        if (!expected)
            expected = strdup(buf_text(&printed));
        assert_string_equal(buf_text(&printed), expected);
    }
    return st;
}

static struct status *live(void *arg)
{
    const bool *merge = arg;
    struct model_config *c = NULL;
    struct status *st = model_config_parse_text(text, strlen(text), "config.pbtxt", &c);
    if (st)
        return st;
    st = grow_up(c, *merge);
    model_config_free(c);
    return st;
}

static void each_life(fault_scenario_fn scenario, void *arg)
{
    struct status *st = scenario(arg);
    if (st)
        fail_msg("%s", status_message(st));
    assert_non_null(expected);
    fault_each_allocation(scenario, arg);
    free(expected);
    expected = NULL;
}

static void from_text(void **state)
{
    (void)state;
    bool merge = false;
    each_life(live, &merge);
}

static void completed_by_the_backend(void **state)
{
    (void)state;
    bool merge = true;
    each_life(live, &merge);
}

static struct status *read_and_live(void *arg)
{
    struct model_config *c = NULL;
    struct status *st = model_config_read_file(arg, &c);
    if (st)
        return st;
    st = grow_up(c, false);
    model_config_free(c);
    return st;
}

static void from_a_file(void **state)
{
    (void)state;
    char path[] = "/tmp/test-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    each_life(read_and_live, path);
    unlink(path);
}

static struct status *live_from_json(void *arg)
{
    struct model_config *c = NULL;
    struct status *st = model_config_parse_json(arg, strlen(arg), &c);
    if (st)
        return st;
    st = grow_up(c, false);
    model_config_free(c);
    return st;
}

static void from_json(void **state)
{
    (void)state;
    char json[] =
        "{\"name\":\"m\",\"backend\":\"onnxruntime\",\"max_batch_size\":\"8\",\"input\":[{\"name\":"
        "\"I\\u004e\",\"data_type\":\"TYPE_FP32\",\"dims\":[\"-1\",3]}],\"output\":[{\"name\":"
        "\"OUT\",\"data_type\":\"TYPE_FP32\",\"dims\":[10]}],\"parameters\":{\"k\":{"
        "\"string_value\":\"a\\nb\"}}}";
    each_life(live_from_json, json);
}

/* A wrong text with no memory to say what is wrong: one or the other is said. */
static struct status *refuse(void *arg)
{
    const char *wrong = arg;
    struct model_config *c = NULL;
    struct status *st = model_config_parse_text(wrong, strlen(wrong), "config.pbtxt", &c);
    if (!st) {
        st = model_config_prepare(c, &facts);
        if (!st)
            st = model_config_place(c, &facts);
        if (!st)
            st = model_config_finish(c, &facts);
        model_config_free(c);
    }
    assert_non_null(st);
    if (strstr(status_message(st), "out of memory"))
        return st;
    status_free(st);
    return NULL;
}

static void wrong_ones(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "name: 'm' no_such_field: 7",
        "input [ { name: 'IN' data_type: TYPE_FP32 dims: [ 0 ] } ]",
        "max_batch_size: 'x'",
        "input [ { name: 'IN'",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        fault_each_allocation(refuse, (void *)(uintptr_t)wrong[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_text),   cmocka_unit_test(completed_by_the_backend),
        cmocka_unit_test(from_a_file), cmocka_unit_test(from_json),
        cmocka_unit_test(wrong_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
