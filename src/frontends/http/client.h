/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a head says of its client: whether the access rules allow the request, the headers that the
 * model is to get as parameters, the trace that the request belongs to. Thread: the loop's.
 */
#ifndef CONCH_FRONTENDS_HTTP_CLIENT_H
#define CONCH_FRONTENDS_HTTP_CLIENT_H

#include <stdbool.h>

#include "frontends/net/exchange.h"
#include "frontends/ops/restrictions.h"

/*
 * client_is_allowed - whether the access rules, if there are any, allow the client a request of
 * that part of the protocol. To be asked for each request, since the rules may have changed.
 *
 * @model  .at is NULL: the path names none
 */
bool client_is_allowed(struct exchange *x, const struct http_head *head, enum ops_api api,
                       struct span model);

/*
 * client_find_forwarded - keeps the headers that --http-header-forward-pattern matches, in
 * http_call.forwarded. Without memory http_call.no_memory is set.
 */
void client_find_forwarded(struct exchange *x, const struct http_head *head);

/* client_find_trace - keeps the trace that the request belongs to in http_call.trace_parent. */
void client_find_trace(struct exchange *x, const struct http_head *head);

#endif
