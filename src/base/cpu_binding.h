/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CPU binding says on which CPUs a thread may run, and from which NUMA nodes its memory comes. A
 * thread enters a binding and later restores what it had before. Threads that it starts in between
 * inherit the binding.
 */
#ifndef CONCH_BASE_CPU_BINDING_H
#define CONCH_BASE_CPU_BINDING_H

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

enum {
    CPU_BINDING_MAX_CPUS = CPU_SETSIZE,
    CPU_BINDING_MAX_NODES = 1024,
    CPU_BINDING_NODE_WORDS = CPU_BINDING_MAX_NODES / (CHAR_BIT * sizeof(unsigned long)),
};

struct cpu_binding {
    bool has_cpus, has_memory; /* false: entering does not change it */
    cpu_set_t cpus;
    int memory_mode; /* a mode of set_mempolicy(2) */
    unsigned long nodes[CPU_BINDING_NODE_WORDS];
};

/* cpu_binding_add_cpus - adds the CPUs first to last, both below CPU_BINDING_MAX_CPUS. */
void cpu_binding_add_cpus(struct cpu_binding *p, unsigned int first, unsigned int last);

/* cpu_binding_set_node - takes memory from this node and no other; node < CPU_BINDING_MAX_NODES. */
void cpu_binding_set_node(struct cpu_binding *p, unsigned int node);

/*
 * cpu_binding_enter - applies the binding to the calling thread.
 *
 * @ret_before  what the thread had before, for cpu_binding_restore(); NULL when the thread keeps
 *              the binding for good
 * Errors: STATUS_INTERNAL  a CPU or a node does not exist, or this process may not use it; the
 *                          thread's binding is then as before
 */
NODISCARD struct status *cpu_binding_enter(const struct cpu_binding *p,
                                           struct cpu_binding *ret_before);
void cpu_binding_restore(const struct cpu_binding *before);

/*
 * cpu_binding_outside - the CPUs and memory nodes of threads that have entered no binding, as they
 * were before the first call of cpu_binding_enter() in the process. NULL before that call. It is
 * for a thread that may have inherited a binding. Borrowed for ever. Thread: any.
 */
const struct cpu_binding *cpu_binding_outside(void);

#endif
