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
    F(read_new)                                                                                    \
    F(read_free)                                                                                   \
    F(read_support_filter_all)                                                                     \
    F(read_support_format_tar)                                                                     \
    F(read_support_format_zip)                                                                     \
    F(read_support_format_zip_seekable)                                                            \
    F(read_open_fd)                                                                                \
    F(read_open_filename)                                                                          \
    F(read_next_header)                                                                            \
    F(read_next_header2)                                                                           \
    F(read_data)                                                                                   \
    F(read_data_block)                                                                             \
    F(write_disk_new)                                                                              \
    F(write_disk_set_options)                                                                      \
    F(write_header)                                                                                \
    F(write_data_block)                                                                            \
    F(write_finish_entry)                                                                          \
    F(write_close)                                                                                 \
    F(write_free)                                                                                  \
    F(error_string)                                                                                \
    F(entry_new)                                                                                   \
    F(entry_free)                                                                                  \
    F(entry_pathname)                                                                              \
    F(entry_set_pathname)                                                                          \
    F(entry_filetype)                                                                              \
    F(entry_perm)                                                                                  \
    F(entry_set_perm)                                                                              \
    F(entry_symlink)                                                                               \
    F(entry_hardlink)                                                                              \
    F(entry_set_hardlink)

/* Its functions, without archive_ before their names; constant once loaded. */
struct libarchive {
#define LIBARCHIVE_DECLARE(name) __typeof__(&(archive_##name)) name;
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
