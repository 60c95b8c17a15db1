/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of …/generate, for a model of inputs of each kind; the lowest bit of the first byte adds
 * a batch dimension. Whatever the body holds, each tensor that is made has as many bytes as its
 * shape says, its strings are whole, and a syntax error is reported exactly when the text has one.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "frontends/http/generate.h"
#include "lib/http_infer_driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int64_t any[] = {-1}, two_by_any[] = {2, -1}, any_by_any[] = {-1, 3, -1}, one[] = {1};
static struct tensor_spec inputs[] = {
    {.name = "T", .dtype = DTYPE_BYTES, .n_dims = 1, .dims = any, .optional = true},
    {.name = "F", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any, .optional = true},
    {.name = "I", .dtype = DTYPE_INT8, .n_dims = 2, .dims = two_by_any, .optional = true},
    {.name = "U", .dtype = DTYPE_UINT64, .n_dims = 3, .dims = any_by_any, .optional = true},
    {.name = "B", .dtype = DTYPE_BOOL, .n_dims = 1, .dims = one, .optional = true},
    {.name = "H", .dtype = DTYPE_FP16, .n_dims = 1, .dims = any, .optional = true},
};

/* The strings of an input, each with its length before it. */
static size_t count_strings(const struct input *in)
{
    const char *p = in->size_bytes > 0 ? in->buffers[0].base : NULL;
    size_t left = in->size_bytes, n = 0;
    while (left > 0) {
        uint32_t length;
        if (left < sizeof(length))
            abort();
        memcpy(&length, p, sizeof(length));
        if (length > left - sizeof(length))
            abort();
        left -= sizeof(length) + length;
        p += sizeof(length) + length;
        n++;
    }
    return n;
}

static void check_tensor(const struct input *in)
{
    uint64_t n = 1;
    for (uint32_t k = 0; k < in->n_dims; k++) {
        if (in->shape[k] < 0)
            abort();
        n *= (uint64_t)in->shape[k];
    }
    if (in->dtype == DTYPE_BYTES ? count_strings(in) != n
                                 : in->size_bytes != n * dtype_size(in->dtype))
        abort();
    volatile char sum = 0; /* all bytes are there */
    for (size_t i = 0; i < in->size_bytes; i++)
        sum = (char)(sum + ((const char *)in->buffers[0].base)[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct infer_driver d;
    if (size == 0)
        return 0;
    if (!d.model.name)
        infer_driver_init(&d, inputs, ARRAY_SIZE(inputs), 1 << 16);
    memset(&d.ctx.memo, 0, sizeof(d.ctx.memo));
    d.model.batching = data[0] & 1;
    d.model.max_batch_size = d.model.batching ? 8 : 0;
    struct exchange *x = infer_driver_begin(&d, data + 1, size - 1);
    struct http_call *call = exchange_part(x);
    struct status *st = generate_parse(x);
    infer_driver_check_syntax(&d, x, x->body_size, st);
    for (uint32_t i = 0; i < call->request.maker.n_inputs && !st; i++)
        check_tensor(call->request.maker.inputs[i]);
    infer_driver_end(&d, x, st);
    return 0;
}
