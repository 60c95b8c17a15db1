/* SPDX-License-Identifier: Apache-2.0 */
#include "core/backend/response_stats.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/model.h"
#include "core/request.h"

static struct status *check_order(const struct response_report *r)
{
    const char *wrong = NULL;
    if (r->compute_output_start_ns && r->start_ns > r->compute_output_start_ns)
        wrong = "Response start cannot happen after compute output start";
    else if (r->compute_output_start_ns > r->end_ns)
        wrong = "Compute output start cannot happen after response end";
    else if (r->start_ns > r->end_ns)
        wrong = "Response start cannot happen after response end";
    return wrong ? status_new(STATUS_INVALID_ARG, "%s", wrong) : NULL;
}

static void add(struct duration *d, uint64_t ns)
{
    d->count++;
    d->ns += ns;
}

/* The statistics of that index; NULL when there is no memory for them. */
static struct response_stats *stats_at_locked(struct instance *in, uint32_t index)
{
    struct instance_stats *s = &in->stats;
    mutex_assert_held(&s->mu);
    if (index >= s->n_responses) {
        MEM_CHARGE(in->model->owner, MEM_INSTANCES);
        uint32_t wanted = MIN(MAX(index + 1, 2 * s->n_responses), (uint32_t)MAX_RESPONSE_INDEX + 1);
        struct response_stats *grown = mem_try_realloc(s->responses, wanted * sizeof(*grown));
        if (!grown)
            return NULL;
        memset(grown + s->n_responses, 0, (wanted - s->n_responses) * sizeof(*grown));
        s->responses = grown;
        s->n_responses = wanted;
    }
    return &s->responses[index];
}

struct status *instance_report_response(struct instance *in, struct request *r,
                                        const struct response_report *report)
{
    struct status *st = check_order(report);
    if (st)
        return st;
    uint32_t index = atomic_fetch_add_explicit(&r->n_reported, 1, memory_order_relaxed);
    uint64_t whole_ns = report->end_ns - report->start_ns;
    uint64_t output_start_ns = report->compute_output_start_ns;

    mutex_lock(&in->stats.mu);
    struct response_stats *s = stats_at_locked(in, MIN(index, (uint32_t)MAX_RESPONSE_INDEX));
    if (s && report->outcome == RESPONSE_CANCEL) {
        add(&s->cancel, whole_ns);
    } else if (s && report->outcome == RESPONSE_SUCCESS && !output_start_ns) {
        add(&s->empty_response, whole_ns);
    } else if (s) {
        /* A failure before there were outputs has spent all its time in the inference. */
        add(&s->compute_infer, output_start_ns ? output_start_ns - report->start_ns : whole_ns);
        if (output_start_ns)
            add(&s->compute_output, report->end_ns - output_start_ns);
        add(report->outcome == RESPONSE_SUCCESS ? &s->success : &s->fail, whole_ns);
    }
    mutex_unlock(&in->stats.mu);
    return s ? NULL : status_no_memory();
}
