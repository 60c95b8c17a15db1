/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ModelInferRequest, as protobuf-c writes it or as bytes, decoded into a request of the core or
 * an error. The model has three inputs and one output.
 */
#include "frontends/grpc/infer_decode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "frontends/grpc/infer_message.h"
#include "frontends/ops/tensor_blocks.h"
#include "frontends/ops/tensor_regions.h"
#include "proto/inference.pb-c.h"

static char model_name[] = "m", version_text[] = "1";
static const int64_t any[] = {-1};
static struct tensor_spec inputs[] = {
    {.name = "A", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any},
    {.name = "B", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any},
    {.name = "C", .dtype = DTYPE_BYTES, .n_dims = 1, .dims = any},
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
static struct pool *pool;

/* The request that was decoded last. */
static struct request r;
static bool has_request;
static char request_memory[4096], *bytes;
static size_t n_bytes_decoded;
static struct tensor_blocks blocks;
static struct tensor_regions regions; /* without a table: every name is unknown */
static struct infer_asks asks;

static void destroy(struct request *unused)
{
    (void)unused;
}

static const struct request_ops ops = {.destroy = destroy};

static int start(void **state)
{
    (void)state;
    atomic_store(&model.refs, 1);
    pool = pool_new("test", 1 << 20, 64 << 20);
    return 0;
}

static void end_request(void)
{
    if (!has_request)
        return;
    has_request = false;
    tensor_blocks_release(&blocks);
    request_unref(&r);
    free(bytes);
    assert_int_equal(atomic_load(&model.refs), 1);
}

static int stop(void **state)
{
    (void)state;
    struct pool_stats stats;
    end_request();
    pool_stats(pool, &stats);
    assert_int_equal(stats.used_bytes, 0);
    pool_free(pool);
    return 0;
}

static struct status *decode_bytes(const void *message, size_t n_bytes)
{
    char memory[2048];
    struct infer_message m;
    struct arena arena;

    end_request();
    bytes = malloc(n_bytes + !n_bytes); /* exact, so that sanitizers find a read beyond its end */
    assert_non_null(bytes);
    memcpy(bytes, message, n_bytes);
    n_bytes_decoded = n_bytes;
    model_ref(&model);
    request_init(&r, &ops, &model, request_memory, sizeof(request_memory), pool);
    has_request = true;
    arena_init(&arena, memory, sizeof(memory), 1 << 20, pool, NULL);
    struct status *st = infer_message_read(&m, bytes, n_bytes, &arena);
    if (!st)
        st = infer_decode(&m, &r, &blocks, &regions, &asks);
    memset(memory, 0xee, sizeof(memory)); /* the message is no longer used */
    arena_reset(&arena);
    return st;
}

static struct status *decode(const Inference__ModelInferRequest *message)
{
    size_t n_bytes = inference__model_infer_request__get_packed_size(message);
    uint8_t *packed = malloc(n_bytes + !n_bytes);
    assert_non_null(packed);
    inference__model_infer_request__pack(message, packed);
    struct status *st = decode_bytes(packed, n_bytes);
    free(packed);
    return st;
}

static void must(struct status *st)
{
    if (st)
        fail_msg("%s", status_message(st));
}

static void expect_error(struct status *st, enum status_code code, const char *text)
{
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

/* ---- Parts of a message --------------------------------------------------------------------- */

typedef Inference__ModelInferRequest message_type;
typedef Inference__ModelInferRequest__InferInputTensor input_type;
typedef Inference__ModelInferRequest__InferRequestedOutputTensor output_type;
typedef Inference__ModelInferRequest__ParametersEntry entry_type;
typedef Inference__InferParameter parameter_type;
typedef Inference__InferTensorContents contents_type;

/* The initialisers of protobuf-c drop a const, its functions do not. */
#define MAKE(type, init)                                                                           \
    ({                                                                                             \
        type made;                                                                                 \
        init(&made);                                                                               \
        made;                                                                                      \
    })
#define MESSAGE MAKE(message_type, inference__model_infer_request__init)
#define INPUT   MAKE(input_type, inference__model_infer_request__infer_input_tensor__init)
#define OUTPUT                                                                                     \
    MAKE(output_type, inference__model_infer_request__infer_requested_output_tensor__init)
#define CONTENTS     MAKE(contents_type, inference__infer_tensor_contents__init)
#define PARAMETER    MAKE(parameter_type, inference__infer_parameter__init)
#define CHOICE(name) INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_##name##_PARAM

static char name_a[] = "A", name_b[] = "B", fp32[] = "FP32";
static int64_t two[] = {2};

static input_type input_named(char *name, char *datatype)
{
    input_type in = INPUT;
    in.name = name;
    in.datatype = datatype;
    in.n_shape = 1;
    in.shape = two;
    return in;
}

/* Decodes a message with one input "A" that has these contents. */
static struct status *decode_contents(const char *datatype, contents_type *contents)
{
    char copy[16];
    strcpy(copy, datatype);
    input_type in = input_named(name_a, copy), *list[] = {&in};
    message_type m = MESSAGE;
    m.model_name = model_name;
    in.contents = contents;
    m.n_inputs = 1;
    m.inputs = list;
    return decode(&m);
}

/* Decodes a message with one parameter of the request. */
static struct status *decode_parameter(const char *key, parameter_type *value)
{
    entry_type entry = MAKE(entry_type, inference__model_infer_request__parameters_entry__init),
               *list[] = {&entry};
    message_type m = MESSAGE;
    char name[64];
    strcpy(name, key);
    entry.key = name;
    entry.value = value;
    m.n_parameters = 1;
    m.parameters = list;
    return decode(&m);
}

static parameter_type choose_bool(bool value)
{
    parameter_type p = PARAMETER;
    p.parameter_choice_case = CHOICE(BOOL);
    p.bool_param = value;
    return p;
}

static parameter_type choose_int64(int64_t value)
{
    parameter_type p = PARAMETER;
    p.parameter_choice_case = CHOICE(INT64);
    p.int64_param = value;
    return p;
}

static parameter_type choose_uint64(uint64_t value)
{
    parameter_type p = PARAMETER;
    p.parameter_choice_case = CHOICE(UINT64);
    p.uint64_param = value;
    return p;
}

static parameter_type choose_double(double value)
{
    parameter_type p = PARAMETER;
    p.parameter_choice_case = CHOICE(DOUBLE);
    p.double_param = value;
    return p;
}

static parameter_type choose_string(char *value)
{
    parameter_type p = PARAMETER;
    p.parameter_choice_case = CHOICE(STRING);
    p.string_param = value;
    return p;
}

static void expect_data(uint32_t i, const void *data, size_t n_bytes)
{
    assert_true(i < r.maker.n_inputs);
    assert_int_equal(r.maker.inputs[i]->size_bytes, n_bytes);
    assert_int_equal(r.maker.inputs[i]->n_buffers, 1);
    if (n_bytes)
        assert_memory_equal(r.maker.inputs[i]->buffers[0].base, data, n_bytes);
}

/* ---- The tests ------------------------------------------------------------------------------ */

static void raw_inputs_are_views_of_the_message(void **state)
{
    (void)state;
    input_type a = input_named(name_a, fp32), b = input_named(name_b, fp32), *list[] = {&a, &b};
    output_type o = OUTPUT, *out[] = {&o};
    uint8_t first[] = "abcdefgh", second[] = "ijklmnop";
    ProtobufCBinaryData raw[] = {{8, first}, {8, second}};
    char id[] = "the id", output_name[] = "O";
    message_type m = MESSAGE;
    m.id = id;
    m.n_inputs = 2;
    m.inputs = list;
    m.n_outputs = 1;
    m.outputs = out;
    o.name = output_name;
    m.n_raw_input_contents = 2;
    m.raw_input_contents = raw;
    must(decode(&m));
    assert_string_equal(r.maker.id, "the id");
    assert_int_equal(r.maker.n_inputs, 2);
    assert_string_equal(r.maker.inputs[1]->name, "B");
    assert_int_equal(r.maker.inputs[1]->dtype, DTYPE_FP32);
    assert_int_equal(r.maker.inputs[1]->n_dims, 1);
    assert_int_equal(r.maker.inputs[1]->shape[0], 2);
    expect_data(0, first, 8);
    expect_data(1, second, 8);
    assert_ptr_equal(r.maker.inputs[1]->buffers[0].base,
                     memmem(bytes, n_bytes_decoded, "ijklmnop", 8));
    assert_int_equal(r.maker.n_outputs, 1);
    assert_string_equal(r.maker.outputs[0], "O");
    assert_null(blocks.first);
    assert_false(asks.empty_final);
}

static void typed_values_become_the_bytes_of_the_datatype(void **state)
{
    (void)state;
    int32_t narrow[] = {-1, 258};
    contents_type c = CONTENTS;
    c.n_int_contents = 2;
    c.int_contents = narrow;
    must(decode_contents("INT8", &c));
    expect_data(0, (int8_t[]){-1, 2}, 2);
    must(decode_contents("INT16", &c));
    expect_data(0, (int16_t[]){-1, 258}, 4);
    must(decode_contents("INT32", &c));
    expect_data(0, narrow, 8);

    uint32_t whole[] = {UINT32_MAX, 65537};
    c = CONTENTS;
    c.n_uint_contents = 2;
    c.uint_contents = whole;
    must(decode_contents("UINT8", &c));
    expect_data(0, (uint8_t[]){255, 1}, 2);
    must(decode_contents("UINT16", &c));
    expect_data(0, (uint16_t[]){65535, 1}, 4);
    must(decode_contents("UINT32", &c));
    expect_data(0, whole, 8);

    int64_t wide[] = {INT64_MIN, 1};
    c = CONTENTS;
    c.n_int64_contents = 2;
    c.int64_contents = wide;
    must(decode_contents("INT64", &c));
    expect_data(0, wide, 16);

    uint64_t unsigned_wide[] = {UINT64_MAX, 1};
    c = CONTENTS;
    c.n_uint64_contents = 2;
    c.uint64_contents = unsigned_wide;
    must(decode_contents("UINT64", &c));
    expect_data(0, unsigned_wide, 16);

    protobuf_c_boolean flags[] = {1, 0};
    c = CONTENTS;
    c.n_bool_contents = 2;
    c.bool_contents = flags;
    must(decode_contents("BOOL", &c));
    expect_data(0, "\1\0", 2);

    float singles[] = {1.5f, -2.5f};
    c = CONTENTS;
    c.n_fp32_contents = 2;
    c.fp32_contents = singles;
    must(decode_contents("FP32", &c));
    expect_data(0, singles, 8);

    double doubles[] = {1.5, -2.5};
    c = CONTENTS;
    c.n_fp64_contents = 2;
    c.fp64_contents = doubles;
    must(decode_contents("FP64", &c));
    expect_data(0, doubles, 16);

    uint8_t text[] = "xyz";
    ProtobufCBinaryData strings[] = {{3, text}, {0, NULL}};
    c = CONTENTS;
    c.n_bytes_contents = 2;
    c.bytes_contents = strings;
    must(decode_contents("BYTES", &c));
    expect_data(0, "\3\0\0\0xyz\0\0\0\0", 11);

    c = CONTENTS; /* no values: an input without bytes */
    must(decode_contents("FP32", &c));
    expect_data(0, NULL, 0);
}

/* Field 5 of a message is an input; its name is "A", its datatype INT32. */
#define INT32_INPUT                                                                                \
    "\x0a\x01"                                                                                     \
    "A\x12\x05INT32"

static void packed_and_single_values_in_several_pieces_are_one_tensor(void **state)
{
    (void)state;
    static const char message[] =
        "\x2a\x1f" INT32_INPUT "\x1a\x01\x04"  /* shape, packed */
        "\x2a\x07\x12\x02\x01\x02\x10\x83\x01" /* contents: packed 1, 2; single 131 */
        "\x18\x01"                             /* shape, one more dim */
        "\x2a\x02\x10\x04"                     /* contents: single 4 */
        "\xa0\x06\x01" /* an unknown field */;
    must(decode_bytes(message, sizeof(message) - 1));
    expect_data(0, (int32_t[]){1, 2, 131, 4}, 16);
    assert_int_equal(r.maker.inputs[0]->n_dims, 2);
    assert_int_equal(r.maker.inputs[0]->shape[0], 4);
    assert_int_equal(r.maker.inputs[0]->shape[1], 1);
}

static void floats_in_two_pieces_are_one_tensor(void **state)
{
    (void)state;
    static const char message[] = "\x2a\x1e\x0a\x01"
                                  "A\x12\x04"
                                  "FP32"
                                  "\x2a\x11\x32\x04"
                                  "abcd\x35"
                                  "efgh\x32\x04ijkl"
                                  "\x18\x03";
    must(decode_bytes(message, sizeof(message) - 1));
    expect_data(0, "abcdefghijkl", 12);
}

static void parameters_reach_the_request(void **state)
{
    (void)state;
    char text[] = "s";
    parameter_type p = choose_int64(7);
    must(decode_parameter("sequence_id", &p));
    assert_int_equal(r.maker.correlation_id.number, 7);
    p = choose_string(text);
    must(decode_parameter("sequence_id", &p));
    assert_string_equal(r.maker.correlation_id.string, "s");
    p = choose_bool(true);
    must(decode_parameter("sequence_start", &p));
    assert_int_equal(r.maker.flags, REQUEST_SEQUENCE_START);
    must(decode_parameter("sequence_end", &p));
    assert_int_equal(r.maker.flags, REQUEST_SEQUENCE_END);
    must(decode_parameter("triton_enable_empty_final_response", &p));
    assert_true(asks.empty_final);
    p = choose_bool(false);
    must(decode_parameter("sequence_start", &p));
    assert_int_equal(r.maker.flags, 0);
    p = choose_uint64(UINT64_MAX);
    must(decode_parameter("priority", &p));
    assert_true(r.maker.priority == UINT64_MAX);
    p = choose_int64(3);
    must(decode_parameter("priority", &p));
    assert_int_equal(r.maker.priority, 3);
    must(decode_parameter("timeout", &p));
    assert_int_equal(r.maker.timeout_us, 3);
    assert_int_equal(r.maker.n_parameters, 0);
    must(decode_parameter("mine", &p));
    assert_int_equal(r.maker.n_parameters, 1);
    assert_string_equal(r.maker.parameters[0].name, "mine");
    assert_int_equal(r.maker.parameters[0].type, PARAMETER_INT);
    assert_int_equal(r.maker.parameters[0].int64, 3);
    p = choose_double(0.5);
    must(decode_parameter("mine", &p));
    assert_int_equal(r.maker.parameters[0].type, PARAMETER_DOUBLE);
    assert_true(r.maker.parameters[0].float64 == 0.5);
    p = choose_string(text);
    must(decode_parameter("mine", &p));
    assert_string_equal(r.maker.parameters[0].string, "s");
}

static void wrong_parameters_have_the_errors_of_the_reference(void **state)
{
    (void)state;
    static const struct {
        const char *key, *error;
    } of_double[] = {
        {"sequence_id", "invalid value type for 'sequence_id' parameter, expected int64_param or "
                        "string_param."},
        {"sequence_start",
         "invalid value type for 'sequence_start' parameter, expected bool_param."},
        {"sequence_end", "invalid value type for 'sequence_end' parameter, expected bool_param."},
        {"priority", "invalid value type for 'priority' parameter, expected int64_param or "
                     "uint64_param."},
        {"timeout", "invalid value type for 'timeout' parameter, expected int64_param."},
        {"triton_enable_empty_final_response",
         "invalid value type for 'triton_enable_empty_final_response' parameter, expected "
         "bool_param."},
        {"triton_other",
         "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
         "keys starting with 'triton_' are allowed: triton_enable_empty_final_response"},
    };
    parameter_type p = choose_double(1);
    for (size_t i = 0; i < ARRAY_SIZE(of_double); i++)
        expect_error(decode_parameter(of_double[i].key, &p), STATUS_INVALID_ARG,
                     of_double[i].error);
    p = choose_int64(-1);
    expect_error(decode_parameter("priority", &p), STATUS_INVALID_ARG,
                 "invalid value for 'priority', expected value >= 0.");
    p = choose_uint64(1);
    expect_error(decode_parameter("mine", &p), STATUS_INVALID_ARG,
                 "invalid value type for 'mine' parameter, expected int64_param, bool_param, or "
                 "string_param.");
}

static void the_last_of_two_parameters_with_one_key_counts(void **state)
{
    (void)state;
    /* key "k": int64 1, then key "k": int64 2; and the same after nine others */
    static const char two_entries[] = "\x22\x07\x0a\x01k\x12\x02\x10\x01"
                                      "\x22\x07\x0a\x01k\x12\x02\x10\x02";
    must(decode_bytes(two_entries, sizeof(two_entries) - 1));
    assert_int_equal(r.maker.n_parameters, 1);
    assert_int_equal(r.maker.parameters[0].int64, 2);
    char many[11 * 9];
    for (int i = 0; i < 11; i++) {
        memcpy(many + 9 * i, two_entries, 9);
        many[9 * i + 4] = (char)(i == 10 ? 'a' : 'a' + i);
        many[9 * i + 8] = (char)(i + 1);
    }
    must(decode_bytes(many, sizeof(many)));
    assert_int_equal(r.maker.n_parameters, 10);
    assert_string_equal(r.maker.parameters[9].name, "a");
    assert_int_equal(r.maker.parameters[9].int64, 11);
}

static void wrong_data_has_the_errors_of_the_reference(void **state)
{
    (void)state;
    contents_type c = CONTENTS;
    float singles[] = {1, 2};
    int64_t wide[] = {1, 2};
    c.n_fp32_contents = 2;
    c.fp32_contents = singles;
    expect_error(decode_contents("INT8", &c), STATUS_INVALID_ARG,
                 "unexpected explicit tensor data for input tensor 'A' for model 'm' of type "
                 "'FP32', expected datatype 'INT8'");
    expect_error(decode_contents("FP16", &c), STATUS_INVALID_ARG,
                 "unexpected explicit tensor data for input tensor 'A' for model 'm' of type "
                 "'FP32', expected datatype 'FP16'");
    c.n_int64_contents = 2;
    c.int64_contents = wide;
    expect_error(decode_contents("INT64", &c), STATUS_INVALID_ARG,
                 "unexpected explicit tensor data for input tensor 'A' for model 'm', binary data "
                 "was already supplied.");

    input_type in = input_named(name_a, fp32), *list[] = {&in};
    uint8_t data[8] = {0};
    ProtobufCBinaryData raw[] = {{8, data}};
    message_type m = MESSAGE;
    m.model_name = model_name;
    m.n_inputs = 1;
    m.inputs = list;
    expect_error(decode(&m), STATUS_INVALID_ARG,
                 "unable to find data for input tensor 'A' for model 'm' in request.");
    in.contents = &c;
    m.n_raw_input_contents = 1;
    m.raw_input_contents = raw;
    expect_error(decode(&m), STATUS_INVALID_ARG,
                 "contents field must not be specified when using raw_input_contents for 'A' for "
                 "model 'm'");
}

static void parameters_about_regions_and_classes_are_checked(void **state)
{
    (void)state;
    typedef Inference__ModelInferRequest__InferInputTensor__ParametersEntry input_entry;
    typedef Inference__ModelInferRequest__InferRequestedOutputTensor__ParametersEntry output_entry;
    char region_key[] = "shared_memory_region", size_key[] = "shared_memory_byte_size",
         classes_key[] = "classification", region_name[] = "R", output_name[] = "O";
    parameter_type region = choose_string(region_name), size = choose_int64(8),
                   classes = choose_int64(0);
    input_entry first = MAKE(
        input_entry, inference__model_infer_request__infer_input_tensor__parameters_entry__init);
    input_entry second = first, *entries[] = {&first, &second};
    input_type in = input_named(name_a, fp32), *list[] = {&in};
    message_type m = MESSAGE;
    m.n_inputs = 1;
    m.inputs = list;
    first.key = region_key;
    first.value = &region;
    second.key = size_key;
    second.value = &size;
    in.parameters = entries;
    in.n_parameters = 1;
    expect_error(decode(&m), STATUS_INVALID_ARG,
                 "'shared_memory_byte_size' must be specified along with 'shared_memory_region' "
                 "parameter for tensor 'A'");
    in.n_parameters = 2;
    expect_error(decode(&m), STATUS_NOT_FOUND, "Unable to find shared memory region: 'R'");
    in.parameters = &entries[1];
    in.n_parameters = 1;
    expect_error(decode(&m), STATUS_INVALID_ARG,
                 "'shared_memory_byte_size' can not be specified without 'shared_memory_region' "
                 "parameter for tensor 'A'");

    output_entry entry =
        MAKE(output_entry,
             inference__model_infer_request__infer_requested_output_tensor__parameters_entry__init);
    output_entry *output_entries[] = {&entry};
    output_type o = OUTPUT, *out[] = {&o};
    o.name = output_name;
    o.parameters = output_entries;
    o.n_parameters = 1;
    entry.key = classes_key;
    entry.value = &classes;
    m = MESSAGE;
    m.n_outputs = 1;
    m.outputs = out;
    expect_error(decode(&m), STATUS_INVALID_ARG,
                 "invalid value for 'classification' parameter, expected >= 0");
    classes.int64_param = 3;
    must(decode(&m));
    assert_int_equal(asks.classes.n_outputs, 1);
    assert_string_equal(asks.classes.outputs[0].name, "O");
    assert_int_equal(asks.classes.outputs[0].n_classes, 3);
    classes = choose_bool(true);
    expect_error(decode(&m), STATUS_INVALID_ARG,
                 "invalid value type for 'classification' parameter, expected int64_param");
}

static void malformed_messages_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "\x0a\x05m",                 /* a name that ends early */
        "\x0a\x01\xff",              /* a name that is not UTF-8 */
        "\x2a\x02\x0a\x05",          /* an input whose name ends early */
        "\x2a\x02\x1a\x05",          /* … whose shape ends early */
        "\x2a\x03\x1a\x01\x80",      /* … whose shape ends within a number */
        "\x2a\x05\x2a\x03\x32\x01x", /* … with a float of one byte */
        "\x22\x03\x0a\x01\xff",      /* a key that is not UTF-8 */
        "\x07",                      /* a type that does not exist */
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        expect_error(decode_bytes(wrong[i], strlen(wrong[i])), STATUS_INTERNAL,
                     "Unable to parse request");
    expect_error(decode_bytes("\x2a\x1a" INT32_INPUT "\x2a\x0e\x12\x0c"
                              "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                              28),
                 STATUS_INTERNAL, "Unable to parse request"); /* a number of twelve bytes */
}

static void a_message_cut_anywhere_is_refused_or_shorter(void **state)
{
    (void)state;
    static const char message[] = "\x0a\x01m\x1a\x02id\x2a\x13" INT32_INPUT "\x1a\x01\x01"
                                  "\x2a\x04\x12\x02\x80\x01"
                                  "\x22\x07\x0a\x01k\x12\x02\x10\x01";
    must(decode_bytes(message, sizeof(message) - 1));
    expect_data(0, (int32_t[]){128}, 4);
    for (size_t n = 0; n < sizeof(message) - 1; n++)
        status_free(decode_bytes(message, n));
}

static void too_many_inputs_are_refused(void **state)
{
    (void)state;
    char message[200 * 5], *at = message;
    for (int i = 0; i < 200; i++) {
        memcpy(at, "\x2a\x03\x0a\x01", 4);
        at[4] = (char)(i % 96 + 32);
        at += 5;
    }
    expect_error(decode_bytes(message, 67 * 5 + 5), STATUS_INVALID_ARG,
                 "expected 3 inputs but got more than 67 inputs for model 'm'");
    struct status *st = decode_bytes(message, sizeof(message));
    assert_non_null(st);
    status_free(st);
    char *huge = malloc(70000 * 2);
    assert_non_null(huge);
    for (int i = 0; i < 70000; i++)
        memcpy(huge + 2 * i, "\x2a\x00", 2);
    st = decode_bytes(huge, 70000 * 2);
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_INVALID_ARG);
    status_free(st);
    free(huge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_inputs_are_views_of_the_message),
        cmocka_unit_test(typed_values_become_the_bytes_of_the_datatype),
        cmocka_unit_test(packed_and_single_values_in_several_pieces_are_one_tensor),
        cmocka_unit_test(floats_in_two_pieces_are_one_tensor),
        cmocka_unit_test(parameters_reach_the_request),
        cmocka_unit_test(wrong_parameters_have_the_errors_of_the_reference),
        cmocka_unit_test(the_last_of_two_parameters_with_one_key_counts),
        cmocka_unit_test(wrong_data_has_the_errors_of_the_reference),
        cmocka_unit_test(parameters_about_regions_and_classes_are_checked),
        cmocka_unit_test(malformed_messages_are_refused),
        cmocka_unit_test(a_message_cut_anywhere_is_refused_or_shorter),
        cmocka_unit_test(too_many_inputs_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
