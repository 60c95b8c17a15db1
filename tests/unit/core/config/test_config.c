/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/config/config.h"

static struct model_config *parse(const char *text)
{
    struct model_config *c = NULL;
    struct status *st = model_config_parse_text(text, strlen(text), "config.pbtxt", &c);
    if (st)
        fail_msg("%s", status_message(st));
    return c;
}

static void must(struct status *st)
{
    if (st)
        fail_msg("%s", status_message(st));
}

static void assert_error(struct status *st, enum status_code code, const char *message)
{
    assert_non_null(st);
    assert_string_equal(status_message(st), message);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

/* Prepares, completes and validates the configuration, with these entries in the first version's
 * folder. */
static struct model_config *live(const char *text, const char *const *files, size_t n_files)
{
    struct config_facts facts = {.model_name = "m",
                                 .version_files = files,
                                 .n_version_files = n_files,
                                 .auto_complete = true};
    struct model_config *c = parse(text);
    must(model_config_prepare(c, &facts));
    must(model_config_complete_groups(c, &facts));
    must(model_config_finish(c, &facts));
    return c;
}

static void the_backend_is_found_by_platform_and_files(void **state)
{
    static const struct {
        const char *text, *file, *backend, *platform, *filename;
    } cases[] = {
        {"", "model.savedmodel/", "tensorflow", "tensorflow_savedmodel", "model.savedmodel"},
        {"", "model.graphdef", "tensorflow", "tensorflow_graphdef", "model.graphdef"},
        {"", "model.plan", "tensorrt", "tensorrt_plan", "model.plan"},
        {"", "model.onnx", "onnxruntime", "onnxruntime_onnx", "model.onnx"},
        {"", "model.onnx/", "onnxruntime", "onnxruntime_onnx", "model.onnx"},
        {"", "model.xml", "openvino", "", "model.xml"},
        {"", "model.pt", "pytorch", "pytorch_libtorch", "model.pt"},
        {"", "model.pt2", "pytorch", "torch_aoti", "model.pt2"},
        {"", "model.py", "python", "", "model.py"},
        {"backend: 'x'", "model.savedmodel", "x", "", ""},
        {"backend: 'pytorch'", "model.pt2", "pytorch", "torch_aoti", "model.pt2"},
        {"platform: 'onnxruntime_onnx'", NULL, "onnxruntime", "onnxruntime_onnx", "model.onnx"},
        {"platform: 'tensorflow_graphdef'", NULL, "tensorflow", "tensorflow_graphdef",
         "model.graphdef"},
        {"backend: 'tensorflow'", "model.graphdef", "tensorflow", "tensorflow_graphdef",
         "model.graphdef"},
        {"backend: 'onnxruntime'", NULL, "onnxruntime", "onnxruntime_onnx", "model.onnx"},
        {"backend: 'onnxruntime' default_model_filename: 'x'", NULL, "onnxruntime",
         "onnxruntime_onnx", "x"},
        {"backend: 'python'", "model.onnx", "python", "", "model.py"},
        {"backend: 'pytorch'", NULL, "pytorch", "pytorch_libtorch", "model.pt"},
        {"default_model_filename: 'model.py'", NULL, "python", "", "model.py"},
        {"backend: 'identity'", "model.onnx", "identity", "", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct model_config *c = live(cases[i].text, &cases[i].file, cases[i].file != NULL);
        assert_string_equal(c->pb->backend, cases[i].backend);
        assert_string_equal(c->pb->platform, cases[i].platform);
        assert_string_equal(c->pb->default_model_filename, cases[i].filename);
        model_config_free(c);
    }
}

static void the_backend_is_found_by_the_models_name(void **state)
{
    struct config_facts facts = {.model_name = "a.b.c", .auto_complete = true};
    struct model_config *c = parse("");
    must(model_config_prepare(c, &facts));
    assert_string_equal(c->pb->name, "a.b.c");
    assert_string_equal(c->pb->backend, "b.c");
    assert_string_equal(c->pb->default_model_filename, "model.b.c");
    model_config_free(c);
}

static void instance_groups_are_placed(void **state)
{
    struct model_config *c = live("backend: 'onnxruntime'", NULL, 0);
    assert_int_equal(c->pb->n_instance_group, 1);
    assert_string_equal(c->pb->instance_group[0]->name, "m");
    assert_int_equal(c->pb->instance_group[0]->count, 2);
    assert_int_equal(c->pb->instance_group[0]->kind,
                     INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU);
    model_config_free(c);

    c = live("backend: 'x' instance_group [{ count: 3 }, { name: 'g' kind: KIND_MODEL }]", NULL, 0);
    assert_int_equal(c->pb->n_instance_group, 2);
    assert_string_equal(c->pb->instance_group[0]->name, "m_0");
    assert_int_equal(c->pb->instance_group[0]->count, 3);
    assert_string_equal(c->pb->instance_group[1]->name, "g");
    assert_int_equal(c->pb->instance_group[1]->count, 1);
    assert_int_equal(c->pb->instance_group[1]->kind,
                     INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL);
    model_config_free(c);
}

static int two_gpus(void)
{
    return 2;
}

/* Completes the groups on a machine with two GPUs. */
static struct status *place(struct model_config *c, const struct config_group *preferred, size_t n)
{
    struct config_facts facts = {.model_name = "m",
                                 .preferred_groups = preferred,
                                 .n_preferred_groups = n,
                                 .count_gpus = two_gpus};
    must(model_config_prepare(c, &facts));
    return model_config_complete_groups(c, &facts);
}

static void groups_of_gpus_are_placed(void **state)
{
    static const struct config_group gpus = {INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU, 3};
    const Inference__ModelInstanceGroup *group;
    (void)state;
    struct model_config *c = parse("backend: 'x'");
    must(place(c, &gpus, 1));
    group = c->pb->instance_group[0];
    assert_int_equal(group->kind, INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU);
    assert_int_equal(group->count, 3);
    assert_int_equal(group->n_gpus, 2); /* all there are */
    assert_int_equal(group->gpus[0], 0);
    assert_int_equal(group->gpus[1], 1);
    model_config_free(c);

    c = parse("backend: 'x' instance_group { kind: KIND_GPU gpus: 1 }");
    must(place(c, NULL, 0));
    assert_int_equal(c->pb->instance_group[0]->n_gpus, 1);
    model_config_free(c);

    /* Only a backend that prefers GPUs gets them without being asked for. */
    c = parse("backend: 'x' instance_group { }");
    must(place(c, NULL, 0));
    assert_int_equal(c->pb->instance_group[0]->kind,
                     INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU);
    assert_int_equal(c->pb->instance_group[0]->n_gpus, 0);
    model_config_free(c);

    c = parse("backend: 'x' instance_group { kind: KIND_GPU gpus: [ 0, 2 ] }");
    struct status *st = place(c, NULL, 0);
    assert_non_null(st);
    assert_non_null(strstr(status_message(st), "instance group m_0 of model m specifies invalid or "
                                               "unsupported gpu id 2. GPUs of this machine: 2"));
    status_free(st);
    model_config_free(c);
}

static void backends_may_prefer_groups(void **state)
{
    const struct config_group preferred[] = {
        {INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU, 7},
        {INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL, 5},
        {INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU, 4},
    };
    struct config_facts facts = {
        .model_name = "m", .preferred_groups = preferred, .n_preferred_groups = 3};
    struct model_config *c = parse("backend: 'x'");
    must(model_config_prepare(c, &facts));
    must(model_config_complete_groups(c, &facts));
    assert_int_equal(c->pb->instance_group[0]->kind,
                     INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL);
    assert_int_equal(c->pb->instance_group[0]->count, 5);
    model_config_free(c);

    /* The backend only prefers GPUs, of which there are none: as if it preferred nothing. */
    facts.n_preferred_groups = 1;
    c = parse("backend: 'x'");
    must(model_config_prepare(c, &facts));
    must(model_config_complete_groups(c, &facts));
    assert_int_equal(c->pb->instance_group[0]->kind,
                     INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU);
    assert_int_equal(c->pb->instance_group[0]->count, 1);
    model_config_free(c);

    facts.n_preferred_groups = 3;
    c = parse("backend: 'x' instance_group { }");
    must(model_config_prepare(c, &facts));
    must(model_config_complete_groups(c, &facts));
    assert_int_equal(c->pb->instance_group[0]->kind,
                     INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU);
    assert_int_equal(c->pb->instance_group[0]->count, 4);
    model_config_free(c);
}

static void json_has_the_references_habits(void **state)
{
    struct model_config *c = live("backend: 'identity' max_batch_size: 2\n"
                                  "input { name: 'I' data_type: TYPE_FP32 dims: [-1, 4] }\n"
                                  "output { name: 'O' data_type: TYPE_STRING dims: 3 }\n"
                                  "instance_group { count: 1 }\n"
                                  "parameters { key: 'k' value { string_value: 'v\\t\\001' } }\n",
                                  NULL, 0);
    AUTO(buf) out = BUF_INIT(1 << 20);
    model_config_print_json(c, &out);
    assert_string_equal(
        buf_text(&out),
        "{\"name\":\"m\",\"platform\":\"\",\"backend\":\"identity\",\"runtime\":\"\","
        "\"version_policy\":{\"latest\":{\"num_versions\":1}},\"max_batch_size\":2,"
        "\"input\":[{\"name\":\"I\",\"data_type\":\"TYPE_FP32\",\"format\":\"FORMAT_NONE\","
        "\"dims\":[-1,4],\"is_shape_tensor\":false,\"allow_ragged_batch\":false,"
        "\"optional\":false,\"is_non_linear_format_io\":false}],"
        "\"output\":[{\"name\":\"O\",\"data_type\":\"TYPE_STRING\",\"dims\":[3],"
        "\"label_filename\":\"\",\"is_shape_tensor\":false,\"is_non_linear_format_io\":false}],"
        "\"batch_input\":[],\"batch_output\":[],"
        "\"optimization\":{\"priority\":\"PRIORITY_DEFAULT\","
        "\"input_pinned_memory\":{\"enable\":true},\"output_pinned_memory\":{\"enable\":true},"
        "\"gather_kernel_buffer_threshold\":0,\"eager_batching\":false},"
        "\"instance_group\":[{\"name\":\"m_0\",\"kind\":\"KIND_CPU\",\"count\":1,\"gpus\":[],"
        "\"secondary_devices\":[],\"profile\":[],\"passive\":false,\"host_policy\":\"\"}],"
        "\"default_model_filename\":\"\",\"cc_model_filenames\":{},\"metric_tags\":{},"
        "\"parameters\":{\"k\":{\"string_value\":\"v\\t\\u0001\"}},\"model_warmup\":[]}");
    assert_string_equal(model_config_parameter(c, "k"), "v\t\001");
    assert_null(model_config_parameter(c, "K"));
    assert_false(model_config_decoupled(c));
    model_config_free(c);
}

/* Integers of 64 bits are JSON numbers, except in the fields where the reference prints a
 * string. */
static void wide_integers_print_as_numbers_or_strings(void **state)
{
    struct model_config *c =
        parse("dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }"
              "instance_group { secondary_devices { device_id: -9223372036854775808 } }"
              "optimization { cuda { graph_spec { input { key: 'a' value { dim: 4 } } } } }");
    AUTO(buf) out = BUF_INIT(1 << 20);
    model_config_print_json(c, &out);
    assert_non_null(
        strstr(buf_text(&out), "\"max_queue_delay_microseconds\":18446744073709551615"));
    assert_non_null(strstr(buf_text(&out), "\"device_id\":\"-9223372036854775808\""));
    assert_non_null(strstr(buf_text(&out), "\"dim\":[\"4\"]"));
    model_config_free(c);
}

static void text_survives_the_way_through_json(void **state)
{
    const char *text = "name: \"m\"\n"
                       "backend: \"x\"\n"
                       "version_policy {\n"
                       "  specific {\n"
                       "    versions: [1, 3]\n"
                       "  }\n"
                       "}\n"
                       "max_batch_size: 8\n"
                       "input {\n"
                       "  name: \"a\\\"\\\\\\n\303\251\"\n"
                       "  data_type: TYPE_BF16\n"
                       "  dims: [-1, 2]\n"
                       "  reshape {\n"
                       "  }\n"
                       "}\n"
                       "sequence_batching {\n"
                       "  direct {\n"
                       "    minimum_slot_utilization: 0.1\n"
                       "  }\n"
                       "  control_input {\n"
                       "    name: \"c\"\n"
                       "    control {\n"
                       "      fp32_false_true: [0, 1.5]\n"
                       "    }\n"
                       "  }\n"
                       "}\n"
                       "parameters {\n"
                       "  key: \"k\"\n"
                       "  value {\n"
                       "    string_value: \"v\"\n"
                       "  }\n"
                       "}\n";
    struct model_config *c = parse(text), *again = NULL;
    AUTO(buf) json = BUF_INIT(1 << 20);
    AUTO(buf) out = BUF_INIT(1 << 20);
    model_config_print_json(c, &json);
    must(model_config_parse_json(buf_text(&json), json.size, &again));
    model_config_print_text(again, &out);
    assert_string_equal(buf_text(&out), text);
    model_config_free(c);
    model_config_free(again);
}

static void a_backends_configuration_is_merged(void **state)
{
    static const char json[] =
        "{\"name\":\"ignored\",\"max_batch_size\":4,"
        "\"input\":[{\"name\":\"I\",\"data_type\":\"TYPE_INT8\",\"dims\":[\"3\"]}],"
        "\"output\":[{\"name\":\"O\",\"data_type\":\"TYPE_INT8\",\"dims\":[3]}],"
        "\"dynamic_batching\":{},\"metric_tags\":{\"a\":\"b\"}}";
    struct config_facts facts = {.model_name = "m", .auto_complete = true};
    struct model_config *c = parse("backend: 'x'");
    must(model_config_prepare(c, &facts));
    must(model_config_merge_from_backend(c, json, strlen(json)));
    must(model_config_finish(c, &facts));
    assert_string_equal(c->pb->name, "m");
    assert_int_equal(c->pb->max_batch_size, 4);
    assert_int_equal(c->pb->n_input, 1);
    assert_int_equal(c->pb->input[0]->dims[0], 3);
    assert_int_equal(c->pb->n_output, 1);
    assert_int_equal(c->pb->n_metric_tags, 0);

    assert_error(
        model_config_merge_from_backend(c, "{\"input\":3}", 11), STATUS_INVALID_ARG,
        "(input): invalid value 3 for type type.googleapis.com/inference.ModelInput (1:10: "
        "expected an object), in what the backend has set");
    assert_int_equal(c->pb->n_input, 1);
    model_config_free(c);

    c = parse("name: 'm' backend: 'x' sequence_batching {}");
    assert_error(model_config_merge_from_backend(c, json, strlen(json)), STATUS_INTERNAL,
                 "Cannot update scheduling choice from 13 to 11 when auto-completing. (from "
                 "sequence_batching to dynamic_batching)");
    assert_int_equal(c->pb->max_batch_size, 0);
    model_config_free(c);
}

static void a_model_without_a_configuration_is_completed(void **state)
{
    struct config_facts facts = {.model_name = "x.y", .auto_complete = true};
    for (int completed = 0; completed < 2; completed++) {
        struct model_config *c = model_config_new();
        must(model_config_prepare(c, &facts));
        must(model_config_complete_groups(c, &facts));
        if (completed)
            must(model_config_merge_from_backend(c, "{}", 2));
        struct status *st = model_config_finish(c, &facts);
        if (completed)
            must(st);
        else
            assert_error(st, STATUS_NOT_FOUND,
                         "model configuration is not provided for model 'x.y'");
        model_config_free(c);
    }
}

static void a_configuration_is_read_from_a_file(void **state)
{
    struct model_config *c = NULL;
    char folder[] = "/tmp/conch-config-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = mem_printf("%s/config.pbtxt", folder);

    char *expected =
        mem_printf("failed to open text file for read %s: No such file or directory", path);
    assert_error(model_config_read_file(path, &c), STATUS_INTERNAL, expected);
    mem_free(expected);

    expected = mem_printf("failed to read text proto from %s: '%s' is a folder, not a regular file",
                          folder, folder);
    assert_error(model_config_read_file(folder, &c), STATUS_INTERNAL, expected);
    mem_free(expected);

    assert_int_equal(mkfifo(path, 0600), 0);
    expected = mem_printf("failed to read text proto from %s: '%s' is something special, not a "
                          "regular file",
                          path, path);
    assert_error(model_config_read_file(path, &c), STATUS_INTERNAL, expected);
    mem_free(expected);
    unlink(path);

    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("max_batch_size: 3\n", f);
    fclose(f);
    must(model_config_read_file(path, &c));
    assert_int_equal(c->pb->max_batch_size, 3);
    model_config_free(c);

    /* A sparse file of a gigabyte is refused before it is read. */
    assert_int_equal(truncate(path, (off_t)1 << 30), 0);
    expected = mem_printf(
        "failed to read text proto from %s: '%s' has 1073741824 bytes, the maximum is 16777216",
        path, path);
    assert_error(model_config_read_file(path, &c), STATUS_INTERNAL, expected);
    mem_free(expected);
    unlink(path);
    rmdir(folder);
    mem_free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_backend_is_found_by_platform_and_files),
        cmocka_unit_test(the_backend_is_found_by_the_models_name),
        cmocka_unit_test(instance_groups_are_placed),
        cmocka_unit_test(groups_of_gpus_are_placed),
        cmocka_unit_test(backends_may_prefer_groups),
        cmocka_unit_test(json_has_the_references_habits),
        cmocka_unit_test(wide_integers_print_as_numbers_or_strings),
        cmocka_unit_test(text_survives_the_way_through_json),
        cmocka_unit_test(a_backends_configuration_is_merged),
        cmocka_unit_test(a_model_without_a_configuration_is_completed),
        cmocka_unit_test(a_configuration_is_read_from_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
