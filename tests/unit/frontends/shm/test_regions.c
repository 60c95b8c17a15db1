/* SPDX-License-Identifier: Apache-2.0 */
#include "frontends/shm/regions.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "conch/conch.h"

enum { PAGE = 4096, N_PAGES = 4, N_THREADS = 4, N_ROUNDS = 300 };

static const struct regions_options allowed = {
    .allowed = true, .max_regions = 3, .max_bytes = (uint64_t)N_PAGES * PAGE};
static char key[64];
static int object = -1;
static struct regions *table;

static int make_object(void **state)
{
    (void)state;
    snprintf(key, sizeof(key), "/conch_unit_%d", (int)getpid());
    object = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(object >= 0);
    assert_int_equal(ftruncate(object, (off_t)N_PAGES * PAGE), 0);
    table = regions_new(&allowed, NULL);
    return 0;
}

static int free_object(void **state)
{
    (void)state;
    regions_free(table);
    close(object);
    shm_unlink(key);
    return 0;
}

static void expect_error(struct status *st, enum status_code code, const char *text)
{
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

static struct region *use(const char *name, uint64_t offset, uint64_t n_bytes, char **ret_base)
{
    struct region *r = NULL;
    assert_null(regions_use(table, name, strlen(name), offset, n_bytes, &r, ret_base));
    return r;
}

static void a_region_is_the_objects_memory(void **state)
{
    (void)state;
    char *base;
    assert_null(regions_register(table, "r", key, PAGE, 100));
    struct region *r = use("r", 4, 8, &base);
    assert_int_equal(pwrite(object, "12345678", 8, PAGE + 4), 8);
    assert_memory_equal(base, "12345678", 8);
    assert_null(regions_unregister(table, "r", REGION_SYSTEM));
    assert_memory_equal(base, "12345678", 8); /* the user's reference keeps it */
    region_unref(r);
    expect_error(regions_use(table, "r", 1, 0, 1, &r, &base), STATUS_NOT_FOUND,
                 "Unable to find shared memory region: 'r'");
}

static void an_object_that_is_mapped_otherwise_is_refused(void **state)
{
    (void)state;
    char wanted[256];
    void *private = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, object, (off_t)2 * PAGE);
    assert_ptr_not_equal(private, MAP_FAILED);
    snprintf(wanted, sizeof(wanted), "Unable to open shared memory region: '%s': Permission denied",
             key);
    expect_error(regions_register(table, "r", key, 0, 8), STATUS_INTERNAL, wanted);
    munmap(private, PAGE);
    assert_null(regions_register(table, "r", key, 0, 8));
    /* Regions of its own are no reason, also when the kernel joins their mappings to one. */
    assert_null(regions_register(table, "s", key, PAGE, PAGE));
    private = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, object, 0);
    expect_error(regions_register(table, "t", key, 0, 8), STATUS_INTERNAL, wanted);
    munmap(private, PAGE);
}

static void limits_count_what_is_mapped(void **state)
{
    (void)state;
    char *base;
    struct region *r;
    assert_null(regions_register(table, "a", key, 0, 2 * PAGE));
    expect_error(regions_register(table, "b", key, 0, 2 * PAGE + 1), STATUS_EXHAUSTED,
                 "failed to register shared memory region 'b': with its 8193 bytes, all regions "
                 "would have more than the 16384 that --client-shm-max-bytes allows");
    r = use("a", 0, 1, &base);
    assert_null(regions_unregister(table, "a", REGION_SYSTEM));
    status_free(regions_register(table, "b", key, 0, 2 * PAGE + 1)); /* it is still mapped */
    region_unref(r);
    assert_null(regions_register(table, "b", key, 0, 2 * PAGE + 1));
    assert_null(regions_register(table, "c", key, 0, 1));
    assert_null(regions_register(table, "d", key, 0, 1));
    expect_error(regions_register(table, "e", key, 0, 1), STATUS_EXHAUSTED,
                 "failed to register shared memory region 'e': 3 regions are the most that "
                 "--client-shm-max-regions allows");
    assert_null(regions_unregister(table, "", REGION_SYSTEM));
    assert_null(regions_register(table, "e", key, 0, 1));
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void a_shrunk_object_breaks_its_regions(void **state)
{
    (void)state;
    char *base;
    struct region *r;
    conch_catch_region_faults();
    assert_null(regions_register(table, "r", key, 0, (uint64_t)N_PAGES * PAGE));
    r = use("r", 0, (uint64_t)N_PAGES * PAGE, &base);
    memset(base, 'x', (size_t)N_PAGES * PAGE);
    assert_int_equal(ftruncate(object, PAGE), 0);
    assert_null(region_check(r));
    for (size_t i = PAGE; i < (size_t)N_PAGES * PAGE; i++)
        assert_int_equal(((volatile char *)base)[i], 0);
    assert_int_equal(base[0], 'x');
    base[2 * PAGE] = 'y'; /* nobody else sees it */
    expect_error(region_check(r), STATUS_INTERNAL,
                 "shared memory region 'r' is broken: its object was shrunk while it was in use");
    region_unref(r);

    expect_error(regions_use(table, "r", 1, PAGE, 1, &r, &base), STATUS_INVALID_ARG,
                 "Invalid offset + byte size for shared memory region: 'r': its object was shrunk");
    assert_int_equal(ftruncate(object, (off_t)N_PAGES * PAGE), 0);
    expect_error(regions_use(table, "r", 1, PAGE, 1, &r, &base), STATUS_INTERNAL,
                 "shared memory region 'r' is broken: its object was shrunk while it was in use");
    assert_null(regions_unregister(table, "r", REGION_SYSTEM));
    assert_null(regions_register(table, "r", key, 0, 8));
    region_unref(use("r", 0, 8, &base));
}

/* A child that reads behind the end of a file that is no region. */
static void read_behind_the_end(void)
{
    int file = memfd_create("other", MFD_CLOEXEC);
    volatile const char *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
    (void)at[0];
}

static void send_the_signal(void)
{
    kill(getpid(), SIGBUS);
}

static void print_and_end(int number)
{
    (void)number;
    _exit(77);
}

static int run_in_child(void (*run)(void), void (*handler)(int))
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, handler);
        conch_catch_region_faults();
        run();
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* Runs first, since a process installs the handler only once. */
static void any_other_fault_is_the_crash_it_was(void **state)
{
    (void)state;
    void (*const runs[])(void) = {read_behind_the_end, send_the_signal};
    for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
        int status = run_in_child(runs[i], SIG_DFL);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGBUS);
        status = run_in_child(runs[i], print_and_end);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 77);
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

static atomic_bool is_over;
static atomic_uint n_found;

static void *use_all_the_time(void *arg)
{
    (void)arg;
    while (!atomic_load(&is_over)) {
        struct region *r;
        char *base;
        struct status *st = regions_use(table, "r", 1, 0, 8, &r, &base);
        if (!st) {
            assert_memory_equal(base, "12345678", 8);
            region_unref(r);
            atomic_fetch_add(&n_found, 1);
        }
        status_free(st);
    }
    return NULL;
}

static void names_come_and_go_under_their_users(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    assert_int_equal(pwrite(object, "12345678", 8, 0), 8);
    atomic_store(&is_over, false);
    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, use_all_the_time, NULL);
    for (int i = 0; i < N_ROUNDS || atomic_load(&n_found) == 0; i++) {
        /* The one before may be in use, and counts in the limits until it is not. */
        status_free(regions_register(table, "r", key, 0, 8));
        assert_null(regions_unregister(table, i % 2 ? "r" : "", REGION_SYSTEM));
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_null(regions_register(table, "r", key, 0, (uint64_t)N_PAGES * PAGE)); /* all are gone */
}

static struct status *register_and_use(void *arg)
{
    struct region *r;
    char *base;
    (void)arg;
    struct status *st = regions_register(table, "r", key, 0, 8);
    if (!st)
        st = regions_use(table, "r", 1, 0, 8, &r, &base);
    if (!st)
        region_unref(r);
    struct status *end = regions_unregister(table, "", REGION_SYSTEM);
    assert_null(end);
    return st;
}

static void more_regions_than_a_chunk_has_slots_need_memory(void **state)
{
    (void)state;
    enum { N = 200 };
    static const struct regions_options many = {
        .allowed = true, .max_regions = N, .max_bytes = UINT64_MAX};
    struct regions *others = regions_new(&many, NULL);
    char name[16];
    for (int i = 0; i < N - 1; i++) {
        snprintf(name, sizeof(name), "r%d", i);
        assert_null(regions_register(others, name, key, 0, 8));
    }
    struct region **list;
    size_t n;
    assert_null(regions_list(others, "", REGION_SYSTEM, &list, &n));
    assert_int_equal(n, N - 1);
    regions_list_free(list, n);
    assert_null(register_and_use(NULL));
    regions_free(others);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_object, free_object)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_other_fault_is_the_crash_it_was),
        TEST(a_region_is_the_objects_memory),
        TEST(an_object_that_is_mapped_otherwise_is_refused),
        TEST(limits_count_what_is_mapped),
        TEST(a_shrunk_object_breaks_its_regions),
        TEST(names_come_and_go_under_their_users),
        TEST(more_regions_than_a_chunk_has_slots_need_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
