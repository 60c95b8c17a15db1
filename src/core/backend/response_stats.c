/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backends report responses from any thread, in any order, so they are counted under stats->mu.
 */
#include "core/backend/response_stats.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/backend/instance.h"
#include "core/model/model.h"
#include "core/model/statistics.h"
#include "core/request/request.h"

static struct status *check_report_times(const struct response_report *r)
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

struct status *instance_report_response(struct instance *in, struct request *r,
                                        const struct response_report *report)
{
    struct status *st = check_report_times(report);
    if (st)
        return st;
    uint32_t index = atomic_fetch_add_explicit(&r->life.n_reported, 1, memory_order_relaxed);
    uint64_t whole_ns = report->end_ns - report->start_ns;
    uint64_t output_start_ns = report->compute_output_start_ns;

    MEM_CHARGE(in->model->owner, MEM_CONFIG); /* for the first report */
    mutex_lock(&in->stats->mu);
    struct response_stats *s =
        statistics_response(&in->stats->sums, MIN(index, (uint32_t)MAX_RESPONSE_INDEX));
    if (s && report->outcome == RESPONSE_CANCEL) {
        duration_add(&s->cancel, whole_ns);
    } else if (s && report->outcome == RESPONSE_SUCCESS && !output_start_ns) {
        duration_add(&s->empty_response, whole_ns);
    } else if (s) {
        /* A failure before any output has spent all its time in the inference. */
        duration_add(&s->compute_infer,
                     output_start_ns ? output_start_ns - report->start_ns : whole_ns);
        if (output_start_ns)
            duration_add(&s->compute_output, report->end_ns - output_start_ns);
        duration_add(report->outcome == RESPONSE_SUCCESS ? &s->success : &s->fail, whole_ns);
    }
    mutex_unlock(&in->stats->mu);
    return s ? NULL : status_no_memory();
}
