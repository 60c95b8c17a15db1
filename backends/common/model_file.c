/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion happens once, when the model loads: the new configuration is written as text, given to
 * the server and read back, so that the rest of the backend knows only one configuration.
 */
#include "common/model_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- The file -------------------------------------------------------------------------------- */

static TRITONSERVER_Error *check_model_path(const char *model, const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0)
        return backend_error(TRITONSERVER_ERROR_NOT_FOUND, "unable to read '%s' of model '%s': %s",
                             path, model, strerror(errno));
    /* Opening a pipe would wait for a writer. */
    if (!S_ISREG(info.st_mode))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to read '%s' of model '%s': it is no regular file", path,
                             model);
    /* Not every framework tells the reason. */
    if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) != 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "unable to read '%s' of model '%s': %s", path, model, strerror(errno));
    return NULL;
}

static TRITONSERVER_Error *make_model_path(TRITONBACKEND_Model *handle, const char *name,
                                           const char *inner, char **ret_path)
{
    TRITONBACKEND_ArtifactType type;
    const char *folder;
    uint64_t version;
    struct stat info;
    char *path = NULL, *below;

    TRY(TRITONBACKEND_ModelRepository(handle, &type, &folder));
    TRY(TRITONBACKEND_ModelVersion(handle, &version));
    if (asprintf(&path, "%s/%llu/%s", folder, (unsigned long long)version, name) < 0)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        int len = asprintf(&below, "%s/%s", path, inner);

        free(path);
        if (len < 0)
            return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
        path = below;
    }
    *ret_path = path;
    return NULL;
}

/* SavedModels have one folder in another. */
#define MAX_DEPTH 4

static uint64_t count_file_bytes(int folder, const char *name, int depth)
{
    struct dirent *entry;
    struct stat info;
    uint64_t sum = 0;
    DIR *dir;
    int fd;

    if (fstatat(folder, name, &info, 0) != 0)
        return 0;
    if (!S_ISDIR(info.st_mode))
        return S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
    fd = depth < MAX_DEPTH ? openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            sum += count_file_bytes(dirfd(dir), entry->d_name, depth + 1);
    closedir(dir);
    return sum;
}

uint64_t model_file_bytes(const char *path)
{
    return count_file_bytes(AT_FDCWD, path, 0);
}

static TRITONSERVER_Error *find_checked(TRITONBACKEND_Model *handle, const char *model,
                                        const char *file, const char *inner, char **ret_path)
{
    TRITONSERVER_Error *err;
    char *path = NULL;

    TRY(make_model_path(handle, file, inner, &path));
    err = check_model_path(model, path);
    if (err)
        free(path);
    else
        *ret_path = path;
    return err;
}

TRITONSERVER_Error *model_file_find(TRITONBACKEND_Model *handle, const struct doc *config,
                                    const char *model, const char *name, const char *inner,
                                    char **ret_path)
{
    const char *file = doc_string(doc_get(doc_root(config), "default_model_filename"), "");

    /* Conch refuses such a name before; other servers pass it. */
    if (backend_escapes_folder(file))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "default_model_filename '%s' of model '%s' is outside the version "
                             "folder",
                             file, model);
    return find_checked(handle, model, *file ? file : name, inner, ret_path);
}

TRITONSERVER_Error *model_file_find_named(TRITONBACKEND_Model *handle, const char *model,
                                          const char *file, const char *inner, char **ret_path)
{
    if (backend_escapes_folder(file))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "the file '%s' of model '%s' is outside the version folder", file,
                             model);
    return find_checked(handle, model, file, inner, ret_path);
}

/* ---- The configuration ----------------------------------------------------------------------- */

static bool lacks_list(const struct doc *config, const char *list)
{
    return doc_count(doc_get(doc_root(config), list)) == 0;
}

bool model_file_lacks_tensors(const struct doc *config)
{
    return lacks_list(config, "input") || lacks_list(config, "output");
}

/* Writes the old configuration with the missing parts added. */
static void write_completed(FILE *to, const struct doc *config,
                            const struct model_file_parts *parts)
{
    const struct doc_value *root = doc_root(config);
    bool fill_inputs = lacks_list(config, "input"), fill_outputs = lacks_list(config, "output");

    fprintf(to, "{\"max_batch_size\":%lld", (long long)parts->max_batch_size);
    for (const struct doc_value *v = doc_first(root); v; v = v->next) {
        if (strcmp(v->key, "max_batch_size") == 0 ||
            (fill_inputs && strcmp(v->key, "input") == 0) ||
            (fill_outputs && strcmp(v->key, "output") == 0))
            continue;
        fputs(",", to);
        doc_write_string(to, v->key);
        fprintf(to, ":%.*s", (int)v->raw_len, v->raw);
    }
    if (fill_inputs) {
        fputs(",\"input\":", to);
        parts->write_inputs(to, parts->arg);
    }
    if (fill_outputs) {
        fputs(",\"output\":", to);
        parts->write_outputs(to, parts->arg);
    }
    if (parts->max_batch_size > 1 && !doc_get(root, "dynamic_batching") &&
        !doc_get(root, "sequence_batching") && !doc_get(root, "ensemble_scheduling"))
        fputs(",\"dynamic_batching\":{}", to);
    fputs("}", to);
}

static TRITONSERVER_Error *replace_config(TRITONBACKEND_Model *handle, struct doc **config,
                                          const char *text, size_t len)
{
    TRITONSERVER_Message *message;
    TRITONSERVER_Error *err;
    const char *why;
    struct doc *completed;

    TRY(TRITONSERVER_MessageNewFromSerializedJson(&message, text, len));
    err = TRITONBACKEND_ModelSetConfig(handle, 1, message);
    backend_ignore(TRITONSERVER_MessageDelete(message), "deleting a message");
    if (err)
        return err;
    completed = doc_parse(text, len, &why);
    if (!completed)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "completed configuration: %s", why);
    doc_free(*config);
    *config = completed;
    return NULL;
}

TRITONSERVER_Error *model_file_complete(TRITONBACKEND_Model *handle, struct doc **config,
                                        const struct model_file_parts *parts)
{
    TRITONSERVER_Error *err;
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    if (!to)
        return backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    write_completed(to, *config, parts);
    if (fclose(to) != 0)
        err = backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
    else
        err = replace_config(handle, config, text, len);
    free(text);
    return err;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

void model_file_write_tensor(FILE *to, const char *name, const char *type, const int64_t *dims,
                             size_t rank, bool batches)
{
    size_t first = batches ? 1 : 0;

    fputs("{\"name\":", to);
    doc_write_string(to, name);
    fprintf(to, ",\"data_type\":\"%s\",\"dims\":[", type);
    /* A configuration has "no dimensions" only as a reshape of one element. */
    if (rank <= first)
        fputs("1", to);
    /* It cannot have 0, as in models with no elements, either: the dimension becomes any size,
     * which the model decides. */
    for (size_t d = first; d < rank; d++)
        fprintf(to, "%s%lld", d > first ? "," : "", dims[d] == 0 ? -1LL : (long long)dims[d]);
    fputs("]", to);
    if (batches && rank == first)
        fputs(",\"reshape\":{\"shape\":[]}", to);
    fputs("}", to);
}

TRITONSERVER_Error *model_file_config_shape(const char *model, const struct doc_value *tensor,
                                            bool batches, size_t max_rank, int64_t *dims,
                                            size_t *ret_rank)
{
    const struct doc_value *reshape = doc_get(doc_get(tensor, "reshape"), "shape");
    const struct doc_value *v = doc_first(reshape ? reshape : doc_get(tensor, "dims"));
    size_t rank = 0;

    if (batches)
        dims[rank++] = -1;
    for (; v; v = v->next) {
        if (rank == max_rank)
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "model '%s', tensor '%s': more than %zu dimensions", model,
                                 doc_string(doc_get(tensor, "name"), ""), max_rank);
        dims[rank] = -1;
        doc_int(v, &dims[rank++]);
    }
    *ret_rank = rank;
    return NULL;
}

size_t model_file_count_inputs(const struct doc *config)
{
    const struct doc_value *root = doc_root(config), *v = doc_first(doc_get(root, "batch_input"));
    const struct doc_value *sequence = doc_get(root, "sequence_batching");
    size_t n = doc_count(doc_get(root, "input")) + doc_count(doc_get(sequence, "control_input")) +
               doc_count(doc_get(sequence, "state"));

    for (; v; v = v->next)
        n += doc_count(doc_get(v, "target_name"));
    return n;
}

static int compare_tensor_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

TRITONSERVER_Error *model_file_unexpected(const char *what, const char *name, const char **names,
                                          size_t n)
{
    TRITONSERVER_Error *err = NULL;
    char *list = NULL;
    size_t len;
    FILE *to = open_memstream(&list, &len);

    qsort(names, n, sizeof(*names), compare_tensor_names);
    for (size_t i = 0; to && i < n; i++)
        fprintf(to, "%s%s", i > 0 ? ", " : "", names[i]);
    if (to && fclose(to) == 0)
        err = backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                            "unexpected inference %s '%s', allowed %ss are: %s", what, name, what,
                            list);
    free(list);
    return err ? err : backend_error(TRITONSERVER_ERROR_INTERNAL, "out of memory");
}

struct shape_text model_file_shape_text(const int64_t *dims, size_t rank)
{
    struct shape_text s = {"["};
    size_t at = 1;

    for (size_t i = 0; i < rank && at < sizeof(s.text) - 32; i++)
        at += (size_t)snprintf(s.text + at, sizeof(s.text) - at, "%s%lld", i > 0 ? "," : "",
                               (long long)dims[i]);
    snprintf(s.text + at, sizeof(s.text) - at, "]");
    return s;
}
