/* SPDX-License-Identifier: Apache-2.0 */
/* With tests/cuda/fake_cuda.c as the driver. */
#include "frontends/shm/cuda_memory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "frontends/shm/regions.h"

enum { PAGE = 4096 };

static int (*in_use)(void);
static char handle[CUDA_HANDLE_BYTES];
static int object = -1;

static int make_device_memory(void **state)
{
    (void)state;
    snprintf(handle, sizeof(handle), "FAKE/conch_cuda_%d", (int)getpid());
    object = shm_open(handle + 4, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(object >= 0);
    assert_int_equal(ftruncate(object, PAGE), 0);
    return 0;
}

static int free_device_memory(void **state)
{
    (void)state;
    close(object);
    shm_unlink(handle + 4);
    assert_int_equal(in_use(), 0);
    return 0;
}

static void expect_error(struct status *st, enum status_code code, const char *text)
{
    assert_non_null(st);
    assert_string_equal(status_message(st), text);
    assert_int_equal(status_code(st), code);
    status_free(st);
}

static void bytes_are_copied_both_ways(void **state)
{
    (void)state;
    struct cuda_memory *m;
    char read_back[8];
    assert_true(cuda_is_there());
    assert_null(cuda_memory_open(handle, 1, PAGE, &m));
    assert_int_equal(in_use(), 2); /* the handle and the context */
    assert_int_equal(pwrite(object, "12345678", 8, 100), 8);
    assert_null(cuda_memory_read(m, 102, read_back, 4));
    assert_memory_equal(read_back, "3456", 4);
    assert_null(cuda_memory_write(m, 4088, "abcdefgh", 8));
    assert_int_equal(pread(object, read_back, 8, 4088), 8);
    assert_memory_equal(read_back, "abcdefgh", 8);
    cuda_memory_close(m);
    cuda_memory_close(NULL);
}

static void what_cannot_be_opened_is_refused(void **state)
{
    (void)state;
    struct cuda_memory *m;
    char other[CUDA_HANDLE_BYTES] = "FAKE/conch_no_such_object";
    expect_error(cuda_memory_open(other, 0, 8, &m), STATUS_INTERNAL,
                 "failed to open CUDA IPC handle: invalid resource handle");
    expect_error(cuda_memory_open(handle, 0, PAGE + 1, &m), STATUS_INVALID_ARG,
                 "the memory has 4096 bytes");
    expect_error(cuda_memory_open(handle, 2, 8, &m), STATUS_INVALID_ARG,
                 "unable to use device 2: invalid device ordinal");
    expect_error(cuda_memory_open(handle, -1, 8, &m), STATUS_INVALID_ARG, "there is no device -1");
    expect_error(cuda_memory_open(handle, (int64_t)1 << 32, 8, &m), STATUS_INVALID_ARG,
                 "there is no device 4294967296");
}

static void memory_that_the_client_frees_fails_the_copy(void **state)
{
    (void)state;
    struct cuda_memory *m;
    char bytes[8] = "";
    assert_null(cuda_memory_open(handle, 0, PAGE, &m));
    assert_int_equal(ftruncate(object, 4), 0);
    expect_error(cuda_memory_read(m, 0, bytes, 8), STATUS_INTERNAL,
                 "failed to copy from the GPU: an illegal memory access was encountered");
    expect_error(cuda_memory_write(m, 0, bytes, 8), STATUS_INTERNAL,
                 "failed to copy to the GPU: an illegal memory access was encountered");
    assert_null(cuda_memory_read(m, 0, bytes, 4));
    cuda_memory_close(m);
}

/* ---- As a region ----------------------------------------------------------------------------- */

static void a_region_has_no_address_and_is_closed_by_its_last_user(void **state)
{
    (void)state;
    const struct regions_options allowed = {.allowed = true, .max_regions = 1, .max_bytes = PAGE};
    struct regions *table = regions_new(&allowed, NULL);
    struct region *r;
    char *base, bytes[4];
    assert_null(regions_register_cuda(table, "r", handle, sizeof(handle), 1, PAGE));
    expect_error(regions_register_cuda(table, "r", handle, sizeof(handle), 1, PAGE),
                 STATUS_ALREADY_EXISTS, "shared memory region 'r' already in manager");
    expect_error(regions_register_cuda(table, "s", handle, sizeof(handle), 1, PAGE),
                 STATUS_EXHAUSTED,
                 "failed to register shared memory region 's': 1 regions are the most that "
                 "--client-shm-max-regions allows");
    assert_int_equal(regions_count(table, REGION_CUDA).n_bytes, PAGE);
    expect_error(regions_use(table, "r", 1, PAGE - 3, 4, &r, &base), STATUS_INVALID_ARG,
                 "Invalid offset + byte size for shared memory region: 'r'");
    assert_null(regions_use(table, "r", 1, PAGE - 4, 4, &r, &base));
    assert_null(base);
    assert_null(region_write(r, PAGE - 4, "1234", 4));
    assert_null(regions_unregister(table, "r", REGION_CUDA));
    assert_int_equal(in_use(), 2); /* the reference keeps it */
    assert_null(region_read(r, PAGE - 4, bytes, 4));
    assert_memory_equal(bytes, "1234", 4);
    assert_int_equal(ftruncate(object, 0), 0);
    expect_error(region_read(r, PAGE - 4, bytes, 4), STATUS_INTERNAL,
                 "shared memory region 'r': failed to copy from the GPU: an illegal memory access "
                 "was encountered");
    region_unref(r);
    assert_int_equal(regions_count(table, REGION_CUDA).n_regions, 0);
    regions_free(table);
}

static void a_handle_of_another_size_is_refused(void **state)
{
    (void)state;
    const struct regions_options allowed = {.allowed = true, .max_regions = 1, .max_bytes = PAGE};
    struct regions *table = regions_new(&allowed, NULL);
    expect_error(regions_register_cuda(table, "r", handle, 63, 0, 8), STATUS_INVALID_ARG,
                 "failed to register CUDA shared memory region 'r': its handle has 63 bytes "
                 "instead of 64");
    expect_error(regions_register_cuda(table, "r", handle, 64, 7, 8), STATUS_INVALID_ARG,
                 "failed to register CUDA shared memory region 'r': unable to use device 7: "
                 "invalid device ordinal");
    assert_int_equal(regions_count(table, REGION_CUDA).n_regions, 0);
    regions_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_MEMORY(test)                                                                          \
    cmocka_unit_test_setup_teardown(test, make_device_memory, free_device_memory)
        WITH_MEMORY(bytes_are_copied_both_ways),
        WITH_MEMORY(what_cannot_be_opened_is_refused),
        WITH_MEMORY(memory_that_the_client_frees_fails_the_copy),
        WITH_MEMORY(a_region_has_no_address_and_is_closed_by_its_last_user),
        WITH_MEMORY(a_handle_of_another_size_is_refused),
    };
    /* Opened by its path, it is what the linker finds under its name. */
    void *driver = dlopen(CONCH_BUILD_DIR "/tests/cuda/libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&in_use = dlsym(driver, "fake_cuda_in_use");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
