/* SPDX-License-Identifier: Apache-2.0 */
/* Replies printed from responses that the test makes: each data type, parameters, responses that
 * do not fit. */
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
#include "core/model/model.h"
#include "core/request/response.h"
#include "frontends/http/dialect.h"
#include "frontends/http/infer.h"
#include "frontends/net/http1.h"

static char model_name[] = "m\"", version_text[] = "7";
static struct model model = {.name = model_name, .version_text = version_text};
static struct loop loop;
static struct http_ctx ctx;
static struct response *to_print;
static bool binary;
static const char *id;

static void on_request(struct exchange *x)
{
    struct http_call *call = exchange_part(x);
    memset(call, 0, sizeof(*call)); /* as on_http_head() leaves it */
    model_ref(&model);
    infer_begin(x, &model, NULL);
    call->binary_default = binary;
    call->request.maker.id = id;
    infer_print(x, to_print);
}

static void on_output(struct session *s)
{
    (void)s;
}

/* Returns the reply's bytes, ended by a zero byte. */
static const char *print(struct response *resp, size_t *ret_length)
{
    static const struct http_handler handler = {
        .part_bytes = sizeof(struct http_call), .on_request = on_request, .on_end = infer_end};
    static const struct http_limits limits = {.max_head_bytes = 4096, .max_pipeline = 2};
    static const struct http_settings settings = {.max_input_bytes = 1 << 20,
                                                  .dialect = &http_kserve};
    static const char ask[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static char scratch[512], reply[1 << 20];
    struct pool *pool = pool_new("test", 1 << 20, 0);
    struct http_env env;
    struct http1 h;
    struct iovec space[2], pieces[64];

    atomic_store(&model.refs, 1);
    loop.owner = pthread_self();
    ctx = (struct http_ctx){.settings = &settings};
    buf_init_pooled(&ctx.json, 1 << 20, pool);
    http_env_init(&env, &handler, &ctx, &limits, pool, &loop, scratch, sizeof(scratch));
    http1_init(&h, &env, on_output);
    to_print = resp;
    assert_int_equal(http1_read_space(&h, space), 1);
    memcpy(space[0].iov_base, ask, sizeof(ask) - 1);
    http1_received(&h, sizeof(ask) - 1);

    size_t n = 0, n_bytes;
    http1_queue_output(&h);
    int n_pieces = out_queue_gather(&h.session.out, pieces, 64, &n_bytes);
    for (int i = 0; i < n_pieces; i++) {
        memcpy(reply + n, pieces[i].iov_base, pieces[i].iov_len);
        n += pieces[i].iov_len;
    }
    reply[n] = '\0';
    assert_int_equal(n, n_bytes);
    out_queue_sent(&h.session.out, n);
    http1_abort(&h);
    assert_int_equal(atomic_load(&model.refs), 1);
    buf_done(&ctx.json);
    http_env_done(&env);
    pool_free(pool);
    if (ret_length)
        *ret_length = n;
    return reply;
}

static const char *print_one(struct output *out)
{
    struct output *outputs[] = {out};
    struct response resp = {.n_outputs = 1, .outputs = outputs};
    binary = false;
    id = "";
    return print(&resp, NULL);
}

static void each_type_prints_as_json(void **state)
{
    (void)state;
    static char strings[] = "\3\0\0\0a\"b\0\0\0\0\1\0\0\0\n";
    struct {
        enum dtype dtype;
        const void *base;
        size_t size_bytes;
        int64_t n;
        const char *data;
    } rows[] = {
        {DTYPE_BOOL, (uint8_t[]){1, 0}, 2, 2, "[true,false]"},
        {DTYPE_UINT8, (uint8_t[]){255, 0}, 2, 2, "[255,0]"},
        {DTYPE_UINT16, (uint16_t[]){65535}, 2, 1, "[65535]"},
        {DTYPE_UINT32, (uint32_t[]){4294967295}, 4, 1, "[4294967295]"},
        {DTYPE_UINT64, (uint64_t[]){UINT64_MAX}, 8, 1, "[18446744073709551615]"},
        {DTYPE_INT8, (int8_t[]){-128, 127}, 2, 2, "[-128,127]"},
        {DTYPE_INT16, (int16_t[]){-32768}, 2, 1, "[-32768]"},
        {DTYPE_INT32, (int32_t[]){INT32_MIN}, 4, 1, "[-2147483648]"},
        {DTYPE_INT64, (int64_t[]){INT64_MIN}, 8, 1, "[-9223372036854775808]"},
        {DTYPE_FP32, (float[]){0.5f, 1e30f}, 8, 2, "[0.5,1.0000000150474662e30]"},
        {DTYPE_FP64, (double[]){-0.0, 1e300}, 16, 2, "[-0.0,1e300]"},
        {DTYPE_BYTES, strings, sizeof(strings) - 1, 3, "[\"a\\\"b\",\"\",\"\\n\"]"},
        {DTYPE_FP32, NULL, 0, 0, "[]"},
        {DTYPE_BYTES, NULL, 0, 0, "[]"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct output out = {.name = "O",
                             .dtype = rows[i].dtype,
                             .n_dims = 1,
                             .shape = &rows[i].n,
                             .base = (void *)(uintptr_t)rows[i].base,
                             .size_bytes = rows[i].size_bytes};
        char expected[256];
        snprintf(expected, sizeof(expected),
                 "{\"model_name\":\"m\\\"\",\"model_version\":\"7\",\"outputs\":[{\"name\":\"O\","
                 "\"datatype\":\"%s\",\"shape\":[%lld],\"data\":%s}]}",
                 dtype_name(rows[i].dtype), (long long)rows[i].n, rows[i].data);
        const char *reply = print_one(&out);
        assert_non_null(strstr(reply, "Content-Type: application/json\r\n"));
        assert_string_equal(strstr(reply, "\r\n\r\n") + 4, expected);
    }
}

static void a_misfit_response_is_an_error(void **state)
{
    (void)state;
    static const int64_t two[] = {2}, negative[] = {-1}, huge[] = {INT64_MAX, 2};
    static char short_length[] = "\1\0", short_string[] = "\5\0\0\0abc";
    static struct output rows[] = {
        {.dtype = DTYPE_FP32, .n_dims = 1, .shape = (int64_t *)(uintptr_t)two, .size_bytes = 4},
        {.dtype = DTYPE_FP32, .n_dims = 1, .shape = (int64_t *)(uintptr_t)two, .size_bytes = 12},
        {.dtype = DTYPE_INT8, .n_dims = 1, .shape = (int64_t *)(uintptr_t)negative},
        {.dtype = DTYPE_INT8, .n_dims = 2, .shape = (int64_t *)(uintptr_t)huge},
        {.dtype = DTYPE_INVALID},
        {.dtype = (enum dtype)99},
        {.dtype = DTYPE_BYTES, .base = short_length, .size_bytes = 2},
        {.dtype = DTYPE_BYTES, .base = short_string, .size_bytes = 7},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        rows[i].name = "O";
        const char *reply = print_one(&rows[i]);
        assert_non_null(strstr(reply, "HTTP/1.1 500 "));
        assert_non_null(strstr(reply, "{\"error\":\"output 'O': its "));
    }
    struct output half = {.name = "O", .dtype = DTYPE_FP16, .size_bytes = 2};
    const char *reply = print_one(&half);
    assert_non_null(strstr(reply, "HTTP/1.1 400 "));
    assert_non_null(strstr(reply, "sending FP16 data via JSON is not supported."));
}

static void parameters_and_many_outputs_are_printed(void **state)
{
    (void)state;
    struct parameter parameters[] = {
        {.name = "s", .type = PARAMETER_STRING, .string = "x\""},
        {.name = "i", .type = PARAMETER_INT, .int64 = -3},
        {.name = "b", .type = PARAMETER_BOOL, .boolean = true},
        {.name = "d", .type = PARAMETER_DOUBLE, .float64 = 0.25},
        {.name = "raw", .type = PARAMETER_BYTES},
    };
    enum { N = 12 };
    static int64_t one[] = {1};
    static uint8_t bytes[N];
    struct output outputs[N], *list[N];
    for (int i = 0; i < N; i++) {
        bytes[i] = (uint8_t)('a' + i);
        outputs[i] = (struct output){.name = "O",
                                     .dtype = DTYPE_UINT8,
                                     .n_dims = 1,
                                     .shape = one,
                                     .base = &bytes[i],
                                     .size_bytes = i == 3 ? 0 : 1};
        list[i] = &outputs[i];
    }
    struct response resp = {
        .n_outputs = N, .outputs = list, .n_parameters = 4, .parameters = parameters};
    size_t n;
    binary = true;
    id = "\x01i";
    const char *reply = print(&resp, &n);
    assert_non_null(strstr(reply, "Content-Type: application/octet-stream\r\n"));
    assert_non_null(strstr(reply, "\r\n\r\n{\"id\":\"\\u0001i\",\"model_name\""));
    assert_non_null(
        strstr(reply, "\"parameters\":{\"s\":\"x\\\"\",\"i\":-3,\"b\":true,\"d\":0.25},"));
    assert_memory_equal(reply + n - (N - 1), "abcefghijkl", N - 1);

    resp.n_parameters = 5;
    assert_non_null(strstr(print(&resp, NULL), "HTTP/1.1 501 "));
}

static void a_large_text_is_handed_over(void **state)
{
    (void)state;
    static int64_t shape[] = {20000};
    uint8_t *ones = malloc(20000);
    memset(ones, 1, 20000);
    struct output out = {.name = "O",
                         .dtype = DTYPE_UINT8,
                         .n_dims = 1,
                         .shape = shape,
                         .base = ones,
                         .size_bytes = 20000};
    const char *reply = print_one(&out);
    const char *body = strstr(reply, "\r\n\r\n") + 4;
    const char *length = strstr(reply, "Content-Length: ") + 16;
    assert_int_equal(strtoul(length, NULL, 10), strlen(body));
    assert_true(strlen(body) > 40000);
    assert_string_equal(body + strlen(body) - 8, ",1,1]}]}");
    free(ones);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_type_prints_as_json),
        cmocka_unit_test(a_misfit_response_is_an_error),
        cmocka_unit_test(parameters_and_many_outputs_are_printed),
        cmocka_unit_test(a_large_text_is_handed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
