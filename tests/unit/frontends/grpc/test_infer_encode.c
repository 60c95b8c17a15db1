/* SPDX-License-Identifier: Apache-2.0 */
/* Responses that the test makes, encoded as messages, which protobuf-c then reads. */
#include "frontends/grpc/infer_encode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/status.h"
#include "core/request/response.h"
#include "proto/inference.pb-c.h"

typedef Inference__ModelInferResponse response_type;
typedef Inference__ModelStreamInferResponse stream_type;

static char memory[16384];
static struct arena arena;
static const struct infer_identity identity = {"m", "7", "the id"};

static int start(void **state)
{
    (void)state;
    arena_init(&arena, memory, sizeof(memory), 0, NULL, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    arena_reset(&arena);
    return 0;
}

/* Joins all pieces in order; the caller frees the result. */
static uint8_t *join(const struct infer_pieces *pieces)
{
    uint8_t *bytes = malloc(pieces->total_bytes + 1), *at = bytes;
    assert_non_null(bytes);
    for (uint32_t i = 0; i < pieces->count; i++) {
        memcpy(at, pieces->items[i].iov_base, pieces->items[i].iov_len);
        at += pieces->items[i].iov_len;
    }
    assert_int_equal(at - bytes, pieces->total_bytes);
    return bytes;
}

static response_type *encode(const struct response *resp)
{
    struct infer_pieces pieces;
    assert_null(infer_encode(resp, &identity, INFER_UNARY, &arena, &pieces));
    uint8_t *bytes = join(&pieces);
    response_type *read = inference__model_infer_response__unpack(NULL, pieces.total_bytes, bytes);
    free(bytes);
    assert_non_null(read);
    return read;
}

static stream_type *read_stream(const struct infer_pieces *pieces)
{
    uint8_t *bytes = join(pieces);
    stream_type *read =
        inference__model_stream_infer_response__unpack(NULL, pieces->total_bytes, bytes);
    free(bytes);
    assert_non_null(read);
    return read;
}

static void outputs_have_name_type_shape_and_bytes(void **state)
{
    (void)state;
    int64_t shape[] = {1, 300}, none[] = {0};
    char small[] = "12345678";
    char *large = calloc(1, 300 * 8);
    assert_non_null(large);
    memset(large, 'x', 300 * 8);
    struct output outputs[] = {
        {.name = "S", .dtype = DTYPE_BYTES, .base = small, .size_bytes = 8},
        {.name = "L",
         .dtype = DTYPE_INT64,
         .n_dims = 2,
         .shape = shape,
         .base = large,
         .size_bytes = 2400},
        {.name = "E", .dtype = DTYPE_FP32, .n_dims = 1, .shape = none},
        {.name = "M",
         .dtype = DTYPE_INT64,
         .n_dims = 2,
         .shape = shape,
         .base = large,
         .size_bytes = 2400},
    };
    struct output *list[] = {&outputs[0], &outputs[1], &outputs[2], &outputs[3]};
    struct response resp = {.n_outputs = 4, .outputs = list};
    response_type *read = encode(&resp);
    assert_string_equal(read->model_name, "m");
    assert_string_equal(read->model_version, "7");
    assert_string_equal(read->id, "the id");
    assert_int_equal(read->n_outputs, 4);
    assert_int_equal(read->n_raw_output_contents, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(read->outputs[i]->name, outputs[i].name);
        assert_string_equal(read->outputs[i]->datatype, dtype_name(outputs[i].dtype));
        assert_int_equal(read->outputs[i]->n_shape, outputs[i].n_dims);
        for (size_t k = 0; k < outputs[i].n_dims; k++)
            assert_int_equal(read->outputs[i]->shape[k], outputs[i].shape[k]);
        assert_null(read->outputs[i]->contents);
        assert_int_equal(read->raw_output_contents[i].len, outputs[i].size_bytes);
        if (outputs[i].size_bytes)
            assert_memory_equal(read->raw_output_contents[i].data, outputs[i].base,
                                outputs[i].size_bytes);
    }
    inference__model_infer_response__free_unpacked(read, NULL);

    struct infer_pieces pieces;
    assert_null(infer_encode(&resp, &identity, INFER_UNARY, &arena, &pieces));
    int n_views = 0;
    for (uint32_t i = 0; i < pieces.count; i++)
        n_views += pieces.items[i].iov_base == large;
    assert_int_equal(n_views, 2);      /* not copied */
    assert_int_equal(pieces.count, 4); /* and nothing follows the last one */
    free(large);
}

static void parameters_keep_their_types(void **state)
{
    (void)state;
    struct parameter parameters[] = {
        {.name = "i", .type = PARAMETER_INT, .int64 = -1},
        {.name = "b", .type = PARAMETER_BOOL, .boolean = false},
        {.name = "d", .type = PARAMETER_DOUBLE, .float64 = 0.5},
        {.name = "s", .type = PARAMETER_STRING, .string = ""},
    };
    struct response resp = {.n_parameters = 4, .parameters = parameters};
    response_type *read = encode(&resp);
    assert_int_equal(read->n_parameters, 4);
    Inference__InferParameter *values[4];
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(read->parameters[i]->key, parameters[i].name);
        values[i] = read->parameters[i]->value;
        assert_non_null(values[i]);
    }
    assert_int_equal(values[0]->parameter_choice_case,
                     INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM);
    assert_int_equal(values[0]->int64_param, -1);
    assert_int_equal(values[1]->parameter_choice_case,
                     INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM);
    assert_false(values[1]->bool_param);
    assert_int_equal(values[2]->parameter_choice_case,
                     INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM);
    assert_true(values[2]->double_param == 0.5);
    assert_int_equal(values[3]->parameter_choice_case,
                     INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM);
    assert_string_equal(values[3]->string_param, "");
    inference__model_infer_response__free_unpacked(read, NULL);

    struct infer_pieces pieces;
    parameters[2].type = PARAMETER_BYTES;
    struct status *st = infer_encode(&resp, &identity, INFER_UNARY, &arena, &pieces);
    assert_non_null(st);
    assert_string_equal(
        status_message(st),
        "Response parameter of type 'TRITONSERVER_PARAMETER_BYTES' is not currently supported");
    assert_int_equal(status_code(st), STATUS_UNSUPPORTED);
    status_free(st);
}

static void expect_final(const response_type *r, size_t n_parameters, bool is_final)
{
    assert_int_equal(r->n_parameters, n_parameters);
    const Inference__ModelInferResponse__ParametersEntry *last = r->parameters[n_parameters - 1];
    assert_string_equal(last->key, "triton_final_response");
    assert_int_equal(last->value->parameter_choice_case,
                     INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM);
    assert_int_equal(last->value->bool_param, is_final);
}

static void each_response_of_a_stream_has_a_final_parameter(void **state)
{
    (void)state;
    struct parameter mine = {.name = "i", .type = PARAMETER_INT, .int64 = 1};
    int64_t shape[] = {4};
    char data[] = "abcd";
    struct output out = {.name = "O",
                         .dtype = DTYPE_INT8,
                         .n_dims = 1,
                         .shape = shape,
                         .base = data,
                         .size_bytes = 4},
                  *list[] = {&out};
    struct response resp = {
        .n_parameters = 1, .parameters = &mine, .n_outputs = 1, .outputs = list};
    struct infer_pieces pieces;

    assert_null(infer_encode(&resp, &identity, INFER_STREAM, &arena, &pieces));
    stream_type *read = read_stream(&pieces);
    assert_string_equal(read->error_message, "");
    expect_final(read->infer_response, 2, false);
    assert_memory_equal(read->infer_response->raw_output_contents[0].data, "abcd", 4);
    inference__model_stream_infer_response__free_unpacked(read, NULL);

    assert_null(infer_encode(NULL, &identity, INFER_STREAM_LAST, &arena, &pieces));
    read = read_stream(&pieces);
    assert_string_equal(read->infer_response->model_name, "m");
    assert_int_equal(read->infer_response->n_outputs, 0);
    expect_final(read->infer_response, 1, true);
    inference__model_stream_infer_response__free_unpacked(read, NULL);
}

static void an_error_of_a_stream_has_the_id_or_all(void **state)
{
    (void)state;
    static const struct infer_identity only_id = {"", "", "the id"}, none = {"", "", ""};
    struct infer_pieces pieces;

    assert_null(infer_encode_error("wrong", &only_id, INFER_EARLY, &arena, &pieces));
    stream_type *read = read_stream(&pieces);
    assert_string_equal(read->error_message, "wrong");
    assert_string_equal(read->infer_response->id, "the id");
    assert_int_equal(read->infer_response->n_parameters, 0);
    inference__model_stream_infer_response__free_unpacked(read, NULL);

    assert_null(infer_encode_error("wrong", &identity, INFER_STREAM_LAST, &arena, &pieces));
    read = read_stream(&pieces);
    assert_string_equal(read->infer_response->model_version, "7");
    expect_final(read->infer_response, 1, true);
    inference__model_stream_infer_response__free_unpacked(read, NULL);

    assert_null(infer_encode_error("wrong", &none, INFER_EARLY, &arena, &pieces));
    read = read_stream(&pieces);
    assert_non_null(read->infer_response);
    inference__model_stream_infer_response__free_unpacked(read, NULL);
}

static void responses_too_large_for_grpc_are_refused(void **state)
{
    (void)state;
    struct output out = {.name = "O",
                         .dtype = DTYPE_INT8,
                         .base = memory,
                         .size_bytes = (size_t)INT32_MAX - 30},
                  *list[] = {&out};
    struct response resp = {.n_outputs = 1, .outputs = list};
    struct infer_pieces pieces;
    struct status *st = infer_encode(&resp, &identity, INFER_UNARY, &arena, &pieces);
    assert_non_null(st);
    assert_string_equal(status_message(st),
                        "Response has byte size 2147483648 which exceeds gRPC's "
                        "byte size limit 2147483647.");
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    status_free(st);
    out.size_bytes--;
    assert_null(infer_encode(&resp, &identity, INFER_UNARY, &arena, &pieces));
    assert_int_equal(pieces.total_bytes, INT32_MAX);
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    struct infer_pieces pieces;
    struct arena tiny;
    arena_init(&tiny, memory, 16, 0, NULL, NULL);
    struct status *st = infer_encode(NULL, &identity, INFER_UNARY, &tiny, &pieces);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_free(st);
    arena_reset(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(outputs_have_name_type_shape_and_bytes, start, stop),
        cmocka_unit_test_setup_teardown(parameters_keep_their_types, start, stop),
        cmocka_unit_test_setup_teardown(each_response_of_a_stream_has_a_final_parameter, start,
                                        stop),
        cmocka_unit_test_setup_teardown(an_error_of_a_stream_has_the_id_or_all, start, stop),
        cmocka_unit_test_setup_teardown(responses_too_large_for_grpc_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(lack_of_memory_is_an_error, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
