/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library's pages are those of its file until they are written, and even written ones vanish when
 * the file is truncated. So a user who overwrites the file changes the code that threads execute,
 * or kills the process. Therefore all pages are copied, and each copy replaces its original in one
 * step, which readers do not notice. A write to a variable of the library between the copy and the
 * replacement is lost. That is acceptable: the library has been finalised, and without the copy it
 * would have been unloaded under such a thread.
 */
#include "base/dl_pages.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/status.h"

enum { MAX_MAPS_BYTES = 64 << 20 };

/* The addresses of the library. */
struct span {
    const struct link_map *map;
    uintptr_t from, to;
};

static int find_mapped_span(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct span *s = arg;
    (void)size;
    if (info->dlpi_addr != s->map->l_addr || strcmp(info->dlpi_name, s->map->l_name) != 0)
        return 0;
    s->from = UINTPTR_MAX;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD)
            continue;
        s->from = MIN(s->from, (uintptr_t)(info->dlpi_addr + p->p_vaddr));
        s->to = MAX(s->to, (uintptr_t)(info->dlpi_addr + p->p_vaddr + p->p_memsz));
    }
    return 1;
}

/* For a sanitizer the bytes between the variables of a library belong to no object; they are
 * copied, too. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static void
copy_words(volatile uint64_t *to, const volatile uint64_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
}

static void copy_pages(uintptr_t at, size_t n_bytes, int protection)
{
    void *copy = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return;
    copy_words(copy, (const volatile uint64_t *)at, n_bytes / sizeof(uint64_t));
    if (mprotect(copy, n_bytes, protection) != 0 ||
        mremap(copy, n_bytes, n_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)at) == MAP_FAILED)
        munmap(copy, n_bytes);
}

/* Copies the pages of one line of /proc/self/maps. */
static void copy_mapping(const char *line, const struct span *s)
{
    uintptr_t from, to;
    uint64_t inode;
    char p[5];
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %" SCNu64, &from, &to, p, &inode) !=
            4 ||
        inode == 0 || p[0] != 'r' || p[3] != 'p' || from >= s->to || to <= s->from)
        return;
    copy_pages(from, to - from,
               PROT_READ | (p[1] == 'w' ? PROT_WRITE : 0) | (p[2] == 'x' ? PROT_EXEC : 0));
}

void dl_own_pages(void *handle)
{
    struct link_map *map = NULL;
    struct span s = {0};
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return;
    s.map = map;
    if (dl_iterate_phdr(find_mapped_span, &s) == 0)
        return;
    AUTO(buf) maps = BUF_INIT(MAX_MAPS_BYTES);
    struct status *st = file_read("/proc/self/maps", &maps);
    if (st) {
        status_free(st);
        return;
    }
    const char *line = buf_text(&maps);
    while (*line) {
        copy_mapping(line, &s);
        const char *end = strchr(line, '\n');
        line = end ? end + 1 : "";
    }
}
