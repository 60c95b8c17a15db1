/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local files and folders, as far as configuration and model repositories need them. Each error
 * names the path and the cause.
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
    FILE_LINK, /* only in a list: what it leads to has not been looked at */
    FILE_OTHER,
};

struct file_info {
    enum file_kind kind; /* of what a link leads to */
    uint64_t size_bytes;
    int64_t modified_ns; /* wall time since 1970: the later one of content and inode */
};

/*
 * file_open - opens for reading, never waiting (a FIFO), never becoming a terminal's owner.
 *
 * @flags  more of open()'s: O_PATH, O_DIRECTORY; O_CLOEXEC is always there
 * Errors: STATUS_NOT_FOUND  there is no such file
 */
NODISCARD struct status *file_open(const char *path, int flags, int *ret_fd);

/*
 * file_stat - what is at the path. That nothing is there (or a link to nothing) is an answer, not
 * an error.
 *
 * Errors: STATUS_INTERNAL  no permission to look, and so on
 */
NODISCARD struct status *file_stat(const char *path, struct file_info *ret_info);

/*
 * file_read - appends the whole content of a regular file to the buffer, whose maximum is the
 * limit.
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
 * file_list - what is in a folder.
 *
 * The caller ends the result with file_list_done().
 * Errors: STATUS_NOT_FOUND  no such folder
 */
NODISCARD struct status *file_list(const char *path, struct file_list *ret_list);
void file_list_done(struct file_list *list);

/*
 * file_stat_fd, file_read_fd, file_list_fd - the same for what is open already; the descriptor
 * stays the caller's.
 *
 * @path  how errors name it
 */
NODISCARD struct status *file_stat_fd(int fd, const char *path, struct file_info *ret_info);
NODISCARD struct status *file_read_fd(int fd, const char *path, struct buf *ret_content);
NODISCARD struct status *file_list_fd(int fd, const char *path, struct file_list *ret_list);

/*
 * file_real_path - where an open file is: its absolute path without links, as the kernel knows it.
 *
 * @path  how errors name it
 * Errors: STATUS_INTERNAL  /proc is not mounted, and so on
 */
NODISCARD struct status *file_real_path(int fd, const char *path, char **ret_real);

#endif
