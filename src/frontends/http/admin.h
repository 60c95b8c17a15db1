/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handlers of the repository routes and of the statistics of all models: one per route.
 */
#ifndef CONCH_FRONTENDS_HTTP_ADMIN_H
#define CONCH_FRONTENDS_HTTP_ADMIN_H

struct exchange;

void admin_index(struct exchange *x);
void admin_load(struct exchange *x);
void admin_unload(struct exchange *x);
/* admin_statistics - of all models. meta.h has the statistics of one model, made on the loop. */
void admin_statistics(struct exchange *x);

#endif
