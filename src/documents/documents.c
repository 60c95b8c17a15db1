/* SPDX-License-Identifier: Apache-2.0 */
#include "documents/documents.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "base/status.h"
#include "core/model.h"
#include "core/server.h"

static void put_text(struct json_writer *w, const char *name, const char *value)
{
    json_put_name(w, name);
    json_put_text(w, value);
}

void document_server_metadata(const struct server *s, struct buf *out)
{
    struct json_writer w = {.out = out};
    json_put_open(&w, '{');
    put_text(&w, "name", server_id(s));
    put_text(&w, "version", server_version(s));
    json_put_name(&w, "extensions");
    json_put_open(&w, '[');
    for (const char *const *e = server_extensions(s); *e; e++)
        json_put_text(&w, *e);
    json_put_close(&w, ']');
    json_put_close(&w, '}');
}

/* Versions are strings in documents. */
static void put_version(struct json_writer *w, int64_t version)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, version);
    json_put_text(w, text);
}

static void put_tensors(struct json_writer *w, const char *name, const struct model *m,
                        const struct tensor_spec *specs, uint32_t n)
{
    json_put_name(w, name);
    json_put_open(w, '[');
    for (uint32_t i = 0; i < n; i++) {
        json_put_open(w, '{');
        put_text(w, "name", specs[i].name);
        put_text(w, "datatype", dtype_name(specs[i].dtype));
        json_put_name(w, "shape");
        json_put_open(w, '[');
        if (m->batching)
            json_put_int64(w, -1);
        for (uint32_t d = 0; d < specs[i].n_dims; d++)
            json_put_int64(w, specs[i].dims[d]);
        json_put_close(w, ']');
        json_put_close(w, '}');
    }
    json_put_close(w, ']');
}

void document_model_metadata(const struct model *m, const int64_t *versions, size_t n_versions,
                             struct buf *out)
{
    struct json_writer w = {.out = out};
    json_put_open(&w, '{');
    put_text(&w, "name", m->name);
    json_put_name(&w, "versions");
    json_put_open(&w, '[');
    for (size_t i = 0; i < n_versions; i++)
        put_version(&w, versions[i]);
    json_put_close(&w, ']');
    put_text(&w, "platform", model_platform(m));
    put_tensors(&w, "inputs", m, m->inputs, m->n_inputs);
    put_tensors(&w, "outputs", m, m->outputs, m->n_outputs);
    json_put_close(&w, '}');
}

static void put_count(struct json_writer *w, const char *name, size_t n)
{
    json_put_name(w, name);
    json_put_uint64(w, n);
}

void document_progress(const struct server_progress *p, struct buf *out)
{
    struct json_writer w = {.out = out};
    json_put_open(&w, '{');
    json_put_name(&w, "ready");
    json_put_bool(&w, p->ready);
    put_text(&w, "state", p->state);
    json_put_name(&w, "models");
    json_put_open(&w, '{');
    put_count(&w, "total", p->n_models);
    put_count(&w, "serving", p->n_serving);
    put_count(&w, "failed", p->n_failed);
    json_put_close(&w, '}');
    json_put_name(&w, "loading");
    json_put_open(&w, '[');
    for (size_t i = 0; i < p->n_loading; i++)
        json_put_text(&w, p->rows[i].name);
    json_put_close(&w, ']');
    json_put_name(&w, "failed");
    json_put_open(&w, '[');
    for (size_t i = p->n_loading; i < p->n_rows; i++) {
        json_put_open(&w, '{');
        put_text(&w, "name", p->rows[i].name);
        if (p->rows[i].version >= 0) {
            json_put_name(&w, "version");
            put_version(&w, p->rows[i].version);
        }
        put_text(&w, "reason", p->rows[i].reason);
        json_put_close(&w, '}');
    }
    json_put_close(&w, ']');
    json_put_close(&w, '}');
}

void document_index(const struct model_index_row *rows, size_t n_rows, struct buf *out)
{
    struct json_writer w = {.out = out};
    json_put_open(&w, '[');
    for (size_t i = 0; i < n_rows; i++) {
        json_put_open(&w, '{');
        put_text(&w, "name", rows[i].name);
        if (rows[i].version >= 0) {
            json_put_name(&w, "version");
            put_version(&w, rows[i].version);
        }
        if (rows[i].state[0])
            put_text(&w, "state", rows[i].state);
        if (rows[i].reason[0])
            put_text(&w, "reason", rows[i].reason);
        json_put_close(&w, '}');
    }
    json_put_close(&w, ']');
}

struct status *document_check_config_version(uint32_t version)
{
    if (version == 1)
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "model configuration version %u not supported, supported versions are: 1",
                      version);
}
