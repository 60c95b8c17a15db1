/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list consists of slots in chunks, which are never freed, so that the signal handler can read
 * it without a lock. A slot with `begin` 0 is free. mu guards all changes, and the comparison with
 * /proc/self/maps, in which each mapping of ours must be known.
 *
 * The thread that raises SIGBUS inside of a mapping uses it, so that its slot cannot change
 * meanwhile. Other slots may: `begin` is written last and cleared first, and is read twice.
 */
#include "frontends/shm/mapping.h"

#include "conch/conch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/mutex.h"

enum { CHUNK_SLOTS = 64, MAPPING_LEVEL = 875 /* in the table of core/README.md */ };

struct mapping_slot {
    atomic_uintptr_t begin, end;
    atomic_bool is_broken;
};

struct slot_chunk {
    struct mapping_slot slots[CHUNK_SLOTS];
    _Atomic(struct slot_chunk *) next;
};

static struct slot_chunk first_chunk;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct mutex mu;

static void init_lock(void)
{
    mutex_init(&mu, MAPPING_LEVEL, "mapping.mu");
}

/* ---- Slots ---------------------------------------------------------------------------------- */

/* Finds the slot of an address: also in a signal handler. */
static struct mapping_slot *find_slot(uintptr_t at, uintptr_t *ret_end)
{
    for (struct slot_chunk *c = &first_chunk; c; c = atomic_load(&c->next)) {
        for (size_t i = 0; i < CHUNK_SLOTS; i++) {
            struct mapping_slot *s = &c->slots[i];
            uintptr_t begin = atomic_load(&s->begin), end = atomic_load(&s->end);
            if (begin == 0 || at < begin || at >= end || atomic_load(&s->begin) != begin)
                continue;
            *ret_end = end;
            return s;
        }
    }
    return NULL;
}

static struct mapping_slot *take_free_slot_locked(void)
{
    struct slot_chunk *last = &first_chunk;
    mutex_assert_held(&mu);
    for (struct slot_chunk *c = &first_chunk; c; c = atomic_load(&c->next)) {
        last = c;
        for (size_t i = 0; i < CHUNK_SLOTS; i++) {
            if (atomic_load(&c->slots[i].begin) == 0)
                return &c->slots[i];
        }
    }
    struct slot_chunk *more = mem_try_zalloc(1, sizeof(*more));
    if (!more)
        return NULL;
    atomic_store(&last->next, more);
    return &more->slots[0];
}

/* ---- Other mappings of the process ----------------------------------------------------------- */

/* Whether all of [begin, end) belongs to mappings of ours; neighbours may be one line in the file.
 */
static bool is_ours_locked(uintptr_t begin, uintptr_t end)
{
    mutex_assert_held(&mu);
    while (begin < end) {
        if (!find_slot(begin, &begin))
            return false;
    }
    return true;
}

/* Reads a hexadecimal or decimal number, and one character behind it. */
static bool read_map_number(const char **at, int base, char behind, unsigned long long *ret)
{
    char *end;
    *ret = strtoull(*at, &end, base);
    if (end == *at || *end != behind)
        return false;
    *at = end + 1;
    return true;
}

/* A line: "begin-end rwxp offset major:minor inode path". */
static bool is_foreign_line_locked(const char *at, const struct stat *object)
{
    unsigned long long begin, end, offset, major, minor, inode;
    if (!read_map_number(&at, 16, '-', &begin) || !read_map_number(&at, 16, ' ', &end))
        return false;
    at = strchr(at, ' ');
    if (!at)
        return false;
    at++;
    if (!read_map_number(&at, 16, ' ', &offset) || !read_map_number(&at, 16, ':', &major) ||
        !read_map_number(&at, 16, ' ', &minor) || !read_map_number(&at, 10, ' ', &inode))
        return false;
    return inode == object->st_ino &&
           makedev((unsigned int)major, (unsigned int)minor) == object->st_dev &&
           !is_ours_locked((uintptr_t)begin, (uintptr_t)end);
}

/*
 * Looks for a mapping of the object that is not ours. A line of the file may be longer than the
 * buffer, by its path; then only its beginning counts.
 */
static int check_maps_locked(int maps, const struct stat *object)
{
    char text[8192];
    size_t n = 0;
    bool is_rest = false; /* of a line whose beginning was read */
    for (;;) {
        ssize_t got = read(maps, text + n, sizeof(text) - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : 0;
        n += (size_t)got;
        text[n] = '\0';
        char *line = text, *end;
        while ((end = memchr(line, '\n', n - (size_t)(line - text)))) {
            *end = '\0';
            if (!is_rest && is_foreign_line_locked(line, object))
                return EACCES;
            is_rest = false;
            line = end + 1;
        }
        n -= (size_t)(line - text);
        memmove(text, line, n);
        if (n == sizeof(text) - 1) {
            text[n] = '\0';
            if (!is_rest && is_foreign_line_locked(text, object))
                return EACCES;
            is_rest = true;
            n = 0;
        }
    }
}

static int check_foreign_locked(int fd)
{
    struct stat object;
    if (fstat(fd, &object) < 0)
        return errno;
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0)
        return errno;
    int err = check_maps_locked(maps, &object);
    close(maps);
    return err;
}

/* ---- Mappings -------------------------------------------------------------------------------- */

static int map_locked(int fd, off_t offset, size_t size_bytes, struct mapping *ret)
{
    struct mapping_slot *slot = take_free_slot_locked();
    if (!slot)
        return ENOMEM;
    void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    if (base == MAP_FAILED)
        return errno;
    atomic_store(&slot->is_broken, false);
    atomic_store(&slot->end, (uintptr_t)base + size_bytes);
    atomic_store(&slot->begin, (uintptr_t)base);
    *ret = (struct mapping){.base = base, .size_bytes = size_bytes, .slot = slot};
    return 0;
}

int mapping_make(int fd, off_t offset, size_t size_bytes, struct mapping *ret_mapping)
{
    /* The kernel maps whole pages, of which the last may belong to more than the client's part. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole;
    if (__builtin_add_overflow(size_bytes, page - 1, &whole))
        return EINVAL;
    pthread_once(&once, init_lock);
    mutex_lock(&mu);
    int err = check_foreign_locked(fd);
    if (!err)
        err = map_locked(fd, offset, whole & ~(page - 1), ret_mapping);
    mutex_unlock(&mu);
    return err;
}

void mapping_end(struct mapping *m)
{
    mutex_lock(&mu);
    atomic_store(&m->slot->begin, 0);
    munmap(m->base, m->size_bytes);
    mutex_unlock(&mu);
    *m = (struct mapping){0};
}

bool mapping_is_broken(const struct mapping *m)
{
    return atomic_load_explicit(&m->slot->is_broken, memory_order_relaxed);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static struct sigaction before;

/*
 * Replaces the rest of the mapping, from the page at which the object is missing, by zero pages:
 * one call, and one more entry in the kernel's table, however many pages are missing.
 */
static bool repair(uintptr_t at)
{
    uintptr_t end, page = at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    struct mapping_slot *slot = find_slot(at, &end);
    if (!slot)
        return false;
    atomic_store(&slot->is_broken, true);
    void *place = (void *)page; // NOLINT(performance-no-int-to-ptr)
    return mmap(place, end - page, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

/*
 * A fault that is not repaired happens again when the handler returns, and then gets the action
 * that was there before. A signal that was sent, and not raised by an access, is sent again.
 */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    bool is_fault = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
    (void)context;
    if (!is_fault || !repair((uintptr_t)info->si_addr)) {
        sigaction(number, &before, NULL);
        if (!is_fault)
            raise(number);
    }
    errno = saved;
}

static void install_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    /* First: the handler must find it. */
    sigaction(SIGBUS, NULL, &before);
    sigaction(SIGBUS, &action, NULL);
}

void mapping_catch_faults(void)
{
    static pthread_once_t installed = PTHREAD_ONCE_INIT;
    pthread_once(&installed, install_handler);
}

void conch_catch_region_faults(void)
{
    mapping_catch_faults();
}
