/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses of a request with outputs in memory of a GPU: helper threads copy the outputs there
 * before the protocol gets a response, since neither a loop nor a backend should wait for the
 * driver.
 *
 *     request_ops.respond ──► region_delivery_take ─┬─► true: the caller goes on
 *                                                   └─► false: a helper copies ─► deliver()
 *
 * Responses stay in their order. Nothing is allocated for one.
 */
#ifndef CONCH_FRONTENDS_OPS_REGION_DELIVERY_H
#define CONCH_FRONTENDS_OPS_REGION_DELIVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct region;
struct region_delivery;
struct request;
struct response;
struct status;
struct tensor_regions;

/* What follows the copies; as request_ops.respond. Thread: any. */
typedef void (*region_deliver_fn)(struct request *r, struct response *resp, uint32_t flags);

/* Copies the outputs of a response. Thread: a helper's. */
typedef struct status *(*region_write_fn)(const struct tensor_regions *t, struct response *resp);

/*
 * region_delivery_new - for the request of these tensors. NULL: no memory.
 *
 * @some  one of its regions, whose helpers copy
 */
struct region_delivery *region_delivery_new(struct request *r, const struct tensor_regions *t,
                                            region_write_fn write, const struct region *some);
/* region_delivery_free - when the request is over. NULL is fine. */
void region_delivery_free(struct region_delivery *d);

/*
 * region_delivery_take - for request_ops.respond(). True: nothing is to be copied, and the caller
 * does what deliver() does. False: that follows, perhaps before this returns; the response has an
 * error then if a copy has failed.
 *
 * Thread: any; one caller at a time.
 * @d  NULL: no output is to lie there
 */
NODISCARD bool region_delivery_take(struct region_delivery *d, struct response *resp,
                                    uint32_t flags, region_deliver_fn deliver);

#endif
