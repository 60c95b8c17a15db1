/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two parts of a configuration that a loaded model can change, instance groups and version
 * policy, and all the rest.
 */
#include <xxhash.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/config/config.h"

/* Hashes the message as it would be sent. That is the same for the same fields, since messages come
 * from one parser, and the order of a map's entries is that of the text. */
struct status *model_config_core(const struct model_config *c, struct config_core *ret_core)
{
    Inference__ModelConfig rest = *c->pb;
    rest.n_instance_group = 0;
    rest.instance_group = NULL;
    rest.version_policy = NULL;
    size_t n = inference__model_config__get_packed_size(&rest);
    uint8_t *bytes = mem_try_alloc(n + 1);
    if (!bytes)
        return status_no_memory();
    inference__model_config__pack(&rest, bytes);
    XXH128_hash_t hash = XXH3_128bits(bytes, n);
    mem_free(bytes);
    *ret_core = (struct config_core){.low = hash.low64, .high = hash.high64};
    return NULL;
}

bool config_core_same(struct config_core a, struct config_core b)
{
    return a.low == b.low && a.high == b.high;
}

void model_config_borrow_groups(struct model_config *c, const struct model_config *from)
{
    c->pb->n_instance_group = from->pb->n_instance_group;
    c->pb->instance_group = from->pb->instance_group;
    c->pb->version_policy = from->pb->version_policy;
}
