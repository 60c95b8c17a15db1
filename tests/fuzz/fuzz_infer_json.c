/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of an inference. The first byte gives the end of the JSON (255: no header, so all of it
 * is JSON), the rest is the body. A parsed request is also admitted by a model of four inputs. A
 * syntax error is reported exactly when the text has one.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "lib/http_infer_driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int64_t any[] = {-1}, two_by_any[] = {2, -1};
static struct tensor_spec inputs[] = {
    {.name = "A", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any},
    {.name = "B", .dtype = DTYPE_BYTES, .n_dims = 1, .dims = any, .optional = true},
    {.name = "C", .dtype = DTYPE_INT8, .n_dims = 2, .dims = two_by_any, .optional = true},
    {.name = "D", .dtype = DTYPE_FP16, .n_dims = 1, .dims = any, .optional = true},
};
static struct infer_driver driver;

/* Prints the request that the parser made, or its error. */
static void describe(const struct exchange *x, const struct status *st, struct buf *out)
{
    struct http_call *call = exchange_part((struct exchange *)(uintptr_t)x);
    const struct request *r = &call->request;
    if (st) {
        buf_addf(out, "%d %s", (int)status_code(st), status_message(st));
        return;
    }
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        const struct input *in = r->maker.inputs[i];
        buf_addf(out, "%s %d raw %d, %zu bytes", in->name, (int)in->dtype, in->raw, in->size_bytes);
        for (uint32_t k = 0; k < in->n_dims; k++)
            buf_addf(out, " %lld", (long long)in->shape[k]);
        if (in->size_bytes > 0)
            buf_add(out, in->buffers[0].base, in->buffers[0].size_bytes);
    }
    for (uint32_t i = 0; i < call->n_requested_outputs; i++)
        buf_addf(out, "%s %s %d %u", r->maker.outputs[i], call->requested_outputs[i].name,
                 call->requested_outputs[i].form.binary, call->requested_outputs[i].form.n_classes);
    buf_addf(out, "%u inputs, %u outputs, %u parameters, %d %u %s", r->maker.n_inputs,
             r->maker.n_outputs, r->maker.n_parameters, call->binary_default, r->maker.flags,
             r->maker.id);
}

static void parse(const uint8_t *data, size_t size, struct buf *description)
{
    const char *type;
    struct exchange *x = infer_driver_begin(&driver, data + 1, size - 1);
    struct http_call *call = exchange_part(x);
    bool all = data[0] == 255;
    size_t json_bytes = all ? x->body_size : x->body_size * data[0] / 254;
    call->facts.header_length_kind = all ? HEADER_LENGTH_NONE : HEADER_LENGTH_FINE;
    call->facts.header_length = all ? 0 : (int64_t)json_bytes;
    struct status *st = infer_parse(x, &type);
    if (json_bytes > 0)
        infer_driver_check_syntax(&driver, x, json_bytes, st);
    describe(x, st, description);
    infer_driver_end(&driver, x, st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf) first = BUF_INIT(64 << 20);
    AUTO(buf) again = BUF_INIT(64 << 20);
    if (size == 0)
        return 0;
    if (!driver.model.name)
        infer_driver_init(&driver, inputs, ARRAY_SIZE(inputs), 1 << 20);
    memset(&driver.ctx.memo, 0, sizeof(driver.ctx.memo));
    parse(data, size, &first);
    parse(data, size, &again);
    if (first.size != again.size || memcmp(buf_text(&first), buf_text(&again), first.size) != 0)
        abort();
    return 0;
}
