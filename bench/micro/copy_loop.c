/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time of the copy alone that a model makes which answers with what it was sent: from one
 * object of shared memory to another.
 *
 *     bench_copy_loop FROM TO BYTES SECONDS
 *
 * FROM and TO are files, such as those in /dev/shm. Prints {"copy_us":…}. Thread: main alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "map_file.h"

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: bench_copy_loop FROM TO BYTES SECONDS\n");
        return 2;
    }
    size_t n_bytes = strtoull(argv[3], NULL, 10);
    void *from = map_file(argv[1], n_bytes), *to = map_file(argv[2], n_bytes);
    double rounds = 0, at = cpu_us(), end = at + atof(argv[4]) * 1e6, now = at;
    for (; now < end; now = cpu_us(), rounds++) {
        memcpy(to, from, n_bytes);
        __asm__ volatile("" : : "r"(to) : "memory"); /* the copy is made each time */
    }
    printf("{\"copy_us\":%.2f}\n", rounds > 0 ? (now - at) / rounds : 0);
    return 0;
}
