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

NODISCARD static struct status *check_report_times(const struct response_report *r)
{
    const char *wrong = NULL;
    /* The reference does not look at the outputs of a cancelled response. */
    uint64_t outputs_ns = r->outcome == RESPONSE_CANCEL ? 0 : r->compute_output_start_ns;
    if (outputs_ns && r->start_ns > outputs_ns)
        wrong = "Response start cannot happen after compute output start";
    else if (outputs_ns > r->end_ns)
        wrong = "Compute output start cannot happen after response end";
    else if (r->start_ns > r->end_ns)
        wrong = "Response start cannot happen after response end";
    return wrong ? status_new(STATUS_INVALID_ARG, "%s", wrong) : NULL;
}

static void count_report(struct response_stats *s, const struct response_report *r)
{
    uint64_t whole_ns = r->end_ns - r->start_ns, outputs_ns = r->compute_output_start_ns;
    if (r->outcome == RESPONSE_CANCEL) {
        duration_add(&s->cancel, whole_ns);
        return;
    }
    /* A response without outputs has spent all its time in the inference. */
    duration_add(&s->compute_infer, outputs_ns ? outputs_ns - r->start_ns : whole_ns);
    if (r->outcome == RESPONSE_SUCCESS && !outputs_ns) {
        duration_add(&s->empty_response, whole_ns);
        return;
    }
    /* As in the reference, the outputs of a failure count only if they have taken time. */
    if (outputs_ns && (r->outcome == RESPONSE_SUCCESS || r->end_ns > outputs_ns))
        duration_add(&s->compute_output, r->end_ns - outputs_ns);
    duration_add(r->outcome == RESPONSE_SUCCESS ? &s->success : &s->fail, whole_ns);
}

struct status *instance_report_response(struct instance *in, struct request *r,
                                        const struct response_report *report)
{
    /* A report that is refused takes its index, too. */
    uint32_t index = atomic_fetch_add_explicit(&r->life.n_reported, 1, memory_order_relaxed);
    struct status *st = check_report_times(report);
    if (st)
        return st;

    MEM_CHARGE(in->model->owner, MEM_CONFIG); /* for the first report */
    mutex_lock(&in->stats->mu);
    struct response_stats *s =
        statistics_response(&in->stats->sums, MIN(index, (uint32_t)MAX_RESPONSE_INDEX));
    if (s)
        count_report(s, report);
    mutex_unlock(&in->stats->mu);
    return s ? NULL : status_no_memory();
}
