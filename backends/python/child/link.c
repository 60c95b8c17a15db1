/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link - see link.h.
 */
#include "python/child/link.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "python/child/child.h"
#include "python/memory.h"

/* How long the memory may stay full before we look at it again, whatever the server says. */
#define FULL_WAIT_S 1
/* After a block of this size, memory that is free goes back to the system when the model has been
 * idle for a while. */
#define LARGE_BLOCK_BYTES (1u << 20)
#define IDLE_WAIT_S       1

static struct {
    struct page *page; /* NULL: not open */
    struct arena *up;
    struct mapping *down;
    uint64_t up_first_bytes, up_max_bytes, spin_ns;
    atomic_bool trim_due;  /* there was a large block */
    uint32_t last_command; /* the command bell's word when we looked last */
    /*
     * By which the reader waits for notes. A thread that waits in recv() holds the socket, so that
     * the server would not notice that the model closes all descriptors; epoll holds nothing.
     */
    int epoll;
    bool forked; /* this process is not the child any more, but one that it forked */
} wires = {.epoll = -1};

static uint64_t read_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* wait_word - sleeps while the word has this value. Returns errno. */
static int wait_word(_Atomic uint32_t *word, uint32_t value, const struct timespec *most)
{
    return syscall(SYS_futex, word, FUTEX_WAIT, value, most, NULL, 0) ? errno : 0;
}

static void wake_word(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* end_process - the server has ended; nothing of ours is worth keeping. Python may hang. */
static void end_process(void)
{
    _exit(1);
}

/* forget_link - in a process that the model has forked. */
static void forget_link(void)
{
    wires.forked = true;
    for (int fd = PROTOCOL_FD_SOCKET; fd <= PROTOCOL_FD_LAST; fd++)
        close(fd);
    close(wires.epoll);
}

static bool open_epoll(void)
{
    struct epoll_event e = {.events = EPOLLIN};

    wires.epoll = epoll_create1(EPOLL_CLOEXEC);
    return wires.epoll >= 0 && !epoll_ctl(wires.epoll, EPOLL_CTL_ADD, PROTOCOL_FD_SOCKET, &e);
}

static bool is_usable(void)
{
    return wires.page && !wires.forked;
}

int link_open(void)
{
    const char *spin = getenv("CONCH_PYTHON_SPIN_US");

    for (int fd = PROTOCOL_FD_SOCKET; fd <= PROTOCOL_FD_LAST; fd++) {
        if (fcntl(fd, F_SETFD, FD_CLOEXEC))
            goto failed;
    }
    struct page *page =
        mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, PROTOCOL_FD_PAGE, 0);
    if (page == MAP_FAILED)
        goto failed;
    wires.up_first_bytes = page->up_first_bytes;
    wires.up_max_bytes = page->up_max_bytes;
    wires.up =
        arena_new(PROTOCOL_FD_UP, page->up_first_bytes, page->up_grow_bytes, page->up_max_bytes);
    wires.down = mapping_new(PROTOCOL_FD_DOWN, page->down_max_bytes);
    if (!wires.up || !wires.down || !open_epoll() || pthread_atfork(NULL, NULL, forget_link))
        goto failed;
    wires.spin_ns = spin ? strtoull(spin, NULL, 10) * 1000 : 0;
    wires.page = page;
    return 0;

failed:
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

static bool has_rung(struct bell *b)
{
    /* Pairs with the ringer's addition: at and size_bytes are those of this ring. */
    return atomic_load_explicit(&b->word, memory_order_acquire) != wires.last_command;
}

/* await_ring - spins, then sleeps. Without the GIL. Returns false if a signal came first. */
static bool await_ring(struct bell *b)
{
    static const struct timespec idle = {.tv_sec = IDLE_WAIT_S};
    const uint64_t until = wires.spin_ns ? read_clock() + wires.spin_ns : 0;
    int why = 0;

    while (until && !has_rung(b) && read_clock() < until)
        ;
    while (!has_rung(b) && why != EINTR) {
        /* Sequentially consistent, as the ringer's addition and look: one of us sees the other. */
        atomic_store(&b->sleeps, 1);
        if (atomic_load(&b->word) == wires.last_command)
            why = wait_word(&b->word, wires.last_command, wires.trim_due ? &idle : NULL);
        atomic_store(&b->sleeps, 0);
        if (why == ETIMEDOUT) {
            wires.trim_due = false;
            arena_trim(wires.up, wires.up_first_bytes);
        }
    }
    return has_rung(b);
}

void link_await(uint64_t *ret_at, uint64_t *ret_size_bytes)
{
    struct bell *b = &wires.page->command;
    bool rung;

    do {
        /* A handler that the model has installed. */
        if (PyErr_CheckSignals())
            PyErr_Print();
        Py_BEGIN_ALLOW_THREADS;
        rung = await_ring(b);
        Py_END_ALLOW_THREADS;
    } while (!rung);
    wires.last_command = atomic_load_explicit(&b->word, memory_order_acquire);
    *ret_at = b->at;
    *ret_size_bytes = b->size_bytes;
}

void link_answer(uint64_t at, uint64_t size_bytes, uint64_t more_bytes)
{
    static const uint64_t one = 1;
    struct bell *b = &wires.page->answer;
    /* The next command may come as soon as the bell has rung. */
    const bool by_event = wires.page->command.by_event;

    b->at = at;
    b->size_bytes = size_bytes;
    b->more_bytes = more_bytes;
    atomic_fetch_add(&b->word, BELL_RINGS);
    if (atomic_load(&b->sleeps))
        wake_word(&b->word);
    while (by_event && write(PROTOCOL_FD_EVENT, &one, sizeof one) < 0) {
        uint64_t count;
        if (errno == EAGAIN) /* it is full: it is emptied */
            (void)!read(PROTOCOL_FD_EVENT, &count, sizeof count);
        else if (errno != EINTR)
            end_process();
    }
}

void link_note(uint32_t kind, uint64_t id, uint64_t at, uint64_t size_bytes)
{
    const struct note note = {
        .kind = kind, .n_blocks = size_bytes > 0, .id = id, .at = at, .size_bytes = size_bytes};
    ssize_t n;

    if (!is_usable())
        return;
    n = send(PROTOCOL_FD_SOCKET, &note, sizeof note, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)) {
        Py_BEGIN_ALLOW_THREADS;
        do {
            n = send(PROTOCOL_FD_SOCKET, &note, sizeof note, MSG_NOSIGNAL);
        } while (n < 0 && errno == EINTR);
        Py_END_ALLOW_THREADS;
    }
    if (n != sizeof note)
        end_process();
}

void link_receive(struct note *ret_note)
{
    struct epoll_event e;
    ssize_t n = -1;

    do {
        if (epoll_wait(wires.epoll, &e, 1, -1) == 1)
            n = recv(PROTOCOL_FD_SOCKET, ret_note, sizeof *ret_note, MSG_DONTWAIT);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n != sizeof *ret_note)
        end_process();
}

void link_open_slot(uint32_t slot)
{
    atomic_store(&wires.page->slots[slot - 1].state, SLOT_OPEN);
}

void link_await_slot(uint32_t slot, uint64_t *ret_at, uint64_t *ret_size_bytes)
{
    struct slot *s = &wires.page->slots[slot - 1];
    uint32_t open = SLOT_OPEN;

    /* If it fails, the slot is filled. */
    (void)atomic_compare_exchange_strong(&s->state, &open, SLOT_SLEEPS);
    while (atomic_load(&s->state) != SLOT_FILLED)
        (void)wait_word(&s->state, SLOT_SLEEPS, NULL);
    *ret_at = s->at;
    *ret_size_bytes = s->size_bytes;
}

/* await_return - until the server gives back a block. */
static void await_return(uint32_t seen)
{
    const struct timespec most = {.tv_sec = FULL_WAIT_S};

    Py_BEGIN_ALLOW_THREADS;
    wait_word(&wires.page->returned, seen, &most);
    Py_END_ALLOW_THREADS;
}

void *link_take(uint64_t size_bytes, uint64_t *ret_at)
{
    if (!is_usable()) {
        PyErr_SetString(PyExc_RuntimeError, "this process is not the one that serves the model");
        return NULL;
    }
    void *data = arena_take(wires.up, size_bytes, ret_at);

    if (size_bytes >= LARGE_BLOCK_BYTES)
        wires.trim_due = true;
    while (!data) {
        const uint32_t seen = atomic_load(&wires.page->returned);

        atomic_store(&wires.page->returned_waits, 1);
        data = arena_take(wires.up, size_bytes, ret_at);
        if (data)
            break;
        if (size_bytes > wires.up_max_bytes || arena_held_bytes(wires.up) == 0) {
            PyErr_Format(PyExc_MemoryError, "no shared memory for %llu bytes",
                         (unsigned long long)size_bytes);
            return NULL;
        }
        await_return(seen);
    }
    return data;
}

void link_drop(uint64_t at)
{
    if (is_usable())
        arena_drop(wires.up, at);
}

void link_hand(uint64_t at, bool pinned)
{
    if (pinned)
        block_hand_pinned(wires.up, at);
    else
        block_hand(wires.up, at);
}

bool link_is_back(uint64_t at)
{
    return arena_given_back(wires.up, at);
}

uint64_t link_free_bytes(void)
{
    struct stat st;

    if (!is_usable() || fstat(PROTOCOL_FD_UP, &st))
        return 0;
    const uint64_t held = arena_held_bytes(wires.up);
    return held < (uint64_t)st.st_size ? (uint64_t)st.st_size - held : 0;
}

void *link_find(uint64_t at, uint64_t size_bytes)
{
    return mapping_find(wires.down, at, size_bytes);
}

void link_give_back(uint64_t at)
{
    if (is_usable())
        mapping_give_back(wires.down, at);
}
