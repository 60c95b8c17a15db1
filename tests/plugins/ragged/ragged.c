/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ragged - a backend that shows what a batch looks like to a model. It gathers all inputs of the
 * configuration and makes the batch inputs. It returns input IN as output OUT, by rows or, if OUT
 * is a batch output, like its source. The optional output SEEN (a string for each row) and a log
 * line of each execution have all tensors: name, type, shape, values, and whether they were copied.
 *
 *     IN FP32 [3] copied: 1 2 3; COUNT INT32 [2] copied: 1 2
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/frame.h"
#include "common/gather.h"
#include "common/ragged.h"
#include "common/scatter.h"

enum { MAX_INPUTS = 8, MAX_TEXT = 1000 };

struct instance {
    struct gathered inputs[MAX_INPUTS];
    struct gathered made;
    char text[MAX_TEXT];
    size_t used;
};

static TRITONSERVER_Error *model_open(struct frame_model *m)
{
    struct ragged *r = m->state = calloc(1, sizeof(*r));

    return r ? ragged_read(m->config, r)
             : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

static void model_close(struct frame_model *m)
{
    if (m->state)
        ragged_done(m->state);
    free(m->state);
}

static TRITONSERVER_Error *instance_open(struct frame_instance *in)
{
    in->state = calloc(1, sizeof(struct instance));
    return in->state ? NULL : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

static void instance_close(struct frame_instance *fi)
{
    struct instance *in = fi->state;

    for (size_t i = 0; in && i < MAX_INPUTS; i++)
        gathered_done(&in->inputs[i]);
    if (in)
        gathered_done(&in->made);
    free(in);
}

/* ---- The text ------------------------------------------------------------------------------- */

static void say(struct instance *in, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct instance *in, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(in->text + in->used, sizeof(in->text) - in->used, fmt, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof(in->text) - in->used) /* otherwise the rest is dropped */
        in->used += (size_t)n;
}

static TRITONSERVER_Error *say_text(struct instance *in, const char *name, const struct gathered *g)
{
    struct bytes_reader r = bytes_begin(g->data, g->size);

    while (r.left > 0) {
        const char *data;
        uint32_t len;

        TRY(bytes_next(&r, name, &data, &len));
        say(in, " %.*s", (int)len, data);
    }
    return NULL;
}

static TRITONSERVER_Error *say_tensor(struct instance *in, const char *name,
                                      const struct gathered *g)
{
    say(in, "%s%s %s [", in->used ? "; " : "", name, TRITONSERVER_DataTypeString(g->type));
    for (uint32_t d = 0; d < g->rank; d++)
        say(in, d ? ",%" PRId64 : "%" PRId64, g->shape[d]);
    say(in, "]%s:", g->copied ? " copied" : "");
    if (g->type == TRITONSERVER_TYPE_BYTES)
        return say_text(in, name, g);
    for (uint64_t i = 0; i < g->size / 4; i++) {
        if (g->type == TRITONSERVER_TYPE_FP32)
            say(in, " %g", (double)((const float *)g->data)[i]);
        else
            say(in, " %" PRId32, ((const int32_t *)g->data)[i]);
    }
    return NULL;
}

/* ---- A batch -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *gather_all(struct frame_instance *fi, struct batch *b,
                                      const struct gathered **ret_in)
{
    const struct doc_value *inputs = doc_get(doc_root(fi->model->config), "input");
    const struct ragged *r = fi->model->state;
    struct instance *in = fi->state;
    size_t n = 0;

    for (const struct doc_value *v = doc_first(inputs); v && n < MAX_INPUTS; v = v->next) {
        const char *name = doc_string(doc_get(v, "name"), "");
        bool ragged = ragged_allowed(fi->model->config, name);
        struct gathered *g = &in->inputs[n++];

        TRY(gather(g, b, name, TRITONSERVER_TYPE_INVALID,
                   GATHER_OPTIONAL | (ragged ? GATHER_RAGGED : 0)));
        if (g->present)
            TRY(say_tensor(in, name, g));
        if (strcmp(name, "IN") == 0)
            *ret_in = g;
    }
    for (size_t i = 0; i < r->n_inputs; i++) {
        TRY(ragged_gather(&in->made, b, &r->inputs[i]));
        TRY(say_tensor(in, r->inputs[i].name, &in->made));
    }
    return NULL;
}

static TRITONSERVER_Error *write_seen(struct batch_part *part, const char *text, size_t len)
{
    int64_t rows = (int64_t)part->rows;
    TRITONBACKEND_Output *output;
    bool wanted;
    void *to;

    TRY(batch_wants(part, "SEEN", 1, &wanted));
    if (!wanted)
        return NULL;
    TRY(TRITONBACKEND_ResponseOutput(part->response, &output, "SEEN", TRITONSERVER_TYPE_BYTES,
                                     (int64_t[]){rows, 1}, 2));
    TRY(backend_output_alloc(output, part->rows * bytes_size((uint32_t)len), &to));
    for (int64_t i = 0; i < rows; i++)
        to = bytes_put(to, text, (uint32_t)len);
    return NULL;
}

static TRITONSERVER_Error *execute(struct frame_instance *fi, struct batch *b)
{
    const struct ragged *r = fi->model->state;
    const char *source = ragged_source(r, "OUT");
    const struct gathered *in_tensor = NULL;
    struct instance *in = fi->state;

    in->used = 0;
    TRY(gather_all(fi, b, &in_tensor));
    BACKEND_LOG(INFO, "%s saw %s", fi->model->name, in->text);
    if (!in_tensor || !in_tensor->present)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "there is no input 'IN'");
    batch_computes(b);
    batch_computed(b);
    if (source)
        TRY(scatter_like_input(b, "OUT", 0, in_tensor->type, source, in_tensor->data,
                               in_tensor->size));
    else
        TRY(scatter_rows(b, "OUT", 0, in_tensor->type, in_tensor->shape, in_tensor->rank,
                         in_tensor->data, in_tensor->size));
    for (uint32_t i = 0; i < b->n_parts; i++)
        if (!b->parts[i].err)
            batch_fail(b, &b->parts[i], write_seen(&b->parts[i], in->text, in->used));
    return NULL;
}

static const struct frame ragged_frame = {
    .model_open = model_open,
    .model_close = model_close,
    .instance_open = instance_open,
    .instance_close = instance_close,
    .execute = execute,
    .repeat_alone = true,
    .parallel_instances = true,
};
BACKEND_FRAME(ragged_frame)
