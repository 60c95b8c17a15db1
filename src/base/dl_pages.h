/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a loaded library independent of its file.
 */
#ifndef CONCH_BASE_DL_PAGES_H
#define CONCH_BASE_DL_PAGES_H

/*
 * dl_own_pages - replaces the pages of a loaded library by private copies. Overwriting the file
 * afterwards changes nothing in memory. Where the system does not allow that, the pages stay as
 * they are.
 *
 * Thread: any. Other threads may run in the library meanwhile, but should not write to its
 * variables.
 * @handle  what dlopen() returned
 */
void dl_own_pages(void *handle);

#endif
