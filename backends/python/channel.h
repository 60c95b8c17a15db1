/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel - the server's end of what an instance and its child share (protocol.h): the bells, the
 * notes, and the two memories.
 *
 * Threads: one at a time rings and awaits; one at a time receives; any thread sends notes, gives
 * blocks back, and says that the child has ended.
 */
#ifndef BACKENDS_PYTHON_CHANNEL_H
#define BACKENDS_PYTHON_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/backend.h"
#include "python/memory.h"
#include "python/pack.h"
#include "python/protocol.h"

struct channel {
    /* Set by channel_open(). */
    int socket, page_fd, down_fd, up_fd;
    int event_fd;     /* readable once more for each answer to a channel_ring_for_event() */
    int their_socket; /* the child's end, until it has been started; then -1 */
    struct page *page;
    struct arena *down;
    struct mapping *up;
    /* Called when notes wait for room in the socket: channel_flush() is to be called when it can be
     * written to. Any thread; may be NULL. */
    void (*blocked)(void *arg);
    /* Called when a large block is taken from the down memory: channel_trim() is to be called when
     * the child has been idle for a while. Any thread; may be NULL. */
    void (*large)(void *arg);
    void *arg;
    uint64_t first_bytes;      /* of each memory, which channel_trim() leaves */
    uint64_t unreserved_bytes; /* of address space, which channel_open() did not get; or 0 */

    uint32_t answers; /* of page->answer.word, as read last: of the thread that rings */
    pthread_mutex_t mu;
    /* Under mu: notes that wait for room, a ring. */
    struct note *queue;
    uint32_t queue_first, n_queued, queue_room;
    _Atomic uint32_t n_waiting; /* n_queued, for a look without mu */
    bool made_mu;
};

/*
 * channel_open - makes the memories, the page and the socket. Where address space is limited
 * (RLIMIT_AS), the memories may grow to less than max_bytes.
 * @c  channel_close() ends it, also after an error
 * Errors: UNAVAILABLE  no memory or no descriptors
 */
TRITONSERVER_Error *channel_open(struct channel *c, uint64_t first_bytes, uint64_t growth_bytes,
                                 uint64_t max_bytes);
void channel_close(struct channel *c);

/* channel_started - the child has its descriptors; ours of its end is closed. */
void channel_started(struct channel *c);

/* channel_take - memory for a message or a tensor: arena_take() of the down memory. */
void *channel_take(struct channel *c, uint64_t size_bytes, uint64_t *ret_at);
/* channel_trim - returns free pages of the down memory to the system. Any thread. */
void channel_trim(struct channel *c);

/* channel_ring - sends a command: a message of the down memory that has been handed over. */
void channel_ring(struct channel *c, uint64_t at, uint64_t size_bytes);

/* channel_ring_for_event - the same, and event_fd becomes readable with the answer, or when
 * channel_end() or channel_signal() is called. */
void channel_ring_for_event(struct channel *c, uint64_t at, uint64_t size_bytes);

enum channel_answer { CHANNEL_ANSWERED, CHANNEL_ENDED, CHANNEL_TIMED_OUT };

/*
 * channel_look - is the answer there? Without waiting; channel_await() reads it.
 * @ret_bytes  how much the answer has, as the child says: any number; 0: no answer
 * Returns CHANNEL_TIMED_OUT if it is not there, and may come.
 */
enum channel_answer channel_look(struct channel *c, const atomic_bool *ended, uint64_t *ret_bytes);

/*
 * channel_await - waits for the answer to the last command. What the child has answered before it
 * ended is an answer.
 * @deadline_ns  CLOCK_MONOTONIC; 0: none
 * @spin_ns      how long to look again and again before the thread sleeps
 * @ended        set by another thread, which then calls channel_end(): CHANNEL_ENDED
 * @ret_at, @ret_size_bytes  of the answer, as the child says: any number
 */
enum channel_answer channel_await(struct channel *c, uint64_t deadline_ns, uint64_t spin_ns,
                                  const atomic_bool *ended, uint64_t *ret_at,
                                  uint64_t *ret_size_bytes);
/* channel_end - the child has ended: a thread that waits for its answer wakes. Call it once. Any
 * thread. */
void channel_end(struct channel *c);
/* channel_signal - event_fd becomes readable. Any thread. */
void channel_signal(const struct channel *c);

/* channel_send - sends a note, now or when there is room. False: too many wait, or no memory. */
bool channel_send(struct channel *c, const struct note *note);
/* channel_fill_slot - puts a message that has been handed over into a slot, and wakes the caller.
 * @slot  below PROTOCOL_SLOTS */
void channel_fill_slot(struct channel *c, uint32_t slot, uint64_t at, uint64_t size_bytes);
/* channel_flush - sends notes that wait. True: none waits any more. */
bool channel_flush(struct channel *c);

/* Packs the fields of a message. Called twice: to count, and to write. */
typedef void channel_pack_fn(struct packer *p, const void *arg);

/* channel_pack - makes a message in a block of the down memory and hands it over. False: no memory.
 */
bool channel_pack(struct channel *c, channel_pack_fn *pack, const void *arg, uint64_t *ret_at,
                  uint64_t *ret_size_bytes);

/* channel_say - channel_pack() and channel_send(). False: neither has happened. */
bool channel_say(struct channel *c, uint32_t kind, uint64_t id, channel_pack_fn *pack,
                 const void *arg);

enum channel_receipt { CHANNEL_NOTE, CHANNEL_NO_NOTE, CHANNEL_CLOSED, CHANNEL_IMPOSSIBLE };

/* channel_receive - the next note of the child, without waiting. */
enum channel_receipt channel_receive(struct channel *c, struct note *ret_note);

/* channel_open_message - an unpacker for a message of the child. False: not in its memory. */
bool channel_open_message(struct channel *c, uint64_t at, uint64_t size_bytes,
                          struct unpacker *ret_unpacker);

/* channel_give_back - blocks of the child's memory are needed no more; the child may wait for it.
 */
void channel_give_back(struct channel *c, uint64_t at);

#endif
