/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handlers of the routes: infer.c has that of inference, meta.c those about the state of the
 * server and of single models, admin.c those of the repository and of all models, settings.c those
 * of settings, regions.c those of shared memory, front_page.c those for people who look around.
 *
 * Thread: the loop's. None blocks: admin.c and regions.c hand work to a control thread
 * (admin_call.h).
 */
#ifndef CONCH_FRONTENDS_HTTP_HANDLERS_H
#define CONCH_FRONTENDS_HTTP_HANDLERS_H

struct exchange;

#define ROUTE(method, pattern, handle, api, error_type, takes_body, read_head)                     \
    void handle(struct exchange *x);
#include "frontends/http/routes.def"

#endif
