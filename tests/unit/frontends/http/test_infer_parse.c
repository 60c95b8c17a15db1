/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of an inference, parsed into a request of the core or an error: what each part becomes,
 * where its bytes lie, and which of several errors is reported. The model has two inputs and one
 * output.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/loop.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "frontends/http/dialect.h"
#include "frontends/http/infer.h"

enum { MAX_INPUT_BYTES = 4096 };

static char model_name[] = "m", version_text[] = "1";
static const int64_t any[] = {-1};
static struct tensor_spec inputs[] = {
    {.name = "A", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any},
    {.name = "B", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any},
};
static struct tensor_spec outputs[] = {
    {.name = "O", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any},
};
static struct model model = {
    .name = model_name,
    .version_text = version_text,
    .n_inputs = ARRAY_SIZE(inputs),
    .inputs = inputs,
    .n_outputs = ARRAY_SIZE(outputs),
    .outputs = outputs,
};
static struct loop loop;
static struct http_env env;
static struct http_ctx ctx;
static struct pool *pool;

/* The exchange of the body that was parsed last. */
static struct exchange *x;
static struct http_call *call;
static const struct request *r;
static char *body;

static int start(void **state)
{
    (void)state;
    static const struct http_handler handler = {.part_bytes = sizeof(struct http_call),
                                                .on_end = infer_end};
    static const struct http_settings settings = {.max_input_bytes = MAX_INPUT_BYTES,
                                                  .dialect = &http_kserve};
    atomic_store(&model.refs, 1);
    loop.owner = pthread_self();
    ctx = (struct http_ctx){.settings = &settings};
    buf_init(&ctx.json, 1 << 20);
    pool = pool_new("test", 1 << 20, 64 << 20);
    http_env_init(&env, &handler, &ctx, NULL, pool, &loop, NULL, 0);
    return 0;
}

static void end_exchange(void)
{
    if (!x)
        return;
    exchange_end(x);
    free(body);
    x = NULL;
    assert_int_equal(atomic_load(&model.refs), 1);
    assert_int_equal(env.net.n_used, 0);
}

static int stop(void **state)
{
    (void)state;
    end_exchange();
    buf_done(&ctx.json);
    http_env_done(&env);
    pool_free(pool);
    return 0;
}

/* json_bytes is the length of the JSON; -1: no header gives it. */
static struct status *parse_bytes(const void *bytes, size_t n_bytes, int64_t json_bytes)
{
    const char *type;
    end_exchange();
    x = exchange_new(&env, NULL);
    assert_non_null(x);
    call = exchange_part(x);
    r = &call->request;
    body = malloc(n_bytes + 1); /* an exact copy, so that a read beyond its end is seen */
    assert_non_null(body);
    memcpy(body, bytes, n_bytes);
    x->body = body;
    x->body_size = n_bytes;
    x->headed = true;
    memset(call, 0, sizeof(*call)); /* as on_http_head() leaves it */
    call->facts.header_length_kind = json_bytes < 0 ? HEADER_LENGTH_NONE : HEADER_LENGTH_FINE;
    call->facts.header_length = json_bytes;
    model_ref(&model);
    infer_begin(x, &model, NULL);
    return infer_parse(x, &type);
}

static struct status *parse_text(const char *json)
{
    return parse_bytes(json, strlen(json), -1);
}

/* Parses JSON and the binary data behind it. */
static struct status *parse_both(const char *json, const char *tail, size_t tail_bytes)
{
    char both[MAX_INPUT_BYTES + 64];
    size_t n = strlen(json);
    assert_true(n + tail_bytes <= sizeof(both));
    memcpy(both, json, n);
    memcpy(both + n, tail, tail_bytes);
    return parse_bytes(both, n + tail_bytes, (int64_t)n);
}

/* It has that text, which is the reference's, and perhaps advice of ours behind it. */
static void says(struct status *st, enum status_code code, const char *text)
{
    assert_non_null(st);
    size_t length = strlen(text);
    const char *message = status_message(st);
    if (strncmp(message, text, length) != 0 || (message[length] && !strchr("; ", message[length])))
        fail_msg("'%s' instead of '%s'", message, text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

static void expect_input(uint32_t i, const char *name, enum dtype dtype, size_t n_bytes)
{
    assert_true(i < r->maker.n_inputs);
    assert_string_equal(r->maker.inputs[i]->name, name);
    assert_int_equal(r->maker.inputs[i]->dtype, dtype);
    assert_int_equal(r->maker.inputs[i]->size_bytes, n_bytes);
}

static void expect_bytes(uint32_t i, const void *bytes, size_t n_bytes)
{
    assert_int_equal(r->maker.inputs[i]->n_buffers, 1);
    assert_int_equal(r->maker.inputs[i]->buffers[0].size_bytes, n_bytes);
    assert_memory_equal(r->maker.inputs[i]->buffers[0].base, bytes, n_bytes);
}

/* ---- What a body becomes -------------------------------------------------------------------- */

#define TENSOR(datatype, values)                                                                   \
    "{\"inputs\":[{\"name\":\"A\",\"datatype\":\"" datatype "\",\"shape\":[3],\"data\":[" values   \
    "]}]}"

static void values_of_each_type_are_parsed(void **state)
{
    (void)state;
    const struct {
        const char *json;
        enum dtype dtype;
        size_t n_bytes;
        const void *bytes;
    } cases[] = {
        {TENSOR("BOOL", "true,false,true"), DTYPE_BOOL, 3, "\1\0\1"},
        {TENSOR("UINT8", "0,1,255"), DTYPE_UINT8, 3, "\0\1\377"},
        {TENSOR("INT8", "-128,0,127"), DTYPE_INT8, 3, "\200\0\177"},
        {TENSOR("UINT16", "0,1,65535"), DTYPE_UINT16, 6, (uint16_t[]){0, 1, 65535}},
        {TENSOR("INT16", "-32768,1,2"), DTYPE_INT16, 6, (int16_t[]){-32768, 1, 2}},
        {TENSOR("UINT32", "0,1,4294967295"), DTYPE_UINT32, 12, (uint32_t[]){0, 1, UINT32_MAX}},
        {TENSOR("INT32", "-7,1,2"), DTYPE_INT32, 12, (int32_t[]){-7, 1, 2}},
        {TENSOR("UINT64", "0,1,18446744073709551615"), DTYPE_UINT64, 24,
         (uint64_t[]){0, 1, UINT64_MAX}},
        {TENSOR("INT64", "-9223372036854775808,1,2"), DTYPE_INT64, 24,
         (int64_t[]){INT64_MIN, 1, 2}},
        {TENSOR("FP32", "1,2.5,-3e2"), DTYPE_FP32, 12, (float[]){1, 2.5F, -300}},
        {TENSOR("FP64", "0.1,2,3"), DTYPE_FP64, 24, (double[]){0.1, 2, 3}},
        {TENSOR("BYTES", "\"ab\",\"\",\"\\u0041\""), DTYPE_BYTES, 15,
         "\2\0\0\0ab\0\0\0\0\1\0\0\0A"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_null(parse_text(cases[i].json));
        expect_input(0, "A", cases[i].dtype, cases[i].n_bytes);
        expect_bytes(0, cases[i].bytes, cases[i].n_bytes);
        assert_int_equal(r->maker.inputs[0]->n_dims, 1);
        assert_int_equal(r->maker.inputs[0]->shape[0], 3);
    }
}

/* Clients' libraries write the members in any order. */
static void members_come_in_any_order(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{\"inputs\":[{\"name\":\"A\",\"shape\":[2,1],\"datatype\":\"INT32\",\"data\":[5,6]}],\"id\":\"x\"}",
        "{\"id\":\"x\",\"inputs\":[{\"data\":[[5],[6]],\"datatype\":\"INT32\",\"shape\":[2,1],\"name\":\"A\"}]}",
        "{\"more\":[1,{}],\"id\":\"x\",\"inputs\":[{\"data\":[5,[6]],\"name\":\"A\",\"x\":null,\"shape\":[2,1],"
        "\"datatype\":\"INT32\"}],\"outputs\":[]}",
        /* The first of two equal members counts. */
        "{\"id\":\"x\",\"id\":7,\"inputs\":[{\"name\":\"A\",\"name\":\"B\",\"shape\":[2,1],\"shape\":[9],"
        "\"datatype\":\"INT32\",\"datatype\":3,\"data\":[5,6],\"data\":[7]}],\"inputs\":3}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
        assert_null(parse_text(bodies[i]));
        assert_int_equal(r->maker.n_inputs, 1);
        expect_input(0, "A", DTYPE_INT32, 8);
        expect_bytes(0, (int32_t[]){5, 6}, 8);
        assert_int_equal(r->maker.inputs[0]->n_dims, 2);
        assert_string_equal(r->maker.id, "x");
        assert_int_equal(r->maker.n_outputs, 0);
    }
}

#define BINARY(name, n)                                                                            \
    "{\"name\":\"" name "\",\"datatype\":\"UINT8\",\"shape\":[" #n "],\"parameters\":{"            \
    "\"binary_data_size\":" #n "}}"

/* One tensor behind the other; no tensor is copied. */
static void binary_tensors_are_views_of_the_body(void **state)
{
    (void)state;
    static const char json[] =
        "{\"inputs\":[" BINARY("A", 3) "," BINARY("B", 0) "," BINARY("C", 2) "]}";
    for (int i = 0; i < 3; i++) { /* the second time from the memo (memo.h) */
        assert_null(parse_both(json, "abcde", 5));
        assert_non_null(memo_find(&ctx.memo, json, strlen(json)));
        assert_int_equal(r->maker.n_inputs, 3);
        expect_input(0, "A", DTYPE_UINT8, 3);
        expect_input(1, "B", DTYPE_UINT8, 0);
        expect_input(2, "C", DTYPE_UINT8, 2);
        assert_ptr_equal(r->maker.inputs[0]->buffers[0].base, body + strlen(json));
        assert_ptr_equal(r->maker.inputs[2]->buffers[0].base, body + strlen(json) + 3);
    }
    /* A remembered text does not hold for other data behind it. */
    says(parse_both(json, "abcd", 4), STATUS_INVALID_ARG,
         "unexpected size for input 'C', expecting 1 additional bytes for model 'm'");
    says(parse_both(json, "abcdef", 6), STATUS_INVALID_ARG,
         "unexpected additional input data for model 'm'");
    assert_null(parse_both(json, "fghij", 5));
    expect_bytes(0, "fgh", 3);
}

static void requested_outputs_and_their_forms_are_parsed(void **state)
{
    (void)state;
    assert_null(
        parse_text("{\"inputs\":[],\"parameters\":{\"binary_data_output\":true},\"outputs\":["
                   "{\"name\":\"O\",\"parameters\":{\"binary_data\":true}}]}"));
    assert_true(call->binary_default);
    assert_int_equal(call->n_requested_outputs, 1);
    assert_string_equal(call->requested_outputs[0].name, "O");
    assert_true(call->requested_outputs[0].form.binary);
    assert_int_equal(r->maker.n_outputs, 1);
    assert_null(parse_text("{\"inputs\":[],\"outputs\":[{\"parameters\":{},\"name\":\"O\"}]}"));
    assert_false(call->requested_outputs[0].form.binary || call->binary_default);
    static const char classes[] = "{\"inputs\":[],\"outputs\":[{\"name\":\"O\",\"parameters\":{"
                                  "\"classification\":3}}]}";
    for (int i = 0; i < 2; i++) { /* the second time from the memo (memo.h) */
        assert_null(parse_text(classes));
        assert_int_equal(call->classes.n_outputs, 1);
        assert_string_equal(call->classes.outputs[0].name, "O");
        assert_int_equal(call->classes.outputs[0].n_classes, 3);
        assert_non_null(memo_find(&ctx.memo, classes, strlen(classes)));
    }
    assert_null(parse_text("{\"inputs\":[],\"outputs\":[{\"name\":\"O\",\"parameters\":{"
                           "\"classification\":0}}]}"));
    assert_int_equal(call->classes.n_outputs, 0);
    assert_null(parse_text("{\"inputs\":[],\"outputs\":[{\"name\":\"O\",\"parameters\":{"
                           "\"classification\":18446744073709551615}}]}"));
    assert_int_equal(call->classes.outputs[0].n_classes, UINT32_MAX);
    says(
        parse_text("{\"inputs\":[],\"outputs\":[{\"name\":\"O\",\"parameters\":{"
                   "\"classification\":-1}}]}"),
        STATUS_INTERNAL,
        "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer");
    says(parse_text("{\"inputs\":[],\"outputs\":[{\"parameters\":{}}]}"), STATUS_INTERNAL,
         "Unable to parse 'name': attempt to access non-existing object member 'name'");
}

static void parameters_of_the_request_are_parsed(void **state)
{
    (void)state;
    assert_null(parse_text("{\"inputs\":[],\"parameters\":{\"sequence_id\":18446744073709551615,"
                           "\"sequence_start\":true,\"sequence_end\":false,\"priority\":7,"
                           "\"timeout\":9,\"headers\":{\"a\":1},\"text\":\"v\",\"yes\":true,"
                           "\"int\":-3,\"large\":9223372036854775808,\"real\":0.5}}"));
    assert_null(r->maker.correlation_id.string);
    assert_true(r->maker.correlation_id.number == UINT64_MAX);
    assert_int_equal(r->maker.flags, REQUEST_SEQUENCE_START);
    assert_int_equal(r->maker.priority, 7);
    assert_int_equal(r->maker.timeout_us, 9);
    assert_int_equal(r->maker.n_parameters, 5);
    const struct parameter *p = r->maker.parameters;
    assert_int_equal(p[0].type, PARAMETER_STRING);
    assert_string_equal(p[0].name, "text");
    assert_string_equal(p[0].string, "v");
    assert_true(p[1].type == PARAMETER_BOOL && p[1].boolean);
    assert_true(p[2].type == PARAMETER_INT && p[2].int64 == -3);
    assert_true(p[3].type == PARAMETER_DOUBLE && p[3].float64 == 9223372036854775808.0);
    assert_true(p[4].type == PARAMETER_DOUBLE && p[4].float64 == 0.5);

    assert_null(parse_text("{\"inputs\":[],\"parameters\":{\"sequence_id\":\"talk\","
                           "\"sequence_end\":true}}"));
    assert_string_equal(r->maker.correlation_id.string, "talk");
    assert_int_equal(r->maker.flags, REQUEST_SEQUENCE_END);
}

static void a_body_without_json_is_a_raw_input(void **state)
{
    (void)state;
    assert_null(parse_bytes("abc", 3, 0));
    assert_int_equal(r->maker.n_inputs, 1);
    assert_true(r->maker.inputs[0]->raw);
    expect_bytes(0, "abc", 3);
    assert_ptr_equal(r->maker.inputs[0]->buffers[0].base, body);
    assert_true(call->binary_default);
}

/* ---- What is wrong with it ------------------------------------------------------------------- */

#define INPUT(members) "{\"inputs\":[{" members "}]}"
#define A_FP32         "\"name\":\"A\",\"datatype\":\"FP32\",\"shape\":[2]"
#define NO_MEMBER(name)                                                                            \
    "Unable to parse '" name "': attempt to access non-existing object member '" name "'"
#define ONE_SOURCE                                                                                 \
    "Input must set only one of the following fields: 'data', 'binary_data_size' in "              \
    "'parameters', 'shared_memory_region' in 'parameters'. But "

static void errors_are_those_of_the_reference(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        enum status_code code;
        const char *text;
    } cases[] = {
        {"{}", STATUS_INTERNAL, NO_MEMBER("inputs")},
        {INPUT("\"data\":[1],\"datatype\":\"FP32\",\"shape\":[1]"), STATUS_INTERNAL,
         NO_MEMBER("name")},
        {INPUT("\"name\":\"A\",\"data\":[1],\"shape\":[1]"), STATUS_INTERNAL,
         NO_MEMBER("datatype")},
        {INPUT("\"name\":\"A\",\"datatype\":\"FP32\",\"data\":[1]"), STATUS_INTERNAL,
         NO_MEMBER("shape")},
        {INPUT(A_FP32), STATUS_INVALID_ARG, ONE_SOURCE "no field is set"},
        {INPUT(A_FP32 ",\"data\":[1,2],\"parameters\":{\"binary_data_size\":8}"),
         STATUS_INVALID_ARG, ONE_SOURCE "set 'data' 'binary_data_size'"},
        {INPUT(A_FP32 ",\"parameters\":{\"shared_memory_region\":\"r\"}"), STATUS_NOT_FOUND,
         "Unable to find shared memory region: 'r'"},
        {INPUT(A_FP32 ",\"data\":[1]"), STATUS_INTERNAL,
         "Failed to parse 'data' field: shape does not match true shape"},
        {INPUT("\"name\":\"A\",\"datatype\":\"FP99\",\"shape\":[1],\"data\":[1]"),
         STATUS_INVALID_ARG, "invalid datatype for input A"},
        {INPUT("\"name\":\"A\",\"datatype\":\"FP16\",\"shape\":[1],\"data\":[1]"),
         STATUS_INVALID_ARG,
         "receiving FP16 data via JSON is not supported. Please use the binary data format for "
         "input A"},
        {INPUT("\"name\":\"A\",\"datatype\":\"INT8\",\"shape\":[9223372036854775808],\"data\":[1]"),
         STATUS_INVALID_ARG,
         "invalid shape for input 'A': shape [-1] contains one or more invalid dimensions"},
        {INPUT(
             "\"name\":\"A\",\"datatype\":\"INT8\",\"shape\":[4294967296,4294967296],\"data\":[1]"),
         STATUS_INVALID_ARG,
         "invalid shape for input 'A': shape [4294967296,4294967296] causes total element count to "
         "exceed maximum size of 9223372036854775807"},
        {INPUT("\"name\":\"A\",\"datatype\":\"FP64\",\"shape\":[4611686018427387904],\"data\":[1]"),
         STATUS_INVALID_ARG, "byte size overflow for input 'A'"},
        {INPUT("\"name\":\"A\",\"datatype\":\"FP64\",\"shape\":[513],\"data\":[1]"),
         STATUS_INVALID_ARG,
         "JSON input 'A' has a byte_size (4104 bytes) that exceeds the maximum allowed value of "
         "4096 bytes. Use --http-max-input-size to increase the limit."},
        {"{\"inputs\":[],\"parameters\":{\"triton_x\":1}}", STATUS_INVALID_ARG,
         "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
         "specified."},
        {"{\"inputs\":[],\"parameters\":{\"x\":[]}}", STATUS_INVALID_ARG,
         "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'."},
        {"{\"inputs\":[],\"parameters\":7}", STATUS_INTERNAL,
         "failed to get request params.: attempt to get members for non-object"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        says(parse_text(cases[i].json), cases[i].code, cases[i].text);
}

/* First faults of the JSON text, then id, parameters, inputs, outputs, in whatever order the
 * body has them. */
static void the_first_of_several_errors_is_reported(void **state)
{
    (void)state;
    static const char outs[] = "\"outputs\":[{}]", ins[] = "\"inputs\":[{}]",
                      parameters[] = "\"parameters\":{\"triton_x\":1}", id[] = "\"id\":7";
    static const struct {
        const char *members[4];
        const char *begin; /* of the JSON text */
    } cases[] = {
        {{outs, ins, parameters, id}, "Unable to parse 'id': "},
        {{outs, ins, parameters}, "parameter keys starting with 'triton_'"},
        {{outs, ins}, "Input must set only one of"},
        {{outs, "\"inputs\":[]"}, "Unable to parse 'name': "},
        {{outs}, "Unable to parse 'inputs': "},
        {{outs, ins, parameters, "\"id\":7,}"}, "failed to parse the request JSON buffer: "},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char json[256] = "{";
        for (size_t k = 0; k < 4 && cases[i].members[k]; k++) {
            strcat(json, k ? "," : "");
            strcat(json, cases[i].members[k]);
        }
        struct status *st = parse_text(strcat(json, "}"));
        assert_non_null(st);
        if (strncmp(status_message(st), cases[i].begin, strlen(cases[i].begin)) != 0)
            fail_msg("%s was answered with: %s", json, status_message(st));
        status_free(st);
    }
}

static void the_header_gives_the_length_of_the_json(void **state)
{
    (void)state;
    static const char json[] = "{\"inputs\":[]}";
    says(parse_bytes(json, sizeof(json) - 1, 99), STATUS_INVALID_ARG,
         "inference header size should be in range (0, 13), got: 99");
    says(parse_both("{\"inputs\":[]}", "x", 1), STATUS_INVALID_ARG,
         "unexpected additional input data for model 'm'");
    assert_null(parse_bytes(json, sizeof(json) - 1, sizeof(json) - 1));

    static const struct {
        enum header_length kind;
        int64_t length;
        const char *text;
    } wrong[] = {
        {HEADER_LENGTH_BAD, 0, "Unable to parse Inference-Header-Content-Length, got: x"},
        {HEADER_LENGTH_RANGE, 0,
         "Unable to parse Inference-Header-Content-Length, value is out of range [ -2147483648, "
         "2147483647 ], got: x"},
        {HEADER_LENGTH_FINE, -1, "inference header size should be in range (0, 13), got: -1"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        const char *type = NULL;
        assert_null(parse_text(json));
        call->facts.header_length_kind = wrong[i].kind;
        call->facts.header_length = wrong[i].length;
        call->header_length_text = "x";
        says(infer_parse(x, &type), STATUS_INVALID_ARG, wrong[i].text);
        assert_string_equal(type, "text/plain");
    }
}

static void bodies_beyond_the_limits_are_refused(void **state)
{
    (void)state;
    static char large[MAX_INPUT_BYTES + 1];
    memset(large, ' ', sizeof(large));
    says(parse_bytes(large, sizeof(large), -1), STATUS_INVALID_ARG,
         "request JSON size of 4097 bytes exceeds the maximum allowed input size of 4096 bytes. "
         "Use --http-max-input-size to increase the limit.");
    says(parse_bytes(large, sizeof(large), 0), STATUS_INVALID_ARG,
         "Raw input has a byte_size (4097 bytes) that exceeds the maximum allowed value of 4096 "
         "bytes. Use --http-max-input-size to increase the limit.");
    assert_null(parse_bytes(large, MAX_INPUT_BYTES, 0));
}

/* Each input is compared with the earlier ones, so their number is limited. */
static void too_many_inputs_are_refused(void **state)
{
    (void)state;
    char json[MAX_INPUT_BYTES];
    size_t n = (size_t)snprintf(json, sizeof(json), "{\"inputs\":[");
    for (int i = 0; i < 67; i++)
        n += (size_t)snprintf(json + n, sizeof(json) - n,
                              "%s{\"name\":\"%d\",\"datatype\":\"INT8\",\"shape\":[0],\"data\":[]}",
                              i ? "," : "", i);
    snprintf(json + n, sizeof(json) - n, "]}");
    says(parse_text(json), STATUS_INVALID_ARG,
         "expected 2 inputs but got more than 66 inputs for model 'm'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_each_type_are_parsed),
        cmocka_unit_test(members_come_in_any_order),
        cmocka_unit_test(binary_tensors_are_views_of_the_body),
        cmocka_unit_test(requested_outputs_and_their_forms_are_parsed),
        cmocka_unit_test(parameters_of_the_request_are_parsed),
        cmocka_unit_test(a_body_without_json_is_a_raw_input),
        cmocka_unit_test(errors_are_those_of_the_reference),
        cmocka_unit_test(the_first_of_several_errors_is_reported),
        cmocka_unit_test(the_header_gives_the_length_of_the_json),
        cmocka_unit_test(bodies_beyond_the_limits_are_refused),
        cmocka_unit_test(too_many_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
