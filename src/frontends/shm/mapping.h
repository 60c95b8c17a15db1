/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory of a client in the address space of the process. All mappings of the process are in
 * one list, for two purposes:
 *
 * - The client may shrink its object at any time; then an access to the missing part raises SIGBUS.
 *   The handler that mapping_catch_faults() installs finds the mapping, puts zero pages in the
 * place of the missing part, and marks the mapping as broken. The access goes on, and whoever uses
 * the mapping asks at the end whether it is broken.
 * - An object that the process has mapped for another purpose, such as the memory that a backend
 *   shares with its own processes, is not mapped for a client.
 */
#ifndef CONCH_FRONTENDS_SHM_MAPPING_H
#define CONCH_FRONTENDS_SHM_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/compiler.h"

struct mapping_slot;

/* Constant from mapping_make() to mapping_end(). */
struct mapping {
    char *base;
    size_t size_bytes;
    struct mapping_slot *slot; /* in the list */
};

/*
 * mapping_make - maps a part of the object, for reading and writing. The descriptor may be closed
 * afterwards.
 *
 * Thread: any; reads /proc/self/maps, which takes milliseconds when the process has many mappings.
 * Returns 0 or an errno: EACCES: the process has mapped the object otherwise; those of mmap() and
 * of reading the file.
 */
NODISCARD int mapping_make(int fd, off_t offset, size_t size_bytes, struct mapping *ret_mapping);

/* mapping_end - unmaps. Nobody may access the memory any more. Thread: any; may take long. */
void mapping_end(struct mapping *m);

/* mapping_is_broken - has a part of the object been missing at an access? Thread: any. */
bool mapping_is_broken(const struct mapping *m);

/*
 * mapping_catch_faults - installs the handler of SIGBUS, for the whole process. Any SIGBUS outside
 * of mappings goes to the action that was set before. conch_catch_region_faults() calls it.
 *
 * Thread: any, once; further calls have no effect.
 */
void mapping_catch_faults(void);

#endif
