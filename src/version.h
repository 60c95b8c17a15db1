/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `conch --version`: this program, and the frameworks that its backends find at run time.
 *
 * A backend of ours that looks for a library exports, besides what the ABI asks for,
 *
 *     char *conch_backend_version(const char *folder);
 *
 * one line about what it finds without a setting, which the caller frees by free(); `folder` is the
 * backend's own. Other servers do not call it.
 */
#ifndef CONCH_VERSION_COMMAND_H
#define CONCH_VERSION_COMMAND_H

/* version_print - on standard output. @backends  the folder of all backends */
void version_print(const char *backends);

#endif
