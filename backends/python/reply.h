/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reply - NOTE_REPLY, the answer to a question of the child. A child for which there is no memory
 * any more, neither for the reply nor for its place in the queue, is ended: it would wait for ever.
 *
 * Threads: any.
 */
#ifndef BACKENDS_PYTHON_REPLY_H
#define BACKENDS_PYTHON_REPLY_H

#include "python/child.h"

void reply_nothing(struct child *c, uint64_t id);
void reply_flag(struct child *c, uint64_t id, bool flag);
void reply_u64(struct child *c, uint64_t id, uint64_t number);
void reply_f64(struct child *c, uint64_t id, double number);
/* reply_error - the error is taken. */
void reply_error(struct child *c, uint64_t id, TRITONSERVER_Error *err);

#endif
