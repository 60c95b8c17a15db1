/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is mapped as a client's region of shared memory is. */
#ifndef CONCH_BENCH_MICRO_MAP_FILE_H
#define CONCH_BENCH_MICRO_MAP_FILE_H

#include <stddef.h>

/* map_file - maps the first bytes of a file, to be read and written, for ever. What fails ends the
 * program. Thread: any. */
void *map_file(const char *path, size_t n_bytes);

#endif
