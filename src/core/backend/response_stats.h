/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of single responses, by their index within a request: the first response of a
 * decoupled model may take longer than the tenth. Only models whose backends report responses have
 * them (reference/behaviours §16.11).
 */
#ifndef CONCH_CORE_BACKEND_RESPONSE_STATS_H
#define CONCH_CORE_BACKEND_RESPONSE_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct instance;
struct request;
struct status;

/* A backend's report of one response. Times are CLOCK_MONOTONIC; 0 = not reported. */
struct response_report {
    uint64_t start_ns;
    uint64_t compute_output_start_ns; /* 0: the response has no outputs */
    uint64_t end_ns;
    enum { RESPONSE_SUCCESS, RESPONSE_FAIL, RESPONSE_CANCEL } outcome;
};

/*
 * instance_report_response - counts the next response of the request.
 *
 * Thread: any.
 * Errors: STATUS_INVALID_ARG  the times go backwards; the index is taken nevertheless
 *         STATUS_UNAVAILABLE  no memory
 */
NODISCARD struct status *instance_report_response(struct instance *in, struct request *r,
                                                  const struct response_report *report);

#endif
