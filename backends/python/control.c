/* SPDX-License-Identifier: Apache-2.0 */
/* control - see control.h. What the message has is copied: it is given back before the thread runs.
 */
#include "python/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "python/reply.h"
#include "python/tensor.h"

enum { MOST_FILES = 65536, CONTROL_MAX_NAME = 4096 };

struct file {
    char *name;
    char *bytes; /* terminated */
    size_t len;
};

struct question {
    struct child *child; /* a reference */
    uint32_t kind;
    uint64_t id;
    char name[CONTROL_MAX_NAME], version[64];
    bool with_dependents;
    struct file *files;
    uint32_t n_files;
};

static void free_question(struct question *q)
{
    for (uint32_t i = 0; i < q->n_files; i++) {
        free(q->files[i].name);
        free(q->files[i].bytes);
    }
    free(q->files);
    child_unref(q->child);
    free(q);
}

static char *copy_field_text(struct unpacker *u, size_t *ret_len)
{
    const char *text = unpack_str(u, ret_len);
    char *copy = malloc(*ret_len + 1);

    if (copy) {
        memcpy(copy, text, *ret_len);
        copy[*ret_len] = 0;
    }
    return copy;
}

/* read_load_files - false without memory. */
static bool read_load_files(struct question *q, struct unpacker *u)
{
    const uint32_t n = unpack_count(u, MOST_FILES, 8);

    q->files = calloc(n ? n : 1, sizeof(*q->files));
    while (q->files && q->n_files < n) {
        struct file *f = &q->files[q->n_files++];
        size_t len;

        f->name = copy_field_text(u, &len);
        f->bytes = copy_field_text(u, &f->len);
        if (!f->name || !f->bytes)
            return false;
    }
    return q->files != NULL;
}

/* ---- On the thread -------------------------------------------------------------------------- */

static TRITONSERVER_Error *load_other_model(const struct question *q)
{
    const TRITONSERVER_Parameter **parameters = calloc(q->n_files + 1, sizeof(*parameters));
    TRITONSERVER_Error *err = NULL;

    if (!parameters)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    for (uint32_t i = 0; i < q->n_files; i++) {
        const struct file *f = &q->files[i];

        parameters[i] =
            strcmp(f->name, "config") == 0
                ? TRITONSERVER_ParameterNew(f->name, TRITONSERVER_PARAMETER_STRING, f->bytes)
                : TRITONSERVER_ParameterBytesNew(f->name, f->bytes, f->len);
        if (!parameters[i])
            err = backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    }
    if (!err)
        err = q->n_files ? TRITONSERVER_ServerLoadModelWithParameters(q->child->server, q->name,
                                                                      parameters, q->n_files)
                         : TRITONSERVER_ServerLoadModel(q->child->server, q->name);
    for (uint32_t i = 0; i < q->n_files; i++) {
        if (parameters[i])
            TRITONSERVER_ParameterDelete((TRITONSERVER_Parameter *)(uintptr_t)parameters[i]);
    }
    free(parameters);
    return err;
}

static TRITONSERVER_Error *unload_other_model(const struct question *q)
{
    return q->with_dependents
               ? TRITONSERVER_ServerUnloadModelAndDependents(q->child->server, q->name)
               : TRITONSERVER_ServerUnloadModel(q->child->server, q->name);
}

static TRITONSERVER_Error *ask_readiness(const struct question *q, bool *ret_ready)
{
    int64_t version = -1;

    if (*q->version) {
        char *end;

        errno = 0;
        version = strtoll(q->version, &end, 10);
        if (*end || errno || version <= 0)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "failed to get model version from specified version string '%s', "
                                 "version should be an integral value > 0",
                                 q->version);
    }
    return TRITONSERVER_ServerModelIsReady(q->child->server, q->name, version, ret_ready);
}

static void run_question(void *arg)
{
    struct question *q = arg;
    bool ready = false;
    TRITONSERVER_Error *err;

    if (q->kind == NOTE_LOAD_MODEL)
        err = load_other_model(q);
    else if (q->kind == NOTE_UNLOAD_MODEL)
        err = unload_other_model(q);
    else
        err = ask_readiness(q, &ready);
    if (err)
        reply_error(q->child, q->id, err);
    else if (q->kind == NOTE_IS_MODEL_READY)
        reply_flag(q->child, q->id, ready);
    else
        reply_nothing(q->child, q->id);
    free_question(q);
}

bool control_ask(struct child *c, uint32_t kind, uint64_t id, struct unpacker *u)
{
    struct question *q = calloc(1, sizeof *q);
    bool lacks = !q;

    if (lacks)
        goto refuse;
    q->child = child_ref(c);
    q->kind = kind;
    q->id = id;
    tensor_text(u, q->name, sizeof q->name);
    if (kind == NOTE_LOAD_MODEL)
        lacks = !read_load_files(q, u);
    else if (kind == NOTE_UNLOAD_MODEL)
        q->with_dependents = unpack_u8(u) != 0;
    else
        tensor_text(u, q->version, sizeof q->version);
    if (u->failed) {
        free_question(q);
        return false;
    }
    if (!lacks) {
        TRITONSERVER_Error *err = watcher_run(run_question, q);

        if (!err)
            return true;
        reply_error(c, id, err);
        free_question(q);
        return true;
    }
    free_question(q);
refuse:
    reply_error(c, id, backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory"));
    return true;
}
