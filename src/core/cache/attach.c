/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the table by which the core's lower parts reach the cache.
 */
#include "core/cache/attach.h"

#include "base/mem.h"
#include "base/mem_owner.h"
#include "core/cache/cache.h"
#include "core/cache/cache_key.h"
#include "core/cache/posted_look_up.h"
#include "core/model/model.h"

void cache_attach(struct model *m, struct cache *c)
{
    const Inference__ModelResponseCache *wanted = m->config->pb->response_cache;
    if (!c || !wanted || !wanted->enable)
        return;
    MEM_CHARGE(m->owner, MEM_CONFIG);
    m->cached = mem_zalloc(sizeof(*m->cached));
    m->cached->cache = c;
    m->cached->load = cache_key_of_load(m);
    m->cached->keep = cache_keep;
    m->cached->hold = cache_hold;
    m->cached->keep_held = cache_keep_held;
    m->cached->cancel = posted_look_up_cancel;
}
