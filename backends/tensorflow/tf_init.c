/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is JSON: {"init_ops": ["init", …]}. It is in the version's folder or, if it is not
 * there, in the model's. The operators run one after the other, in the order of the file.
 */
#include "tensorflow/tf_init.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_INIT_FILE (1 << 20)

static TRITONSERVER_Error *refuse_init_file(const struct tf_loaded *l, TRITONSERVER_Error_Code code,
                                            const char *why)
{
    return backend_error(code, "unable to load model '%s', TF_INIT_OPS_FILE '%s': %s", l->m->name,
                         l->m->asked.init_ops_file, why);
}

/* Opens the file; -1: errno says why it cannot. */
static int open_init_file(const char *folder, uint64_t version, const char *name)
{
    char version_folder[24];
    const char *const places[] = {version_folder, ""};
    int fd = -1;

    snprintf(version_folder, sizeof(version_folder), "%llu/", (unsigned long long)version);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char *path;
        int error;

        if (asprintf(&path, "%s/%s%s", folder, places[i], name) < 0) {
            errno = ENOMEM;
            return -1;
        }
        /* Opening a pipe must not wait for a writer. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        error = errno;
        free(path);
        errno = error;
        if (fd >= 0 || error != ENOENT)
            break;
    }
    return fd;
}

static TRITONSERVER_Error *parse_init_file(const struct tf_loaded *l, int fd, struct doc **ret_doc)
{
    char *text = NULL;
    const char *why = "out of memory";
    struct stat info;
    ssize_t n = -1;

    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > MAX_INIT_FILE)
        return refuse_init_file(l, TRITONSERVER_ERROR_INVALID_ARG,
                                "it is no regular file of at most 1 MiB");
    text = malloc((size_t)info.st_size + 1);
    if (text) {
        n = read(fd, text, (size_t)info.st_size);
        if (n < 0)
            why = strerror(errno);
    }
    *ret_doc = n >= 0 ? doc_parse(text, (size_t)n, &why) : NULL;
    free(text);
    if (*ret_doc && doc_count(doc_get(doc_root(*ret_doc), "init_ops")) > 0)
        return NULL;
    return refuse_init_file(l, TRITONSERVER_ERROR_INVALID_ARG,
                            *ret_doc ? "it has no list 'init_ops'" : why);
}

static TRITONSERVER_Error *run_init_op(const struct tf_loaded *l, const struct tf_session *s,
                                       const char *name, struct tf_status *status)
{
    const struct tf_api *api = &l->lib->api;
    const struct tf_operation *op = api->GraphOperationByName(s->graph, name);

    if (!op)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to load model '%s', TF_INIT_OPS_FILE '%s': the graph has no "
                             "operation '%s'",
                             l->m->name, l->m->asked.init_ops_file, name);
    api->SessionRun(s->object, NULL, NULL, NULL, 0, NULL, NULL, 0, &op, 1, NULL, status);
    return tf_library_error(l->lib, status, "running an init op");
}

static TRITONSERVER_Error *run_listed_ops(const struct tf_loaded *l, const struct tf_session *s,
                                          const struct doc *d, struct tf_status *status)
{
    const struct doc_value *v = doc_first(doc_get(doc_root(d), "init_ops"));

    for (; v; v = v->next)
        TRY(run_init_op(l, s, doc_string(v, ""), status));
    return NULL;
}

TRITONSERVER_Error *tf_run_init_ops(const struct tf_loaded *l, const struct tf_session *s,
                                    struct tf_status *status)
{
    const char *name = l->m->asked.init_ops_file, *folder;
    TRITONBACKEND_ArtifactType type;
    struct doc *d = NULL;
    TRITONSERVER_Error *err;
    uint64_t version;
    int fd;

    if (backend_escapes_folder(name))
        return refuse_init_file(l, TRITONSERVER_ERROR_INVALID_ARG, "it is outside the folder");
    TRY(TRITONBACKEND_ModelRepository(l->m->frame->handle, &type, &folder));
    TRY(TRITONBACKEND_ModelVersion(l->m->frame->handle, &version));
    fd = open_init_file(folder, version, name);
    if (fd < 0)
        return refuse_init_file(l, TRITONSERVER_ERROR_NOT_FOUND, strerror(errno));
    err = parse_init_file(l, fd, &d);
    close(fd);
    if (!err)
        err = run_listed_ops(l, s, d, status);
    doc_free(d);
    return err;
}
