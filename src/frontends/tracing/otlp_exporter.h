/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends traces to a collector by OTLP over HTTP, on a thread of its own, from a bounded ring. A
 * trace for which there is no room or no memory, and one that the collector does not take in time,
 * is dropped and counted: requests never wait for a collector.
 *
 *     trace ends ─► ring ─► batch ─► encoded ─► POST ─► taken
 *                    │                          │ 429, 502, 503, 504, no answer: again, for the
 *                    └► dropped                 └ time that OTEL_BSP_EXPORT_TIMEOUT gives; dropped
 *
 * Thread: any, unless said otherwise.
 */
#ifndef CONCH_FRONTENDS_TRACING_OTLP_EXPORTER_H
#define CONCH_FRONTENDS_TRACING_OTLP_EXPORTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "frontends/tracing/traced.h"

struct compress;
struct metric;
struct metric_family;
struct otlp_poster;
struct otlp_settings;
struct status;

enum otlp_drop {
    OTLP_DROP_QUEUE,
    OTLP_DROP_MEMORY,
    OTLP_DROP_COLLECTOR, /* it was not reached in time, or has refused the batch */
    OTLP_DROP_REJECTED,  /* it has taken the batch, but for these spans */
    N_OTLP_DROPS
};

struct otlp_exporter {
    struct trace_home home;
    const struct otlp_settings *settings; /* until the stop */
    struct thread thread;
    struct metric_family *families[2];
    struct metric *n_sent, *n_dropped[N_OTLP_DROPS];

    struct mutex mu; /* level 886 in core/README.md */
    struct cond changed;
    /* Under mu. */
    struct list ring; /* of struct traced */
    uint32_t n_spans; /* of the traces in the ring */
    bool is_idle;     /* the ring is empty, and the next trace wakes the thread */
    bool is_ending;
    uint64_t stop_ns; /* with is_ending: the thread ends by then */

    /* The thread's. */
    struct otlp_poster *poster;
    struct buf body;           /* of the batch; its memory is used again */
    struct compress *compress; /* made when it is first needed */
    bool has_failed;           /* the last batch was not taken */
};

/*
 * otlp_exporter_start - starts the thread.
 *
 * @settings  borrowed until home.stop() returns
 * Errors: STATUS_UNAVAILABLE  no libcurl; the system has no room for another thread
 *         STATUS_INVALID_ARG  an embedder has metrics of the same names and another kind
 */
NODISCARD struct status *otlp_exporter_start(const struct otlp_settings *settings,
                                             struct trace_home **ret);

#endif
