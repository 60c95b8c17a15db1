/* SPDX-License-Identifier: Apache-2.0 */
#include "core/repo/source.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/repo/storage.h"

static struct source *source_new(void)
{
    struct source *s = mem_zalloc(sizeof(*s));
    atomic_init(&s->refs, 1);
    return s;
}

struct status *source_of_folder(struct storage *storage, const char *folder,
                                struct source **ret_source)
{
    char *directory;
    struct status *st = storage_fetch(storage, folder, &directory);
    if (st)
        return st;
    struct source *s = source_new();
    s->storage = storage_ref(storage);
    s->folder = mem_strdup(folder);
    s->directory = directory;
    *ret_source = s;
    return NULL;
}

/* ---- Temporary folders ---------------------------------------------------------------------- */

/* Links in it are removed, not followed. */
static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    if (remove(path) != 0)
        log_warn("cannot remove '%s', which came with a load request: %s", path, strerror(errno));
    return 0;
}

static void remove_tree(const char *root)
{
    enum { MAX_OPEN = 16 };
    nftw(root, remove_one, MAX_OPEN, FTW_DEPTH | FTW_PHYS);
}

static struct status *make_folders(const char *root, char *path)
{
    for (char *at = path; (at = strchr(at, '/')); at++) {
        *at = '\0';
        char *folder = mem_printf("%s/%s", root, path);
        int failed = mkdir(folder, 0700) != 0 && errno != EEXIST ? errno : 0;
        struct status *st =
            failed ? status_from_errno(failed, "failed to make folder '%s'", folder) : NULL;
        mem_free(folder);
        *at = '/';
        if (st)
            return st;
    }
    return NULL;
}

static struct status *write_all(int fd, const char *path, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_from_errno(errno, "failed to write '%s'", path);
        bytes += n;
        size -= (size_t)n;
    }
    return NULL;
}

static struct status *write_file(const char *root, const struct source_file *file)
{
    char *path = mem_strdup(file->path);
    struct status *st = make_folders(root, path);
    mem_free(path);
    if (st)
        return st;
    path = mem_printf("%s/%s", root, file->path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        st = status_from_errno(errno, "failed to make file '%s'", path);
    } else {
        st = write_all(fd, path, file->bytes, file->size_bytes);
        if (close(fd) != 0 && !st)
            st = status_from_errno(errno, "failed to write '%s'", path);
    }
    mem_free(path);
    return st;
}

static struct status *make_root(char **ret_root)
{
    const char *parent = getenv("TMPDIR");
    char *root = mem_printf("%s/conch-model-XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (!mkdtemp(root)) {
        struct status *st = status_from_errno(errno, "failed to make folder '%s'", root);
        mem_free(root);
        return st;
    }
    *ret_root = root;
    return NULL;
}

struct status *source_of_files(const char *name, const struct source_file *files, size_t n_files,
                               struct source **ret_source)
{
    struct source *s = source_new();
    struct status *st = make_root(&s->temporary_root);
    if (!st)
        st = storage_local_open(s->temporary_root, false, &s->storage);
    if (st)
        goto out;
    s->folder = mem_strdup(name);
    char *folder = mem_printf("%s/%s", s->temporary_root, name);
    if (mkdir(folder, 0700) != 0)
        st = status_from_errno(errno, "failed to make folder '%s'", folder);
    for (size_t i = 0; i < n_files && !st; i++)
        st = write_file(folder, &files[i]);
    mem_free(folder);
    if (!st)
        st = storage_fetch(s->storage, name, &s->directory);
    if (!st)
        *ret_source = TAKE(s);
out:
    source_unref(s);
    return st;
}

/* ---- The whole ------------------------------------------------------------------------------ */

void source_ref(struct source *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void source_unref(struct source *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (s->storage)
        storage_release(s->storage, s->directory);
    storage_unref(s->storage);
    mem_free(s->folder);
    if (s->temporary_root)
        remove_tree(s->temporary_root);
    mem_free(s->temporary_root);
    mem_free(s);
}
