/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void a_map_keeps_its_values(void **state)
{
    (void)state;
    struct map m = MAP_INIT;
    int a, b, c;
    assert_null(map_gets(&m, "a"));
    assert_null(map_remove(&m, "a", 1));
    assert_null(map_puts(&m, "a", &a));
    assert_null(map_puts(&m, "", &b)); /* an empty key is a key */
    assert_null(map_put(&m, "a\0b", 3, &c));
    assert_ptr_equal(map_gets(&m, "a"), &a);
    assert_ptr_equal(map_get(&m, "", 0), &b);
    assert_ptr_equal(map_get(&m, "a\0b", 3), &c);
    assert_null(map_get(&m, "a\0c", 3));
    assert_int_equal(m.count, 3);
    map_done(&m);
    assert_int_equal(m.count, 0);
    map_done(&m);
}

/* The key may be part of the value, which map_puts() returns to be freed. */
static void a_second_put_replaces_the_key_too(void **state)
{
    (void)state;
    struct map m = MAP_INIT;
    char first[] = "key", second[] = "key";
    map_puts(&m, first, first);
    assert_ptr_equal(map_puts(&m, second, second), first);
    memset(first, 'x', sizeof(first));
    assert_ptr_equal(map_gets(&m, "key"), second);
    assert_int_equal(m.count, 1);
    map_done(&m);
}

/* Random puts, removals and look-ups of few keys, compared with a plain table. */

enum { N_KEYS = 500, N_STEPS = 100000 };

static char keys[N_KEYS][12];
static void *model[N_KEYS];
static uint64_t seed = 12345;

static unsigned int draw(unsigned int below)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned int)(seed >> 33) % below;
}

static void check_walk(const struct map *m, size_t expected)
{
    bool seen[N_KEYS] = {false};
    size_t pos = 0, n = 0;
    struct map_entry *e;
    while ((e = map_next(m, &pos))) {
        size_t i = (size_t)(e->key - keys[0]) / sizeof(keys[0]);
        assert_true(i < N_KEYS && !seen[i]);
        seen[i] = true;
        assert_ptr_equal(e->value, model[i]);
        n++;
    }
    assert_int_equal(n, expected);
}

static void a_map_agrees_with_a_plain_table(void **state)
{
    (void)state;
    struct map m = MAP_INIT;
    size_t count = 0;
    static int values[1000];
    for (int i = 0; i < N_KEYS; i++)
        snprintf(keys[i], sizeof(keys[i]), "key-%d", i);

    for (int step = 0; step < N_STEPS; step++) {
        /* The map fills and empties in turns. Most of the time only a few keys are in use. */
        unsigned int in_use = step / 10000 % 2 ? N_KEYS : 20;
        unsigned int i = draw(in_use);
        size_t length = strlen(keys[i]);
        void *value = &values[draw(ARRAY_SIZE(values))];
        switch (draw(3)) {
        case 0:
            assert_ptr_equal(map_put(&m, keys[i], length, value), model[i]);
            count += !model[i];
            model[i] = value;
            break;
        case 1:
            assert_ptr_equal(map_remove(&m, keys[i], length), model[i]);
            count -= !!model[i];
            model[i] = NULL;
            break;
        default:
            assert_ptr_equal(map_get(&m, keys[i], length), model[i]);
        }
        assert_int_equal(m.count, count);
        assert_true(m.count <= m.capacity * 3 / 4);
        if (step % 1000 == 0)
            check_walk(&m, count);
    }
    for (int i = 0; i < N_KEYS; i++)
        assert_ptr_equal(map_remove(&m, keys[i], strlen(keys[i])), model[i]);
    size_t pos = 0;
    assert_null(map_next(&m, &pos));
    map_done(&m);
}

/* Keys of every length differ only in their last byte: the hash must use all bytes. */
static void the_hash_uses_all_bytes(void **state)
{
    (void)state;
    static char long_keys[40][2][41];
    struct map m = MAP_INIT;
    for (size_t length = 1; length <= 40; length++) {
        for (size_t k = 0; k < 2; k++) {
            char *key = long_keys[length - 1][k];
            memset(key, 'x', length);
            key[length - 1] = (char)('0' + k);
            assert_null(map_put(&m, key, length, key));
        }
    }
    size_t pos = 0;
    struct map_entry *e, *all[80];
    size_t n = 0;
    while ((e = map_next(&m, &pos)))
        all[n++] = e;
    assert_int_equal(n, 80);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            assert_true(all[i]->hash != all[k]->hash);
    }
    map_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_keeps_its_values),
        cmocka_unit_test(a_second_put_replaces_the_key_too),
        cmocka_unit_test(a_map_agrees_with_a_plain_table),
        cmocka_unit_test(the_hash_uses_all_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
