/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a thread runs: which CPUs it may use, and from which NUMA nodes its memory comes. A thread
 * enters a CPU binding and restores what it had before; threads that it starts meanwhile begin
 * there, too.
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
    bool has_cpus, has_memory; /* what is not there stays as it is */
    cpu_set_t cpus;
    int memory_mode; /* of set_mempolicy(2) */
    unsigned long nodes[CPU_BINDING_NODE_WORDS];
};

/* cpu_binding_add_cpus - the CPUs first to last, both below CPU_BINDING_MAX_CPUS. */
void cpu_binding_add_cpus(struct cpu_binding *p, unsigned int first, unsigned int last);

/* cpu_binding_set_node - memory comes from this node and no other; node < CPU_BINDING_MAX_NODES. */
void cpu_binding_set_node(struct cpu_binding *p, unsigned int node);

/*
 * cpu_binding_enter - the calling thread runs there from now on.
 *
 * @ret_before  what cpu_binding_restore() wants to have; NULL when the thread stays for good
 * Errors: STATUS_INTERNAL  a CPU or a node does not exist, or this process may not use it; nothing
 *         has changed then
 */
NODISCARD struct status *cpu_binding_enter(const struct cpu_binding *p,
                                           struct cpu_binding *ret_before);
void cpu_binding_restore(const struct cpu_binding *before);

/*
 * cpu_binding_outside - where threads run that have entered no binding: what the first thread had
 * that ever entered one. NULL while there was none. For a thread whose starter may have entered
 * one. Thread: any.
 */
const struct cpu_binding *cpu_binding_outside(void);

#endif
