/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the model repository, and of all models: one handler per route.
 */
#ifndef CONCH_FRONTENDS_HTTP_ADMIN_H
#define CONCH_FRONTENDS_HTTP_ADMIN_H

struct exchange;

void admin_index(struct exchange *x);
void admin_load(struct exchange *x);
void admin_unload(struct exchange *x);
/* admin_statistics - of all models; those of one are few, and the loop's (meta.h). */
void admin_statistics(struct exchange *x);

#endif
