/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file is read to the size that it has when it is opened. Of a file that is cut off meanwhile,
 * less is there; ONNX Runtime then finds the tensors that end behind that. One thread loads a
 * model.
 */
#include "onnxruntime/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Lists of n elements each, in the order of the files; locations of one path share their data. */
struct weights {
    size_t n;
    const char **locations; /* the strings are of struct external */
    char **data;
    size_t *lens; /* in bytes */
};

static TRITONSERVER_Error *name_failure(const struct external_file *file)
{
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "external data in '%s' cannot be read: %s",
                         file->location, strerror(errno));
}

static TRITONSERVER_Error *fill_data(int fd, const struct external_file *file, char *data,
                                     size_t size, size_t *ret_len)
{
    size_t len = 0;

    while (len < size) {
        ssize_t n = pread(fd, data + len, size - len, (off_t)len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return name_failure(file);
        if (n == 0)
            break;
        len += (size_t)n;
    }
    *ret_len = len;
    return NULL;
}

static TRITONSERVER_Error *read_open_file(int fd, const struct external_file *file, char **ret_data,
                                          size_t *ret_len)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return name_failure(file);
    *ret_data = malloc(info.st_size > 0 ? (size_t)info.st_size : 1);
    if (!*ret_data)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE,
                             "external data in '%s' has %lld bytes, for which there is no memory",
                             file->location, (long long)info.st_size);
    return fill_data(fd, file, *ret_data, (size_t)info.st_size, ret_len);
}

/* ret_data is the caller's, after an error, too. */
static TRITONSERVER_Error *read_file(const struct external_file *file, char **ret_data,
                                     size_t *ret_len)
{
    /* The file was a regular one; what took its place since must not make us wait. */
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    TRITONSERVER_Error *err;

    if (fd < 0)
        return name_failure(file);
    err = read_open_file(fd, file, ret_data, ret_len);
    close(fd);
    return err;
}

static bool has_path_of_previous(const struct external *external, size_t i)
{
    return i > 0 && strcmp(external->files[i].path, external->files[i - 1].path) == 0;
}

uint64_t weights_bytes(const struct external *external)
{
    uint64_t bytes = 0;
    struct stat info;

    for (size_t i = 0; i < external->n_files; i++)
        if (!has_path_of_previous(external, i) && stat(external->files[i].path, &info) == 0)
            bytes += (uint64_t)info.st_size;
    return bytes;
}

static TRITONSERVER_Error *read_each_file(struct weights *w, const struct external *external)
{
    for (size_t i = 0; i < w->n; i++) {
        w->locations[i] = external->files[i].location;
        if (has_path_of_previous(external, i)) {
            w->data[i] = w->data[i - 1];
            w->lens[i] = w->lens[i - 1];
        } else {
            TRY(read_file(&external->files[i], &w->data[i], &w->lens[i]));
        }
    }
    return NULL;
}

TRITONSERVER_Error *weights_read(const struct external *external, struct weights **ret_weights)
{
    struct weights *w = calloc(1, sizeof(*w));
    TRITONSERVER_Error *err;

    *ret_weights = NULL;
    if (!w)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    w->n = external->n_files;
    w->locations = calloc(w->n, sizeof(*w->locations));
    w->data = calloc(w->n, sizeof(*w->data));
    w->lens = calloc(w->n, sizeof(*w->lens));
    err = w->locations && w->data && w->lens
              ? read_each_file(w, external)
              : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    if (err)
        weights_free(w);
    else
        *ret_weights = w;
    return err;
}

void weights_free(struct weights *w)
{
    if (!w)
        return;
    for (size_t i = 0; w->data && i < w->n; i++)
        if (i == 0 || w->data[i] != w->data[i - 1])
            free(w->data[i]);
    free(w->locations);
    free(w->data);
    free(w->lens);
    free(w);
}

TRITONSERVER_Error *weights_give(const struct weights *w, const struct library *library,
                                 struct ort_options *options)
{
    TRY_ORT(library, AddExternalInitializersFromFilesInMemory(options, w->locations, w->data,
                                                              w->lens, w->n));
    return NULL;
}
