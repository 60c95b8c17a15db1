/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_LOAD_PROCFS_H
#define BENCH_LOAD_PROCFS_H

#include <stdint.h>
#include <sys/types.h>

/*
 * CPU time as the kernel counts it, for the figures of bench/README.md: the time of one process and
 * its children, the time of this process, and the time for which the given cores were busy with
 * anything. The difference of two samples shows how much of the machine other processes used.
 */
struct cpu_sample {
    uint64_t server_us; /* of the server's process and its children, all their threads */
    uint64_t client_us; /* the same of this process */
    uint64_t busy_us;   /* all but idle and iowait on the watched cores, steal included */
};

/*
 * cpu_sample_take - read the three figures now.
 *
 * @server     0: no server to watch, server_us stays 0
 * @cpus       bit n set: core n is watched; cores from 64 on cannot be watched
 * Returns false, with a line on stderr, when the server's process has ended.
 */
_Bool cpu_sample_take(pid_t server, uint64_t cpus, struct cpu_sample *ret_sample);

#endif
