/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods on the repository: index, load, unload. Thread: a control thread's, since all three
 * may block.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/repo/load_parameter.h"
#include "core/server/server.h"
#include "frontends/grpc/unary_priv.h"
#include "proto/inference.pb-c.h"

typedef Inference__ModelRepositoryParameter parameter_message;

static struct status *check_repository_name(const char *name)
{
    if (name[0] == '\0')
        return NULL;
    return status_new(STATUS_UNSUPPORTED, "'repository_name' specification is not supported");
}

/* ---- The index ------------------------------------------------------------------------------ */

typedef Inference__RepositoryIndexResponse__ModelIndex index_message;

static index_message *make_row(struct unary_call *c, const struct model_index_row *row)
{
    index_message *m =
        UNARY_NEW(c, index_message, inference__repository_index_response__model_index__init);
    char version[24] = "";
    if (!m)
        return NULL;
    if (row->version >= 0)
        snprintf(version, sizeof(version), "%" PRId64, row->version);
    m->name = arena_strndup(c->arena, row->name, strlen(row->name));
    m->version = arena_strndup(c->arena, version, strlen(version));
    m->reason = arena_strndup(c->arena, row->reason, strlen(row->reason));
    if (row->state != VERSION_NONE)
        m->state = unary_borrow(version_state_name(row->state));
    return m->name && m->version && m->reason ? m : NULL;
}

static bool fill_index(struct unary_call *c, const struct model_index_row *rows, size_t n)
{
    Inference__RepositoryIndexResponse *answer = (Inference__RepositoryIndexResponse *)c->answer;
    answer->models = unary_alloc(c, n, sizeof(*answer->models));
    for (size_t i = 0; answer->models && i < n; i++) {
        answer->models[i] = make_row(c, &rows[i]);
        if (!answer->models[i])
            return false;
    }
    answer->n_models = n;
    return answer->models != NULL;
}

struct status *unary_repository_index(struct unary_call *c)
{
    const Inference__RepositoryIndexRequest *asked =
        (const Inference__RepositoryIndexRequest *)c->request;
    struct model_index_row *rows;
    size_t n;
    struct status *st = check_repository_name(asked->repository_name);
    if (!st)
        st = server_index(c->server, asked->ready, &rows, &n);
    if (st)
        return st;
    bool fine = fill_index(c, rows, n);
    mem_free(rows);
    return fine ? NULL : status_no_memory();
}

/* ---- Load and unload ------------------------------------------------------------------------ */

static struct status *read_load_parameter(const char *key, const parameter_message *value,
                                          struct load_parameter *ret)
{
    static const char file[] = "file:";
    bool is_config = strcmp(key, "config") == 0;
    int choice = value ? (int)value->parameter_choice_case : 0;
    if (!is_config && strncmp(key, file, sizeof(file) - 1) != 0)
        return status_new(STATUS_INVALID_ARG, "unrecognized load parameter '%s'.", key);
    int wanted = is_config ? INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM
                           : INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_BYTES_PARAM;
    if (choice != wanted)
        return status_new(STATUS_INVALID_ARG,
                          "invalid value type for load parameter '%s', expected %s.", key,
                          is_config ? "string_param" : "bytes_param");
    *ret = (struct load_parameter){.name = key};
    if (is_config) {
        ret->type = PARAMETER_STRING;
        ret->bytes = value->string_param;
    } else {
        ret->type = PARAMETER_BYTES;
        ret->bytes = value->bytes_param.data;
        ret->size_bytes = value->bytes_param.len;
    }
    return NULL;
}

struct status *unary_model_load(struct unary_call *c)
{
    const Inference__RepositoryModelLoadRequest *asked =
        (const Inference__RepositoryModelLoadRequest *)c->request;
    struct load_parameter *list = unary_alloc(c, asked->n_parameters, sizeof(*list));
    struct status *st = list ? check_repository_name(asked->repository_name) : status_no_memory();
    for (size_t i = 0; !st && i < asked->n_parameters; i++)
        st = read_load_parameter(asked->parameters[i]->key, asked->parameters[i]->value, &list[i]);
    return st ? st : server_load_model(c->server, asked->model_name, list, asked->n_parameters);
}

struct status *unary_model_unload(struct unary_call *c)
{
    const Inference__RepositoryModelUnloadRequest *asked =
        (const Inference__RepositoryModelUnloadRequest *)c->request;
    struct status *st = check_repository_name(asked->repository_name);
    bool with_members = false;
    for (size_t i = 0; !st && i < asked->n_parameters; i++) {
        const parameter_message *value = asked->parameters[i]->value;
        if (strcmp(asked->parameters[i]->key, "unload_dependents") != 0)
            continue;
        if (!value || value->parameter_choice_case !=
                          INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM)
            st = status_new(STATUS_INVALID_ARG, "invalid value type for 'unload_dependents' "
                                                "parameter, expected bool_param.");
        else
            with_members = value->bool_param;
    }
    return st ? st : server_unload_model(c->server, asked->model_name, with_members);
}
