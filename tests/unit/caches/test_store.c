/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of the cache `local`: what is found, what is dropped, which blocks are used again. An
 * entry's only buffer begins with its key.
 */
#include "local/store.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "triton/core/tritonserver.h"

enum { BYTES = 64, KEY_BYTES = 40 };

/* An entry of a key of 32 characters with one buffer of BYTES. */
static size_t bytes_of_one(void)
{
    const struct store_key key = {.length = 32};
    const size_t size = BYTES;
    return entry_bytes(&key, &size, 1);
}

static struct store_key key_of_number(char text[KEY_BYTES], unsigned int number)
{
    snprintf(text, KEY_BYTES, "%032x", number * 2654435761u);
    return store_key_of(text);
}

static enum store_result add_key(struct store *s, const struct store_key *key, uint64_t now,
                                 struct store_entry **ret_entry)
{
    struct store_call call = {.from = now};
    const size_t size = BYTES;
    struct store_entry *e;
    enum store_result result = store_make_room(s, key, &size, 1, &e);
    if (result != STORE_FINE)
        return result;
    memcpy(e->buffers[0].base, key->text, key->length + 1);
    if (ret_entry)
        *ret_entry = e;
    return store_add(s, e, &call);
}

static bool add(struct store *s, unsigned int number, uint64_t now)
{
    char text[KEY_BYTES];
    struct store_key key = key_of_number(text, number);
    return add_key(s, &key, now, NULL) == STORE_FINE;
}

/* Looks, and checks what is found. */
static bool find(struct store *s, unsigned int number, uint64_t now)
{
    char text[KEY_BYTES];
    struct store_key key = key_of_number(text, number);
    struct store_call call = {.from = now};
    struct store_entry *e = store_find(s, &key, &call);
    if (!e)
        return false;
    assert_string_equal(e->key, text);
    assert_string_equal(e->buffers[0].base, text);
    store_put(e);
    return true;
}

static struct store_counts counts_of(struct store *s)
{
    struct store_counts c;
    store_counts(s, &c);
    return c;
}

static void test_many_entries_are_found_and_dropped_by_their_last_use(void **state)
{
    enum { N = 5000, KEPT = 4000 };
    struct store *s = store_new(KEPT * bytes_of_one());
    (void)state;
    for (unsigned int i = 0; i < KEPT; i++)
        assert_true(add(s, i, 1 + i));
    for (unsigned int i = 0; i < KEPT; i++)
        assert_true(find(s, (i * 7 + 3) % KEPT, KEPT + 1 + i)); /* in another order */
    for (unsigned int i = KEPT; i < N; i++)
        assert_true(add(s, i, 2 * KEPT + i));
    struct store_counts c = counts_of(s);
    assert_int_equal(c.n_entries, KEPT);
    assert_int_equal(c.n_evictions, N - KEPT);
    assert_int_equal(c.used_bytes, KEPT * bytes_of_one());
    for (unsigned int i = 0; i < KEPT; i++)
        assert_int_equal(find(s, (i * 7 + 3) % KEPT, 3 * N), i >= N - KEPT);
    for (unsigned int i = KEPT; i < N; i++)
        assert_true(find(s, i, 3 * N));
    store_free(s);
}

/* Equal hashes: a bucket overflows into the next ones, and counts what has passed it. */
static void test_entries_beyond_their_bucket_are_found_until_they_are_dropped(void **state)
{
    enum { N = 3 * BUCKET_SLOTS };
    char texts[N][KEY_BYTES];
    struct store_key keys[N];
    struct store *s = store_new(N * bytes_of_one());
    (void)state;
    for (unsigned int i = 0; i < N; i++) {
        keys[i] = key_of_number(texts[i], i);
        keys[i].hash = 0x1234567800000005;
        assert_int_equal(add_key(s, &keys[i], 1 + i, NULL), STORE_FINE);
    }
    for (unsigned int dropped = 0; dropped < N; dropped++) {
        assert_true(add(s, 1000 + dropped, 1000));
        for (unsigned int i = 0; i < N; i++)
            assert_int_equal(has_stored_entry(s, &keys[i]), i > dropped);
    }
    for (size_t i = 0; i < STORE_SHARDS; i++) {
        for (size_t b = 0; b < s->shards[i].n_buckets; b++)
            assert_int_equal(s->shards[i].buckets[b].n_beyond, 0);
    }
    store_free(s);
}

static void test_a_full_store_uses_the_block_and_attributes_of_what_it_drops(void **state)
{
    struct store *s = store_new(2 * bytes_of_one());
    char text[3][KEY_BYTES];
    struct store_key keys[3];
    struct store_entry *first, *third;
    (void)state;
    for (unsigned int i = 0; i < 3; i++)
        keys[i] = key_of_number(text[i], i);
    assert_int_equal(add_key(s, &keys[0], 1, &first), STORE_FINE);
    assert_null(TRITONSERVER_BufferAttributesNew(&first->buffers[0].attributes));
    const TRITONSERVER_BufferAttributes *attributes = first->buffers[0].attributes;
    assert_int_equal(add_key(s, &keys[1], 2, NULL), STORE_FINE);
    assert_int_equal(add_key(s, &keys[2], 3, &third), STORE_FINE);
    assert_ptr_equal(third, first);
    assert_ptr_equal(third->buffers[0].attributes, attributes);
    assert_false(find(s, 0, 4));
    assert_true(find(s, 1, 4));
    assert_true(find(s, 2, 4));
    store_free(s);
}

static void test_the_block_of_an_entry_that_is_read_stays_as_it_is(void **state)
{
    struct store *s = store_new(bytes_of_one());
    char text[2][KEY_BYTES];
    struct store_key keys[2] = {key_of_number(text[0], 0), key_of_number(text[1], 1)};
    struct store_call call = {.from = 1};
    struct store_entry *added;
    (void)state;
    assert_int_equal(add_key(s, &keys[0], 1, NULL), STORE_FINE);
    struct store_entry *read = store_find(s, &keys[0], &call);
    assert_int_equal(add_key(s, &keys[1], 2, &added), STORE_FINE);
    assert_ptr_not_equal(read, added);
    assert_string_equal(read->buffers[0].base, text[0]);
    store_put(read);
    store_free(s);
}

/* A store that is full drops nothing for an entry that it has. */
static void test_an_entry_that_exists_takes_no_room(void **state)
{
    struct store *s = store_new(2 * bytes_of_one());
    (void)state;
    assert_true(add(s, 0, 1));
    char text[KEY_BYTES];
    struct store_key key = key_of_number(text, 0);
    assert_int_equal(add_key(s, &key, 2, NULL), STORE_EXISTS);
    assert_true(add(s, 1, 2));
    assert_int_equal(add_key(s, &key, 3, NULL), STORE_EXISTS);
    assert_int_equal(counts_of(s).n_evictions, 0);
    assert_int_equal(counts_of(s).used_bytes, 2 * bytes_of_one());
    store_free(s);
}

static void test_what_is_too_large_or_given_up_takes_no_room(void **state)
{
    struct store *s = store_new(bytes_of_one());
    char text[KEY_BYTES];
    struct store_key key = key_of_number(text, 0);
    const size_t fits = BYTES, large = bytes_of_one(), huge = SIZE_MAX;
    struct store_entry *e;
    (void)state;
    assert_int_equal(store_make_room(s, &key, &large, 1, &e), STORE_TOO_LARGE);
    assert_int_equal(store_make_room(s, &key, &huge, 1, &e), STORE_TOO_LARGE);
    assert_int_equal(store_make_room(s, &key, &fits, 1, &e), STORE_FINE);
    assert_int_equal(counts_of(s).used_bytes, bytes_of_one());
    store_give_up(s, e);
    assert_int_equal(counts_of(s).used_bytes, 0);
    store_free(s);
}

/* Not every call is timed, but what is timed stands for all. */
static void test_the_times_of_calls_add_up(void **state)
{
    enum { N = 20000 };
    struct store *s = store_new(bytes_of_one());
    char text[KEY_BYTES];
    struct store_key key = key_of_number(text, 0);
    unsigned int weights = 0, n_timed = 0;
    (void)state;
    for (int i = 0; i < N; i++) {
        struct store_call call = {.from = ticks_now()};
        assert_null(store_find(s, &key, &call));
        store_note_look_up(s, &key, &call);
        weights += call.weight;
        n_timed += call.weight > 0;
    }
    assert_in_range(weights, N, N + 16);
    assert_in_range(n_timed, N / 16, N / 16 + 32);
    assert_int_equal(counts_of(s).n_look_ups, N);
    assert_true(counts_of(s).look_up_ns > 0);
    assert_int_equal(counts_of(s).insert_ns, 0);
    store_free(s);
}

/* ---- Every schedule ----------------------------------------------------------------------------
 */

enum { ACTORS = 3, STEPS = 3 };

/* A request: it looks its key up, makes room when it has not found it, and adds its response. */
struct actor {
    unsigned int number;
    int step;
    struct store_entry *made;
};

static void check_store(struct store *s, const struct actor *actors, size_t limit)
{
    size_t held = 0;
    struct store_counts c = counts_of(s);
    for (int i = 0; i < ACTORS; i++)
        held += actors[i].made != NULL;
    assert_true(c.used_bytes <= limit * bytes_of_one());
    assert_int_equal(c.used_bytes, (c.n_entries + held) * bytes_of_one());
    for (int i = 0; i < ACTORS; i++) { /* a key has one entry at most, and it is in one place */
        size_t n = 0;
        char text[KEY_BYTES];
        struct store_key key = key_of_number(text, actors[i].number);
        struct shard *sh = shard_of(s, key.hash);
        for (const struct store_entry *e = sh->newest; e; e = e->older)
            n += has_key(e, &key);
        assert_in_range(n, 0, 1);
        assert_int_equal(has_stored_entry(s, &key), n);
    }
}

/* Each step is one call of the store, which holds one lock at a time. */
static void take_step(struct store *s, struct actor *a, uint64_t now)
{
    char text[KEY_BYTES];
    struct store_key key = key_of_number(text, a->number);
    struct store_call call = {.from = now};
    const size_t size = BYTES;
    switch (a->step++) {
    case 0:
        if (find(s, a->number, now))
            a->step = STEPS;
        break;
    case 1:
        if (store_make_room(s, &key, &size, 1, &a->made) != STORE_FINE)
            a->step = STEPS; /* it exists meanwhile, or others have reserved everything */
        else
            memcpy(a->made->buffers[0].base, key.text, key.length + 1);
        break;
    default:
        assert_in_range(store_add(s, a->made, &call), STORE_FINE, STORE_EXISTS);
        a->made = NULL;
        assert_true(has_stored_entry(s, &key));
    }
}

/* Runs the schedule: which actor goes on, in each of its digits. False: it names one that has
 * ended, so that another schedule is the same. */
static bool run_schedule(const unsigned int *numbers, size_t limit, unsigned int schedule)
{
    struct store *s = store_new(limit * bytes_of_one());
    struct actor actors[ACTORS] = {0};
    bool is_valid = true;
    for (int i = 0; i < ACTORS; i++)
        actors[i].number = numbers[i];
    for (int i = 0; i < ACTORS * STEPS && is_valid; i++, schedule /= ACTORS) {
        struct actor *a = &actors[schedule % ACTORS];
        bool has_ended = true;
        for (int k = 0; k < ACTORS; k++)
            has_ended &= actors[k].step == STEPS;
        is_valid = has_ended ? schedule == 0 : a->step < STEPS;
        if (has_ended || !is_valid)
            break;
        take_step(s, a, (uint64_t)i + 1);
        check_store(s, actors, limit);
    }
    for (int i = 0; i < ACTORS; i++) {
        is_valid &= actors[i].step == STEPS;
        if (actors[i].made)
            store_give_up(s, actors[i].made);
    }
    store_free(s);
    return is_valid;
}

/* Three requests, of which some are equal, in a store of one, two or three entries. */
static void test_every_schedule_of_three_requests_keeps_the_store_whole(void **state)
{
    static const unsigned int numbers[][ACTORS] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 2}};
    size_t n_schedules = 0;
    unsigned int end = 1;
    (void)state;
    for (int i = 0; i < ACTORS * STEPS; i++)
        end *= ACTORS;
    for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
        for (size_t limit = 1; limit <= ACTORS; limit++) {
            for (unsigned int schedule = 0; schedule < end; schedule++)
                n_schedules += run_schedule(numbers[k], limit, schedule);
        }
    }
    assert_true(n_schedules > 2000);
}

static void *use_store(void *arg)
{
    struct store *s = arg;
    unsigned int number = (unsigned int)(uintptr_t)&number; /* another one for each thread */
    for (int i = 0; i < 20000; i++) {
        number = number * 1103515245 + 12345;
        if (!find(s, number >> 16 & 0xff, ticks_now()))
            add(s, number >> 16 & 0xff, ticks_now());
    }
    return NULL;
}

static void test_threads_find_what_others_add_and_drop(void **state)
{
    enum { N_THREADS = 4 };
    struct store *s = store_new(100 * bytes_of_one());
    pthread_t threads[N_THREADS];
    (void)state;
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_store, s), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    struct store_counts c = counts_of(s);
    assert_int_equal(c.used_bytes, c.n_entries * bytes_of_one());
    assert_in_range(c.n_entries, 1, 100);
    store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_entries_are_found_and_dropped_by_their_last_use),
        cmocka_unit_test(test_entries_beyond_their_bucket_are_found_until_they_are_dropped),
        cmocka_unit_test(test_a_full_store_uses_the_block_and_attributes_of_what_it_drops),
        cmocka_unit_test(test_the_block_of_an_entry_that_is_read_stays_as_it_is),
        cmocka_unit_test(test_an_entry_that_exists_takes_no_room),
        cmocka_unit_test(test_what_is_too_large_or_given_up_takes_no_room),
        cmocka_unit_test(test_the_times_of_calls_add_up),
        cmocka_unit_test(test_every_schedule_of_three_requests_keeps_the_store_whole),
        cmocka_unit_test(test_threads_find_what_others_add_and_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
