/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/pbmsg.h"
#include "proto/model_config.pb-c.h"

#define CONFIG (&inference__model_config__descriptor)

static const ProtobufCFieldDescriptor *field(const ProtobufCMessageDescriptor *d, const char *name)
{
    return pb_field_named(d, name, strlen(name));
}

static void fields_and_enum_values_are_found_by_name(void **state)
{
    for (unsigned i = 0; i < CONFIG->n_fields; i++)
        assert_ptr_equal(field(CONFIG, CONFIG->fields[i].name), &CONFIG->fields[i]);
    assert_null(field(CONFIG, "inputs"));
    assert_null(field(CONFIG, "inp"));
    assert_null(field(CONFIG, ""));
    assert_ptr_equal(pb_field_named(CONFIG, "inputs", 5), field(CONFIG, "input"));

    const ProtobufCEnumDescriptor *types = &inference__data_type__descriptor;
    assert_int_equal(pb_enum_named(types, "TYPE_BF16", 9)->value, 14);
    assert_null(pb_enum_named(types, "TYPE_BF1", 8));
}

static void maps_replace_equal_keys(void **state)
{
    size_t n = 0;
    for (unsigned i = 0; i < CONFIG->n_fields; i++)
        n += pb_is_map(CONFIG, &CONFIG->fields[i]);
    assert_int_equal(n, 3);
    assert_true(pb_is_map(CONFIG, field(CONFIG, "parameters")));
    assert_true(pb_is_map(CONFIG, field(CONFIG, "cc_model_filenames")));
    assert_false(pb_is_map(CONFIG, field(CONFIG, "input")));
    const ProtobufCMessageDescriptor *step = &inference__model_ensembling__step__descriptor;
    assert_true(pb_is_map(step, field(step, "input_map")));
}

static void repeated_fields_grow(void **state)
{
    struct arena a;
    arena_init(&a, NULL, 0, 1 << 20, NULL, NULL);
    const ProtobufCMessageDescriptor *d = &inference__model_tensor_reshape__descriptor;
    ProtobufCMessage *m = pb_new(&a, d);
    for (int64_t i = 0; i < 1000; i++)
        *(int64_t *)pb_append(&a, m, field(d, "shape")) = i;
    Inference__ModelTensorReshape *r = (Inference__ModelTensorReshape *)m;
    assert_int_equal(r->n_shape, 1000);
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(r->shape[i], i);
    arena_reset(&a);
}

static void repeated_fields_end_with_the_arena(void **state)
{
    struct arena a;
    arena_init(&a, NULL, 0, 4096, NULL, NULL);
    const ProtobufCMessageDescriptor *d = &inference__model_tensor_reshape__descriptor;
    ProtobufCMessage *m = pb_new(&a, d);
    size_t n = 0;
    while (pb_append(&a, m, field(d, "shape")))
        n++;
    assert_true(n >= 64 && n <= 512);
    assert_int_equal(pb_count(m, field(d, "shape")), n);
    arena_reset(&a);
}

static void a_oneof_has_one_chosen_field(void **state)
{
    struct arena a;
    arena_init(&a, NULL, 0, 1 << 20, NULL, NULL);
    const ProtobufCMessageDescriptor *d = &inference__model_warmup__input__descriptor;
    ProtobufCMessage *m = pb_new(&a, d);
    const ProtobufCFieldDescriptor *zero = field(d, "zero_data"),
                                   *file = field(d, "input_data_file");
    assert_null(pb_oneof_chosen(m, zero));
    assert_false(pb_is_set(m, zero));
    *(protobuf_c_boolean *)pb_slot(m, zero) = false;
    assert_ptr_equal(pb_oneof_chosen(m, file), zero);
    assert_true(pb_is_set(m, zero));
    assert_false(pb_is_set(m, file));
    arena_reset(&a);
}

static void a_wrong_name_gets_a_suggestion(void **state)
{
    static const struct {
        const char *wrong, *meant;
    } cases[] = {
        {"inputs", "input"},
        {"Input", "input"},
        {"max_batchsize", "max_batch_size"},
        {"maxBatchSize", "max_batch_size"},
        {"max-batch-size", "max_batch_size"},
        {"dynamic_batch", "dynamic_batching"},
        {"instance_groups", "instance_group"},
        {"backed", "backend"},
        {"default_model_file_name", "default_model_filename"},
        {"batch_size", "max_batch_size"},
        {"ensemble", "ensemble_scheduling"},
        {"zebra", NULL},
        {"x", NULL},
        {"", NULL},
        {"________________________________________________________________________________", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *got = pb_suggest_field(CONFIG, cases[i].wrong, strlen(cases[i].wrong));
        if (cases[i].meant)
            assert_string_equal(got ? got : "nothing", cases[i].meant);
        else
            assert_null(got);
    }
    assert_string_equal(pb_suggest_home(CONFIG, "dims", 4), "input");
    assert_null(pb_suggest_home(CONFIG, "zebra", 5));

    const ProtobufCEnumDescriptor *types = &inference__data_type__descriptor;
    static const char *const words[][2] = {
        {"fp16", "TYPE_FP16"},          {"TYPE_BYTES", "TYPE_STRING"}, {"FLOAT32", "TYPE_FP32"},
        {"TYPE_FLOAT", "TYPE_FP32"},    {"double", "TYPE_FP64"},       {"INT32", "TYPE_INT32"},
        {"TYPE_UINT33", "TYPE_UINT32"}, {"bfloat16", "TYPE_BF16"},     {"TYPE_INT", "TYPE_INT8"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        const char *got = pb_suggest_enum(types, words[i][0], strlen(words[i][0]));
        assert_string_equal(got ? got : "nothing", words[i][1]);
    }
    assert_null(pb_suggest_enum(types, "zebra", 5));
}

static void numbers_print_as_in_protobuf(void **state)
{
    assert_string_equal(pb_number(0.1f, true).text, "0.1");
    assert_string_equal(pb_number(3.3333333f, true).text, "3.33333325");
    assert_string_equal(pb_number(0.1, false).text, "0.1");
    assert_string_equal(pb_number(1.0 / 3, false).text, "0.33333333333333331");
    assert_string_equal(pb_number(1e22, false).text, "1e+22");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_and_enum_values_are_found_by_name),
        cmocka_unit_test(maps_replace_equal_keys),
        cmocka_unit_test(repeated_fields_grow),
        cmocka_unit_test(repeated_fields_end_with_the_arena),
        cmocka_unit_test(a_oneof_has_one_chosen_field),
        cmocka_unit_test(a_wrong_name_gets_a_suggestion),
        cmocka_unit_test(numbers_print_as_in_protobuf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
