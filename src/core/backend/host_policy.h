/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host policy is a name with settings (--host-policy) that say on which CPUs and memory nodes
 * instances run. An instance group names its policy, or gets the one of its kind: `cpu`,
 * `gpu_<id>`, `model`. A name without settings is a policy without effect.
 */
#ifndef CONCH_CORE_BACKEND_HOST_POLICY_H
#define CONCH_CORE_BACKEND_HOST_POLICY_H

#include <stddef.h>

#include "base/compiler.h"
#include "proto/model_config.pb-c.h"

struct json_message;
struct cpu_binding;
struct host_policy_setting;
struct status;

/* host_policy_of - the name of a group's policy; the group's kind must be set. Borrowed. NULL: its
 * GPUs have policies of their own. */
const char *host_policy_of(const Inference__ModelInstanceGroup *group);

struct host_policy_name {
    char text[16];
};

/* host_policy_on - the same for a group's instance on that GPU. Borrowed from the group and from
 * *room. */
const char *host_policy_on(const Inference__ModelInstanceGroup *group, int device,
                           struct host_policy_name *room);

/* host_policy_check_setting - is there a setting of that name? Errors: STATUS_UNSUPPORTED  neither
 * numa-node nor cpu-cores */
NODISCARD struct status *host_policy_check_setting(const char *setting);

/*
 * host_policy_document - the document for backends: {"<policy>":{"<setting>":"<value>",…}}, with
 * the last value of each setting, sorted by name. The caller frees ret_document->json.
 *
 * Errors: STATUS_UNAVAILABLE  no memory; the size of names is that of configurations
 */
NODISCARD struct status *host_policy_document(const struct host_policy_setting *settings, size_t n,
                                              const char *policy,
                                              struct json_message *ret_document);

/*
 * host_policy_cpu_binding - the CPU binding of a policy; NULL for a policy without one. The caller
 * frees it with mem_free().
 *
 * Errors: STATUS_INVALID_ARG  a value that cannot be read
 */
NODISCARD struct status *host_policy_cpu_binding(const struct host_policy_setting *settings,
                                                 size_t n, const char *policy,
                                                 struct cpu_binding **ret_binding);

/*
 * host_policy_enter - binds the calling thread, until cpu_binding_restore(ret_before).
 *
 * @p           the binding of that policy; NULL leaves the thread as it is
 * @ret_before  written in any case; it may be restored after an error, too
 * Errors:      those of cpu_binding_enter()
 */
NODISCARD struct status *host_policy_enter(const struct cpu_binding *p, const char *policy,
                                           struct cpu_binding *ret_before);

#endif
