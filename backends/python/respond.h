/* SPDX-License-Identifier: Apache-2.0 */
/*
 * respond - responses of the child become responses of the server: outputs are copied out of the
 * child's memory once, into the memory that the server gives for them.
 *
 * Threads: respond_tensors() any; the other functions the reader's.
 */
#ifndef BACKENDS_PYTHON_RESPOND_H
#define BACKENDS_PYTHON_RESPOND_H

#include "python/child.h"

/*
 * respond_tensors - reads what follows RESPONSE_TENSORS into a response, and gives blocks back.
 * @response  NULL: what is read is thrown away
 * @ret_err   an error of the server's, or of the response's content: the response cannot be sent.
 *            NULL on success
 * Returns false if the message is impossible.
 */
bool respond_tensors(struct child *c, struct unpacker *u, TRITONBACKEND_Response *response,
                     TRITONSERVER_Error **ret_err);

/* respond_error - reads what follows RESPONSE_ERROR. The caller owns the error; never NULL. */
TRITONSERVER_Error *respond_error(struct unpacker *u);

/* respond_by_sender - NOTE_RESPONSE. False: the message is impossible. */
bool respond_by_sender(struct child *c, uint64_t key, struct unpacker *u);

/* respond_never - NOTE_DROP_REQUEST: an error ends the request, unless it has ended. */
void respond_never(struct child *c, uint64_t key);

/* respond_dropped_error - the text of that error. */
TRITONSERVER_Error *respond_dropped_error(const struct child *c);

/* respond_forget_statistics - an entry goes. */
void respond_forget_statistics(struct pending *p);

#endif
