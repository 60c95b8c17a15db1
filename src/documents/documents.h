/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON documents that both the C API and the HTTP frontend answer with: core's structs, encoded
 * in one place. Each function appends to out; buf_status(out) has the error. Thread: any.
 */
#ifndef CONCH_DOCUMENTS_DOCUMENTS_H
#define CONCH_DOCUMENTS_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct buf;
struct model;
struct model_index_row;
struct server;
struct server_progress;
struct server_statistics;
struct status;

/* {"name","version","extensions":[…]} */
void document_server_metadata(const struct server *s, struct buf *out);

/*
 * document_model_metadata - {"name","versions":[…],"platform","inputs":[…],"outputs":[…]}
 *
 * @versions  the versions to list, ascending
 */
void document_model_metadata(const struct model *m, const int64_t *versions, size_t n_versions,
                             struct buf *out);

/*
 * document_progress - {"ready","state","models":{"total","serving","failed"},"loading":["name",…],
 * "failed":[{"name"[,"version"],"reason"},…]}
 */
void document_progress(const struct server_progress *p, struct buf *out);

/*
 * document_statistics - {"model_stats":[{"name","version","last_inference","inference_count",
 * "execution_count","inference_stats":{…},"response_stats":{…},"batch_stats":[…],
 * "memory_usage":[…]}, …]} (reference/behaviours §16.1)
 */
void document_statistics(const struct server_statistics *statistics, struct buf *out);

/* [{"name"[,"version"][,"state"][,"reason"]}, …] */
void document_index(const struct model_index_row *rows, size_t n_rows, struct buf *out);

/*
 * document_check_config_version - checks the version of a configuration document.
 *
 * Errors: STATUS_INVALID_ARG  it is not 1
 */
NODISCARD struct status *document_check_config_version(uint32_t version);

#endif
