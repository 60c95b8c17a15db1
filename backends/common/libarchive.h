/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libarchive - the library of that name, loaded when the first archive is opened. Linked, it would
 * load libxml2 and ICU into each server that has such a backend, and servers without it could not
 * run any model of that backend.
 *
 * Threads: any.
 */
#ifndef BACKENDS_COMMON_LIBARCHIVE_H
#define BACKENDS_COMMON_LIBARCHIVE_H

#include <archive.h>
#include <archive_entry.h>

#define LIBARCHIVE_FUNCTIONS(F)                                                                    \
    F(archive_read_new)                                                                            \
    F(archive_read_free)                                                                           \
    F(archive_read_support_filter_all)                                                             \
    F(archive_read_support_format_tar)                                                             \
    F(archive_read_support_format_zip)                                                             \
    F(archive_read_support_format_zip_seekable)                                                    \
    F(archive_read_open_fd)                                                                        \
    F(archive_read_open_filename)                                                                  \
    F(archive_read_next_header)                                                                    \
    F(archive_read_next_header2)                                                                   \
    F(archive_read_data)                                                                           \
    F(archive_read_data_block)                                                                     \
    F(archive_write_disk_new)                                                                      \
    F(archive_write_disk_set_options)                                                              \
    F(archive_write_header)                                                                        \
    F(archive_write_data_block)                                                                    \
    F(archive_write_finish_entry)                                                                  \
    F(archive_write_close)                                                                         \
    F(archive_write_free)                                                                          \
    F(archive_error_string)                                                                        \
    F(archive_entry_new)                                                                           \
    F(archive_entry_free)                                                                          \
    F(archive_entry_pathname)                                                                      \
    F(archive_entry_set_pathname)                                                                  \
    F(archive_entry_filetype)                                                                      \
    F(archive_entry_perm)                                                                          \
    F(archive_entry_set_perm)                                                                      \
    F(archive_entry_symlink)                                                                       \
    F(archive_entry_hardlink)                                                                      \
    F(archive_entry_set_hardlink)

/* Its functions, by their own names; constant once loaded. */
struct libarchive {
#define LIBARCHIVE_DECLARE(name) __typeof__(&(name)) name;
    LIBARCHIVE_FUNCTIONS(LIBARCHIVE_DECLARE)
#undef LIBARCHIVE_DECLARE
};

/*
 * libarchive_load - its functions. The library stays loaded.
 * @ret_missing  if there are none, why: a text that stays
 * Returns NULL if it cannot be loaded.
 */
const struct libarchive *libarchive_load(const char **ret_missing);

#endif
