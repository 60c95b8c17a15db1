/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a thread runs: which CPUs it may use, and from which NUMA nodes its memory comes. A thread
 * enters a place and leaves it again; threads that it starts meanwhile begin there, too.
 */
#ifndef CONCH_BASE_PLACE_H
#define CONCH_BASE_PLACE_H

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

enum {
    PLACE_MAX_CPUS = CPU_SETSIZE,
    PLACE_MAX_NODES = 1024,
    PLACE_NODE_WORDS = PLACE_MAX_NODES / (CHAR_BIT * sizeof(unsigned long)),
};

struct place {
    bool has_cpus, has_memory; /* what is not there stays as it is */
    cpu_set_t cpus;
    int memory_mode; /* of set_mempolicy(2) */
    unsigned long nodes[PLACE_NODE_WORDS];
};

/* place_add_cpus - the CPUs first to last, both below PLACE_MAX_CPUS. */
void place_add_cpus(struct place *p, unsigned int first, unsigned int last);

/* place_set_node - memory comes from this node and no other; node < PLACE_MAX_NODES. */
void place_set_node(struct place *p, unsigned int node);

/*
 * place_enter - the calling thread runs there from now on.
 *
 * @ret_before  what place_leave() wants to have; NULL when the thread stays for good
 * Errors: STATUS_INTERNAL  a CPU or a node does not exist, or this process may not use it; nothing
 *         has changed then
 */
NODISCARD struct status *place_enter(const struct place *p, struct place *ret_before);
void place_leave(const struct place *before);

/*
 * place_outside - where threads run that are in no place: the one in which the first thread was
 * that ever entered one. NULL while there was none. For a thread whose starter may be in a place.
 * Thread: any.
 */
const struct place *place_outside(void);

#endif
