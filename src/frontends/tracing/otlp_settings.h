/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where and how traces are sent in mode opentelemetry: what --trace-config says, what the variables
 * OTEL_… say, and the defaults, in this order.
 *
 * Thread: any; constant once made.
 * Source: reference/behaviours §22.10, §22.11
 */
#ifndef CONCH_FRONTENDS_TRACING_OTLP_SETTINGS_H
#define CONCH_FRONTENDS_TRACING_OTLP_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct status;

struct otlp_pair {
    char *name, *value;
};

struct otlp_pairs {
    struct otlp_pair *items;
    size_t n;
};

struct otlp_settings {
    char *url;
    struct otlp_pairs headers;  /* of requests to the collector */
    struct otlp_pairs resource; /* attributes of what the spans are about */
    struct otlp_pairs shown;    /* what clients see among the settings */

    uint64_t schedule_delay_ms; /* the longest time that a trace waits for more of them */
    uint64_t timeout_ms;        /* of one request to the collector */
    uint64_t export_timeout_ms; /* of a batch, with all its tries */
    uint32_t max_queue_size;    /* spans that wait */
    uint32_t max_batch_size;    /* spans in one request, at most max_queue_size */
    bool is_json, is_packed;
    char *ca_file, *client_certificate, *client_key; /* NULL: none */
};

/*
 * otlp_settings_new - reads the settings. A variable with a bad value is logged and ignored, as
 * OpenTelemetry wants it.
 *
 * @given     "<name>=<value>": url, resource, bsp_max_queue_size, bsp_schedule_delay,
 *            bsp_max_export_batch_size
 * @variable  getenv()
 * Errors: STATUS_INVALID_ARG  a setting that does not exist, or has a bad value
 *         STATUS_UNSUPPORTED  OTEL_EXPORTER_OTLP_PROTOCOL asks for gRPC
 */
NODISCARD struct status *otlp_settings_new(const char *const given[], size_t n_given,
                                           char *(*variable)(const char *name),
                                           struct otlp_settings **ret);
/* otlp_settings_free - NULL is fine. */
void otlp_settings_free(struct otlp_settings *s);

#endif
