/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link - the five descriptors that connect the child with its server (../protocol.h).
 *
 * Threads: any. Functions are called with the GIL, which they release while they wait, unless a
 * comment says otherwise. A process that the model forks has no link: it must not give back what
 * its parent still reads.
 */
#ifndef BACKENDS_PYTHON_CHILD_LINK_H
#define BACKENDS_PYTHON_CHILD_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "python/protocol.h"

/* link_open - maps all memory. A Python exception says what the server has not given. */
int link_open(void);
/* link_await - waits for the next command: a message in the server's memory. */
void link_await(uint64_t *ret_at, uint64_t *ret_size_bytes);
/* link_answer - rings the answer bell; the block must have been handed over. more_bytes: of tensors
 * in other blocks. */
void link_answer(uint64_t at, uint64_t size_bytes, uint64_t more_bytes);
/* link_note - sends a note; size_bytes 0: without a message. The process ends if the server has. */
void link_note(uint32_t kind, uint64_t id, uint64_t at, uint64_t size_bytes);
/* link_receive - the next note. Without the GIL; ends the process when the server has ended. */
void link_receive(struct note *ret_note);

/* link_open_slot - a slot of the page, from 1, that no other call has. */
void link_open_slot(uint32_t slot);
/* link_await_slot - sleeps until the server has filled it. Without the GIL. */
void link_await_slot(uint32_t slot, uint64_t *ret_at, uint64_t *ret_size_bytes);

/* link_take - memory for the server to read. Waits while the server has too much of it. */
void *link_take(uint64_t size_bytes, uint64_t *ret_at);
/* link_drop - of a block that was not handed over. */
void link_drop(uint64_t at);
/* link_hand - pinned: link_is_back() will be asked, and link_drop() called then. */
void link_hand(uint64_t at, bool pinned);
bool link_is_back(uint64_t at);
/* link_free_bytes - of the memory that we have made, what nobody holds. */
uint64_t link_free_bytes(void);

/* link_find - the server's bytes; NULL if they are not in its memory. The GIL is not needed. */
void *link_find(uint64_t at, uint64_t size_bytes);
/* link_give_back - a block of the server's. The GIL is not needed. */
void link_give_back(uint64_t at);

#endif
