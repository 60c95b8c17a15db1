/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the library and checks that it lies in the model repository; then come the load of the
 * library and the life of its batcher. dynamic.c forms the batches, and calls the library's
 * functions.
 *
 * Load and end run on threads that are joined before the library is closed. If a thread that goes
 * on has run the library's code (`stays`), the library is never unloaded.
 */
#include "core/sched/batch_strategy.h"

#include <stdlib.h>
#include <string.h>

#include "base/dl.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/str.h"
#include "core/backend/backend.h"
#include "core/model/model_priv.h"
#include "core/storage/storage.h"

#define ESCAPES "Batching library path escapes model repository."

/* ---- Finding the library --------------------------------------------------------------------- */

/* Returns the part of the path behind the folder; NULL: the path is not below it. */
static const char *find_path_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    while (n > 0 && folder[n - 1] == '/')
        n--;
    return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

/* The target of a link counts, unless links may lead out of the repository. */
static struct status *check_library_inside(const struct storage *s, const char *path)
{
    char *real = realpath(path, NULL), *root = realpath(s->root, NULL);
    const char *name = find_path_below(path, s->root);
    struct status *st = NULL;
    struct file_info info;
    if (real && root && find_path_below(real, root))
        ;
    else if (name && !str_escapes_folder(name))
        st = storage_stat(s, name, &info);
    else
        st = status_new(STATUS_INVALID_ARG, ESCAPES);
    free(real);
    free(root);
    return st;
}

/* An error may reveal whether a file of this path exists only if the path, as it is written,
 * lies in the repository. */
static bool is_named_inside(const struct storage *s, const char *path)
{
    char *root = realpath(s->root, NULL);
    const char *name = find_path_below(path, s->root);
    if (!name && root)
        name = find_path_below(path, root);
    bool inside = name && !str_escapes_folder(name);
    free(root);
    return inside;
}

static bool has_sequence_batcher(const struct model_config *c)
{
    return c->pb->scheduling_choice_case ==
           INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;
}

static const char *get_library_parameter(const struct model_config *c)
{
    return model_config_parameter(c, BATCH_STRATEGY_PARAMETER);
}

struct status *batch_strategy_find(const struct batch_strategy_search *s, char **ret_path)
{
    const char *named = get_library_parameter(s->config);
    struct file_info info;
    struct status *st = NULL;
    *ret_path = NULL;
    if (has_sequence_batcher(s->config))
        return NULL;
    if (!named) {
        *ret_path = backend_find_file(s->backends, s->config->pb->backend, s->directory,
                                      s->version_directory, "batchstrategy.so");
        return NULL;
    }
    st = file_stat(named, &info);
    if ((st || info.kind == FILE_MISSING) && !is_named_inside(s->storage, named)) {
        status_free(st);
        return status_new(STATUS_INVALID_ARG, ESCAPES);
    }
    if (!st && info.kind == FILE_MISSING)
        st = status_new(STATUS_NOT_FOUND, "Batching library path not found: %s", named);
    if (!st)
        *ret_path = mem_strdup(named);
    return st;
}

struct status *batch_strategy_check(const struct batch_strategy_search *s, const char *path)
{
    return get_library_parameter(s->config)
               ? check_library_inside(s->storage, path)
               : storage_check_fetched(s->storage, s->folder, s->directory, path);
}

/* NULL: there is none. */
static struct status *find_batching_library(const struct model *m,
                                            const struct backend_registry *reg, char **ret_path)
{
    char *version_directory = mem_printf("%s/%s", m->directory, m->version_text), *path;
    const struct batch_strategy_search s = {
        .backends = reg,
        .config = m->config,
        .storage = m->storage,
        .folder = m->folder,
        .directory = m->directory,
        .version_directory = version_directory,
    };
    if (has_sequence_batcher(m->config) && get_library_parameter(m->config))
        log_warn(BATCH_STRATEGY_PARAMETER " cannot be specified with sequence batcher, using "
                                          "default batching strategy (model '%s')",
                 m->name);
    struct status *st = batch_strategy_find(&s, &path);
    if (!st && path)
        st = batch_strategy_check(&s, path);
    mem_free(version_directory);
    if (st)
        mem_free(path);
    else
        *ret_path = path;
    return st;
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* Finds all five functions, or none. */
static bool resolve_batching_functions(struct batch_strategy *b, size_t *ret_n_missing)
{
    const struct {
        const char *symbol;
        void **slot;
    } wanted[] = {
        {"TRITONBACKEND_ModelBatcherInitialize", (void **)&b->batcher_begin},
        {"TRITONBACKEND_ModelBatcherFinalize", (void **)&b->batcher_end},
        {"TRITONBACKEND_ModelBatchInitialize", (void **)&b->begin},
        {"TRITONBACKEND_ModelBatchIncludeRequest", (void **)&b->include},
        {"TRITONBACKEND_ModelBatchFinalize", (void **)&b->end},
    };
    *ret_n_missing = 0;
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        *wanted[i].slot = dl_optional_symbol(b->library, wanted[i].symbol);
        *ret_n_missing += !*wanted[i].slot;
    }
    return *ret_n_missing < ARRAY_SIZE(wanted);
}

static struct status *begin_batcher(struct batch_strategy *b, struct model *m)
{
    MEM_CHARGE(m->owner, MEM_BACKEND);
    mutex_assert_none_held();
    b->entered = true;
    return b->batcher_begin(&b->batcher, m);
}

static struct status *load_batching_library(struct batch_strategy *b, struct model *m,
                                            const char *path, bool *ret_useful)
{
    size_t n_missing;
    log_info("Loading custom batching strategy library %s for model %s", path, m->name);
    dl_offer_self();
    struct status *st = dl_open(path, &b->library);
    if (st)
        return st;
    *ret_useful = resolve_batching_functions(b, &n_missing);
    if (!*ret_useful)
        return NULL;
    if (n_missing)
        return status_new(STATUS_INVALID_ARG,
                          "%s does not define all required custom batching functions for model %s",
                          path, m->name);
    return begin_batcher(b, m);
}

struct status *batch_strategy_open(struct model *m, const struct backend_registry *reg)
{
    MEM_CHARGE(m->owner, MEM_CONFIG); /* it is freed later than the instances */
    bool useful = false;
    char *path;
    struct status *st = find_batching_library(m, reg, &path);
    if (st || !path)
        return st;
    m->strategy = mem_zalloc(sizeof(*m->strategy));
    st = load_batching_library(m->strategy, m, path, &useful);
    if (!st && !useful)
        log_warn("%s has no custom batching functions: model '%s' goes without", path, m->name);
    if (!st && !useful)
        batch_strategy_close(m); /* none of its functions has run */
    mem_free(path);
    return st;
}

void batch_strategy_end(struct model *m)
{
    struct batch_strategy *b = m->strategy;
    if (!b || !b->entered)
        return;
    b->entered = false;
    mutex_assert_none_held();
    struct status *st = b->batcher_end(b->batcher);
    if (st)
        log_error("Custom batcher finalization failed for model %s: %s", m->name,
                  status_message(st));
    status_free(st);
}

void batch_strategy_close(struct model *m)
{
    struct batch_strategy *b = TAKE(m->strategy);
    if (!b)
        return;
    if (!atomic_load_explicit(&b->stays, memory_order_relaxed))
        dl_close(b->library);
    else if (b->library && dl_stay(b->library))
        log_info("the batching library of model '%s' stays in memory: it has run on threads that "
                 "go on; if its file changes, a load takes the new one",
                 m->name);
    mem_free(b);
}

void batch_strategy_stays(struct model *m)
{
    if (m->strategy)
        atomic_store_explicit(&m->strategy->stays, true, memory_order_relaxed);
}

void model_code_stays(struct model *m)
{
    backend_stays(m->backend);
    batch_strategy_stays(m);
}
