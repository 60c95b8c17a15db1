/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gauges of the cache `local` on the server's page of metrics, which a thread brings up to date
 * once a second. Source: reference/features §5, L1 to L8
 */
#ifndef CONCH_CACHES_LOCAL_GAUGES_H
#define CONCH_CACHES_LOCAL_GAUGES_H

struct gauges;
struct store;

/* gauges_new - NULL: the server has no metrics, or there is no memory or thread. */
struct gauges *gauges_new(struct store *s);
/* gauges_free - joins the thread; NULL is fine. The store still exists. */
void gauges_free(struct gauges *g);

#endif
