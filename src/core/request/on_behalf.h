/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that a backend makes for a request that it executes, their parent, by the C API: a model
 * that calls other models. Such a call has the parent's deadline, is cancelled with the parent, has
 * a child of its trace, and is accepted while the server stops, as the parent's execution is
 * awaited anyway. (conch_request_set_parent())
 *
 *     on_behalf_new(parent, &b)        the backend has the parent
 *     on_behalf_begin(b, call)         before server_infer(), possibly after the parent has ended
 *     on_behalf_end(b, call)           the call has ended, or was not accepted
 *     on_behalf_free(b)                the backend knows it, too
 *
 * From on_behalf_new() to on_behalf_free() b counts as a request in flight of the parent's model.
 * So a stop waits for the call, also when the parent has been answered, and the parent's backend
 * stays until its callbacks have returned.
 */
#ifndef CONCH_CORE_REQUEST_ON_BEHALF_H
#define CONCH_CORE_REQUEST_ON_BEHALF_H

#include "base/compiler.h"

struct on_behalf;
struct request;
struct status;

/*
 * on_behalf_new - notes what a call gets of its parent.
 *
 * Thread: any, while a backend has the parent.
 * Errors: STATUS_INVALID_ARG  no backend has the parent
 */
NODISCARD struct status *on_behalf_new(struct request *parent, struct on_behalf **ret);

/*
 * on_behalf_begin - gives the call, which is idle, the parent's deadline, trace and priority, where
 * it has none of its own. A cancel of the parent reaches it from now on.
 *
 * Thread: the maker's.
 * Errors: STATUS_CANCELLED  the parent has been cancelled: the call must not be made; then comes
 *                           on_behalf_end(), too
 */
NODISCARD struct status *on_behalf_begin(struct on_behalf *b, struct request *call);

/* on_behalf_end - takes back what on_behalf_begin() has given. Thread: any; in the call's
 * ops->release(), or when it was not accepted. */
void on_behalf_end(struct on_behalf *b, struct request *call);

/* on_behalf_free - NULL is fine. Thread: any; the server may be freed when this returns. */
void on_behalf_free(struct on_behalf *b);

#endif
