/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A repository in a folder of this machine.
 *
 * Links must stay in the repository. Each file is opened first, and the kernel is asked where the
 * open file is: so nothing can be exchanged between the check and the use, links within the
 * repository are right however they are written (openat2() would refuse absolute ones), and no
 * particular kernel is needed. A file that is only examined, or a folder, is opened without reading
 * (O_PATH). Backends open the files of a model themselves, by path; scan.c has checked those.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/storage/storage.h"

struct local {
    struct storage storage;
    char *real_root; /* the root without links, as it was when it was opened */
    bool follow_links;
    /* Of storage_local_open_folder(): real_root is that folder, below the root. */
    bool is_one_folder;
    char *real_origin; /* where its links may lead, too, or NULL */
};

static const struct local *to_local(const struct storage *s)
{
    return (const struct local *)s;
}

static bool is_below(const char *real, const char *real_root)
{
    size_t n = strlen(real_root);
    if (strcmp(real_root, "/") == 0)
        return real[0] == '/';
    return strncmp(real, real_root, n) == 0 && (real[n] == '/' || real[n] == '\0');
}

static struct status *find_root(const char *root, char **ret_real)
{
    int fd;
    struct status *st = file_open(root, O_PATH | O_DIRECTORY, &fd);
    if (st)
        return st;
    st = file_real_path(fd, root, ret_real);
    close(fd);
    return st;
}

/* Names the first link on the path that leads out. */
static struct status *refuse_link_out(const struct storage *s, const char *path, const char *real,
                                      const char *real_root)
{
    char *link = storage_path(s, path);
    const size_t root_length = strlen(s->root);
    for (char *at = link + root_length + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        char *to = realpath(link, NULL);
        bool is_inside = to && is_below(to, real_root);
        free(to);
        if (!is_inside)
            break; /* the text ends here */
        *at = '/';
    }
    char *to = realpath(link, NULL);
    struct status *st = status_new(
        STATUS_INVALID_ARG,
        "link '%s' leads to '%s', out of the model repository; --repository-follow-symlinks=true "
        "permits that",
        link, to ? to : real);
    free(to);
    mem_free(link);
    return st;
}

static struct status *check_inside_root(const struct storage *s, const char *path, const char *name,
                                        int fd)
{
    char *real, *real_root;
    struct status *st = file_real_path(fd, name, &real);
    if (st)
        return st;
    const struct local *l = to_local(s);
    if (!is_below(real, l->real_root) && l->is_one_folder) {
        if (!l->real_origin || !is_below(real, l->real_origin))
            st = refuse_link_out(s, path, real, l->real_root);
    } else if (!is_below(real, l->real_root)) {
        /* The root may itself be a link, which is moved to new content while the server runs. */
        st = find_root(s->root, &real_root);
        if (!st) {
            if (!is_below(real, real_root))
                st = refuse_link_out(s, path, real, real_root);
            mem_free(real_root);
        }
    }
    mem_free(real);
    return st;
}

static struct status *open_inside(const struct storage *s, const char *path, const char *name,
                                  int flags, int *ret_fd)
{
    int fd;
    struct status *st = file_open(name, flags, &fd);
    if (st)
        return st;
    if (!to_local(s)->follow_links)
        st = check_inside_root(s, path, name, fd);
    if (st) {
        close(fd);
        return st;
    }
    *ret_fd = fd;
    return NULL;
}

/* The name leads to nothing; if it is a link all the same, it is a broken one, and an error. */
static struct status *check_dangling(const char *name)
{
    char to[PATH_MAX];
    ssize_t n = readlink(name, to, sizeof(to));
    if (n < 0)
        return NULL;
    return status_new(STATUS_NOT_FOUND, "link '%s' leads to '%.*s', which does not exist", name,
                      (int)n, to);
}

static struct status *local_stat(const struct storage *s, const char *path,
                                 struct file_info *ret_info)
{
    int fd;
    char *name = storage_path(s, path);
    struct status *st = file_open(name, O_PATH, &fd);
    if (!st) {
        st = file_stat_fd(fd, name, ret_info);
        if (!st && !to_local(s)->follow_links)
            st = check_inside_root(s, path, name, fd);
        close(fd);
    } else if (status_code(st) == STATUS_NOT_FOUND) {
        *ret_info = (struct file_info){.kind = FILE_MISSING};
        status_free(st);
        st = check_dangling(name);
    }
    mem_free(name);
    return st;
}

static struct status *local_list(const struct storage *s, const char *path,
                                 struct file_list *ret_list)
{
    int fd;
    char *name = storage_path(s, path);
    struct status *st = open_inside(s, path, name, O_PATH | O_DIRECTORY, &fd);
    if (!st) {
        st = file_list_fd(fd, name, ret_list);
        close(fd);
    }
    mem_free(name);
    return st;
}

static struct status *local_read(const struct storage *s, const char *path, struct buf *ret_content)
{
    int fd;
    char *name = storage_path(s, path);
    struct status *st = open_inside(s, path, name, 0, &fd);
    if (!st) {
        st = file_read_fd(fd, name, ret_content);
        close(fd);
    }
    mem_free(name);
    return st;
}

static struct status *local_fetch(const struct storage *s, const char *path, char **ret_folder)
{
    *ret_folder = storage_path(s, path);
    return NULL;
}

static void local_release(const struct storage *s, char *folder)
{
    (void)s;
    mem_free(folder);
}

static void local_close(struct storage *s)
{
    struct local *l = (struct local *)s;
    mem_free(l->real_root);
    mem_free(l->real_origin);
    mem_free(l->storage.root);
    mem_free(l);
}

static const struct storage_ops local_ops = {
    .stat = local_stat,
    .list = local_list,
    .read = local_read,
    .fetch = local_fetch,
    .release = local_release,
    .close = local_close,
};

/* Takes both texts. */
static struct local *new_local(char *root, char *real_root, bool follow_links)
{
    struct local *l = mem_zalloc(sizeof(*l));
    l->storage.ops = &local_ops;
    atomic_init(&l->storage.refs, 1);
    l->storage.root = root;
    l->real_root = real_root;
    l->follow_links = follow_links;
    return l;
}

struct status *storage_local_open(const char *location, bool follow_links,
                                  struct storage **ret_storage)
{
    struct file_info info;
    size_t length = strlen(location);
    struct status *st = file_stat(location, &info);
    if (st)
        return status_prefix(st, "model repository: ");
    if (info.kind == FILE_MISSING)
        return status_new(STATUS_INTERNAL, "failed to stat file %s", location);
    if (info.kind != FILE_FOLDER)
        return status_new(STATUS_INVALID_ARG, "repository path is not a valid directory: '%s'",
                          location);
    char *real_root;
    st = find_root(location, &real_root);
    if (st)
        return status_prefix(st, "model repository: ");
    while (length > 1 && location[length - 1] == '/') /* no "models//digits" in messages */
        length--;
    *ret_storage = &new_local(mem_strndup(location, length), real_root, follow_links)->storage;
    return NULL;
}

struct status *storage_local_open_folder(const char *location, bool follow_links,
                                         const struct storage *origin, struct storage **ret_storage,
                                         char **ret_folder)
{
    char *real = realpath(location, NULL);
    struct stat info;
    struct status *st = NULL;
    if (!real)
        st = status_new(STATUS_INVALID_ARG, "failed to open directory %s: %s", location,
                        strerror(errno));
    else if (stat(real, &info) != 0 || !S_ISDIR(info.st_mode))
        st = status_new(STATUS_INVALID_ARG, "failed to open directory %s: it is no directory",
                        location);
    else if (strcmp(real, "/") == 0)
        st = status_new(STATUS_INVALID_ARG, "directory '/' cannot be a model's");
    if (st) {
        free(real);
        return st;
    }
    char *slash = strrchr(real, '/');
    *ret_folder = mem_strdup(slash + 1);
    char *root = slash == real ? mem_strdup("/") : mem_strndup(real, (size_t)(slash - real));
    struct local *l = new_local(root, mem_strdup(real), follow_links);
    l->is_one_folder = true;
    if (origin->ops == &local_ops)
        l->real_origin = mem_strdup(to_local(origin)->real_root);
    *ret_storage = &l->storage;
    free(real);
    return NULL;
}
