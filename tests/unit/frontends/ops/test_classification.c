/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs with random numbers, whose best classes are also found by sorting all, and printed by the
 * C library. tests/system/test_classification.py asks the genuine Triton. */
#include "frontends/ops/classification.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/pool.h"
#include "base/status.h"
#include "core/model/labels.h"
#include "core/model/model.h"
#include "core/request/life.h"
#include "core/request/response.h"

enum { MOST = 3000 };

static char name[] = "O", zero[] = "zero", one[] = "", two[] = "two";
static char *lines[] = {zero, one, two};
static struct labels labels = {.count = 3, .lines = lines};
static struct tensor_spec spec = {.name = name};
static struct model model = {.name = name, .outputs = &spec, .n_outputs = 1};
static struct pool *pool;
static struct request request;
static struct response *resp;
static struct classification wishes;

static void ignore_request(struct request *r)
{
    (void)r;
}

static void ignore_response(struct request *r, struct response *response, uint32_t flags)
{
    (void)r;
    (void)response;
    (void)flags;
}

static const struct request_ops ops = {.alloc_output = response_alloc_pooled,
                                       .free_output = response_free_pooled,
                                       .respond = ignore_response,
                                       .destroy = ignore_request};

static int start(void **state)
{
    (void)state;
    pool = pool_new("test", 1 << 20, 0);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    pool_free(pool);
    return 0;
}

static uint64_t next_random(void)
{
    static uint64_t seed = 7;
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (seed >> 32 << 32) | (seed * 3 >> 40);
}

/* Makes a response with that output and classifies it. */
static struct output *classify(enum dtype dtype, const int64_t *shape, size_t n_dims,
                               const void *bytes, size_t n_bytes, uint64_t n_classes)
{
    struct output *out;
    atomic_store(&model.refs, 1000);
    request_init(&request, &ops, &model, NULL, 0, pool);
    assert_null(request_add_output(&request, name, 1));
    wishes = (struct classification){0};
    assert_null(classification_add(&wishes, &request, 0, n_classes));
    assert_null(response_make(&request, &resp));
    assert_null(response_add_output(resp, name, dtype, shape, n_dims, &out));
    assert_null(output_alloc(out, n_bytes));
    if (n_bytes)
        memcpy(out->base, bytes, n_bytes);
    classification_apply(&wishes, resp);
    return out;
}

static void end(void)
{
    response_discard(resp);
    request_unref(&request); /* the response's */
    request_unref(&request);
    struct pool_stats stats;
    pool_stats(pool, &stats);
    assert_int_equal(stats.used_bytes, 0);
}

static void expect_texts(const struct output *out, const char *joined)
{
    char *text = malloc(out->size_bytes + 1), *to = text;
    const char *at = out->base, *behind = at + out->size_bytes;
    assert_non_null(text);
    while (at < behind) {
        uint32_t length;
        memcpy(&length, at, sizeof(length));
        memcpy(to, at + sizeof(length), length);
        at += sizeof(length) + length;
        to += length;
        *to++ = ',';
    }
    *to = '\0';
    assert_ptr_equal(at, behind);
    assert_string_equal(text, joined);
    free(text);
}

static void expect_error(const char *text, enum status_code code)
{
    assert_non_null(resp->error);
    assert_string_equal(status_message(resp->error), text);
    assert_int_equal(status_code(resp->error), code);
    end();
}

static double to_sort[MOST];

static int compare(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    if (to_sort[i] != to_sort[k])
        return to_sort[i] > to_sort[k] ? -1 : 1;
    return i < k ? -1 : 1;
}

/* Small whole numbers, so that many are equal. */
static void fill(enum dtype dtype, void *bytes, uint32_t n)
{
    bool is_signed = dtype >= DTYPE_INT8;
    for (uint32_t i = 0; i < n; i++) {
        int64_t value = (int64_t)(next_random() % 100) - (is_signed ? 50 : 0);
        to_sort[i] = (double)value;
        if (dtype == DTYPE_FP32)
            ((float *)bytes)[i] = (float)value;
        else if (dtype == DTYPE_FP64)
            ((double *)bytes)[i] = (double)value;
        else
            memcpy((char *)bytes + i * dtype_size(dtype), &value, dtype_size(dtype));
    }
}

static void the_best_are_those_of_a_stable_sort(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_UINT8, DTYPE_UINT16, DTYPE_UINT32, DTYPE_UINT64,
                                        DTYPE_INT8,  DTYPE_INT16,  DTYPE_INT32,  DTYPE_INT64,
                                        DTYPE_FP32,  DTYPE_FP64};
    static const uint32_t sizes[] = {1, 2, 64, 65, MOST}, classes[] = {1, 2, 5, 64, 65, 2999, 9999};
    static uint64_t bytes[MOST];
    static uint32_t order[MOST];
    static char joined[MOST * 32];
    for (size_t d = 0; d < ARRAY_SIZE(dtypes); d++) {
        bool is_float = dtypes[d] == DTYPE_FP32 || dtypes[d] == DTYPE_FP64;
        for (size_t s = 0; s < ARRAY_SIZE(sizes) * ARRAY_SIZE(classes); s++) {
            uint32_t n = sizes[s / ARRAY_SIZE(classes)], k = classes[s % ARRAY_SIZE(classes)];
            int64_t shape[] = {n};
            size_t length = 0;
            fill(dtypes[d], bytes, n);
            for (uint32_t i = 0; i < n; i++)
                order[i] = i;
            qsort(order, n, sizeof(*order), compare);
            joined[0] = '\0';
            for (uint32_t i = 0; i < MIN(n, k); i++)
                length += (size_t)snprintf(joined + length, sizeof(joined) - length,
                                           is_float ? "%.6f:%u," : "%.0f:%u,", to_sort[order[i]],
                                           order[i]);
            struct output *out = classify(dtypes[d], shape, 1, bytes, n * dtype_size(dtypes[d]), k);
            assert_null(resp->error);
            assert_int_equal(out->dtype, DTYPE_BYTES);
            assert_int_equal(out->n_dims, 1);
            assert_int_equal(out->shape[0], MIN(n, k));
            expect_texts(out, joined);
            end();
        }
    }
}

static void floats_are_printed_as_by_the_c_library(void **state)
{
    (void)state;
    int64_t shape[] = {1};
    char joined[400];
    for (int i = 0; i < 100000; i++) {
        uint64_t bits = next_random();
        double value;
        memcpy(&value, &bits, sizeof(value));
        if (i % 3 == 1) /* halves of the last digit, and near them */
            value = ((double)(bits % 4000000) + 0.5) / 1000000 + (double)(bits >> 60) * 1e-17;
        if (i % 3 == 2)
            value = (double)(int64_t)bits / (double)(1ULL << (bits % 64));
        snprintf(joined, sizeof(joined), "%f:0,", value);
        struct output *out = classify(DTYPE_FP64, shape, 1, &value, sizeof(value), 1);
        expect_texts(out, joined);
        end();
    }
}

static void entries_of_a_batch_have_labels_of_their_own(void **state)
{
    (void)state;
    static const int32_t numbers[] = {5, 1, 7, 9, 3, 4, 6, 8};
    int64_t shape[] = {2, 2, 2};
    model.batching = true;
    spec.labels = &labels;
    struct output *out = classify(DTYPE_INT32, shape, 3, numbers, sizeof(numbers), 3);
    assert_null(resp->error);
    assert_int_equal(out->n_dims, 2);
    assert_int_equal(out->shape[0], 2);
    assert_int_equal(out->shape[1], 3);
    expect_texts(out, "9:3,7:2:two,5:0:zero,8:3,6:2:two,4:1,");
    end();
    /* a batch without entries: as in the reference, it is no batch */
    shape[0] = 0;
    out = classify(DTYPE_INT32, shape, 3, NULL, 0, 3);
    assert_null(resp->error);
    assert_int_equal(out->n_dims, 1);
    assert_int_equal(out->shape[0], 0);
    assert_int_equal(out->size_bytes, 0);
    end();
    model.batching = false;
    spec.labels = NULL;
}

static void nan_is_worse_than_all_numbers(void **state)
{
    (void)state;
    static const float numbers[] = {NAN, -INFINITY, NAN, 0, INFINITY, -0.0F};
    int64_t shape[] = {6};
    struct output *out = classify(DTYPE_FP32, shape, 1, numbers, sizeof(numbers), 6);
    expect_texts(out, "inf:4,0.000000:3,-0.000000:5,-inf:1,nan:0,nan:2,");
    end();
    out = classify(DTYPE_FP32, shape, 1, numbers, sizeof(numbers), 2);
    expect_texts(out, "inf:4,0.000000:3,");
    end();
}

static void what_has_no_order_or_does_not_fit_is_refused(void **state)
{
    (void)state;
    int64_t shape[] = {2}, large[] = {1000001}, huge[] = {1LL << 40, 1LL << 40};
    static char bytes[1000001];
    classify(DTYPE_BYTES, shape, 1, bytes, 8, 1);
    expect_error("class result not available for output due to unsupported type 'BYTES'",
                 STATUS_INVALID_ARG);
    classify(DTYPE_FP16, shape, 1, bytes, 4, 1);
    expect_error("class result not available for output due to unsupported type 'FP16'",
                 STATUS_INVALID_ARG);
    classify(DTYPE_BOOL, shape, 1, bytes, 2, 1);
    expect_error("class result not available for output due to unsupported type 'BOOL'",
                 STATUS_INVALID_ARG);
    classify(DTYPE_UINT8, large, 1, bytes, sizeof(bytes), 1);
    expect_error("classification output tensor too large", STATUS_INVALID_ARG);
    classify(DTYPE_FP32, shape, 1, bytes, 4, 1);
    expect_error("output 'O': its 4 bytes do not fit its shape and its datatype FP32",
                 STATUS_INTERNAL);
    classify(DTYPE_FP32, huge, 2, bytes, 4, 1);
    expect_error("output 'O': its 4 bytes do not fit its shape and its datatype FP32",
                 STATUS_INTERNAL);
    shape[0] = -1;
    classify(DTYPE_FP32, shape, 1, bytes, 4, 1);
    expect_error("output 'O': its 4 bytes do not fit its shape and its datatype FP32",
                 STATUS_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_are_those_of_a_stable_sort),
        cmocka_unit_test(floats_are_printed_as_by_the_c_library),
        cmocka_unit_test(entries_of_a_batch_have_labels_of_their_own),
        cmocka_unit_test(nan_is_worse_than_all_numbers),
        cmocka_unit_test(what_has_no_order_or_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
