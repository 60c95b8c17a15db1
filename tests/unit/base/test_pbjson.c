/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/pbjson.h"
#include "base/status.h"
#include "proto/model_config.pb-c.h"

static struct arena arena;

static int start(void **state)
{
    arena_init(&arena, NULL, 0, 1 << 20, NULL, NULL);
    return 0;
}

static int stop(void **state)
{
    arena_reset(&arena);
    return 0;
}

static struct status *try(const char *text, Inference__ModelConfig **ret)
{
    ProtobufCMessage *m = NULL;
    struct status *st =
        pbjson_parse(&inference__model_config__descriptor, text, strlen(text), &arena, &m);
    *ret = (Inference__ModelConfig *)m;
    return st;
}

static Inference__ModelConfig *parse(const char *text)
{
    Inference__ModelConfig *c;
    struct status *st = try(text, &c);
    if (st)
        fail_msg("%s", status_message(st));
    return c;
}

static void each_form_of_a_value_is_read(void **state)
{
    Inference__ModelConfig *c = parse(
        "{\"maxBatchSize\": \"8\", \"input\": [{\"data_type\": \"type_fp32\", \"dims\": [\"-1\", 2.0, 3e1]},"
        "{\"dataType\": 13, \"reshape\": null}], \"instanceGroup\": [{\"kind\": \"Kind_Model\"}],"
        "\"dynamic_batching\": {\"priorityQueuePolicy\": {\"18446744073709551615\": {\"timeoutAction\": 1}}},"
        "\"parameters\": {\"\\u00e9\": {\"stringValue\": \"a\\n\"}, \"e\": {}}}");
    assert_int_equal(c->max_batch_size, 8);
    assert_int_equal(c->input[0]->data_type, INFERENCE__DATA_TYPE__TYPE_FP32);
    assert_int_equal(c->input[0]->dims[0], -1);
    assert_int_equal(c->input[0]->dims[1], 2);
    assert_int_equal(c->input[0]->dims[2], 30);
    assert_int_equal(c->input[1]->data_type, INFERENCE__DATA_TYPE__TYPE_STRING);
    assert_null(c->input[1]->reshape);
    assert_int_equal(c->instance_group[0]->kind, INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL);
    assert_true(c->dynamic_batching->priority_queue_policy[0]->key == UINT64_MAX);
    assert_string_equal(c->parameters[0]->key, "\xc3\xa9");
    assert_string_equal(c->parameters[0]->value->string_value, "a\n");
    assert_non_null(c->parameters[1]->value);
}

/* As people write JSON by hand, and as protobuf's reader accepts it. */
static void relaxed_json_is_read(void **state)
{
    Inference__ModelConfig *c =
        parse("{max_batch_size: 8, 'backend' : 'it\\'s \"a\\tb\"',\n"
              " input: {name: \"a, ]{'b':}\", dims: 7}, output: [{dims: [1, 2, ],},],\n"
              " parameters: {x_1: {string_value: ''}, 'é\\\\': {}}, }");
    assert_int_equal(c->max_batch_size, 8);
    assert_string_equal(c->backend, "it's \"a\tb\"");
    assert_int_equal(c->n_input, 1);
    assert_string_equal(c->input[0]->name, "a, ]{'b':}");
    assert_int_equal(c->input[0]->n_dims, 1);
    assert_int_equal(c->input[0]->dims[0], 7);
    assert_int_equal(c->n_output, 1);
    assert_int_equal(c->output[0]->n_dims, 2);
    assert_string_equal(c->parameters[0]->key, "x_1");
    assert_string_equal(c->parameters[0]->value->string_value, "");
    assert_string_equal(c->parameters[1]->key, "\xc3\xa9\\");
}

/* If a text is neither JSON nor nearly JSON, the error is that of the text as it is. */
static void texts_that_are_not_nearly_json_are_refused(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{max_batch_size: 8", "1:2: Missing a name for object member."},
        {"{'name: 8}", "1:2: Missing a name for object member."},
        {"{name: \"a}", "1:2: Missing a name for object member."},
        {"{true: 8}", "1:2: Missing a name for object member."},
        {"{\"max_batch_size\": 1,,}", "1:22: Missing a name for object member."},
        {"{\"backend\": identity}", "1:13: backend: Invalid value."},
        {"{\"input\": [null]}", "(input[0]): invalid value null for type "
                                "type.googleapis.com/inference.ModelInput (1:12: expected an "
                                "object)"},
        {"{\n bad: 'x'}", "bad: Cannot find field. (2:9)"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        Inference__ModelConfig *c;
        struct status *st = try(cases[i].text, &c);
        assert_non_null(st);
        assert_string_equal(status_message(st), cases[i].error);
        status_free(st);
    }
}

static void errors_are_those_of_protobuf(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "1:1: The document is empty."},
        {"3", ": Root element must be a message. (1:1: expected an object)"},
        {"{\"name\": \"a\",\n \"inputs\": []}",
         "inputs: Cannot find field. (2:12: did you mean \"input\"?)"},
        {"{\"zebra\": 1}", "zebra: Cannot find field. (1:11)"},
        {"{\"input\": [{\"nam\": 1}]}",
         "(input[0]) nam: Cannot find field. (1:20: did you mean \"name\"?)"},
        {"{\"input\": [{}, {\"data_type\": \"FP32\"}]}",
         "(input[1].data_type): invalid value \"FP32\" for type "
         "type.googleapis.com/inference.DataType (1:30: did you mean \"TYPE_FP32\"?)"},
        {"{\"input\": [{\"data_type\": \"zebra\"}]}",
         "(input[0].data_type): invalid value \"zebra\" for type "
         "type.googleapis.com/inference.DataType (1:26: no such name)"},
        {"{\"input\": [{\"dims\": [1, 1.5]}]}",
         "(input[0].dims[1]): invalid value 1.5 for type TYPE_INT64 (1:25: expected an integer)"},
        {"{\"max_batch_size\": 2147483648}",
         "(max_batch_size): invalid value 2147483648 for type TYPE_INT32 (1:20: integer out of "
         "range, from -2147483648 to 2147483647 are fine)"},
        {"{\"max_batch_size\": \" 1\"}",
         "(max_batch_size): invalid value \" 1\" for type TYPE_INT32 (1:20: expected an integer)"},
        {"{\"max_batch_size\": \"a\\\"b\"}",
         "(max_batch_size): invalid value \"a\\\"b\" for type TYPE_INT32 (1:20: expected an "
         "integer)"},
        {"{\"max_batch_size\": [3]}",
         "max_batch_size: Proto field is not repeating, cannot start list. (1:20: expected an "
         "integer)"},
        {"{\"max_batch_size\": {}}",
         ": invalid value Starting an object on a scalar field for type "
         "max_batch_size (1:20: expected an integer)"},
        {"{\"input\": [{\"name\": {}}]}",
         "(input[0]): invalid value Starting an object on a scalar field for type name (1:21: "
         "expected a string)"},
        {"{\"max_batch_size\": 1, \"maxBatchSize\": 2}", "1:39: max_batch_size: given twice"},
        {"{\"input\": [{}], \"input\": []}", "1:26: input: given twice"},
        {"{\"dynamic_batching\": {}, \"sequence_batching\": {}}",
         "1:47: sequence_batching: given along with \"dynamic_batching\", only one of them may be"},
        {"{\"name\": \"a\\u0000\"}", "1:10: name: the string contains a NUL byte"},
        {"{\"name\": \"\xff\"}", "1:10: name: the string is not valid UTF-8"},
        {"{\"name\": 3}", "(name): invalid value 3 for type TYPE_STRING (1:10: expected a string)"},
        {"{\"optimization\": 3}",
         "(optimization): invalid value 3 for type "
         "type.googleapis.com/inference.ModelOptimizationPolicy (1:18: expected an object)"},
        {"{\"parameters\": []}", ": invalid value Cannot bind a list to map for field "
                                 "'parameters'. for type Map (1:16: expected an object)"},
        {"{\"parameters\": {\"a\": {\"string_value\": 1}}}",
         "(parameters.a.string_value): invalid value 1 for type TYPE_STRING (1:39: expected a "
         "string)"},
        {"{\"dynamic_batching\": {\"priority_queue_policy\": {\"x\": {}}}}",
         "1:54: dynamic_batching.priority_queue_policy: the key \"x\" is wrong for this map"},
        {"{\"dynamic_batching\": {\"preserve_ordering\": 1}}",
         "(dynamic_batching.preserve_ordering): invalid value 1 for type TYPE_BOOL (1:44: expected "
         "true or false)"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        Inference__ModelConfig *c;
        struct status *st = try(cases[i].text, &c);
        assert_null(c);
        assert_non_null(st);
        assert_string_equal(status_message(st), cases[i].error);
        status_free(st);
    }
}

static void memory_is_bounded(void **state)
{
    AUTO(buf) text = BUF_INIT(8 << 20);
    Inference__ModelConfig *c;
    buf_adds(&text, "{\"input\":[{}");
    for (int i = 0; i < 200000; i++)
        buf_adds(&text, ",{}");
    buf_adds(&text, "]}");
    struct status *st = try(buf_text(&text), &c);
    assert_non_null(st);
    assert_string_equal(status_message(st), "the message is larger than 1048576 bytes in memory");
    status_free(st);
}

static void messages_print_as_json(void **state)
{
    Inference__ModelConfig *c = parse(
        "{\"sequence_batching\": {\"direct\": {\"minimum_slot_utilization\": 0.1}, \"control_input\": "
        "[{\"control\": [{\"fp32_false_true\": [1, 1e-7, \"NaN\", \"-Infinity\"]}]}]}}");
    AUTO(buf) out = BUF_INIT(1 << 20);
    pbjson_print(&c->sequence_batching->base, NULL, &out);
    assert_string_equal(
        buf_text(&out),
        "{\"max_sequence_idle_microseconds\":\"0\",\"control_input\":[{\"name\":\"\","
        "\"control\":[{\"kind\":\"CONTROL_SEQUENCE_START\",\"int32_false_true\":[],"
        "\"fp32_false_true\":[1,1e-7,\"NaN\",\"-Infinity\"],\"data_type\":"
        "\"TYPE_INVALID\",\"bool_false_true\":[]}]}],\"direct\":{"
        "\"max_queue_delay_microseconds\":\"0\",\"minimum_slot_utilization\":0.1},"
        "\"state\":[],\"iterative_sequence\":false}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_form_of_a_value_is_read, start, stop),
        cmocka_unit_test_setup_teardown(relaxed_json_is_read, start, stop),
        cmocka_unit_test_setup_teardown(texts_that_are_not_nearly_json_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(errors_are_those_of_protobuf, start, stop),
        cmocka_unit_test_setup_teardown(memory_is_bounded, start, stop),
        cmocka_unit_test_setup_teardown(messages_print_as_json, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
