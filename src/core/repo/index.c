/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers from the catalog: the index, the progress of the start, the table in the log.
 */
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/table.h"
#include "core/config/config.h"
#include "core/model/model.h"
#include "core/model/model_services.h"
#include "core/options/server_options.h"
#include "core/repo/index_row.h"
#include "core/repo/repository_priv.h"
#include "core/storage/storage.h"

/* ---- Rows ----------------------------------------------------------------------------------- */

/*
 * Rows and their texts lie in one block, so that they keep describing one moment. Two rounds fill
 * them: the first measures, the second writes.
 */
struct rows {
    struct model_index_row *list; /* NULL in the first round */
    size_t n;
    size_t text_bytes;
    char *texts; /* where the next text goes */
};

static const char *copy_row_text(struct rows *r, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = memcpy(r->texts, text, size);
    r->texts += size;
    return copy;
}

static void add_row(struct rows *r, const char *name, int64_t version, enum version_state state,
                    const char *reason)
{
    if (!r->list) {
        r->n++;
        r->text_bytes += strlen(name) + 1 + strlen(reason) + 1;
        return;
    }
    r->list[r->n++] = (struct model_index_row){
        .name = copy_row_text(r, name),
        .version = version,
        .state = state,
        .reason = copy_row_text(r, reason),
    };
}

/* Allocates what the first round measured; the second round begins. */
static bool alloc_rows(struct rows *r)
{
    size_t rows_bytes = (r->n + 1) * sizeof(*r->list);
    r->list = mem_try_alloc(rows_bytes + r->text_bytes);
    r->texts = (char *)r->list + rows_bytes;
    r->n = 0;
    return r->list != NULL;
}

static struct status *refuse_unlisted(void)
{
    return status_new(STATUS_UNAVAILABLE, "Server not ready");
}

/* ---- The index ------------------------------------------------------------------------------ */

static bool is_alive(const struct repo_model *rm)
{
    for (size_t j = 0; j < rm->n_versions; j++) {
        enum version_state state = rm->versions[j].state;
        if (state != VERSION_UNLOADED && state != VERSION_FAILED)
            return true;
    }
    return false;
}

static void add_versions(struct rows *r, const struct repo_model *rm, bool ready_only)
{
    for (size_t j = 0; j < rm->n_versions; j++) {
        const struct repo_version *rv = &rm->versions[j];
        if (rv->state == VERSION_READY || !ready_only)
            add_row(r, rm->name, rv->version, rv->state, repo_version_reason(rv));
    }
}

/* @duplicate  the reason, if several repositories have it and none of them is served */
static void add_model(struct rows *r, const char *name, const struct repo_model *rm,
                      const char *duplicate, bool ready_only)
{
    bool alive = rm && is_alive(rm);
    if (duplicate && !alive)
        add_row(r, name, -1, VERSION_FAILED, duplicate);
    else if (rm && rm->n_versions > 0)
        add_versions(r, rm, ready_only);
    else if (!ready_only)
        add_row(r, name, -1, VERSION_NONE, rm && rm->failure ? rm->failure : "");
}

/*
 * Which comes first: the i-th of the listed folders, or the j-th model of the catalog? 0: they are
 * the same model. Without namespacing the name decides, as in the catalog.
 */
static int compare_positions(const struct repository *repo, const struct listed_model *pm,
                             const struct repo_model *rm)
{
    int order = strcmp(pm->name, rm->name);
    if (order || !repo->options->model_namespacing)
        return order;
    return storage_compare(pm->storage, rm->storage);
}

/* A model whose folder is gone is in the index as long as it serves.
 * @listing  NULL: only the catalog */
static void add_index(struct rows *r, const struct repository *repo, const struct listing *listing,
                      bool ready_only)
{
    size_t i = 0, j = 0, n_listed = listing ? listing->n_models : 0;
    while (i < n_listed || j < repo->n_models) {
        const struct listed_model *pm = i < n_listed ? &listing->models[i] : NULL;
        const struct repo_model *rm = j < repo->n_models ? repo->models[j] : NULL;
        int order = !pm ? 1 : !rm ? -1 : compare_positions(repo, pm, rm);
        i += order <= 0;
        j += order >= 0;
        if (order < 0)
            add_model(r, pm->name, NULL, pm->duplicate ? pm->failure : NULL, ready_only);
        else if (order == 0)
            add_model(r, rm->name, rm, pm->duplicate ? pm->failure : NULL, ready_only);
        else if (!listing ? !rm->missing : is_alive(rm))
            add_model(r, rm->name, rm, rm->duplicate ? rm->failure : NULL, ready_only);
    }
}

struct status *repository_index(struct repository *repo, bool ready_only,
                                struct model_index_row **ret_rows, size_t *ret_n)
{
    struct rows r = {0};
    struct listing listing = {0}, *now = NULL;
    if (repo->options->control_mode != CONTROL_NONE) {
        now = &listing; /* the index has the models that could be loaded now */
        listing_of_roots(repository_roots(repo), repo->options, true, now);
    }
    mutex_lock(&repo->mu);
    bool listed = repo->listed;
    add_index(&r, repo, now, ready_only);
    bool fits = alloc_rows(&r);
    if (fits)
        add_index(&r, repo, now, ready_only);
    mutex_unlock(&repo->mu);
    listing_done(&listing);
    if (!listed || !fits) {
        mem_free(r.list);
        return listed ? status_no_memory() : refuse_unlisted();
    }
    *ret_rows = r.list;
    *ret_n = r.n;
    return NULL;
}

/* ---- The progress of the start --------------------------------------------------------------- */

/* Adds the versions that failed, or the model as a whole. */
static void add_failures(struct rows *r, const struct repo_model *rm, size_t max_rows)
{
    if (rm->n_versions == 0 && rm->failure && r->n < max_rows)
        add_row(r, rm->name, -1, VERSION_FAILED, rm->failure);
    for (size_t j = 0; j < rm->n_versions && r->n < max_rows; j++) {
        if (rm->versions[j].state == VERSION_FAILED)
            add_row(r, rm->name, rm->versions[j].version, VERSION_FAILED, rm->versions[j].failure);
    }
}

/* @unable  models whose backends cannot serve now; NULL ends */
static void add_progress(struct rows *r, const struct repository *repo, struct model *const *unable,
                         size_t max_rows, size_t *ret_n_loading)
{
    uint64_t now_ns = clock_now_ns(repo->services->clock);
    for (size_t i = 0; i < repo->n_models && r->n < max_rows; i++) {
        const struct repo_model *rm = repo->models[i];
        if (rm->stage != REPO_LOADING)
            continue;
        add_row(r, rm->name, -1, VERSION_LOADING, "");
        if (r->list)
            r->list[r->n - 1].loading_ns = now_ns - MIN(now_ns, rm->loading_since_ns);
    }
    *ret_n_loading = r->n;
    max_rows += r->n;
    for (size_t i = 0; i < repo->n_models && r->n < max_rows; i++) {
        if (repo->models[i]->wanted && repo->models[i]->stage == REPO_SETTLED)
            add_failures(r, repo->models[i], max_rows);
    }
    for (; *unable && r->n < max_rows; unable++)
        add_row(r, (*unable)->name, (*unable)->version, VERSION_READY,
                "its backend says that it cannot serve now: see the log");
}

/* Do all wanted versions serve? Dropped versions do not count. */
static bool is_fully_serving(const struct repo_model *rm)
{
    bool any = false, all = true;
    for (size_t j = 0; j < rm->n_versions; j++) {
        any |= rm->versions[j].model != NULL;
        all &= rm->versions[j].model != NULL || rm->versions[j].state != VERSION_FAILED;
        all &= rm->versions[j].state != VERSION_LOADING;
    }
    return any && all;
}

/* Does a version of it execute several requests at once? */
static bool is_batched(const struct repo_model *rm)
{
    for (size_t j = 0; j < rm->n_versions; j++) {
        const struct model *m = rm->versions[j].model;
        if (m && m->batching && model_config_joins_requests(m->config))
            return true;
    }
    return false;
}

static void count_models(const struct repository *repo, struct server_progress *ret)
{
    ret->n_models = ret->n_serving = ret->n_batched = ret->n_failed = 0;
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = repo->models[i];
        ret->n_models += rm->wanted;
        ret->n_serving += rm->wanted && is_fully_serving(rm);
        ret->n_batched += rm->wanted && is_fully_serving(rm) && is_batched(rm);
        ret->n_failed += rm->wanted && rm->stage == REPO_SETTLED && !is_fully_serving(rm);
    }
}

struct status *repository_progress(struct repository *repo, size_t max_rows,
                                   struct server_progress *ret)
{
    struct rows r = {0};
    struct model **unable = repository_unable(repo, max_rows, false);
    mutex_lock(&repo->mu);
    count_models(repo, ret);
    add_progress(&r, repo, unable, max_rows, &ret->n_loading);
    bool fits = alloc_rows(&r);
    if (fits)
        add_progress(&r, repo, unable, max_rows, &ret->n_loading);
    mutex_unlock(&repo->mu);
    repository_unref_models(unable);
    if (!fits)
        return status_no_memory();
    ret->rows = r.list;
    ret->n_rows = r.n;
    return NULL;
}

/* ---- The log -------------------------------------------------------------------------------- */

void repository_print_table(struct repository *repo, size_t columns, struct buf *out)
{
    struct table_text *t = table_text_new(3, (const char *const[]){"Model", "Version", "Status"});
    mutex_lock(&repo->mu);
    for (size_t i = 0; i < repo->n_models; i++) {
        const struct repo_model *rm = repo->models[i];
        if (rm->failure && rm->wanted)
            table_text_row(t, (const char *const[]){rm->title, "-", rm->failure});
        for (size_t j = 0; j < rm->n_versions; j++) {
            const struct repo_version *rv = &rm->versions[j];
            char *version = mem_printf("%lld", (long long)rv->version);
            const char *reason = repo_version_reason(rv);
            char *status =
                mem_printf("%s%s%s", version_state_name(rv->state), *reason ? ": " : "", reason);
            table_text_row(t, (const char *const[]){rm->title, version, status});
            mem_free(status);
            mem_free(version);
        }
    }
    mutex_unlock(&repo->mu);
    table_text_print(t, columns, out);
    table_text_free(t);
}
