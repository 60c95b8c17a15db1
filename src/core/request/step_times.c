/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ensemble has no queue and begins at once, so the time in its queue is 0; the models of its
 * steps count theirs.
 */
#include "core/request/step_times.h"

#include "base/clock.h"
#include "core/model/model.h"
#include "core/model/model_statistics.h"
#include "core/request/request.h"

static void count_success(const struct request *r, const struct step_times *t, uint64_t took_ns)
{
    const struct request_ns ns = {
        .all = took_ns,
        .compute =
            {
                .input = atomic_load_explicit(&t->input_ns, memory_order_relaxed),
                .infer = atomic_load_explicit(&t->infer_ns, memory_order_relaxed),
                .output = atomic_load_explicit(&t->output_ns, memory_order_relaxed),
            },
    };
    if (r->maker.step_times)
        step_times_add(r->maker.step_times, &ns.compute);
    model_count_ensemble(r->model, &ns, MAX(r->admitted.batch_size, 1u));
}

void request_count_ensemble(const struct request *r, const struct step_times *t, bool succeeded)
{
    uint64_t now_ns = clock_now_ns(r->model->clock);
    uint64_t took_ns = now_ns - MIN(r->admitted.start_ns, now_ns);
    if (succeeded) {
        count_success(r, t, took_ns);
        return;
    }
    for (int i = 0; i < 2; i++) /* reference/behaviours §16.8 */
        model_count_failure(r->model, FAILURE_OTHER, took_ns);
}
