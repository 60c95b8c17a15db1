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

enum file_kind { FILE_MISSING, FILE_REGULAR, FILE_FOLDER, FILE_OTHER };

struct file_info {
    enum file_kind kind; /* of what a link points to */
    uint64_t size_bytes;
    int64_t modified_ns; /* wall time since 1970 */
};

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

struct file_names {
    char **names; /* sorted by bytes; without "." and ".." */
    size_t count;
};

/*
 * file_list - the names in a folder.
 *
 * The caller ends the result with file_names_done().
 * Errors: STATUS_NOT_FOUND  no such folder
 */
NODISCARD struct status *file_list(const char *path, struct file_names *ret_names);
void file_names_done(struct file_names *names);

#endif
