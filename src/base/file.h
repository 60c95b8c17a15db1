/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local files and folders, as far as configuration and model repositories need them. Each error
 * names the path and the cause. Thread: any.
 */
#ifndef CONCH_BASE_FILE_H
#define CONCH_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct buf;

enum file_kind {
    FILE_MISSING,
    FILE_REGULAR,
    FILE_FOLDER,
    FILE_LINK, /* only in a list: a symbolic link that was not followed */
    FILE_OTHER,
};

struct file_info {
    enum file_kind kind; /* for a link: the kind of its target */
    uint64_t size_bytes;
    int64_t modified_ns; /* wall time since 1970: the later of mtime and ctime */
};

/*
 * file_open - opens a file for reading. It does not wait for a writer (O_NONBLOCK, for a FIFO), and
 * a terminal does not become the controlling one (O_NOCTTY).
 *
 * @flags   further flags of open(): O_PATH, O_DIRECTORY; O_CLOEXEC is always set
 * @ret_fd  the caller closes it
 * Errors: STATUS_NOT_FOUND  there is no such file
 */
NODISCARD struct status *file_open(const char *path, int flags, int *ret_fd);

/*
 * file_stat - what is at the path. A path at which nothing is, or a link to nothing, gives
 * FILE_MISSING and no error.
 *
 * Errors: STATUS_INTERNAL  permission denied, and so on
 */
NODISCARD struct status *file_stat(const char *path, struct file_info *ret_info);

/*
 * file_read - appends the whole content of a regular file to the buffer. The buffer's maximum
 * limits the size.
 *
 * @ret_content  made by buf_init(); on error it may hold a part
 * Errors: STATUS_NOT_FOUND    no such file
 *         STATUS_INVALID_ARG  a folder, a device …; larger than the buffer's maximum
 */
NODISCARD struct status *file_read(const char *path, struct buf *ret_content);

struct file_entry {
    char *name;
    enum file_kind kind;
};

struct file_list {
    struct file_entry *entries; /* sorted by the bytes of their names; without "." and ".." */
    size_t count;
};

/*
 * file_list - the entries of a folder.
 *
 * @ret_list  the caller ends it with file_list_done()
 * Errors: STATUS_NOT_FOUND  no such folder
 */
NODISCARD struct status *file_list(const char *path, struct file_list *ret_list);
void file_list_done(struct file_list *list);

/*
 * file_stat_fd, file_read_fd, file_list_fd - the same for an open descriptor, which stays the
 * caller's.
 *
 * @path  the name for errors
 */
NODISCARD struct status *file_stat_fd(int fd, const char *path, struct file_info *ret_info);
NODISCARD struct status *file_read_fd(int fd, const char *path, struct buf *ret_content);
NODISCARD struct status *file_list_fd(int fd, const char *path, struct file_list *ret_list);

/*
 * file_real_path - the absolute path of an open file, without links, as the kernel reports it.
 *
 * @path      the name for errors
 * @ret_real  the caller frees it with mem_free()
 * Errors: STATUS_INTERNAL  /proc is not mounted, and so on
 */
NODISCARD struct status *file_real_path(int fd, const char *path, char **ret_real);

#endif
