/* SPDX-License-Identifier: Apache-2.0 */
/* Settings are read first, the library is found after; a backend may do that later, when a model
 * needs it. Thread: one at a time. */
#include "openvino/runtime.h"

#include <stdlib.h>
#include <string.h>

#include "common/settings.h"

#define DEFAULT_MAX_BATCH_SIZE 4

TRITONSERVER_Error *runtime_read(const struct doc *settings, const char *backend,
                                 struct runtime *rt)
{
    const char *cache_dir = backend_setting(settings, "cache-dir");

    rt->backend = backend;
    TRY(settings_int(settings, backend, "default-max-batch-size", 0, INT32_MAX,
                     DEFAULT_MAX_BATCH_SIZE, &rt->default_max_batch_size));
    TRY(settings_bool(settings, backend, "allow-extensions", false, &rt->allow_extensions));
    if (!cache_dir || !*cache_dir)
        return NULL;
    rt->cache_dir = strdup(cache_dir);
    return rt->cache_dir ? NULL : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
}

TRITONSERVER_Error *runtime_start(struct runtime *rt, const char *folder, const char *file)
{
    TRY(library_open(folder, file, &rt->lib));
    BACKEND_LOG(INFO, "OpenVINO %s from %s", rt->lib.version, rt->lib.path ? rt->lib.path : "?");
    TRY(library_start(&rt->lib));
    return rt->watch ? NULL : watch_new(&rt->watch);
}

void runtime_done(struct runtime *rt)
{
    watch_free(rt->watch);
    library_done(&rt->lib);
    free(rt->cache_dir);
    *rt = (struct runtime){0};
}
