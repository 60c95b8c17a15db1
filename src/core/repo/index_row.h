/* SPDX-License-Identifier: Apache-2.0 */
/* What callers of the server are told about the models of the repositories. */
#ifndef CONCH_CORE_REPO_INDEX_ROW_H
#define CONCH_CORE_REPO_INDEX_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/repo/model_version.h"

/* One row of the repository index. */
struct model_index_row {
    const char *name;
    int64_t version; /* -1 = none: never loaded */
    enum version_state state;
    const char *reason;  /* "" = none */
    uint64_t loading_ns; /* in a server_progress: how long it has been LOADING */
};

/* How far the loading of a server's models is, and which models failed. */
struct server_progress {
    bool ready;
    const char *state;            /* "starting", "running", "stopping", "failed" */
    size_t n_models;              /* models that are to serve */
    size_t n_serving;             /* … of which all versions serve */
    size_t n_batched;             /* … and which execute several requests at once */
    size_t n_failed;              /* … that failed; the rest is being loaded, or waits for it */
    size_t n_loading;             /* the first rows: models that are being loaded */
    size_t n_rows;                /* all rows; after n_loading those that failed, with reasons */
    struct model_index_row *rows; /* one block: the caller frees it with mem_free() */
};

#endif
