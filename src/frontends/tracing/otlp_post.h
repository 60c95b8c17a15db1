/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends one body to a collector over HTTP or HTTPS, by libcurl, which is loaded when the first
 * poster is made: a server without traces by OpenTelemetry does not load it.
 *
 * Thread: one at a time.
 */
#ifndef CONCH_FRONTENDS_TRACING_OTLP_POST_H
#define CONCH_FRONTENDS_TRACING_OTLP_POST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/compiler.h"

struct otlp_poster;
struct otlp_settings;
struct status;

enum { OTLP_ANSWER_BYTES = 64 << 10 }; /* of an answer's body; what follows is ignored */

/* What came of a request. */
struct otlp_post {
    /* The status of HTTP; 0: none came. */
    long status;
    bool is_json;            /* the answer's body is JSON */
    uint64_t retry_after_ms; /* what the collector says; 0: nothing */
    struct buf body;         /* of the answer; its maximum is OTLP_ANSWER_BYTES */
    char error[256];         /* without a status: what failed */
};

/*
 * otlp_poster_new
 *
 * @settings  borrowed
 * @is_over   asked from time to time while a request lasts: true aborts it
 * Errors: STATUS_UNAVAILABLE  libcurl is not installed; no memory
 */
NODISCARD struct status *otlp_poster_new(const struct otlp_settings *settings,
                                         bool (*is_over)(void *arg), void *arg,
                                         struct otlp_poster **ret);
/* otlp_poster_free - NULL is fine. */
void otlp_poster_free(struct otlp_poster *p);

/* otlp_poster_send - sends a body. @ret's body is initialised by the caller. */
void otlp_poster_send(struct otlp_poster *p, const void *body, size_t n_bytes, bool is_packed,
                      struct otlp_post *ret);

/* otlp_retry_after_ms - the time that a header Retry-After gives in seconds; 0: none. */
uint64_t otlp_retry_after_ms(const char *value, size_t length);

#endif
