/* SPDX-License-Identifier: Apache-2.0 */
/* How a model gets the server's response cache. */
#ifndef CONCH_CORE_CACHE_ATTACH_H
#define CONCH_CORE_CACHE_ATTACH_H

struct cache;
struct model;

/* cache_attach - gives the model the cache, if its configuration enables it. @c  NULL: none
 * Thread: the one that loads the model. */
void cache_attach(struct model *m, struct cache *c);

#endif
