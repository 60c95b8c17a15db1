/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time of libdeflate alone for a body of gzip: unpacks it and packs it again, as a server does
 * that answers with what it was sent. The level, and memory that is used again, are the server's.
 *
 *     bench_compress_loop FILE SECONDS
 *
 * Prints {"unpack_us":…,"pack_us":…,"packed_bytes":…,"bytes":…}. Thread: main alone.
 */
#include <libdeflate.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LEVEL = 6, MAX_BYTES = 64 << 20 };

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static size_t read_file(const char *path, unsigned char *to)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(to, 1, MAX_BYTES, f) : 0;
    if (f)
        fclose(f);
    return n;
}

int main(int argc, char **argv)
{
    unsigned char *packed = malloc(MAX_BYTES), *plain = malloc(MAX_BYTES),
                  *again = malloc(MAX_BYTES);
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(LEVEL);
    size_t n_packed = argc == 3 && packed ? read_file(argv[1], packed) : 0, n = 0, n_again = 0;
    if (n_packed == 0 || !plain || !again || !d || !c) {
        fprintf(stderr, "usage: bench_compress_loop FILE SECONDS\n");
        return 2;
    }
    double unpack = 0, pack = 0, rounds = 0, end = cpu_us() + atof(argv[2]) * 1e6;
    for (double at = cpu_us(); at < end; rounds++) {
        if (libdeflate_gzip_decompress(d, packed, n_packed, plain, MAX_BYTES, &n) !=
            LIBDEFLATE_SUCCESS) {
            fprintf(stderr, "%s is not gzip\n", argv[1]);
            return 1;
        }
        double then = cpu_us();
        n_again = libdeflate_gzip_compress(c, plain, n, again, MAX_BYTES);
        unpack += then - at;
        at = cpu_us();
        pack += at - then;
    }
    printf("{\"unpack_us\":%.1f,\"pack_us\":%.1f,\"packed_bytes\":%zu,\"bytes\":%zu}\n",
           unpack / rounds, pack / rounds, n_again, n);
    return n_again > 0 ? 0 : 1;
}
