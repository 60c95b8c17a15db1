/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"

static enum file_kind kind_of(mode_t mode)
{
    if (S_ISREG(mode))
        return FILE_REGULAR;
    return S_ISDIR(mode) ? FILE_FOLDER : FILE_OTHER;
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
    *ret_info = (struct file_info){
        .kind = kind_of(s.st_mode),
        .size_bytes = (uint64_t)s.st_size,
        .modified_ns = (int64_t)s.st_mtim.tv_sec * (int64_t)NS_PER_S + s.st_mtim.tv_nsec,
    };
    return NULL;
}

static int open_eintr(const char *path, int flags)
{
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/*
 * Reads until the end of the file, not until its size: it may have grown since fstat(), and in
 * /proc all sizes are 0. When the buffer is full, one byte more tells whether that was all.
 */
static struct status *read_to_end(int fd, const char *path, struct buf *content)
{
    for (;;) {
        size_t room = content->capacity - content->size - 1; /* but for the zero byte */
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

struct status *file_read(const char *path, struct buf *ret_content)
{
    struct status *st = NULL;
    struct stat s;
    int fd = open_eintr(path, O_RDONLY | O_NONBLOCK | O_NOCTTY); /* a FIFO must not hold us */
    if (fd < 0)
        return status_from_errno(errno, "failed to open '%s'", path);

    if (fstat(fd, &s) < 0)
        st = status_from_errno(errno, "failed to look at '%s'", path);
    else if (!S_ISREG(s.st_mode))
        st = status_new(STATUS_INVALID_ARG, "'%s' is %s, not a regular file", path,
                        S_ISDIR(s.st_mode) ? "a folder" : "something special");
    else if ((uint64_t)s.st_size > ret_content->max - ret_content->size)
        st = status_new(STATUS_INVALID_ARG, "'%s' has %lld bytes, the maximum is %zu", path,
                        (long long)s.st_size, ret_content->max);
    else if (!buf_reserve(ret_content, (size_t)s.st_size)) /* once, not by doubling */
        st = status_prefix(buf_status(ret_content), "'%s': ", path);
    else
        st = read_to_end(fd, path, ret_content);
    close(fd);
    return st;
}

static bool add_name(struct file_names *names, size_t *capacity, const char *name)
{
    if (names->count == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 16;
        char **grown = mem_try_realloc(names->names, more * sizeof(*grown));
        if (!grown)
            return false;
        names->names = grown;
        *capacity = more;
    }
    size_t bytes = strlen(name) + 1;
    char *copy = mem_try_alloc(bytes);
    if (!copy)
        return false;
    names->names[names->count++] = memcpy(copy, name, bytes);
    return true;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct status *file_list(const char *path, struct file_names *ret_names)
{
    struct file_names names = {0};
    size_t capacity = 0;
    struct status *st = NULL;
    int fd = open_eintr(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        st = status_from_errno(errno, "failed to open folder '%s'", path);
        if (fd >= 0)
            close(fd);
        return st;
    }
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(dir);
        if (!e) {
            if (errno)
                st = status_from_errno(errno, "failed to read folder '%s'", path);
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (!add_name(&names, &capacity, e->d_name)) {
            st = status_no_memory();
            break;
        }
    }
    closedir(dir);
    if (st) {
        file_names_done(&names);
        return st;
    }
    if (names.count)
        qsort(names.names, names.count, sizeof(*names.names), by_bytes);
    *ret_names = names;
    return NULL;
}

void file_names_done(struct file_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        mem_free(names->names[i]);
    mem_free(names->names);
    *names = (struct file_names){0};
}
