/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics of models as a message. The call owns the sums. Names are copied, since models may
 * be unloaded before the answer is written. Thread: a helper's for all models, the loop's for one.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/status.h"
#include "core/model/model.h"
#include "core/server/server.h"
#include "frontends/grpc/unary_priv.h"
#include "proto/inference.pb-c.h"

typedef Inference__StatisticDuration duration_message;
typedef Inference__ModelStatistics model_message;
typedef Inference__ModelStatistics__ResponseStatsEntry response_entry;

/*
 * Allocates the parts of one answer. Once memory is exhausted `fine` is false, and all parts are
 * NULL.
 */
struct maker {
    struct unary_call *call;
    bool fine;
};

static void *make_part(struct maker *k, size_t n, size_t item_bytes)
{
    void *p = k->fine ? unary_alloc(k->call, n, item_bytes) : NULL;
    k->fine = p != NULL;
    return p;
}

#define MAKE(k, type, init)                                                                        \
    ({                                                                                             \
        type *part_ = make_part(k, 1, sizeof(type));                                               \
        if (part_)                                                                                 \
            init(part_);                                                                           \
        part_;                                                                                     \
    })

static duration_message *make_duration(struct maker *k, uint64_t count, uint64_t ns)
{
    duration_message *d = MAKE(k, duration_message, inference__statistic_duration__init);
    if (d) {
        d->count = count;
        d->ns = ns;
    }
    return d;
}

static char *copy_text(struct maker *k, const char *s)
{
    char *copy = k->fine ? arena_strndup(k->call->arena, s, __builtin_strlen(s)) : NULL;
    k->fine = copy != NULL;
    return copy;
}

/* Each successful request counts as queued and, unless the cache had its response, computed
 * (reference/behaviours §16.2). */
static Inference__InferStatistics *make_inferences(struct maker *k, const struct statistics *s)
{
    uint64_t n = s->success.count, n_computed = n - s->cache_hit.count;
    Inference__InferStatistics *m =
        MAKE(k, Inference__InferStatistics, inference__infer_statistics__init);
    if (!m)
        return NULL;
    m->success = make_duration(k, n, s->success.ns);
    m->fail = make_duration(k, s->fail.count, s->fail.ns);
    m->queue = make_duration(k, n, s->queue_ns);
    m->compute_input = make_duration(k, n_computed, s->compute_input_ns);
    m->compute_infer = make_duration(k, n_computed, s->compute_infer_ns);
    m->compute_output = make_duration(k, n_computed, s->compute_output_ns);
    m->cache_hit = make_duration(k, s->cache_hit.count, s->cache_hit.ns);
    m->cache_miss = make_duration(k, s->cache_miss.count, s->cache_miss.ns);
    return m;
}

static void add_batches(struct maker *k, model_message *m, const struct statistics *s)
{
    m->batch_stats = make_part(k, s->n_batches, sizeof(*m->batch_stats));
    for (uint32_t i = 0; k->fine && i < s->n_batches; i++) {
        const struct batch_stats *b = &s->batches[i];
        Inference__InferBatchStatistics *line =
            MAKE(k, Inference__InferBatchStatistics, inference__infer_batch_statistics__init);
        if (!line)
            return;
        line->batch_size = b->batch_size;
        line->compute_input = make_duration(k, b->count, b->compute_input_ns);
        line->compute_infer = make_duration(k, b->count, b->compute_infer_ns);
        line->compute_output = make_duration(k, b->count, b->compute_output_ns);
        m->batch_stats[m->n_batch_stats++] = line;
    }
}

static Inference__InferResponseStatistics *make_response(struct maker *k,
                                                         const struct response_stats *r)
{
    Inference__InferResponseStatistics *m =
        MAKE(k, Inference__InferResponseStatistics, inference__infer_response_statistics__init);
    if (!m)
        return NULL;
    m->compute_infer = make_duration(k, r->compute_infer.count, r->compute_infer.ns);
    m->compute_output = make_duration(k, r->compute_output.count, r->compute_output.ns);
    m->success = make_duration(k, r->success.count, r->success.ns);
    m->fail = make_duration(k, r->fail.count, r->fail.ns);
    m->empty_response = make_duration(k, r->empty_response.count, r->empty_response.ns);
    m->cancel = make_duration(k, r->cancel.count, r->cancel.ns);
    return m;
}

static void add_responses(struct maker *k, model_message *m, const struct statistics *s)
{
    m->response_stats = make_part(k, s->n_responses, sizeof(*m->response_stats));
    for (uint32_t i = 0; k->fine && i < s->n_responses; i++) {
        const struct response_stats *r = &s->responses[i];
        char index[16];
        if (!response_stats_reported(r))
            continue;
        response_entry *entry =
            MAKE(k, response_entry, inference__model_statistics__response_stats_entry__init);
        if (!entry)
            return;
        snprintf(index, sizeof(index), "%" PRIu32, i);
        entry->key = copy_text(k, index);
        entry->value = make_response(k, r);
        m->response_stats[m->n_response_stats++] = entry;
    }
}

/* As in documents.c. */
static void add_memory(struct maker *k, model_message *m, const size_t bytes[N_MEMORY_PLACES])
{
    m->memory_usage = make_part(k, N_MEMORY_PLACES, sizeof(*m->memory_usage));
    for (enum memory_place at = 0; k->fine && at < N_MEMORY_PLACES; at++) {
        if (at != PLACE_CPU && bytes[at] == 0)
            continue;
        Inference__MemoryUsage *usage =
            MAKE(k, Inference__MemoryUsage, inference__memory_usage__init);
        if (!usage)
            return;
        usage->type = unary_borrow(memory_place_type(at));
        usage->id = memory_place_id(at);
        usage->byte_size = bytes[at];
        m->memory_usage[m->n_memory_usage++] = usage;
    }
}

static model_message *make_model(struct maker *k, const struct model_statistics *of)
{
    const struct statistics *s = &of->sums;
    model_message *m = MAKE(k, model_message, inference__model_statistics__init);
    if (!m)
        return NULL;
    m->name = copy_text(k, of->model->name);
    m->version = copy_text(k, of->model->version_text);
    m->last_inference = s->last_inference_ms;
    m->inference_count = s->inference_count;
    m->execution_count = s->execution_count;
    m->inference_stats = make_inferences(k, s);
    add_batches(k, m, s);
    add_memory(k, m, of->memory_bytes);
    add_responses(k, m, s);
    return m;
}

struct status *unary_statistics(struct unary_call *c)
{
    const Inference__ModelStatisticsRequest *asked =
        (const Inference__ModelStatisticsRequest *)c->request;
    Inference__ModelStatisticsResponse *answer = (Inference__ModelStatisticsResponse *)c->answer;
    struct ops_model_ref ref = unary_model_ref(asked->name, asked->version);
    struct maker k = {.call = c, .fine = true};
    struct server_statistics all;
    struct status *st = ops_statistics(c->server, &ref, &all);
    if (st)
        return st;
    answer->model_stats = make_part(&k, all.n, sizeof(*answer->model_stats));
    for (size_t i = 0; k.fine && i < all.n; i++)
        answer->model_stats[answer->n_model_stats++] = make_model(&k, &all.list[i]);
    server_statistics_done(&all);
    return k.fine ? NULL : status_no_memory();
}
