/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core reports to the trace of a request. One thread at a time has the request, and with
 * it its trace.
 */
#ifndef CONCH_CORE_REQUEST_REQUEST_TRACE_H
#define CONCH_CORE_REQUEST_REQUEST_TRACE_H

#include <stdint.h>

#include "core/trace/trace.h"

struct output;
struct request;

/*
 * trace_step - gives the request of an ensemble's step a child of the ensemble's trace, if that has
 * one. The maker calls it before server_infer(); until then the request has no trace.
 *
 * Thread: the one that has both requests, without locks.
 */
void trace_step(struct request *step, const struct request *ensemble);
/* trace_drop - frees the trace of a request that the core has not accepted; nobody hears of it. */
void trace_drop(struct request *r);

/* They do nothing for a request without a trace. */
void trace_begin(struct request *r); /* accepted: REQUEST_START, QUEUE_START */
void trace_end(struct request *r);   /* ended: REQUEST_END, and the release */
void trace_inputs(struct request *r, enum trace_activity activity);
/* The request number i of a batch is about to be executed: what it is executed with, its inputs. */
void trace_execution(struct request *const batch[], uint32_t i, uint32_t n_requests);
void trace_output(struct request *r, const struct output *out);
void trace_compute(const struct request *r, uint64_t exec_start_ns, uint64_t compute_start_ns,
                   uint64_t compute_end_ns, uint64_t exec_end_ns);

#endif
