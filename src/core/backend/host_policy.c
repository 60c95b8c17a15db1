/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values are read when an instance is made, as in the reference: the values of a policy that no
 * instance has are not read. Texts of errors are the reference's. (Beyond the reference,
 * `cpu-cores` may have single CPUs. Values that the reference accepts by mistake, such as "0-3x",
 * are errors here.)
 */
#include "core/backend/host_policy.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/cpu_binding.h"
#include "base/status.h"
#include "base/str.h"
#include "core/backend/json_message.h"
#include "core/options/server_options.h"

enum { MAX_DOCUMENT_BYTES = 16 << 20 };

/* In the order of the document. */
static const char cpu_cores[] = "cpu-cores", numa_node[] = "numa-node";
static const char *const all_settings[] = {cpu_cores, numa_node};

struct status *host_policy_check_setting(const char *setting)
{
    for (size_t i = 0; i < ARRAY_SIZE(all_settings); i++) {
        if (strcmp(setting, all_settings[i]) == 0)
            return NULL;
    }
    return status_new(STATUS_UNSUPPORTED,
                      "Unsupported host policy setting '%s' is specified, supported settings are "
                      "'numa-node', 'cpu-cores'",
                      setting);
}

const char *host_policy_of(const Inference__ModelInstanceGroup *group)
{
    if (*group->host_policy)
        return group->host_policy;
    if (group->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU)
        return NULL;
    return group->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL ? "model" : "cpu";
}

const char *host_policy_on(const Inference__ModelInstanceGroup *group, int device,
                           struct host_policy_name *room)
{
    const char *policy = host_policy_of(group);
    if (policy)
        return policy;
    snprintf(room->text, sizeof(room->text), "gpu_%d", device);
    return room->text;
}

/* The last value wins; NULL when it is not set. */
static const char *find_policy_value(const struct host_policy_setting *settings, size_t n,
                                     const char *policy, const char *setting)
{
    for (size_t i = n; i-- > 0;) {
        if (strcmp(settings[i].policy, policy) == 0 && strcmp(settings[i].setting, setting) == 0)
            return settings[i].value;
    }
    return NULL;
}

struct status *host_policy_document(const struct host_policy_setting *settings, size_t n,
                                    const char *policy, struct json_message *ret_document)
{
    AUTO(buf) out = BUF_INIT(MAX_DOCUMENT_BYTES);
    const char *separator = "";

    buf_addc(&out, '{');
    json_write_string(&out, policy, strlen(policy));
    buf_adds(&out, ":{");
    for (size_t i = 0; i < ARRAY_SIZE(all_settings); i++) {
        const char *value = find_policy_value(settings, n, policy, all_settings[i]);
        if (!value)
            continue;
        buf_addf(&out, "%s\"%s\":", separator, all_settings[i]);
        json_write_string(&out, value, strlen(value));
        separator = ",";
    }
    buf_adds(&out, "}}");
    struct status *st = buf_status(&out);
    if (st)
        return st;
    ret_document->size_bytes = out.size;
    ret_document->json = buf_take(&out);
    return NULL;
}

static bool read_number_below(const char *text, size_t length, uint64_t limit,
                              unsigned int *ret_number)
{
    uint64_t number;
    if (!str_to_uint64(text, length, &number) || number >= limit)
        return false;
    *ret_number = (unsigned int)number;
    return true;
}

/* One element of the list: "3" or "0-3". */
static bool add_cpus(struct cpu_binding *p, const char *text, size_t length)
{
    unsigned int first, last;
    const char *dash = memchr(text, '-', length);
    size_t first_length = dash ? (size_t)(dash - text) : length;
    if (!read_number_below(text, first_length, CPU_BINDING_MAX_CPUS, &first))
        return false;
    last = first;
    if (dash &&
        !read_number_below(dash + 1, length - first_length - 1, CPU_BINDING_MAX_CPUS, &last))
        return false;
    if (last < first)
        return false;
    cpu_binding_add_cpus(p, first, last);
    return true;
}

NODISCARD static struct status *read_cpus(struct cpu_binding *p, const char *value)
{
    for (const char *at = value;;) {
        size_t length = strcspn(at, ",");
        if (!add_cpus(p, at, length))
            return status_new(STATUS_INVALID_ARG,
                              "host policy setting 'cpu-cores' format is "
                              "'<lower_cpu_core_id>-<upper_cpu_core_id>'. Got %.*s",
                              (int)MIN(length, (size_t)100), at);
        if (!at[length])
            return NULL;
        at += length + 1;
    }
}

NODISCARD static struct status *read_numa_node(struct cpu_binding *p, const char *value)
{
    unsigned int node;
    if (!read_number_below(value, strlen(value), CPU_BINDING_MAX_NODES, &node))
        return status_new(STATUS_INVALID_ARG,
                          "Parsing 'numa-node' value: Can't parse '%s' to integer", value);
    cpu_binding_set_node(p, node);
    return NULL;
}

/* The functions that read values and enter bindings do not know the policy's name. */
NODISCARD static struct status *blame_policy(struct status *st, const char *policy)
{
    if (!st)
        return NULL;
    struct status *whole =
        status_new(status_code(st), "%s (host policy '%s')", status_message(st), policy);
    status_free(st);
    return whole;
}

struct status *host_policy_cpu_binding(const struct host_policy_setting *settings, size_t n,
                                       const char *policy, struct cpu_binding **ret_binding)
{
    const char *cpus = find_policy_value(settings, n, policy, cpu_cores);
    const char *node = find_policy_value(settings, n, policy, numa_node);
    *ret_binding = NULL;
    if (!cpus && !node)
        return NULL;

    struct cpu_binding *p = mem_zalloc(sizeof(*p));
    struct status *st = cpus ? read_cpus(p, cpus) : NULL;
    if (!st && node)
        st = read_numa_node(p, node);
    if (st)
        mem_free(p);
    else
        *ret_binding = p;
    return blame_policy(st, policy);
}

struct status *host_policy_enter(const struct cpu_binding *p, const char *policy,
                                 struct cpu_binding *ret_before)
{
    *ret_before = (struct cpu_binding){.has_cpus = false};
    return p ? blame_policy(cpu_binding_enter(p, ret_before), policy) : NULL;
}
