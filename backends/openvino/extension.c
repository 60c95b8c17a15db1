/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extension - operators of a user's own: libraries of OpenVINO (CPU_EXTENSION_PATH), which are C++
 * and compiled for one release, and for the backend tensorflow those of TensorFlow. They are code
 * that runs in the server, so they need a setting of the server. A file is looked at before the
 * framework loads it, so that an error says what is wrong with it. No state.
 */
#include "openvino/model.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A relative path begins in the model's folder. */
static TRITONSERVER_Error *make_extension_path(TRITONBACKEND_Model *handle, const char *path,
                                               char **ret_path)
{
    TRITONBACKEND_ArtifactType type;
    const char *folder;

    TRY(TRITONBACKEND_ModelRepository(handle, &type, &folder));
    *ret_path = NULL;
    if ((*path == '/' ? asprintf(ret_path, "%s", path)
                      : asprintf(ret_path, "%s/%s", folder, path)) < 0)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    return NULL;
}

/* Does the file end before what its headers promise? The system's loader maps such a library, and
 * the process ends where it touches a page that is not there. What is no library at all the loader
 * refuses. */
static bool is_cut_off(int fd, uint64_t size)
{
    Elf64_Ehdr head;
    Elf64_Phdr part;

    if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(part))
        return false;
    for (size_t i = 0; i < head.e_phnum; i++) {
        uint64_t at;

        if (__builtin_add_overflow(head.e_phoff, i * sizeof(part), &at) || at > INT64_MAX ||
            pread(fd, &part, sizeof(part), (off_t)at) != (ssize_t)sizeof(part))
            return true;
        if (part.p_type == PT_LOAD &&
            (part.p_offset > size || part.p_filesz > size - part.p_offset))
            return true;
    }
    return false;
}

static TRITONSERVER_Error *check_extension_file(const char *model, const char *what,
                                                const char *path)
{
    struct stat info;
    bool cut;
    int fd;

    if (stat(path, &info) != 0)
        return backend_error(TRITONSERVER_ERROR_NOT_FOUND, "model '%s': %s '%s': %s", model, what,
                             path, strerror(errno));
    /* Opening a pipe would wait for a writer. */
    if (!S_ISREG(info.st_mode))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s': %s '%s' is no regular file", model, what, path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "model '%s': %s '%s': %s", model, what,
                             path, strerror(errno));
    cut = is_cut_off(fd, (uint64_t)info.st_size);
    close(fd);
    if (cut)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s': %s '%s': the file ends before the library does", model,
                             what, path);
    return NULL;
}

TRITONSERVER_Error *extension_find(TRITONBACKEND_Model *handle, const char *model, const char *what,
                                   const char *name, char **ret_path)
{
    TRITONSERVER_Error *err;
    char *path;

    TRY(make_extension_path(handle, name, &path));
    err = check_extension_file(model, what, path);
    if (err)
        free(path);
    else
        *ret_path = path;
    return err;
}

static TRITONSERVER_Error *load_extension(const struct model *m, const char *path)
{
    TRITONSERVER_Error *err, *named;

    if (m->rt->lib.api.core_add_extension(m->core, path) == 0) {
        BACKEND_LOG(INFO, "model '%s': the CPU extension %s is loaded", m->name, path);
        return NULL;
    }
    err = library_error(&m->rt->lib, "loading custom CPU extensions");
    named = backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                          "model '%s': CPU_EXTENSION_PATH '%s' is no extension of OpenVINO %s: %s",
                          m->name, path, m->rt->lib.version, TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
    return named;
}

TRITONSERVER_Error *add_extension(const struct model *m)
{
    TRITONSERVER_Error *err;
    char *path;

    if (!m->asked.extension)
        return NULL;
    /* Before the file is looked at: the answer is the same whether it exists or not. */
    if (!m->rt->allow_extensions)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "model '%s': CPU_EXTENSION_PATH '%s' is code that would run in the "
                             "server; --backend-config=%s,allow-extensions=1 permits it",
                             m->name, m->asked.extension, m->rt->backend);
    TRY(extension_find(m->frame->handle, m->name, "CPU_EXTENSION_PATH", m->asked.extension, &path));
    err = load_extension(m, path);
    free(path);
    return err;
}
