/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel - see channel.h. The page is written by the child, too: no decision relies on two reads
 * of the same word.
 */
#include "python/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define NS_PER_S   UINT64_C(1000000000)

/* A block of this size makes a trim due. */
#define LARGE_BLOCK_BYTES (1u << 20)

/* A child that does not read its notes has its calls refused beyond this, and ends. */
enum { MOST_QUEUED = 65536 };

_Static_assert(sizeof(struct page) <= PAGE_BYTES, "the page");

/* ---- Opening -------------------------------------------------------------------------------- */

static int make_file(const char *name, int seals)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && fcntl(fd, F_ADD_SEALS, seals)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool open_page(struct channel *c)
{
    c->page_fd = memfd_create("conch-python-page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (c->page_fd < 0 || ftruncate(c->page_fd, PAGE_BYTES) ||
        fcntl(c->page_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return false;
    struct page *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->page_fd, 0);
    if (page == MAP_FAILED)
        return false;
    c->page = page;
    return true;
}

/* limit_memory - the most that each memory of an instance may reserve: both sides map both, and the
 * interpreter, the model and other instances need address space, too. */
static uint64_t limit_memory(uint64_t max_bytes)
{
    struct rlimit space;

    if (getrlimit(RLIMIT_AS, &space) || space.rlim_cur == RLIM_INFINITY)
        return max_bytes;
    return space.rlim_cur / 8 < max_bytes ? space.rlim_cur / 8 : max_bytes;
}

/* reserve_memories - address space of this size each. errno says why not. */
static bool reserve_memories(struct channel *c, uint64_t first_bytes, uint64_t growth_bytes,
                             uint64_t max_bytes)
{
    c->down = arena_new(c->down_fd, first_bytes, growth_bytes, max_bytes);
    c->up = c->down ? mapping_new(c->up_fd, max_bytes) : NULL;
    c->page->up_max_bytes = c->page->down_max_bytes = max_bytes;
    if (c->up)
        return true;
    const int why = errno;
    arena_free(c->down);
    c->down = NULL;
    errno = why;
    return false;
}

static bool open_memories(struct channel *c, uint64_t first_bytes, uint64_t growth_bytes,
                          uint64_t max_bytes)
{
    uint64_t size = limit_memory(max_bytes);

    c->down_fd = make_file("conch-python-down", F_SEAL_SHRINK | F_SEAL_SEAL);
    c->up_fd = make_file("conch-python-up", F_SEAL_SHRINK | F_SEAL_SEAL);
    if (c->down_fd < 0 || c->up_fd < 0)
        return false;
    c->first_bytes = c->page->up_first_bytes = first_bytes;
    c->page->up_grow_bytes = growth_bytes;
    if (size < first_bytes)
        size = first_bytes;
    while (!reserve_memories(c, first_bytes, growth_bytes, size)) {
        if (errno != ENOMEM || size / 2 < first_bytes) {
            c->unreserved_bytes = errno == ENOMEM ? size : 0;
            return false;
        }
        size /= 2;
    }
    return true;
}

static bool open_notes(struct channel *c)
{
    int both[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both))
        return false;
    c->socket = both[0];
    c->their_socket = both[1];
    c->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return c->event_fd >= 0;
}

TRITONSERVER_Error *channel_open(struct channel *c, uint64_t first_bytes, uint64_t growth_bytes,
                                 uint64_t max_bytes)
{
    c->socket = c->page_fd = c->down_fd = c->up_fd = c->their_socket = c->event_fd = -1;
    c->made_mu = pthread_mutex_init(&c->mu, NULL) == 0;
    if (c->made_mu && open_page(c) && open_memories(c, first_bytes, growth_bytes, max_bytes) &&
        open_notes(c))
        return NULL;
    if (c->unreserved_bytes)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                             "cannot reserve %llu bytes of address space, twice, for what an "
                             "instance shares with its process (ulimit -v): %s",
                             (unsigned long long)c->unreserved_bytes, strerror(errno));
    return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                         "cannot make the memory that an instance shares with its process: %s",
                         strerror(errno));
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void channel_close(struct channel *c)
{
    if (c->page)
        munmap(c->page, PAGE_BYTES);
    c->page = NULL;
    arena_free(c->down);
    mapping_free(c->up);
    c->down = NULL;
    c->up = NULL;
    close_fd(&c->socket);
    close_fd(&c->their_socket);
    close_fd(&c->page_fd);
    close_fd(&c->down_fd);
    close_fd(&c->up_fd);
    close_fd(&c->event_fd);
    free(c->queue);
    c->queue = NULL;
    if (c->made_mu)
        pthread_mutex_destroy(&c->mu);
    c->made_mu = false;
}

void channel_started(struct channel *c)
{
    close_fd(&c->their_socket);
}

void *channel_take(struct channel *c, uint64_t size_bytes, uint64_t *ret_at)
{
    if (size_bytes >= LARGE_BLOCK_BYTES && c->large)
        c->large(c->arg);
    return arena_take(c->down, size_bytes, ret_at);
}

void channel_trim(struct channel *c)
{
    arena_trim(c->down, c->first_bytes);
}

/* ---- Bells ---------------------------------------------------------------------------------- */

static void wake_futex(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleeps while the word has this value. False: the deadline has passed. */
static bool sleep_on_futex(_Atomic uint32_t *word, uint32_t value, uint64_t deadline_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                                .tv_nsec = (long)(deadline_ns % NS_PER_S)};

    return syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, deadline_ns ? &at : NULL, NULL,
                   FUTEX_BITSET_MATCH_ANY) == 0 ||
           errno != ETIMEDOUT;
}

static void ring(struct channel *c, uint64_t at, uint64_t size_bytes, bool by_event)
{
    struct bell *b = &c->page->command;

    b->at = at;
    b->size_bytes = size_bytes;
    b->by_event = by_event;
    c->answers = atomic_load_explicit(&c->page->answer.word, memory_order_acquire);
    atomic_fetch_add(&b->word, BELL_RINGS);
    if (atomic_load(&b->sleeps))
        wake_futex(&b->word);
}

void channel_ring(struct channel *c, uint64_t at, uint64_t size_bytes)
{
    ring(c, at, size_bytes, false);
}

void channel_ring_for_event(struct channel *c, uint64_t at, uint64_t size_bytes)
{
    ring(c, at, size_bytes, true);
}

/* look_for_answer - has the answer bell rung? */
static bool look_for_answer(const struct channel *c, uint32_t *ret_word)
{
    *ret_word = atomic_load(&c->page->answer.word);
    return (*ret_word ^ c->answers) >= BELL_RINGS;
}

/* look_for_all - the answer, or the end of a child that has not answered before. */
static enum channel_answer look_for_all(const struct channel *c, const atomic_bool *ended,
                                        uint32_t *ret_word)
{
    /* First: a child that has ended rings no more. */
    const bool is_over = atomic_load(ended);

    if (look_for_answer(c, ret_word))
        return CHANNEL_ANSWERED;
    return is_over ? CHANNEL_ENDED : CHANNEL_TIMED_OUT;
}

static void spin_for_answer(const struct channel *c, uint64_t spin_ns)
{
    uint32_t word;

    if (!spin_ns)
        return;
    const uint64_t until_ns = backend_now_ns() + spin_ns;

    do {
        for (int i = 0; i < 64; i++) {
            if (look_for_answer(c, &word))
                return;
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#endif
        }
    } while (backend_now_ns() < until_ns);
}

enum channel_answer channel_await(struct channel *c, uint64_t deadline_ns, uint64_t spin_ns,
                                  const atomic_bool *ended, uint64_t *ret_at,
                                  uint64_t *ret_size_bytes)
{
    struct bell *b = &c->page->answer;
    uint32_t word;
    bool in_time = true;

    spin_for_answer(c, spin_ns);
    enum channel_answer seen = look_for_all(c, ended, &word);
    while (seen == CHANNEL_TIMED_OUT && in_time) {
        atomic_store(&b->sleeps, 1);
        if (look_for_all(c, ended, &word) == CHANNEL_TIMED_OUT)
            in_time = sleep_on_futex(&b->word, word, deadline_ns);
        atomic_store_explicit(&b->sleeps, 0, memory_order_relaxed);
        seen = look_for_all(c, ended, &word);
    }
    if (seen == CHANNEL_ANSWERED) {
        *ret_at = __atomic_load_n(&b->at, __ATOMIC_RELAXED);
        *ret_size_bytes = __atomic_load_n(&b->size_bytes, __ATOMIC_RELAXED);
    }
    return seen;
}

enum channel_answer channel_look(struct channel *c, const atomic_bool *ended, uint64_t *ret_bytes)
{
    const struct bell *b = &c->page->answer;
    uint32_t word;
    const enum channel_answer seen = look_for_all(c, ended, &word);

    *ret_bytes = 0;
    if (seen != CHANNEL_ANSWERED)
        return seen;
    const uint64_t size = __atomic_load_n(&b->size_bytes, __ATOMIC_RELAXED),
                   more = __atomic_load_n(&b->more_bytes, __ATOMIC_RELAXED);

    *ret_bytes = more > UINT64_MAX - size ? UINT64_MAX : size + more;
    return CHANNEL_ANSWERED;
}

void channel_signal(const struct channel *c)
{
    /* The child has the eventfd, too, and may have filled it: then it is emptied. */
    const uint64_t one = 1;
    uint64_t count;

    while (write(c->event_fd, &one, sizeof one) < 0 && (errno == EAGAIN || errno == EINTR))
        (void)!read(c->event_fd, &count, sizeof count);
}

void channel_end(struct channel *c)
{
    /* Changed, so that a thread that is about to sleep does not; and this bit alone, whatever the
     * child has written there. */
    atomic_fetch_xor(&c->page->answer.word, BELL_ENDED);
    wake_futex(&c->page->answer.word);
    channel_signal(c);
}

void channel_fill_slot(struct channel *c, uint32_t slot, uint64_t at, uint64_t size_bytes)
{
    struct slot *s = &c->page->slots[slot];

    /* A child may name a slot twice, so two threads may fill it at once. */
    __atomic_store_n(&s->at, at, __ATOMIC_RELAXED);
    __atomic_store_n(&s->size_bytes, size_bytes, __ATOMIC_RELAXED);
    if (atomic_exchange(&s->state, SLOT_FILLED) == SLOT_SLEEPS)
        wake_futex(&s->state);
}

/* ---- Notes ---------------------------------------------------------------------------------- */

enum sent { SENT, NO_ROOM, LOST };

/* What cannot be sent to a child that has ended is lost with it. */
static enum sent send_now(const struct channel *c, const struct note *note)
{
    for (;;) {
        if (send(c->socket, note, sizeof *note, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return SENT;
        if (errno != EINTR)
            return errno == EAGAIN || errno == ENOBUFS ? NO_ROOM : LOST;
    }
}

static bool grow_queue_locked(struct channel *c)
{
    const uint32_t room = c->queue_room ? c->queue_room * 2 : 64;

    if (room > MOST_QUEUED)
        return false;
    struct note *queue = malloc(room * sizeof *queue);
    if (!queue)
        return false;
    for (uint32_t i = 0; i < c->n_queued; i++)
        queue[i] = c->queue[(c->queue_first + i) % c->queue_room];
    free(c->queue);
    c->queue = queue;
    c->queue_room = room;
    c->queue_first = 0;
    return true;
}

static bool append_note_locked(struct channel *c, const struct note *note)
{
    if (c->n_queued == c->queue_room && !grow_queue_locked(c))
        return false;
    c->queue[(c->queue_first + c->n_queued) % c->queue_room] = *note;
    c->n_queued++;
    atomic_store(&c->n_waiting, c->n_queued);
    return true;
}

bool channel_send(struct channel *c, const struct note *note)
{
    bool taken = true, blocked = false;

    pthread_mutex_lock(&c->mu);
    if (c->n_queued) {
        taken = append_note_locked(c, note);
    } else if (send_now(c, note) == NO_ROOM) {
        taken = append_note_locked(c, note);
        blocked = taken;
    }
    pthread_mutex_unlock(&c->mu);
    if (blocked && c->blocked)
        c->blocked(c->arg);
    return taken;
}

bool channel_flush(struct channel *c)
{
    pthread_mutex_lock(&c->mu);
    while (c->n_queued && send_now(c, &c->queue[c->queue_first]) != NO_ROOM) {
        c->queue_first = (c->queue_first + 1) % c->queue_room;
        c->n_queued--;
    }
    atomic_store(&c->n_waiting, c->n_queued);
    const bool all = !c->n_queued;
    pthread_mutex_unlock(&c->mu);
    return all;
}

bool channel_pack(struct channel *c, channel_pack_fn *pack, const void *arg, uint64_t *ret_at,
                  uint64_t *ret_size_bytes)
{
    struct packer count = {0};
    uint64_t at;

    pack(&count, arg);
    char *to = channel_take(c, count.used, &at);
    if (!to)
        return false;
    struct packer p = {.to = to, .room = count.used};
    pack(&p, arg);
    block_hand(c->down, at);
    *ret_at = at;
    *ret_size_bytes = p.used;
    return true;
}

bool channel_say(struct channel *c, uint32_t kind, uint64_t id, channel_pack_fn *pack,
                 const void *arg)
{
    struct note note = {.kind = kind, .id = id};

    if (pack) {
        note.n_blocks = 1;
        if (!channel_pack(c, pack, arg, &note.at, &note.size_bytes))
            return false;
    }
    if (channel_send(c, &note))
        return true;
    if (pack)
        arena_drop(c->down, note.at);
    return false;
}

enum channel_receipt channel_receive(struct channel *c, struct note *ret_note)
{
    struct note note;

    for (;;) {
        const ssize_t n = recv(c->socket, &note, sizeof note, MSG_DONTWAIT | MSG_TRUNC);

        if (n == (ssize_t)sizeof note) {
            *ret_note = note;
            return CHANNEL_NOTE;
        }
        if (n == 0)
            return CHANNEL_CLOSED;
        if (n > 0)
            return CHANNEL_IMPOSSIBLE;
        if (errno == EAGAIN)
            return CHANNEL_NO_NOTE;
        if (errno != EINTR)
            return CHANNEL_CLOSED;
    }
}

bool channel_open_message(struct channel *c, uint64_t at, uint64_t size_bytes,
                          struct unpacker *ret_unpacker)
{
    const char *bytes = at % BLOCK_ALIGN ? NULL : mapping_find(c->up, at, size_bytes);

    *ret_unpacker =
        (struct unpacker){.at = bytes, .left = bytes ? size_bytes : 0, .failed = !bytes};
    return bytes != NULL;
}

void channel_give_back(struct channel *c, uint64_t at)
{
    mapping_give_back(c->up, at);
    /* The child says that it waits, and then looks at its blocks once more before it does. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&c->page->returned_waits, memory_order_relaxed)) {
        atomic_fetch_add(&c->page->returned, 1);
        wake_futex(&c->page->returned);
    }
}
