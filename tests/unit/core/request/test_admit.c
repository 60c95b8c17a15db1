/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission of a request by its model: each text of reference/behaviours §7 and §5.1, and what
 * backends see of a request that fits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "core/request/admit.h"
#include "lib/fake_model.h"

#define NOTE                                                                                       \
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to "   \
    "be prepended to each input shape. If you want to specify the full shape including the batch " \
    "dim in your input dims config, try setting max_batch_size to zero. See the model "            \
    "configuration docs for more info on max_batch_size."

static const char plain[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ -1, 4 ] }\n"
                            "output { name: \"X\" data_type: TYPE_FP32 dims: [ -1, 4 ] }\n";
static const char batching[] = "max_batch_size: 4\n"
                               "input { name: \"A\" data_type: TYPE_INT32 dims: [ 4 ] }\n"
                               "input { name: \"B\" data_type: TYPE_INT32 dims: [ 4 ] }\n"
                               "output { name: \"X\" data_type: TYPE_INT32 dims: [ 4 ] }\n";
static const char optional[] =
    "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
    "input { name: \"B\" data_type: TYPE_FP32 dims: [ 1 ] optional: true }\n"
    "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";
static const char strings[] = "input { name: \"S\" data_type: TYPE_STRING dims: [ 2 ] }\n"
                              "output { name: \"X\" data_type: TYPE_STRING dims: [ 2 ] }\n";

static const char string_rows[] = "max_batch_size: 4\n"
                                  "input { name: \"S\" data_type: TYPE_STRING dims: [ 1 ] }\n"
                                  "output { name: \"X\" data_type: TYPE_STRING dims: [ 1 ] }\n";
static const char free_rows[] = "max_batch_size: 4\n"
                                "input { name: \"A\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
                                "output { name: \"X\" data_type: TYPE_INT32 dims: [ -1 ] }\n";

/* One input of a case; `bytes` are zero unless text is given. */
struct given {
    const char *name;
    enum dtype dtype;
    int n_dims;
    int64_t shape[4];
    size_t bytes;
    const char *text;
};

struct check_case {
    const char *config;
    const char *requested_output;
    struct given inputs[4];
    const char *expected; /* NULL: the request fits */
};

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* omitted members are zero */

static const struct check_case cases[] = {
    {plain, NULL, {{"A", DTYPE_FP32, 2, {2, 4}, 32}}, NULL},
    {plain, NULL, {{"A", DTYPE_FP32, 2, {0, 4}, 0}}, NULL},
    {plain,
     "Y",
     {{"A", DTYPE_FP32, 2, {2, 4}, 32}},
     "unexpected inference output 'Y' for model 'm'; it has 'X' FP32 [-1,4]"},
    {plain,
     NULL,
     {{"B", DTYPE_FP32, 2, {2, 4}, 32}},
     "unexpected inference input 'B' for model 'm'; it has 'A' FP32 [-1,4]"},
    {plain,
     NULL,
     {{0}},
     "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'm'. Got input(s) "
     "[], but missing required input(s) ['A']. Please provide all required input(s)."},
    {plain,
     NULL,
     {{"A", DTYPE_FP32, 2, {2, 4}, 32}, {"B", DTYPE_FP32, 1, {1}, 4}},
     "[request id: <id_unknown>] expected 1 inputs but got 2 inputs for model 'm'. Got input(s) "
     "['A','B'], but missing required input(s) ]. Please provide all required input(s)."},
    {optional,
     NULL,
     {{0}},
     "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 0 inputs for "
     "model 'm'. Got input(s) [], but missing required input(s) ['A']. Please provide all required "
     "input(s)."},
    {optional, NULL, {{"A", DTYPE_FP32, 1, {1}, 4}}, NULL},
    {optional, NULL, {{"B", DTYPE_FP32, 1, {1}, 4}}, NULL}, /* only the number of elements counts */
    {plain,
     NULL,
     {{"A", DTYPE_INT32, 2, {2, 4}, 32}},
     "[request id: <id_unknown>] inference input 'A' data-type is 'INT32', but model 'm' expects "
     "'FP32'"},
    {plain,
     NULL,
     {{"A", DTYPE_FP32, 2, {-1, 4}, 32}},
     "[request id: <id_unknown>] All input dimensions should be specified for input 'A' for model "
     "'m', got [-1,4]"},
    {plain,
     NULL,
     {{"A", DTYPE_FP32, 2, {2, 5}, 40}},
     "[request id: <id_unknown>] unexpected shape for input 'A' for model 'm'. Expected [-1,4], "
     "got [2,5]. "},
    {plain,
     NULL,
     {{"A", DTYPE_FP32, 1, {4}, 16}},
     "[request id: <id_unknown>] unexpected shape for input 'A' for model 'm'. Expected [-1,4], "
     "got [4]. "},
    {plain,
     NULL,
     {{"A", DTYPE_FP32, 2, {2, 4}, 31}},
     "[request id: <id_unknown>] input byte size mismatch for input 'A' for model 'm'. Expected "
     "32, got 31; its shape has 8 elements FP32 of 4 bytes"},
    {batching, NULL, {{"A", DTYPE_INT32, 2, {2, 4}, 32}, {"B", DTYPE_INT32, 2, {2, 4}, 32}}, NULL},
    {batching,
     NULL,
     {{"A", DTYPE_INT32, 0, {0}, 32}, {"B", DTYPE_INT32, 2, {2, 4}, 32}},
     "[request id: <id_unknown>] input 'A' has no shape but model requires batch dimension for "
     "'m'"},
    {batching,
     NULL,
     {{"A", DTYPE_INT32, 2, {2, 4}, 32}, {"B", DTYPE_INT32, 2, {1, 4}, 16}},
     "[request id: <id_unknown>] input 'B' batch size does not match other inputs for 'm'"},
    {batching,
     NULL,
     {{"A", DTYPE_INT32, 2, {5, 4}, 80}, {"B", DTYPE_INT32, 2, {5, 4}, 80}},
     "[request id: <id_unknown>] inference request batch-size must be <= 4 for 'm'"},
    {batching,
     NULL,
     {{"A", DTYPE_INT32, 2, {1, 5}, 20}, {"B", DTYPE_INT32, 2, {1, 4}, 16}},
     "[request id: <id_unknown>] unexpected shape for input 'A' for model 'm'. Expected [-1,4], "
     "got [1,5]. " NOTE},
    {batching,
     NULL,
     {{"A", DTYPE_INT32, 2, {0, 4}, 0}, {"B", DTYPE_INT32, 2, {0, 4}, 0}},
     "[request id: <id_unknown>] input byte size mismatch for input 'A' for model 'm'. Expected "
     "16, got 0; its batch size is 0"},
    {batching,
     NULL,
     {{"A", DTYPE_INT32, 2, {0, 4}, 16}, {"B", DTYPE_INT32, 2, {0, 4}, 16}},
     "[request id: <id_unknown>] input 'A' has a batch size of 0 for model 'm', but 16 bytes"},
    {string_rows,
     NULL,
     {{"S", DTYPE_BYTES, 2, {0, 1}, 4, "\0\0\0\0"}},
     "[request id: <id_unknown>] input 'S' has a batch size of 0 for model 'm', but 4 bytes"},
    {string_rows,
     NULL,
     {{"S", DTYPE_BYTES, 2, {0, 1}, 0}},
     "[request id: <id_unknown>] expected 1 string elements for inference input 'S' for model 'm', "
     "got 0; its batch size is 0"},
    {string_rows, NULL, {{"S", DTYPE_BYTES, 2, {1, 1}, 4, "\0\0\0\0"}}, NULL},
    {free_rows, NULL, {{"A", DTYPE_INT32, 2, {0, 0}, 0}}, NULL},
    {free_rows,
     NULL,
     {{"A", DTYPE_INT32, 2, {0, 3}, 0}},
     "[request id: <id_unknown>] input byte size mismatch for input 'A' for model 'm'. Expected "
     "12, got 0; its batch size is 0"},
    {strings, NULL, {{"S", DTYPE_BYTES, 1, {2}, 12, "\2\0\0\0ab\2\0\0\0cd"}}, NULL},
    {strings, NULL, {{"S", DTYPE_BYTES, 1, {2}, 8, "\0\0\0\0\0\0\0\0"}}, NULL},
    {strings,
     NULL,
     {{"S", DTYPE_BYTES, 1, {2}, 6, "\2\0\0\0ab"}},
     "[request id: <id_unknown>] expected 2 string elements for inference input 'S' for model 'm', "
     "got 1"},
    {strings,
     NULL,
     {{"S", DTYPE_BYTES, 1, {2}, 12, "\0\0\0\0\0\0\0\0\0\0\0\0"}},
     "[request id: <id_unknown>] unexpected number of string elements 3 for inference input 'S' "
     "for model 'm', expecting 2"},
    {strings,
     NULL,
     {{"S", DTYPE_BYTES, 1, {2}, 6, "\3\0\0\0ab"}},
     "[request id: <id_unknown>] incomplete string data for inference input 'S' for model 'm', "
     "expecting string of length 3 but only 2 bytes available"},
    {strings,
     NULL,
     {{"S", DTYPE_BYTES, 1, {2}, 7, "\0\0\0\0\1\0\0"}},
     "[request id: <id_unknown>] incomplete string length indicator for inference input 'S' for "
     "model 'm', expecting 4 bytes but only 3 bytes available. Please make sure the string length "
     "indicator is in one buffer."},
};

static char zeroes[256];

static void each_misfit_has_its_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct check_case *c = &cases[i];
        struct fake_model f;
        struct fake_request fr;
        fake_model_make(&f, c->config, 1, NULL);
        fake_request_make(&fr, &f);
        for (const struct given *g = c->inputs; g < c->inputs + 4 && g->name; g++) {
            struct input *in;
            assert_null(request_add_input(&fr.request, g->name, strlen(g->name), g->dtype, g->shape,
                                          (size_t)g->n_dims, &in));
            struct tensor_buffer data = {.base = g->text ? g->text : zeroes,
                                         .size_bytes = g->bytes};
            assert_null(request_add_data(&fr.request, in, &data));
        }
        if (c->requested_output)
            assert_null(
                request_add_output(&fr.request, c->requested_output, strlen(c->requested_output)));
        struct status *st = request_admit(&fr.request);
        if (!c->expected && st)
            fail_msg("case %zu: %s", i, status_message(st));
        if (c->expected) {
            assert_non_null(st);
            assert_int_equal(status_code(st), STATUS_INVALID_ARG);
            assert_string_equal(status_message(st), c->expected);
        }
        status_free(st);
        fake_request_end(&fr);
        fake_model_end(&f);
    }
}

static void invalid_inputs_and_outputs_cannot_be_added(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    struct input *in;
    fake_model_make(&f, plain, 1, NULL);
    fake_request_make(&fr, &f);
    struct request *r = &fr.request;

    int64_t good[] = {1, 4}, negative[] = {-2, 4}, huge[] = {1LL << 40, 1LL << 40};
    assert_null(request_add_input(r, "A", 1, DTYPE_FP32, good, 2, &in));
    struct {
        struct status *st;
        const char *text;
    } refused[] = {
        {request_add_input(r, "A", 1, DTYPE_FP32, good, 2, &in),
         "[request id: <id_unknown>] input 'A' already exists in request"},
        {request_add_input(r, "B", 1, DTYPE_FP32, negative, 2, &in),
         "tensor 'B' contains an invalid dimension in shape [-2,4]"},
        {request_add_input(r, "B", 1, DTYPE_FP32, huge, 2, &in),
         "element count for tensor 'B' exceeds maximum size of 9223372036854775807"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        assert_non_null(refused[i].st);
        assert_string_equal(status_message(refused[i].st), refused[i].text);
        status_free(refused[i].st);
    }
    assert_int_equal(r->maker.n_inputs, 1);

    assert_null(request_add_output(r, "X", 1));
    struct status *st = request_add_output(r, "X", 1);
    assert_string_equal(status_message(st),
                        "[request id: <id_unknown>] output 'X' already exists in request");
    status_free(st);

    char long_id[130];
    memset(long_id, 'x', sizeof(long_id));
    assert_null(request_set_correlation_string(r, long_id, 128));
    st = request_set_correlation_string(r, long_id, 129);
    assert_int_equal(status_code(st), STATUS_UNSUPPORTED);
    assert_string_equal(status_message(st),
                        "string correlation ID cannot be longer than 128 characters");
    status_free(st);
    fake_request_end(&fr);
    fake_model_end(&f);
}

/* Admits a request with one raw input, and gives the shape of that input. */
static struct status *check_raw(const char *config, size_t bytes, int64_t *ret_shape,
                                uint32_t *ret_n_dims, size_t *ret_bytes)
{
    struct fake_model f;
    struct fake_request fr;
    struct input *in;
    fake_model_make(&f, config, 1, NULL);
    fake_request_make(&fr, &f);
    struct tensor_buffer data = {.base = zeroes, .size_bytes = bytes};
    assert_null(request_add_raw_input(&fr.request, "raw", 3, &in));
    in->name = "";
    assert_null(request_add_data(&fr.request, in, &data));
    struct status *st = request_admit(&fr.request);
    if (!st) {
        *ret_n_dims = in->n_backend_dims;
        memcpy(ret_shape, in->backend_shape, in->n_backend_dims * sizeof(*ret_shape));
        *ret_bytes = in->size_bytes;
    }
    fake_request_end(&fr);
    fake_model_end(&f);
    return st;
}

static void a_raw_input_gets_a_shape(void **state)
{
    (void)state;
    int64_t shape[4];
    uint32_t n;
    size_t bytes;
    assert_null(check_raw(plain, 32, shape, &n, &bytes));
    assert_int_equal(n, 2);
    assert_int_equal(shape[0], 2);
    assert_int_equal(shape[1], 4);

    assert_null(check_raw("max_batch_size: 4\n"
                          "input { name: \"A\" data_type: TYPE_STRING dims: [ 1 ] }\n"
                          "output { name: \"X\" data_type: TYPE_STRING dims: [ 1 ] }\n",
                          5, shape, &n, &bytes));
    assert_int_equal(n, 2);
    assert_int_equal(shape[0], 1);
    assert_int_equal(shape[1], 1);
    assert_int_equal(bytes, 9);

    struct status *st = check_raw(strings, 5, shape, &n, &bytes);
    assert_non_null(strstr(status_message(st), "For BYTE datatype raw input '"));
    assert_non_null(strstr(status_message(st), "the model must have input shape [1]"));
    status_free(st);
    st = check_raw(batching, 5, shape, &n, &bytes);
    assert_non_null(strstr(status_message(st), "Raw request must only have 1 input (found 1) to be "
                                               "deduced but got 2 inputs in 'm' model "
                                               "configuration"));
    status_free(st);
    st = check_raw("input { name: \"A\" data_type: TYPE_FP32 dims: [ -1, -1 ] }\n"
                   "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n",
                   4, shape, &n, &bytes);
    assert_non_null(strstr(status_message(st), "can not be deduced because there are more than one "
                                               "variable-sized dimension"));
    status_free(st);
}

static void reshapes_bind_dimensions_in_order(void **state)
{
    (void)state;
    struct fake_model f;
    struct fake_request fr;
    struct input *in;
    fake_model_make(&f,
                    "max_batch_size: 2\n"
                    "input { name: \"A\" data_type: TYPE_INT8 dims: [ -1, 2, 3, -1 ]\n"
                    "        reshape { shape: [ -1, 6, -1 ] } }\n"
                    "output { name: \"X\" data_type: TYPE_INT8 dims: [ -1, 2, 3 ]\n"
                    "         reshape { shape: [ -1, 6 ] } }\n",
                    1, NULL);
    fake_request_make(&fr, &f);
    int64_t shape[] = {1, 3, 2, 3, 5};
    struct tensor_buffer data = {.base = zeroes, .size_bytes = 90};
    assert_null(request_add_input(&fr.request, "A", 1, DTYPE_INT8, shape, 5, &in));
    assert_null(request_add_data(&fr.request, in, &data));
    assert_null(request_admit(&fr.request));
    assert_int_equal(in->n_backend_dims, 4);
    int64_t expected[] = {1, 3, 6, 5};
    assert_memory_equal(in->backend_shape, expected, sizeof(expected));

    struct response *resp;
    struct output *out;
    int64_t given[] = {1, 7, 6}, undone[] = {1, 7, 2, 3};
    assert_null(response_make(&fr.request, &resp));
    resp->sent = true; /* as if it had been sent */
    assert_null(response_add_output(resp, "X", DTYPE_INT8, given, 3, &out));
    assert_null(output_undo_reshape(resp, out, model_find_output(f.model, "X")));
    assert_int_equal(out->n_dims, 4);
    assert_memory_equal(out->shape, undone, sizeof(undone));
    response_free(resp);
    fake_request_end(&fr);
    fake_model_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_misfit_has_its_error),
        cmocka_unit_test(invalid_inputs_and_outputs_cannot_be_added),
        cmocka_unit_test(a_raw_input_gets_a_shape),
        cmocka_unit_test(reshapes_bind_dimensions_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
