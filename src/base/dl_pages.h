/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded libraries without their files.
 */
#ifndef CONCH_BASE_DL_PAGES_H
#define CONCH_BASE_DL_PAGES_H

/*
 * dl_own_pages - the pages of a loaded library become the process's own: whoever overwrites its
 * file from now on changes nothing of what is in memory. Where the system does not allow that, all
 * stays as it is.
 *
 * Thread: any. Others may run in the library meanwhile, but should not write to its variables.
 * @handle  what dlopen() returned
 */
void dl_own_pages(void *handle);

#endif
