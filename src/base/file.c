/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions come in pairs: one takes a path, the other (…_fd) a descriptor and the path for its
 * messages. Files are opened with O_NONBLOCK, so that a pipe does not make the caller wait, and no
 * child inherits them. No state; any thread, but all functions wait for the disk.
 */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"

static enum file_kind kind_of_mode(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return FILE_REGULAR;
    case S_IFDIR:
        return FILE_FOLDER;
    case S_IFLNK:
        return FILE_LINK;
    default:
        return FILE_OTHER;
    }
}

static int64_t ns_of(struct timespec t)
{
    return (int64_t)t.tv_sec * (int64_t)NS_PER_S + t.tv_nsec;
}

static struct file_info info_of(const struct stat *s)
{
    return (struct file_info){
        .kind = kind_of_mode(s->st_mode),
        .size_bytes = (uint64_t)s->st_size,
        /* A file that was moved or copied here with its old time has changed, too. */
        .modified_ns = MAX(ns_of(s->st_mtim), ns_of(s->st_ctim)),
    };
}

static int open_eintr(const char *path, int flags)
{
    int fd;
    do {
        fd = open(path, flags | O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

struct status *file_open(const char *path, int flags, int *ret_fd)
{
    int fd = open_eintr(path, flags);
    if (fd < 0)
        return status_from_errno(errno, "failed to open '%s'", path);
    *ret_fd = fd;
    return NULL;
}

struct status *file_stat(const char *path, struct file_info *ret_info)
{
    struct stat s;
    if (stat(path, &s) < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return status_from_errno(errno, "failed to look at '%s'", path);
        *ret_info = (struct file_info){.kind = FILE_MISSING};
        return NULL;
    }
    *ret_info = info_of(&s);
    return NULL;
}

struct status *file_stat_fd(int fd, const char *path, struct file_info *ret_info)
{
    struct stat s;
    if (fstat(fd, &s) < 0)
        return status_from_errno(errno, "failed to look at '%s'", path);
    *ret_info = info_of(&s);
    return NULL;
}

/*
 * Reads to the end of the file, not to its size: it may have grown since fstat(), and in /proc all
 * sizes are 0. When the buffer is full, one byte more shows whether the file has ended.
 */
static struct status *read_to_end(int fd, const char *path, struct buf *content)
{
    for (;;) {
        size_t room = content->capacity - content->size - 1; /* without the zero byte */
        char one_more;
        ssize_t n = room ? read(fd, content->data + content->size, room) : read(fd, &one_more, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_from_errno(errno, "failed to read '%s'", path);
        if (n == 0)
            break;
        if (room)
            content->size += (size_t)n;
        else
            buf_addc(content, one_more);
        if (content->failed)
            return status_prefix(buf_status(content), "'%s': ", path);
    }
    content->data[content->size] = '\0';
    return NULL;
}

struct status *file_read_fd(int fd, const char *path, struct buf *ret_content)
{
    struct file_info info;
    struct status *st = file_stat_fd(fd, path, &info);
    if (st)
        return st;
    if (info.kind != FILE_REGULAR)
        return status_new(STATUS_INVALID_ARG, "'%s' is %s, not a regular file", path,
                          info.kind == FILE_FOLDER ? "a folder" : "something special");
    if (info.size_bytes > ret_content->max - ret_content->size)
        return status_new(STATUS_INVALID_ARG, "'%s' has %llu bytes, the maximum is %zu", path,
                          (unsigned long long)info.size_bytes, ret_content->max);
    if (!buf_reserve(ret_content, (size_t)info.size_bytes)) /* once, instead of doubling */
        return status_prefix(buf_status(ret_content), "'%s': ", path);
    return read_to_end(fd, path, ret_content);
}

struct status *file_read(const char *path, struct buf *ret_content)
{
    int fd;
    struct status *st = file_open(path, 0, &fd);
    if (st)
        return st;
    st = file_read_fd(fd, path, ret_content);
    close(fd);
    return st;
}

/* Not every file system returns the kind with the name. */
static enum file_kind kind_of_entry(int fd, const struct dirent *e)
{
    struct stat s;
    switch (e->d_type) {
    case DT_REG:
        return FILE_REGULAR;
    case DT_DIR:
        return FILE_FOLDER;
    case DT_LNK:
        return FILE_LINK;
    case DT_UNKNOWN:
        if (fstatat(fd, e->d_name, &s, AT_SYMLINK_NOFOLLOW) < 0)
            return errno == ENOENT ? FILE_MISSING : FILE_OTHER;
        return kind_of_mode(s.st_mode);
    default:
        return FILE_OTHER;
    }
}

static bool add_list_entry(struct file_list *list, size_t *capacity, const char *name,
                           enum file_kind kind)
{
    if (list->count == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 16;
        struct file_entry *grown = mem_try_realloc(list->entries, more * sizeof(*grown));
        if (!grown)
            return false;
        list->entries = grown;
        *capacity = more;
    }
    size_t bytes = strlen(name) + 1;
    char *copy = mem_try_alloc(bytes);
    if (!copy)
        return false;
    memcpy(copy, name, bytes);
    list->entries[list->count++] = (struct file_entry){copy, kind};
    return true;
}

static int by_bytes(const void *a, const void *b)
{
    const struct file_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static struct status *read_folder(DIR *dir, const char *path, struct file_list *list)
{
    size_t capacity = 0;
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(dir);
        if (!e)
            return errno ? status_from_errno(errno, "failed to read folder '%s'", path) : NULL;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        enum file_kind kind = kind_of_entry(dirfd(dir), e);
        if (kind != FILE_MISSING && !add_list_entry(list, &capacity, e->d_name, kind))
            return status_no_memory();
    }
}

struct status *file_list_fd(int fd, const char *path, struct file_list *ret_list)
{
    struct file_list list = {0};
    /* Opens it again, so that the caller's descriptor stays as it is: reading would move and
     * close it. */
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    if (!dir) {
        struct status *failed = status_from_errno(errno, "failed to open folder '%s'", path);
        if (own >= 0)
            close(own);
        return failed;
    }
    struct status *st = read_folder(dir, path, &list);
    closedir(dir);
    if (st) {
        file_list_done(&list);
        return st;
    }
    if (list.count)
        qsort(list.entries, list.count, sizeof(*list.entries), by_bytes);
    *ret_list = list;
    return NULL;
}

struct status *file_list(const char *path, struct file_list *ret_list)
{
    int fd;
    struct status *st = file_open(path, O_PATH | O_DIRECTORY, &fd);
    if (st)
        return st;
    st = file_list_fd(fd, path, ret_list);
    close(fd);
    return st;
}

void file_list_done(struct file_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        mem_free(list->entries[i].name);
    mem_free(list->entries);
    *list = (struct file_list){0};
}

struct status *file_real_path(int fd, const char *path, char **ret_real)
{
    char name[32], real[PATH_MAX];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, real, sizeof(real));
    if (n < 0 || (size_t)n == sizeof(real)) /* "not found" would be said of the file */
        return status_new(STATUS_INTERNAL, "failed to find where '%s' is: readlink of '%s': %s",
                          path, name, strerror(n < 0 ? errno : ENAMETOOLONG));
    real[n] = '\0';
    *ret_real = mem_strdup(real);
    return NULL;
}
