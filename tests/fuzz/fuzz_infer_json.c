/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of an inference. The first byte gives the end of the JSON (255: no header, so all of it
 * is JSON), the rest is the body. A parsed request is also admitted by a model of four inputs. A
 * syntax error is reported exactly when the text has one.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/loop.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/request/admit.h"
#include "core/request/request.h"
#include "frontends/http/dialect.h"
#include "frontends/http/infer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int64_t any[] = {-1}, two_by_any[] = {2, -1};
static struct tensor_spec inputs[] = {
    {.name = "A", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any},
    {.name = "B", .dtype = DTYPE_BYTES, .n_dims = 1, .dims = any, .optional = true},
    {.name = "C", .dtype = DTYPE_INT8, .n_dims = 2, .dims = two_by_any, .optional = true},
    {.name = "D", .dtype = DTYPE_FP16, .n_dims = 1, .dims = any, .optional = true},
};
static struct tensor_spec outputs[] = {
    {.name = "O", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any}};
static char model_name[] = "m", version_text[] = "1";
static struct model model;
static struct loop loop;
static struct http_env env;
static struct http_ctx ctx;
static const struct http_handler handler = {.part_bytes = sizeof(struct http_call),
                                            .on_end = infer_end};
static const struct http_settings settings = {.max_input_bytes = 1 << 20, .dialect = &http_kserve};

static void set_up(void)
{
    model = (struct model){
        .name = model_name,
        .version = 1,
        .version_text = version_text,
        .n_inputs = ARRAY_SIZE(inputs),
        .n_required_inputs = 1,
        .n_outputs = ARRAY_SIZE(outputs),
        .inputs = inputs,
        .outputs = outputs,
    };
    atomic_init(&model.refs, 1);
    map_init(&model.input_by_name);
    map_init(&model.output_by_name);
    for (size_t i = 0; i < ARRAY_SIZE(inputs); i++)
        map_puts(&model.input_by_name, inputs[i].name, &inputs[i]);
    map_puts(&model.output_by_name, outputs[0].name, &outputs[0]);
    loop.owner = pthread_self();
    ctx = (struct http_ctx){.settings = &settings};
    buf_init(&ctx.json, 1 << 20);
    http_env_init(&env, &handler, &ctx, NULL, pool_new("fuzz", 1 << 20, 64 << 20), &loop, NULL, 0);
}

static void check_error(const struct exchange *x, size_t json_bytes, const struct status *st)
{
    static const char syntax[] = "failed to parse the request JSON buffer: ";
    struct json_error error;
    bool fine = json_check(x->body, json_bytes, &error);
    bool told = st && strncmp(status_message(st), syntax, sizeof(syntax) - 1) == 0;
    if (json_bytes > 0 && json_bytes <= settings.max_input_bytes && told == fine)
        abort();
}

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
    struct exchange *x = exchange_new(&env, NULL);
    struct http_call *call = exchange_part(x);
    /* An exact copy, so that a read beyond the body is seen. */
    char *body = malloc(size);
    memcpy(body, data + 1, size - 1);
    x->body = body;
    x->body_size = size - 1;
    x->headed = true;
    memset(call, 0, sizeof(*call)); /* as on_http_head() leaves it */
    call->header_length_kind = data[0] == 255 ? HEADER_LENGTH_NONE : HEADER_LENGTH_FINE;
    call->header_length = (int64_t)(x->body_size * data[0] / 254);

    model_ref(&model);
    infer_begin(x, &model, NULL);
    struct status *st = infer_parse(x, &type);
    size_t json_bytes = data[0] == 255 ? x->body_size : (size_t)call->header_length;
    check_error(x, json_bytes, st);
    describe(x, st, description);
    if (!st)
        st = request_admit(&call->request);
    status_free(st);
    exchange_end(x);
    free(body);
    if (env.net.n_used > 0 || atomic_load(&model.refs) != 1)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf) first = BUF_INIT(64 << 20);
    AUTO(buf) again = BUF_INIT(64 << 20);
    if (size == 0)
        return 0;
    if (!model.name)
        set_up();
    memset(&ctx.memo, 0, sizeof(ctx.memo));
    parse(data, size, &first);
    parse(data, size, &again);
    if (first.size != again.size || memcmp(buf_text(&first), buf_text(&again), first.size) != 0)
        abort();
    return 0;
}
