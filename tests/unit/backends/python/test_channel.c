/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* The address space that a process may have, of a test that limits it. */
static size_t largest_map = SIZE_MAX;
static rlim_t limit_of_space = RLIM_INFINITY;

static void *map_limited(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    if (n > largest_map) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return mmap(at, n, prot, flags, fd, offset);
}

static int get_space(int which, struct rlimit *ret_limit)
{
    (void)which;
    *ret_limit = (struct rlimit){limit_of_space, limit_of_space};
    return 0;
}

#define mmap                    map_limited
#define getrlimit(which, limit) get_space((int)(which), limit)

#include "common/backend.c"
#include "common/doc.c"
#include "python/channel.c"
#include "python/memory.c"
#include "python/pack.c"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MB (UINT64_C(1) << 20)

static _Atomic unsigned int n_blocked;

static void count_blocked(void *arg)
{
    (void)arg;
    atomic_fetch_add(&n_blocked, 1);
}

static void open_it(struct channel *c)
{
    TRITONSERVER_Error *err = channel_open(c, MB, MB, 4 * MB);

    assert_null(err);
    c->blocked = count_blocked;
}

/* The child's end of the page, at another address. */
static struct page *map_page(const struct channel *c)
{
    struct page *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, c->page_fd, 0);

    assert_ptr_not_equal(page, MAP_FAILED);
    return page;
}

static void *answer_commands(void *arg)
{
    struct channel *c = arg;
    struct page *page = map_page(c);
    uint32_t seen = 0;

    for (uint64_t i = 1; i <= 1000; i++) {
        while (atomic_load(&page->command.word) == seen) {
            atomic_store(&page->command.sleeps, 1);
            syscall(SYS_futex, &page->command.word, FUTEX_WAIT, seen, NULL, NULL, 0);
            atomic_store(&page->command.sleeps, 0);
        }
        seen = atomic_load(&page->command.word);
        page->answer.at = page->command.at + 1;
        page->answer.size_bytes = page->command.size_bytes;
        atomic_fetch_add(&page->answer.word, BELL_RINGS);
        if (atomic_load(&page->answer.sleeps))
            syscall(SYS_futex, &page->answer.word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    munmap(page, 4096);
    return NULL;
}

static void each_command_has_its_answer(void **state)
{
    struct channel c = {0};
    pthread_t child;
    atomic_bool ended = false;
    uint64_t at, size;

    (void)state;
    open_it(&c);
    assert_int_equal(pthread_create(&child, NULL, answer_commands, &c), 0);
    for (uint64_t i = 1; i <= 1000; i++) {
        channel_ring(&c, i * 64, i);
        /* Half of them spin first. */
        assert_int_equal(channel_await(&c, 0, i % 2 ? 0 : 20000, &ended, &at, &size),
                         CHANNEL_ANSWERED);
        assert_int_equal(at, i * 64 + 1);
        assert_int_equal(size, i);
    }
    pthread_join(child, NULL);
    channel_close(&c);
}

static void a_wait_ends_in_time(void **state)
{
    struct channel c = {0};
    atomic_bool ended = false;
    uint64_t at, size;

    (void)state;
    open_it(&c);
    channel_ring(&c, 64, 1);
    const uint64_t before_ns = backend_now_ns();
    assert_int_equal(channel_await(&c, before_ns + 20000000, 0, &ended, &at, &size),
                     CHANNEL_TIMED_OUT);
    assert_true(backend_now_ns() >= before_ns + 20000000);
    channel_close(&c);
}

struct ending {
    struct channel *channel;
    atomic_bool ended;
};

static void *end_child(void *arg)
{
    struct ending *e = arg;

    /* Once the other thread sleeps, or is about to. */
    while (!atomic_load(&e->channel->page->answer.sleeps))
        ;
    atomic_store(&e->ended, true);
    channel_end(e->channel);
    return NULL;
}

static void the_end_of_the_child_ends_the_wait(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct channel c = {0};
        struct ending e = {.channel = &c};
        pthread_t thread;
        uint64_t at, size;

        open_it(&c);
        atomic_store(&c.page->answer.word, (uint32_t)i * UINT32_C(2654435761)); /* by the child */
        channel_ring(&c, 64, 1);
        assert_int_equal(pthread_create(&thread, NULL, end_child, &e), 0);
        assert_int_equal(channel_await(&c, 0, 0, &e.ended, &at, &size), CHANNEL_ENDED);
        pthread_join(thread, NULL);
        channel_close(&c);
    }
}

/* The child rings, and ends at once. */
static void *answer_and_end(void *arg)
{
    struct ending *e = arg;
    struct page *page = e->channel->page;

    while (atomic_load(&page->command.word) == 0)
        ;
    page->answer.at = 128;
    page->answer.size_bytes = 5;
    atomic_fetch_add(&page->answer.word, BELL_RINGS);
    atomic_store(&e->ended, true);
    channel_end(e->channel);
    return NULL;
}

static void an_answer_before_the_end_is_not_lost(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct channel c = {0};
        struct ending e = {.channel = &c};
        pthread_t thread;
        uint64_t at, size, bytes;

        open_it(&c);
        assert_int_equal(pthread_create(&thread, NULL, answer_and_end, &e), 0);
        channel_ring(&c, 64, 1);
        /* One half of them is over when it is looked for. */
        if (i % 2)
            pthread_join(thread, NULL);
        assert_int_equal(channel_await(&c, 0, i % 4 / 2 * 20000, &e.ended, &at, &size),
                         CHANNEL_ANSWERED);
        assert_int_equal(at, 128);
        assert_int_equal(size, 5);
        if (i % 2 == 0)
            pthread_join(thread, NULL);
        assert_int_equal(channel_look(&c, &e.ended, &bytes), CHANNEL_ANSWERED);
        assert_int_equal(bytes, 5);
        /* A command that comes later has no answer. */
        channel_ring(&c, 64, 1);
        assert_int_equal(channel_await(&c, 0, 0, &e.ended, &at, &size), CHANNEL_ENDED);
        channel_close(&c);
    }
}

static void notes_wait_for_room(void **state)
{
    struct channel c = {0};
    struct note note = {.kind = NOTE_REPLY};
    uint64_t n = 0;

    (void)state;
    open_it(&c);
    atomic_store(&n_blocked, 0);
    while (!atomic_load(&n_blocked) || n < 1000) {
        note.id = n++;
        assert_true(channel_send(&c, &note));
    }
    assert_int_equal(atomic_load(&n_blocked), 1);
    assert_true(atomic_load(&c.n_waiting) > 0);
    /* They all come, in their order. */
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(recv(c.their_socket, &note, sizeof note, 0), sizeof note);
        assert_int_equal(note.id, i);
        (void)channel_flush(&c);
    }
    assert_true(channel_flush(&c));
    assert_int_equal(atomic_load(&c.n_waiting), 0);
    channel_close(&c);
}

static void notes_that_nobody_reads_are_limited(void **state)
{
    struct channel c = {0};
    const struct note note = {.kind = NOTE_REPLY};
    unsigned int n = 0;

    (void)state;
    open_it(&c);
    while (channel_send(&c, &note))
        assert_true(++n < 10 * MOST_QUEUED);
    assert_true(n >= MOST_QUEUED);
    channel_close(&c);
}

static void notes_are_whole(void **state)
{
    struct channel c = {0};
    char long_one[sizeof(struct note) + 1] = {0};
    struct note note = {.kind = NOTE_LOG, .id = 7}, got;

    (void)state;
    open_it(&c);
    assert_int_equal(channel_receive(&c, &got), CHANNEL_NO_NOTE);
    assert_true(send(c.their_socket, &note, sizeof note, 0) > 0);
    assert_int_equal(channel_receive(&c, &got), CHANNEL_NOTE);
    assert_int_equal(got.id, 7);
    assert_true(send(c.their_socket, &note, sizeof note - 1, 0) > 0);
    assert_int_equal(channel_receive(&c, &got), CHANNEL_IMPOSSIBLE);
    assert_true(send(c.their_socket, long_one, sizeof long_one, 0) > 0);
    assert_int_equal(channel_receive(&c, &got), CHANNEL_IMPOSSIBLE);
    channel_started(&c); /* closes the other end */
    assert_int_equal(channel_receive(&c, &got), CHANNEL_CLOSED);
    channel_close(&c);
}

static void pack_number(struct packer *p, const void *arg)
{
    pack_u64(p, *(const uint64_t *)arg);
}

static void a_message_goes_down_in_a_block(void **state)
{
    struct channel c = {0};
    struct note note;
    const uint64_t number = 42;

    (void)state;
    open_it(&c);
    struct mapping *down = mapping_new(c.down_fd, 4 * MB);
    assert_true(channel_say(&c, NOTE_REPLY, 9, pack_number, &number));
    assert_int_equal(recv(c.their_socket, &note, sizeof note, 0), sizeof note);
    assert_int_equal(note.id, 9);
    assert_int_equal(note.n_blocks, 1);
    assert_int_equal(note.size_bytes, 8);
    assert_memory_equal(mapping_find(down, note.at, note.size_bytes), &number, 8);
    assert_true(arena_held_bytes(c.down) > 0);
    mapping_give_back(down, note.at);
    assert_int_equal(arena_held_bytes(c.down), 0);
    mapping_free(down);
    channel_close(&c);
}

static void memories_are_smaller_where_address_space_is_short(void **state)
{
    struct channel c = {0};
    uint64_t at;

    (void)state;
    largest_map = 10 * MB;
    assert_null(channel_open(&c, MB, MB, 64 * MB));
    assert_int_equal(c.page->up_max_bytes, 8 * MB);
    assert_int_equal(c.page->down_max_bytes, 8 * MB);
    assert_non_null(channel_take(&c, 7 * MB, &at));
    assert_null(channel_take(&c, 7 * MB, &at));
    channel_close(&c);
    largest_map = MB / 2;
    TRITONSERVER_Error *err = channel_open(&c, MB, MB, 64 * MB);
    assert_non_null(err);
    assert_int_equal(TRITONSERVER_ErrorCode(err), TRITONSERVER_ERROR_UNAVAILABLE);
    assert_string_equal(
        TRITONSERVER_ErrorMessage(err),
        "cannot reserve 1048576 bytes of address space, twice, for what an instance shares with its "
        "process (ulimit -v): Cannot allocate memory");
    TRITONSERVER_ErrorDelete(err);
    channel_close(&c);
    largest_map = SIZE_MAX;
    limit_of_space = 32 * MB;
    assert_null(channel_open(&c, MB, MB, 64 * MB));
    assert_int_equal(c.page->up_max_bytes, 4 * MB); /* an eighth of it all */
    channel_close(&c);
    limit_of_space = RLIM_INFINITY;
}

static void count_large(void *arg)
{
    ++*(unsigned int *)arg;
}

static void free_memory_of_large_blocks_is_trimmed(void **state)
{
    struct channel c = {0};
    struct stat st;
    unsigned int n_large = 0;
    uint64_t at;

    (void)state;
    assert_null(channel_open(&c, MB, MB, 64 * MB));
    c.large = count_large;
    c.arg = &n_large;
    memset(channel_take(&c, MB / 2, &at), 1, MB / 2);
    arena_drop(c.down, at);
    assert_int_equal(n_large, 0);
    memset(channel_take(&c, 16 * MB, &at), 1, 16 * MB);
    assert_int_equal(n_large, 1);
    channel_trim(&c);
    assert_int_equal(fstat(c.down_fd, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 >= 16 * MB);
    arena_drop(c.down, at);
    channel_trim(&c);
    assert_int_equal(fstat(c.down_fd, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 <= MB);
    channel_close(&c);
}

static void messages_beyond_the_memory_are_refused(void **state)
{
    static const uint64_t bad[][2] = {
        {MB, 1}, {0, MB + 1},           {64, UINT64_MAX}, {UINT64_MAX, 64},
        {1, 8},  {UINT64_MAX - 63, 64}, {MB - 64, 65},    {UINT64_MAX - 63, 0}};
    struct channel c = {0};
    struct unpacker u;

    (void)state;
    open_it(&c);
    assert_int_equal(ftruncate(c.up_fd, (off_t)MB), 0);
    assert_true(channel_open_message(&c, 64, MB - 64, &u));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(channel_open_message(&c, bad[i][0], bad[i][1], &u));
        assert_int_equal(unpack_u64(&u), 0);
        assert_true(u.failed);
    }
    channel_give_back(&c, UINT64_MAX); /* no effect */
    channel_close(&c);
}

/* A thread that waits in epoll hears of the answer and of the end, also if the child has filled the
 * eventfd. */
static void an_event_tells_of_the_end(void **state)
{
    (void)state;
    struct channel c = {0};
    atomic_bool ended = false;
    uint64_t at, size, bytes, count = UINT64_MAX - 1;
    open_it(&c);
    struct pollfd f = {.fd = c.event_fd, .events = POLLIN};
    struct page *page = map_page(&c);

    channel_ring_for_event(&c, 64, 1);
    assert_int_equal(page->command.by_event, 1);
    assert_int_equal(poll(&f, 1, 0), 0);
    assert_int_equal(channel_look(&c, &ended, &bytes), CHANNEL_TIMED_OUT);
    page->answer.at = 128;
    page->answer.size_bytes = 5;
    page->answer.more_bytes = 70;
    atomic_fetch_add(&page->answer.word, BELL_RINGS);
    assert_int_equal(channel_look(&c, &ended, &bytes), CHANNEL_ANSWERED);
    assert_int_equal(bytes, 75);
    page->answer.more_bytes = UINT64_MAX;
    assert_int_equal(channel_look(&c, &ended, &bytes), CHANNEL_ANSWERED);
    assert_true(bytes == UINT64_MAX);
    assert_int_equal(channel_await(&c, 0, 0, &ended, &at, &size), CHANNEL_ANSWERED);
    assert_int_equal(at, 128);

    channel_ring(&c, 64, 1);
    assert_int_equal(page->command.by_event, 0);
    assert_int_equal(channel_look(&c, &ended, &bytes), CHANNEL_TIMED_OUT);
    assert_int_equal(write(c.event_fd, &count, sizeof count), sizeof count);
    atomic_store(&ended, true);
    channel_end(&c);
    assert_int_equal(channel_look(&c, &ended, &bytes), CHANNEL_ENDED);
    assert_int_equal(bytes, 0);
    assert_int_equal(read(c.event_fd, &count, sizeof count), sizeof count);
    assert_int_equal(count, 1);
    munmap(page, 4096);
    channel_close(&c);
}

static void *await_slot(void *arg)
{
    struct slot *s = arg;
    uint32_t open = SLOT_OPEN;

    (void)atomic_compare_exchange_strong(&s->state, &open, SLOT_SLEEPS);
    while (atomic_load(&s->state) != SLOT_FILLED)
        (void)sleep_on_futex(&s->state, SLOT_SLEEPS, 0);
    return NULL;
}

/* Whoever sleeps until a slot is filled is woken, at whatever moment it is filled. */
static void a_filled_slot_wakes_its_caller(void **state)
{
    (void)state;
    struct channel c = {0};
    open_it(&c);
    struct page *page = map_page(&c);
    struct slot *s = &page->slots[PROTOCOL_SLOTS - 1];

    for (uint64_t i = 1; i <= 1000; i++) {
        pthread_t caller;

        atomic_store(&s->state, SLOT_OPEN);
        assert_int_equal(pthread_create(&caller, NULL, await_slot, s), 0);
        while (i % 2 && atomic_load(&s->state) == SLOT_OPEN)
            sched_yield();
        channel_fill_slot(&c, PROTOCOL_SLOTS - 1, 64 * i, i);
        assert_int_equal(pthread_join(caller, NULL), 0);
        assert_int_equal(s->at, 64 * i);
        assert_int_equal(s->size_bytes, i);
    }
    munmap(page, 4096);
    channel_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filled_slot_wakes_its_caller),
        cmocka_unit_test(each_command_has_its_answer),
        cmocka_unit_test(a_wait_ends_in_time),
        cmocka_unit_test(the_end_of_the_child_ends_the_wait),
        cmocka_unit_test(an_answer_before_the_end_is_not_lost),
        cmocka_unit_test(notes_wait_for_room),
        cmocka_unit_test(notes_that_nobody_reads_are_limited),
        cmocka_unit_test(notes_are_whole),
        cmocka_unit_test(a_message_goes_down_in_a_block),
        cmocka_unit_test(memories_are_smaller_where_address_space_is_short),
        cmocka_unit_test(free_memory_of_large_blocks_is_trimmed),
        cmocka_unit_test(messages_beyond_the_memory_are_refused),
        cmocka_unit_test(an_event_tells_of_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
