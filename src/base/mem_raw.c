/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Aligned blocks and whole pages from the system, and the end of the process when there are none.
 * mem.c makes blocks with owners, and asks here whether a test makes an allocation fail.
 *
 * Threads: any; the two settings belong to the first thread.
 */
#include "base/mem_raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static mem_test_hook_fn test_hook;

void mem_set_test_hook(mem_test_hook_fn hook)
{
    __atomic_store_n(&test_hook, hook, __ATOMIC_RELAXED);
}

bool mem_is_allowed(size_t size_bytes)
{
    mem_test_hook_fn hook = __atomic_load_n(&test_hook, __ATOMIC_RELAXED);
    return LIKELY(!hook) || hook(size_bytes);
}

static bool exits;

void mem_exit_when_exhausted(void)
{
    exits = true;
}

void mem_end_process(size_t size_bytes)
{
    fprintf(stderr, "conch: out of memory (%zu bytes)\n", size_bytes);
    if (exits)
        _exit(1);
    abort();
}

/* ---- Aligned blocks: no header, it would have to be as long as the alignment ---------------- */

static void *get_aligned(size_t size_bytes)
{
    size_t rounded;
    if (__builtin_add_overflow(size_bytes + !size_bytes, MEM_ALIGNMENT - 1, &rounded))
        return NULL;
    return aligned_alloc(MEM_ALIGNMENT, rounded & ~(size_t)(MEM_ALIGNMENT - 1));
}

void *mem_alloc_aligned(size_t size_bytes)
{
    (void)mem_is_allowed(size_bytes);
    void *p = get_aligned(size_bytes);
    if (!p)
        mem_end_process(size_bytes);
    return p;
}

void *mem_try_alloc_aligned(size_t size_bytes)
{
    return mem_is_allowed(size_bytes) ? get_aligned(size_bytes) : NULL;
}

void mem_free_aligned(void *p)
{
    free(p);
}

/* ---- Whole pages ---------------------------------------------------------------------------- */

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* Fewer page faults while a large buffer is touched for the first time; advice only. */
static void *advise_huge_pages(void *p, size_t size_bytes)
{
    if (p == MAP_FAILED)
        return NULL;
    if (size_bytes >= HUGE_PAGE_BYTES)
        (void)madvise(p, size_bytes, MADV_HUGEPAGE);
    return p;
}

void *mem_try_map(size_t size_bytes)
{
    if (!mem_is_allowed(size_bytes))
        return NULL;
    return advise_huge_pages(
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
        size_bytes);
}

/* The thread sanitizer of GCC 12 does not know mremap(): where pages are moved, it would report
 * a race with another thread that had moved pages away from there. It knows mmap(). */
#ifdef __SANITIZE_THREAD__
static void *remap_pages(void *p, size_t old_bytes, size_t size_bytes)
{
    void *to = mmap(NULL, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED)
        return MAP_FAILED;
    void *moved = mremap(p, old_bytes, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (moved == MAP_FAILED)
        BUG_ON(munmap(to, size_bytes) < 0);
    return moved;
}
#else
static void *remap_pages(void *p, size_t old_bytes, size_t size_bytes)
{
    return mremap(p, old_bytes, size_bytes, MREMAP_MAYMOVE);
}
#endif

void *mem_try_remap(void *p, size_t old_bytes, size_t size_bytes)
{
    if (!mem_is_allowed(size_bytes))
        return NULL;
    return advise_huge_pages(remap_pages(p, old_bytes, size_bytes), size_bytes);
}

void mem_unmap(void *p, size_t size_bytes)
{
    BUG_ON(munmap(p, size_bytes) < 0);
}
