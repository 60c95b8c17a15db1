/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration is parsed, completed and validated with each allocation failing. The result is
 * "out of memory", never a configuration that silently lacks a part.
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
#include "core/config/ensemble.h"
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

/* What a run without faults prints. Every other run that succeeds must print the same. */
static char *expected;

static struct status *grow_up(struct model_config *c, bool merge)
{
    AUTO(buf) printed = BUF_INIT(1 << 20);
    struct status *st = model_config_prepare(c, &facts);
    if (!st)
        st = model_config_set_python(c, "model.py", "/backends/b/environment.tar.gz");
    if (!st)
        st = model_config_complete_groups(c, &facts);
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

static void a_text_survives_lack_of_memory(void **state)
{
    (void)state;
    bool merge = false;
    each_life(live, &merge);
}

static void a_backends_completion_survives_lack_of_memory(void **state)
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

static void a_file_survives_lack_of_memory(void **state)
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

static void json_survives_lack_of_memory(void **state)
{
    (void)state;
    char json[] =
        "{\"name\":\"m\",\"backend\":\"onnxruntime\",\"max_batch_size\":\"8\",\"input\":[{\"name\":"
        "\"I\\u004e\",\"data_type\":\"TYPE_FP32\",\"dims\":[\"-1\",3]}],\"output\":[{\"name\":"
        "\"OUT\",\"data_type\":\"TYPE_FP32\",\"dims\":[10]}],\"parameters\":{\"k\":{"
        "\"string_value\":\"a\\nb\"}}}";
    each_life(live_from_json, json);
}

/* A wrong text, with no memory for its error: the result is one error or the other. */
static struct status *refuse(void *arg)
{
    const char *wrong = arg;
    struct model_config *c = NULL;
    struct status *st = model_config_parse_text(wrong, strlen(wrong), "config.pbtxt", &c);
    if (!st) {
        st = model_config_prepare(c, &facts);
        if (!st)
            st = model_config_complete_groups(c, &facts);
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

static void wrong_texts_survive_lack_of_memory(void **state)
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

/* ---- everything that is wrong, and ensembles */

/* The fault without its position, for which there may have been no memory. */
static void note_fault(void *arg, const struct config_fault *fault)
{
    buf_addf(arg, "%s %s\n", fault->text, fault->advice ? fault->advice : "");
}

static enum ensemble_answer find_itself(void *arg, const Inference__ModelEnsembling__Step *step,
                                        struct ensemble_member *ret)
{
    const struct model_config *c = arg;
    if (strcmp(step->model_name, "other") == 0)
        return ENSEMBLE_NO_MODEL;
    *ret = (struct ensemble_member){.pb = c->pb, .is_complete = true};
    return ENSEMBLE_FOUND;
}

/* A listener gets all faults or, without memory, is told that some are missing. */
static struct status *listen(void *arg)
{
    const char *wrong = arg;
    static char heard[1 << 16];
    AUTO(buf) told = BUF_INIT(sizeof(heard));
    struct config_listener listener = {.on_fault = note_fault, .arg = &told};
    struct model_config *c = NULL;
    struct status *st = model_config_parse_all(wrong, strlen(wrong), "config.pbtxt", &listener, &c);
    if (!st && c) {
        const struct ensemble_lookup lookup = {.find = find_itself, .arg = c};
        st = model_config_validate_all(c, &facts);
        bool is_ensemble = c->pb->scheduling_choice_case ==
                           INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING;
        if (!st && is_ensemble)
            st = ensemble_check(c, &lookup);
        if (!st && is_ensemble)
            st = ensemble_check_cycle(c, &lookup);
    }
    model_config_free(c);
    if (!st && told.failed)
        st = status_no_memory();
    if (st)
        return st;
    assert_true(told.size > 0);
    if (!expected)
        expected = strdup(buf_text(&told));
    assert_string_equal(buf_text(&told), expected);
    return NULL;
}

static void listeners_survive_lack_of_memory(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "nme: 'm' backend: 5 input [ { dims: x name: 'a' xyz: 'b' } ] max_batch_size: 'x'",
        "backend: 'identity' input [ { name: 'IN' data_type: TYPE_FP32 dims: [ 0 ] }, { } ]\n"
        "dynamic_batching { preferred_batch_size: [ 3, 4 ] priority_levels: 3 }",
        "platform: 'ensemble' input { name: 'X' data_type: TYPE_FP32 dims: [4] }\n"
        "output { name: 'Y' data_type: TYPE_INT32 dims: [5] } ensemble_scheduling { step {\n"
        "model_name: 'm' input_map { key: 'X' value: 'X' } output_map { key: 'YY' value: 'A' } } "
        "step {\n"
        "model_name: 'other' input_map { key: 'X' value: 'A' } output_map { key: 'Y' value: 'B' } } "
        "step {\n"
        "model_name: 'm' input_map { key: 'X' value: 'B' } output_map { key: 'Y' value: 'Y' } } }",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        each_life(listen, (void *)(uintptr_t)wrong[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_survives_lack_of_memory),
        cmocka_unit_test(a_backends_completion_survives_lack_of_memory),
        cmocka_unit_test(a_file_survives_lack_of_memory),
        cmocka_unit_test(json_survives_lack_of_memory),
        cmocka_unit_test(wrong_texts_survive_lack_of_memory),
        cmocka_unit_test(listeners_survive_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
