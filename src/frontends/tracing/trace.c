/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces for a program that embeds the server: conch.h. Thread: any but a loop's.
 */
#include "conch/conch.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/status.h"
#include "frontends/serve/service_options.h"
#include "frontends/tracing/otlp_settings.h"
#include "frontends/tracing/tracer.h"

struct conch_trace {
    struct tracer *tracer;
};

void conch_trace_options_init(struct conch_trace_options *o)
{
    *o = (struct conch_trace_options){.size = sizeof(*o), .file = "", .rate = 1000, .count = -1};
}

TRITONSERVER_Error *conch_trace_start(TRITONSERVER_Server *server,
                                      const struct conch_trace_options *options,
                                      struct conch_trace **ret_trace)
{
    struct conch_trace_options o;
    conch_trace_options_init(&o);
    struct status *st = service_options_take("conch_trace_start",
                                             server && ret_trace ? options : NULL, &o, sizeof(o));
    if (st)
        return (TRITONSERVER_Error *)st;

    struct tracer *tracer;
    struct otlp_settings *otlp = NULL;
    if (o.opentelemetry)
        st = otlp_settings_new(o.settings, o.n_settings, getenv, &otlp);
    if (st)
        return (TRITONSERVER_Error *)st;
    st = tracer_start(
        (struct server *)server,
        &(struct tracer_options){.path = o.file ? o.file : "",
                                 .otlp = otlp,
                                 .values.of = {[TRACE_LEVEL] = o.level,
                                               [TRACE_RATE] = o.rate,
                                               [TRACE_COUNT] = MAX(o.count, -1),
                                               [TRACE_LOG_FREQUENCY] = o.log_frequency}},
        &tracer);
    if (st) {
        otlp_settings_free(otlp);
        return (TRITONSERVER_Error *)st;
    }
    *ret_trace = mem_zalloc(sizeof(**ret_trace));
    (*ret_trace)->tracer = tracer;
    return NULL;
}

void conch_trace_stop(struct conch_trace *trace)
{
    if (!trace)
        return;
    tracer_stop(trace->tracer);
    mem_free(trace);
}
