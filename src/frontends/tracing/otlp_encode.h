/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces as spans in OTLP's form, and what a collector answers.
 *
 *     InferRequest                  the frontend: from the first byte to the last
 *       └─ <model>                  a request of the core; that of a step is below its ensemble's
 *            ├─ queue               until it is executed
 *            ├─ batch               with links to the other requests of the batch
 *            ├─ compute             the backend
 *            └─ <what a backend reports as <name>_START … <name>_END>
 *
 * Thread: any; no state.
 * Source: reference/behaviours §22.10
 */
#ifndef CONCH_FRONTENDS_TRACING_OTLP_ENCODE_H
#define CONCH_FRONTENDS_TRACING_OTLP_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct buf;
struct otlp_settings;
struct status;
struct traced;

/* otlp_count_spans - at least as many as the trace will have. */
uint32_t otlp_count_spans(const struct traced *t);

/*
 * otlp_encode - appends the body of a request with these traces.
 *
 * @wall_ns    what the wall clock is ahead of the monotonic one
 * @ret_spans  how many spans there are in it
 * Errors: STATUS_UNAVAILABLE  no memory
 *         STATUS_INVALID_ARG  the body is too large for its buffer
 */
NODISCARD struct status *otlp_encode(const struct otlp_settings *settings,
                                     const struct traced *const traces[], size_t n_traces,
                                     int64_t wall_ns, struct buf *body, uint32_t *ret_spans);

/* What a collector says of a batch that it has taken. */
struct otlp_answer {
    uint64_t n_rejected; /* spans */
    char message[256];   /* "" for none */
};

/*
 * otlp_read_answer - reads the body of an answer with status 200. What is no answer of a collector
 * rejects nothing.
 */
void otlp_read_answer(bool is_json, const char *body, size_t n_bytes, struct otlp_answer *ret);

#endif
