/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that backends allocate from the server, and their reports of memory of their own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/backend/backend.h"
#include "core/model/model.h"
#include "core/server/server_priv.h"
#include "triton/core/tritonbackend.h"

static struct server server; /* the memory manager */
static struct backend backend = {.server = &server};

static TRITONBACKEND_MemoryManager *manager(void)
{
    TRITONBACKEND_MemoryManager *mm = NULL;
    assert_null(TRITONBACKEND_BackendMemoryManager((TRITONBACKEND_Backend *)&backend, &mm));
    assert_non_null(mm);
    return mm;
}

static void *get(uint64_t bytes)
{
    void *p = NULL;
    assert_null(
        TRITONBACKEND_MemoryManagerAllocate(manager(), &p, TRITONSERVER_MEMORY_CPU, 0, bytes));
    assert_non_null(p);
    return p;
}

static void give_back(void *p)
{
    assert_null(TRITONBACKEND_MemoryManagerFree(manager(), p, TRITONSERVER_MEMORY_CPU, 0));
}

static void the_memory_manager_gives_aligned_memory(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 8, 63, 64, 65, 1000, 1 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        void *a = get(sizes[i]), *b = get(sizes[i]);
        assert_int_equal((uintptr_t)a % MEM_ALIGNMENT, 0);
        assert_int_equal((uintptr_t)b % MEM_ALIGNMENT, 0);
        memset(a, 0xff, sizes[i]);
        memset(b, 0xee, sizes[i]);
        give_back(a);
        give_back(b);
    }
    give_back(NULL);
}

static void memory_is_charged_to_the_model_that_initialises(void **state)
{
    (void)state;
    struct mem_owner *o = mem_owner_new("x");
    void *p;
    {
        MEM_CHARGE(o, MEM_BACKEND);
        p = get(1000);
    }
    assert_in_range(mem_owner_bytes(o, MEM_BACKEND), 1000, 1000 + MEM_ALIGNMENT);
    give_back(p);
    assert_int_equal(mem_owner_blocks(o), 0);
    mem_owner_free(o);
}

static void memory_that_cannot_be_allocated_is_an_error(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 63, UINT64_MAX - 64, UINT64_MAX / 2};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        void *p = NULL;
        TRITONSERVER_Error *err = TRITONBACKEND_MemoryManagerAllocate(
            manager(), &p, TRITONSERVER_MEMORY_CPU, 0, sizes[i]);
        assert_non_null(err);
        assert_int_equal(TRITONSERVER_ErrorCode(err), TRITONSERVER_ERROR_UNAVAILABLE);
        assert_non_null(strstr(TRITONSERVER_ErrorMessage(err), "out of memory"));
        TRITONSERVER_ErrorDelete(err);
        assert_null(p);
    }
}

/* Memory of a GPU is a different error: more memory of another kind would not help. */
static void gpu_memory_is_unavailable(void **state)
{
    (void)state;
    void *p = NULL;
    TRITONSERVER_Error *err =
        TRITONBACKEND_MemoryManagerAllocate(manager(), &p, TRITONSERVER_MEMORY_GPU, 0, 8);
    assert_non_null(err);
    assert_int_equal(TRITONSERVER_ErrorCode(err), TRITONSERVER_ERROR_UNSUPPORTED);
    TRITONSERVER_ErrorDelete(err);
    assert_null(p);
}

static void a_memory_report_with_a_null_is_refused(void **state)
{
    (void)state;
    static struct model model;
    TRITONSERVER_BufferAttributes *usage[2] = {NULL, NULL};
    assert_null(TRITONSERVER_BufferAttributesNew(&usage[0]));
    assert_null(TRITONSERVER_BufferAttributesSetByteSize(usage[0], 5));
    assert_null(TRITONBACKEND_ModelReportMemoryUsage((TRITONBACKEND_Model *)&model, usage, 1));
    TRITONSERVER_Error *err =
        TRITONBACKEND_ModelReportMemoryUsage((TRITONBACKEND_Model *)&model, usage, 2);
    assert_non_null(err);
    assert_int_equal(TRITONSERVER_ErrorCode(err), TRITONSERVER_ERROR_INVALID_ARG);
    assert_string_equal(TRITONSERVER_ErrorMessage(err), "memory usage 1 of 2 was nullptr");
    TRITONSERVER_ErrorDelete(err);
    assert_int_equal(atomic_load(&model.reported_bytes[PLACE_CPU]), 5);
    assert_null(TRITONSERVER_BufferAttributesDelete(usage[0]));
}

static void memory_is_reported_by_its_place(void **state)
{
    (void)state;
    static struct model model;
    TRITONSERVER_BufferAttributes *usage[4];
    const struct {
        TRITONSERVER_MemoryType type;
        int64_t id;
    } places[] = {{TRITONSERVER_MEMORY_CPU, 1},
                  {TRITONSERVER_MEMORY_CPU_PINNED, 0},
                  {TRITONSERVER_MEMORY_GPU, 15},
                  {TRITONSERVER_MEMORY_GPU, 15}};
    for (size_t i = 0; i < 4; i++) {
        assert_null(TRITONSERVER_BufferAttributesNew(&usage[i]));
        assert_null(TRITONSERVER_BufferAttributesSetByteSize(usage[i], 1u << i));
        assert_null(TRITONSERVER_BufferAttributesSetMemoryType(usage[i], places[i].type));
        assert_null(TRITONSERVER_BufferAttributesSetMemoryTypeId(usage[i], places[i].id));
    }
    assert_null(TRITONBACKEND_ModelReportMemoryUsage((TRITONBACKEND_Model *)&model, usage, 4));
    assert_int_equal(atomic_load(&model.reported_bytes[PLACE_CPU]), 1);
    assert_int_equal(atomic_load(&model.reported_bytes[PLACE_CPU_PINNED]), 2);
    assert_int_equal(atomic_load(&model.reported_bytes[PLACE_GPU + 15]), 12);

    static const int64_t wrong[] = {16, -1, INT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        assert_null(TRITONSERVER_BufferAttributesSetMemoryTypeId(usage[3], wrong[i]));
        TRITONSERVER_Error *err =
            TRITONBACKEND_ModelReportMemoryUsage((TRITONBACKEND_Model *)&model, usage, 4);
        assert_non_null(err);
        assert_int_equal(TRITONSERVER_ErrorCode(err), TRITONSERVER_ERROR_INVALID_ARG);
        TRITONSERVER_ErrorDelete(err);
    }
    assert_int_equal(atomic_load(&model.reported_bytes[PLACE_GPU + 15]), 12);
    for (size_t i = 0; i < 4; i++)
        assert_null(TRITONSERVER_BufferAttributesDelete(usage[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_memory_manager_gives_aligned_memory),
        cmocka_unit_test(memory_is_charged_to_the_model_that_initialises),
        cmocka_unit_test(memory_that_cannot_be_allocated_is_an_error),
        cmocka_unit_test(gpu_memory_is_unavailable),
        cmocka_unit_test(a_memory_report_with_a_null_is_refused),
        cmocka_unit_test(memory_is_reported_by_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
