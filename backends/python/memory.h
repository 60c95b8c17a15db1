/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory - memory that two processes share, in which one of them allocates.
 *
 * The owner has an arena: blocks of a file without a name (memfd), which grows on demand and never
 * shrinks (it is sealed against that, so that the other side cannot make a read fail). The receiver
 * of a block has a mapping of the same file, which follows its growth. A block begins with a header
 * of 64 bytes, whose first word says whether the receiver has it; its data are aligned to 64 bytes.
 *
 *     owner                                         receiver
 *     arena_take()  a block, not yet handed over
 *     block_hand()  the receiver has it     ──────►  mapping_find()  checked address of its bytes
 *     …                                              block_give_back()  one store
 *     arena_take()  … finds it given back, and uses its memory again
 *
 * The owner keeps its books in memory of its own: what the receiver writes into the file can at
 * worst make the owner use a block again too early, which harms the receiver's view alone.
 *
 * Threads: an arena has a mutex of its own; mapping_find() may be called by any thread.
 * Shared by the server's side and the child.
 */
#ifndef BACKENDS_PYTHON_MEMORY_H
#define BACKENDS_PYTHON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLOCK_ALIGN        64u
#define BLOCK_HEADER_BYTES 64u

struct arena;
struct mapping;

/*
 * arena_new - an arena on this file.
 * @fd          of memfd_create(), sealed against shrinking; stays the caller's
 * @first_bytes made at once; rounded up to pages
 * @grow_bytes  the least that is added when a block does not fit
 * @max_bytes   the file never becomes larger
 * Returns NULL without memory; errno says why.
 */
struct arena *arena_new(int fd, uint64_t first_bytes, uint64_t grow_bytes, uint64_t max_bytes);
void arena_free(struct arena *a);

/*
 * arena_take - memory for `size_bytes` bytes; the owner writes to it.
 * @ret_at  its offset in the file, for messages: that of the data, a multiple of 64
 * Returns the data's address, or NULL without memory (the file's limit, or the machine's).
 */
void *arena_take(struct arena *a, uint64_t size_bytes, uint64_t *ret_at);
/* arena_drop - gives back a block that was not handed over, or that the receiver will never return
 * (it has ended). */
void arena_drop(struct arena *a, uint64_t at);
/* block_hand - the receiver has the block from here. To be called before the message is sent. When
 * the receiver has given it back, arena_take() may use it again at any time. */
void block_hand(struct arena *a, uint64_t at);
/* block_hand_pinned - the same, but when the block has been given back, the owner has it again,
 * until arena_drop(). So arena_given_back() tells what became of this very block. */
void block_hand_pinned(struct arena *a, uint64_t at);
/* arena_given_back - does the receiver not have this block (any more)? Only for blocks that were
 * handed over by block_hand_pinned(): others may have been used again. */
bool arena_given_back(struct arena *a, uint64_t at);
/* arena_held_bytes - bytes of blocks that the receiver has. Asks each; for limits and tests. */
uint64_t arena_held_bytes(struct arena *a);
/* arena_trim - returns pages of free memory to the system, but for the first `keep_bytes`. */
void arena_trim(struct arena *a, uint64_t keep_bytes);

/* mapping_new - what the receiver sees of this file. The descriptor stays the caller's. */
struct mapping *mapping_new(int fd, uint64_t max_bytes);
void mapping_free(struct mapping *m);
/*
 * mapping_find - the address of `size_bytes` bytes at this offset; NULL: not in the file, or no
 * memory. Any offset and size may be asked for.
 */
void *mapping_find(struct mapping *m, uint64_t at, uint64_t size_bytes);
/* mapping_give_back - the receiver needs the block no more. An offset that is no block's: no effect
 * beyond the sender's own memory. */
void mapping_give_back(struct mapping *m, uint64_t at);

#ifdef __cplusplus
}
#endif
#endif
