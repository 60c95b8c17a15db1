/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time of the copy alone that a model makes which answers with what it was sent: from one
 * object of shared memory to another.
 *
 *     bench_copy_loop FROM TO BYTES SECONDS
 *
 * FROM and TO are files, such as those in /dev/shm. Prints {"copy_us":…}. Thread: main alone.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void *map_file(const char *path, size_t n_bytes)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    return p;
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
