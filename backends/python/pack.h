/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack - fields of messages, one behind the other without padding, in the machine's byte order.
 *
 * A packer writes to memory that it is given, or only counts when it has none, so that a message is
 * packed twice: once for its size, once into its block. An unpacker never reads beyond its bytes,
 * and keeps its first mistake: a caller reads all fields and asks once, at the end. What it returns
 * after a mistake is zero or empty, so loops over a count end.
 *
 * Threads: one at a time for each packer or unpacker. Shared by the server's side and the child.
 */
#ifndef BACKENDS_PYTHON_PACK_H
#define BACKENDS_PYTHON_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct packer {
    char *to;      /* NULL: count only */
    uint64_t room; /* bytes at `to` */
    uint64_t used; /* bytes packed, or counted */
};

/* pack_… - append a field. Beyond the room nothing is written, and used goes on counting. */
void pack_u8(struct packer *p, uint8_t value);
void pack_u32(struct packer *p, uint32_t value);
void pack_u64(struct packer *p, uint64_t value);
void pack_i64(struct packer *p, int64_t value);
void pack_f64(struct packer *p, double value);
/* pack_str - u32 length and the bytes. A NULL text is the empty one. */
void pack_str(struct packer *p, const char *text, size_t len);
void pack_text(struct packer *p, const char *text);
/* pack_align - pads with zeroes so that the next field lies at a multiple of `to`, a power of two.
 */
void pack_align(struct packer *p, uint64_t to);

struct unpacker {
    const char *at;
    uint64_t left;
    bool failed; /* a field ended beyond the bytes, or a count was above its limit */
};

uint8_t unpack_u8(struct unpacker *u);
uint32_t unpack_u32(struct unpacker *u);
uint64_t unpack_u64(struct unpacker *u);
int64_t unpack_i64(struct unpacker *u);
double unpack_f64(struct unpacker *u);
/* unpack_count - a u32 that is at most `most`, and whose items of at least `item_bytes` each still
 * fit into what is left; else a mistake, and 0. */
uint32_t unpack_count(struct unpacker *u, uint32_t most, uint32_t item_bytes);
/* unpack_str - borrowed from the message, not terminated. "" after a mistake. */
const char *unpack_str(struct unpacker *u, size_t *ret_len);

#ifdef __cplusplus
}
#endif
#endif
