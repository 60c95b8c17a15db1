/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel accepts a list of CPUs of which only some exist, and uses those. So the code reads
 * back which CPUs it has set, and refuses an incomplete list.
 */
#include "base/cpu_binding.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status.h"

enum { WORD_BITS = CHAR_BIT * sizeof(unsigned long), MAX_LIST_BYTES = 200 };

/* One more than there are, because the kernel's count is off by one. */
#define N_NODE_BITS (CPU_BINDING_MAX_NODES + 1UL)

static struct cpu_binding outside;
static atomic_bool outside_known;

void cpu_binding_add_cpus(struct cpu_binding *p, unsigned int first, unsigned int last)
{
    BUG_ON(last >= CPU_BINDING_MAX_CPUS);
    p->has_cpus = true;
    for (unsigned int cpu = first; cpu <= last; cpu++)
        CPU_SET(cpu, &p->cpus);
}

void cpu_binding_set_node(struct cpu_binding *p, unsigned int node)
{
    BUG_ON(node >= CPU_BINDING_MAX_NODES);
    memset(p->nodes, 0, sizeof(p->nodes));
    p->has_memory = true;
    p->memory_mode = MPOL_BIND;
    p->nodes[node / WORD_BITS] = 1UL << (node % WORD_BITS);
}

/* Prints them as "0-3,7"; the text is cut off where it does not fit. */
static void print_cpus(const cpu_set_t *cpus, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int cpu = 0; cpu < CPU_BINDING_MAX_CPUS && used + 16 < size; cpu++) {
        if (!CPU_ISSET(cpu, cpus))
            continue;
        int last = cpu;
        while (last + 1 < CPU_BINDING_MAX_CPUS && CPU_ISSET(last + 1, cpus))
            last++;
        used += (size_t)snprintf(out + used, size - used, "%s%d", used ? "," : "", cpu);
        if (last > cpu)
            used += (size_t)snprintf(out + used, size - used, "-%d", last);
        cpu = last;
    }
}

NODISCARD static struct status *get_cpus(cpu_set_t *ret_cpus)
{
    if (sched_getaffinity(0, sizeof(*ret_cpus), ret_cpus) != 0)
        return status_from_errno(errno, "Unable to get NUMA thread affinity");
    return NULL;
}

NODISCARD static struct status *set_cpus(const cpu_set_t *wanted)
{
    cpu_set_t got, missing;
    CPU_ZERO(&got); /* stays empty when the kernel finds none of them */
    if (sched_setaffinity(0, sizeof(*wanted), wanted) == 0) {
        struct status *st = get_cpus(&got);
        if (st)
            return st;
    } else if (errno != EINVAL) {
        return status_from_errno(errno, "Unable to set NUMA thread affinity");
    }
    if (CPU_EQUAL(&got, wanted))
        return NULL;

    char text[MAX_LIST_BYTES];
    CPU_XOR(&missing, wanted, &got);
    print_cpus(&missing, text, sizeof(text));
    bool one = CPU_COUNT(&missing) == 1;
    return status_new(
        STATUS_INTERNAL,
        "Unable to set NUMA thread affinity: CPU%s %s do%s not exist, or this process "
        "may not use %s",
        one ? "" : "s", text, one ? "es" : "", one ? "it" : "them");
}

NODISCARD static struct status *get_memory(struct cpu_binding *p)
{
    memset(p->nodes, 0, sizeof(p->nodes));
    if (syscall(SYS_get_mempolicy, &p->memory_mode, p->nodes, N_NODE_BITS, NULL, 0UL) != 0)
        return status_from_errno(errno, "Unable to get NUMA memory policy");
    p->has_memory = true;
    return NULL;
}

/* The text is the reference's; the code is the same for every cause. */
NODISCARD static struct status *set_memory(const struct cpu_binding *p)
{
    if (syscall(SYS_set_mempolicy, p->memory_mode, p->nodes, N_NODE_BITS) == 0)
        return NULL;
    char reason[128];
    return status_new(STATUS_INTERNAL, "Unable to set NUMA memory policy: %s",
                      strerror_r(errno, reason, sizeof(reason)));
}

/* Notes the existing CPUs and nodes; without nodes if the kernel does not report them. */
static void remember_outside(void)
{
    struct status *st = get_cpus(&outside.cpus);
    outside.has_cpus = !st;
    status_free(st);
    status_free(get_memory(&outside));
    atomic_store_explicit(&outside_known, true, memory_order_release);
}

const struct cpu_binding *cpu_binding_outside(void)
{
    return atomic_load_explicit(&outside_known, memory_order_acquire) ? &outside : NULL;
}

struct status *cpu_binding_enter(const struct cpu_binding *p, struct cpu_binding *ret_before)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct cpu_binding before = {.has_cpus = false};
    struct status *st = NULL;

    pthread_once(&once, remember_outside);
    if (p->has_cpus)
        st = get_cpus(&before.cpus);
    if (!st && p->has_memory)
        st = get_memory(&before);
    if (st)
        return st;

    if (p->has_cpus) {
        before.has_cpus = true;
        st = set_cpus(&p->cpus);
    }
    if (!st && p->has_memory)
        st = set_memory(p);
    if (st)
        cpu_binding_restore(&before);
    else if (ret_before)
        *ret_before = before;
    return st;
}

void cpu_binding_restore(const struct cpu_binding *before)
{
    /* The thread was bound so before: this fails only if the machine has lost CPUs meanwhile. */
    if (before->has_cpus)
        status_free(set_cpus(&before->cpus));
    if (before->has_memory)
        status_free(set_memory(before));
}
