/* SPDX-License-Identifier: Apache-2.0 */
/*
 * malloc_count - an LD_PRELOAD library that counts a program's calls to the allocator.
 *
 * The counts lie in a file that MALLOC_COUNT_FILE names, mapped shared, so that a benchmark reads
 * them while the program runs without disturbing it: no signal, no handler, no thread. The calls go
 * on to the next allocator, the C library's or jemalloc.
 *
 * The file is an array of 64-bit counts, in the order of enum call.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* bench/harness/micro.py knows this order. */
enum call { CALL_MALLOC, CALL_CALLOC, CALL_REALLOC, CALL_ALIGNED, CALL_FREE, N_CALLS };

/* Until the file is mapped (and for ever, without one) the counts go here, where they are not
 * read. */
static atomic_uint_fast64_t unmapped[N_CALLS];
static _Atomic(atomic_uint_fast64_t *) counts = unmapped;

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    void (*free)(void *);
} next;

/*
 * dlsym() may itself allocate before `next` is known. Those few blocks lie here and are never
 * freed.
 */
static _Alignas(64) char early[16384];
static atomic_size_t early_used;

static void *early_alloc(size_t size)
{
    size_t at = atomic_fetch_add(&early_used, (size + 63) & ~(size_t)63);

    return at + size <= sizeof(early) ? early + at : NULL;
}

static int is_early(const void *p)
{
    return (uintptr_t)p - (uintptr_t)early < sizeof(early);
}

static void *symbol(const char *name)
{
    void *s = dlsym(RTLD_NEXT, name);

    if (!s)
        abort();
    return s;
}

static void next_find(void)
{
    static _Thread_local int finding;

    if (finding)
        return;
    finding = 1;
    *(void **)&next.calloc = symbol("calloc");
    *(void **)&next.realloc = symbol("realloc");
    *(void **)&next.memalign = symbol("memalign");
    *(void **)&next.free = symbol("free");
    *(void **)&next.malloc = symbol("malloc");
    finding = 0;
}

__attribute__((constructor)) static void map_file(void)
{
    const char *path = getenv("MALLOC_COUNT_FILE");
    void *p;
    int fd;

    if (!next.malloc)
        next_find();
    fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    if (ftruncate(fd, sizeof(unmapped)) == 0) {
        p = mmap(NULL, sizeof(unmapped), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED)
            atomic_store(&counts, p);
    }
    close(fd);
}

static void count(enum call call)
{
    /* Relaxed: they are read when no request is in flight. */
    atomic_fetch_add_explicit(&atomic_load_explicit(&counts, memory_order_relaxed)[call], 1,
                              memory_order_relaxed);
}

void *malloc(size_t size)
{
    count(CALL_MALLOC);
    if (!next.malloc)
        next_find();
    return next.malloc ? next.malloc(size) : early_alloc(size);
}

void *calloc(size_t n, size_t size)
{
    count(CALL_CALLOC);
    if (!next.calloc)
        next_find();
    return next.calloc ? next.calloc(n, size) : early_alloc(n * size);
}

void *realloc(void *p, size_t size)
{
    void *copy;

    count(CALL_REALLOC);
    if (!next.realloc)
        next_find();
    if (!is_early(p) && next.realloc)
        return next.realloc(p, size);
    copy = next.malloc ? next.malloc(size) : early_alloc(size);
    if (copy && p) {
        size_t left = (size_t)(early + sizeof(early) - (char *)p);

        memcpy(copy, p, size < left ? size : left);
    }
    return copy;
}

void *memalign(size_t alignment, size_t size)
{
    count(CALL_ALIGNED);
    if (!next.memalign)
        next_find();
    return next.memalign ? next.memalign(alignment, size) : early_alloc(size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **ret_p, size_t alignment, size_t size)
{
    void *p = memalign(alignment, size);

    if (!p)
        return ENOMEM;
    *ret_p = p;
    return 0;
}

void free(void *p)
{
    if (!p || is_early(p))
        return;
    count(CALL_FREE);
    if (!next.free)
        next_find();
    next.free(p);
}
