/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of gRPC calls in HPACK, as cheap as a client may have them. Thread: one.
 */
#ifndef BENCH_LOAD_GRPC_HEAD_H
#define BENCH_LOAD_GRPC_HEAD_H

#include <nghttp2/nghttp2.h>
#include <stddef.h>
#include <stdint.h>

enum { GRPC_HEAD_BYTES = 512, GRPC_HEAD_KNOWN = 4, GRPC_HEAD_KNOWN_BYTES = 32 };

/*
 * grpc_head_first, grpc_head_again - the head of a connection's first call, which puts its fields
 * into the server's table, and that of each further call, which names them there; as clients on
 * grpc-core send them. Return the number of bytes.
 */
size_t grpc_head_first(const char *path, char at[GRPC_HEAD_BYTES]);
size_t grpc_head_again(char at[GRPC_HEAD_BYTES]);

/* What counts in the head or the trailers of an answer; -1: not in it. */
struct grpc_head {
    int http_status;
    int grpc_status;
};

/*
 * A reader of one connection's heads. A head of indices changes nothing in the table, so one that
 * was read since the last change of the table is recognised by its bytes.
 */
struct grpc_head_reader {
    nghttp2_hd_inflater *inflater;
    struct {
        uint8_t bytes[GRPC_HEAD_KNOWN_BYTES];
        size_t n_bytes; /* 0: unused */
        struct grpc_head head;
    } known[GRPC_HEAD_KNOWN];
    unsigned int next_known;
    char message[256]; /* grpc-message of the last head that was not recognised */
};

void grpc_head_reader_init(struct grpc_head_reader *r);

/* grpc_head_read - exits on bytes that are not HPACK. */
struct grpc_head grpc_head_read(struct grpc_head_reader *r, const uint8_t *bytes, size_t n_bytes);

#endif
