/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/snapshot.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N_READERS = 4, N_REPLACEMENTS = 2000, ALIVE = 0x600d };

static struct snapshot snapshot;
static atomic_bool stop;
static atomic_int n_wrong;
static atomic_ulong n_reads;

static void *read_all_the_time(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        const int *value = snapshot_enter(&snapshot);
        if (*value != ALIVE)
            atomic_fetch_add(&n_wrong, 1);
        snapshot_exit();
        atomic_fetch_add(&n_reads, 1);
    }
    return NULL;
}

static int *new_value(void)
{
    int *value = malloc(sizeof(*value));
    *value = ALIVE;
    return value;
}

/* No thread reads the value that snapshot_replace() returned: it may be overwritten and freed at
 * once. */
static void a_replaced_value_may_be_freed(void **state)
{
    (void)state;
    pthread_t readers[N_READERS];
    atomic_store(&snapshot.current, new_value());
    for (int i = 0; i < N_READERS; i++)
        pthread_create(&readers[i], NULL, read_all_the_time, NULL);
    /* Goes on until readers have read while values changed. */
    for (int i = 0; i < N_REPLACEMENTS || atomic_load(&n_reads) < N_REPLACEMENTS; i++) {
        int *old = snapshot_replace(&snapshot, new_value());
        *old = 0;
        free(old);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < N_READERS; i++)
        pthread_join(readers[i], NULL);
    free(snapshot_replace(&snapshot, NULL));
    assert_int_equal(atomic_load(&n_wrong), 0);
}

static void null_is_a_value(void **state)
{
    (void)state;
    struct snapshot s = {NULL};
    assert_null(snapshot_enter(&s));
    snapshot_exit();
    assert_null(snapshot_replace(&s, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replaced_value_may_be_freed),
        cmocka_unit_test(null_is_a_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
