/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One function for each document, behind the helpers for its parts. They read their arguments only
 * and append to `out`, which remembers when its memory or its maximum ends. Any thread.
 */
#include "documents/documents.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/server/server.h"

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
        if (rows[i].state != VERSION_NONE)
            put_text(&w, "state", version_state_name(rows[i].state));
        if (rows[i].reason[0])
            put_text(&w, "reason", rows[i].reason);
        json_put_close(&w, '}');
    }
    json_put_close(&w, ']');
}

/* ---- Statistics ----------------------------------------------------------------------------- */

static void put_duration(struct json_writer *w, const char *name, uint64_t count, uint64_t ns)
{
    json_put_name(w, name);
    json_put_open(w, '{');
    put_count(w, "count", count);
    put_count(w, "ns", ns);
    json_put_close(w, '}');
}

/* Counts as the reference derives them: each request that succeeded counts as queued and, unless
 * the cache had its response, computed (reference/behaviours §16.2). */
static void put_inference_stats(struct json_writer *w, const struct statistics *s)
{
    uint64_t n = s->success.count, n_computed = n - s->cache_hit.count;
    json_put_name(w, "inference_stats");
    json_put_open(w, '{');
    put_duration(w, "success", n, s->success.ns);
    put_duration(w, "fail", s->fail.count, s->fail.ns);
    put_duration(w, "queue", n, s->queue_ns);
    put_duration(w, "compute_input", n_computed, s->compute_input_ns);
    put_duration(w, "compute_infer", n_computed, s->compute_infer_ns);
    put_duration(w, "compute_output", n_computed, s->compute_output_ns);
    put_duration(w, "cache_hit", s->cache_hit.count, s->cache_hit.ns);
    put_duration(w, "cache_miss", s->cache_miss.count, s->cache_miss.ns);
    json_put_close(w, '}');
}

static void put_response_stats(struct json_writer *w, const struct statistics *s)
{
    json_put_name(w, "response_stats");
    json_put_open(w, '{');
    for (uint32_t i = 0; i < s->n_responses; i++) {
        const struct response_stats *r = &s->responses[i];
        char index[16];
        if (!response_stats_reported(r))
            continue;
        snprintf(index, sizeof(index), "%" PRIu32, i);
        json_put_name(w, index);
        json_put_open(w, '{');
        put_duration(w, "compute_infer", r->compute_infer.count, r->compute_infer.ns);
        put_duration(w, "compute_output", r->compute_output.count, r->compute_output.ns);
        put_duration(w, "success", r->success.count, r->success.ns);
        put_duration(w, "fail", r->fail.count, r->fail.ns);
        put_duration(w, "empty_response", r->empty_response.count, r->empty_response.ns);
        put_duration(w, "cancel", r->cancel.count, r->cancel.ns);
        json_put_close(w, '}');
    }
    json_put_close(w, '}');
}

static void put_batch_stats(struct json_writer *w, const struct statistics *s)
{
    json_put_name(w, "batch_stats");
    json_put_open(w, '[');
    for (uint32_t i = 0; i < s->n_batches; i++) {
        const struct batch_stats *b = &s->batches[i];
        json_put_open(w, '{');
        put_count(w, "batch_size", b->batch_size);
        put_duration(w, "compute_input", b->count, b->compute_input_ns);
        put_duration(w, "compute_infer", b->count, b->compute_infer_ns);
        put_duration(w, "compute_output", b->count, b->compute_output_ns);
        json_put_close(w, '}');
    }
    json_put_close(w, ']');
}

/* The machine's memory always, others where something is in them. */
static void put_memory_usage(struct json_writer *w, const size_t bytes[N_MEMORY_PLACES])
{
    json_put_name(w, "memory_usage");
    json_put_open(w, '[');
    for (enum memory_place at = 0; at < N_MEMORY_PLACES; at++) {
        if (at != PLACE_CPU && bytes[at] == 0)
            continue;
        json_put_open(w, '{');
        put_text(w, "type", memory_place_type(at));
        put_count(w, "id", memory_place_id(at));
        put_count(w, "byte_size", bytes[at]);
        json_put_close(w, '}');
    }
    json_put_close(w, ']');
}

void document_statistics(const struct server_statistics *statistics, struct buf *out)
{
    struct json_writer w = {.out = out};
    json_put_open(&w, '{');
    json_put_name(&w, "model_stats");
    json_put_open(&w, '[');
    for (size_t i = 0; i < statistics->n; i++) {
        const struct model_statistics *m = &statistics->list[i];
        json_put_open(&w, '{');
        put_text(&w, "name", m->model->name);
        put_text(&w, "version", m->model->version_text);
        put_count(&w, "last_inference", m->sums.last_inference_ms);
        put_count(&w, "inference_count", m->sums.inference_count);
        put_count(&w, "execution_count", m->sums.execution_count);
        put_inference_stats(&w, &m->sums);
        put_response_stats(&w, &m->sums);
        put_batch_stats(&w, &m->sums);
        put_memory_usage(&w, m->memory_bytes);
        json_put_close(&w, '}');
    }
    json_put_close(&w, ']');
    json_put_close(&w, '}');
}

struct status *document_check_config_version(uint32_t version)
{
    if (version == 1)
        return NULL;
    return status_new(STATUS_INVALID_ARG,
                      "model configuration version %u not supported, supported versions are: 1",
                      version);
}
