/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check maps that much address space and unmaps it at once. It reserves nothing: another
 * thread may take the room before the caller uses it.
 */
#include "onnxruntime/room.h"

#include <sys/mman.h>
#include <sys/resource.h>

TRITONSERVER_Error *room_check(size_t bytes, const char *what)
{
    void *pages = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (pages == MAP_FAILED)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                             "%s needs %zu MiB of address space, and the system has no more for "
                             "this process (ulimit -v)",
                             what, bytes >> 20);
    (void)munmap(pages, bytes);
    return NULL;
}

static bool is_limited(__rlimit_resource_t what)
{
    struct rlimit limit;

    return getrlimit(what, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

bool room_is_limited(void)
{
    return is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA);
}
