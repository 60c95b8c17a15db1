/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses bodies of inferences without a connection, for a model that only describes its tensors.
 * Shared by fuzz targets, so what must not be is an abort().
 */
#ifndef CONCH_TESTS_LIB_HTTP_INFER_DRIVER_H
#define CONCH_TESTS_LIB_HTTP_INFER_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
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

struct infer_driver {
    struct model model;
    struct tensor_spec output;
    char model_name[2], version_text[2];
    struct loop loop;
    struct http_settings settings;
    struct http_ctx ctx;
    struct http_env env;
};

/*
 * infer_driver_init - a model m with these inputs and an output O, FP32 [-1]. The driver stays
 * where it is, until the process ends.
 *
 * @max_bytes  of a body's JSON
 */
static inline void infer_driver_init(struct infer_driver *d, struct tensor_spec *inputs,
                                     uint32_t n_inputs, size_t max_bytes)
{
    static const int64_t any[] = {-1};
    static const struct http_handler handler = {.part_bytes = sizeof(struct http_call),
                                                .on_end = infer_end};
    *d = (struct infer_driver){.model_name = "m", .version_text = "1"};
    d->output = (struct tensor_spec){.name = "O", .dtype = DTYPE_FP32, .n_dims = 1, .dims = any};
    struct model *m = &d->model;
    *m = (struct model){
        .name = d->model_name,
        .version = 1,
        .version_text = d->version_text,
        .n_inputs = n_inputs,
        .n_outputs = 1,
        .inputs = inputs,
        .outputs = &d->output,
    };
    atomic_init(&m->refs, 1);
    map_init(&m->input_by_name);
    map_init(&m->output_by_name);
    for (uint32_t i = 0; i < n_inputs; i++) {
        map_puts(&m->input_by_name, inputs[i].name, &inputs[i]);
        m->n_required_inputs += !inputs[i].optional;
    }
    map_puts(&m->output_by_name, d->output.name, &d->output);
    d->loop.owner = pthread_self();
    d->settings = (struct http_settings){.max_input_bytes = max_bytes, .dialect = &http_kserve};
    d->ctx.settings = &d->settings;
    buf_init(&d->ctx.json, 1 << 20);
    http_env_init(&d->env, &handler, &d->ctx, NULL, pool_new("fuzz", 1 << 20, 64 << 20), &d->loop,
                  NULL, 0);
}

/*
 * infer_driver_begin - a request with this body, as it is when the connection has all of it. The
 * bytes are copied exactly, so that a read beyond them is seen. The next call is
 * infer_driver_end().
 */
static inline struct exchange *infer_driver_begin(struct infer_driver *d, const uint8_t *bytes,
                                                  size_t size)
{
    struct exchange *x = exchange_new(&d->env, NULL);
    char *body = size > 0 ? malloc(size) : NULL;
    if (body)
        memcpy(body, bytes, size);
    x->body = body;
    x->body_size = size;
    x->headed = true;
    memset(exchange_part(x), 0, sizeof(struct http_call)); /* as on_http_head() leaves it */
    model_ref(&d->model);
    infer_begin(x, &d->model, NULL);
    return x;
}

/*
 * infer_driver_check_syntax - a syntax error is reported exactly when the JSON has one, unless it
 * is too long to be read.
 *
 * @st  what the parser of the body returned
 */
static inline void infer_driver_check_syntax(const struct infer_driver *d, const struct exchange *x,
                                             size_t json_bytes, const struct status *st)
{
    static const char syntax[] = "failed to parse the request JSON buffer: ";
    struct json_error error;
    if (json_bytes > d->settings.max_input_bytes)
        return;
    bool fine = json_check(x->body ? x->body : "", json_bytes, &error);
    bool told = st && strncmp(status_message(st), syntax, sizeof(syntax) - 1) == 0;
    if (told == fine)
        abort();
}

/*
 * infer_driver_end - admits the request, unless there is an error, and ends it. Nothing is left of
 * it.
 *
 * @st  what the parser of the body returned; taken
 */
static inline void infer_driver_end(struct infer_driver *d, struct exchange *x, struct status *st)
{
    struct http_call *call = exchange_part(x);
    char *body = x->body;
    if (!st)
        st = request_admit(&call->request);
    status_free(st);
    exchange_end(x);
    free(body);
    if (d->env.net.n_used > 0 || atomic_load(&d->model.refs) != 1)
        abort();
}

#endif
