/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the model repository: one handler per route.
 */
#ifndef CONCH_FRONTENDS_HTTP_ADMIN_H
#define CONCH_FRONTENDS_HTTP_ADMIN_H

struct exchange;

void admin_index(struct exchange *x);
void admin_load(struct exchange *x);
void admin_unload(struct exchange *x);

#endif
