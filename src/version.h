/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `conch --version`: this program, and the frameworks that its backends find at run time.
 *
 * A backend of ours that looks for a library exports, besides what the ABI asks for,
 *
 *     char *conch_backend_version(const char *folder, const char *library_path);
 *
 * one line about what it finds, which the caller frees by free(); `folder` is the backend's own,
 * and library_path its setting library-path, or NULL. Other servers do not call it.
 */
#ifndef CONCH_VERSION_COMMAND_H
#define CONCH_VERSION_COMMAND_H

#include <stddef.h>

/*
 * version_print - on standard output.
 * @backends   the folder of all backends
 * @settings   of --backend-config: the library-path of a backend, or of all, counts
 */
void version_print(const char *backends, const char *const *settings, size_t n_settings);

#endif
