/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared libraries loaded at run time: backends, caches, repository agents, frameworks.
 */
#ifndef CONCH_BASE_DL_H
#define CONCH_BASE_DL_H

#include <stdbool.h>

#include "base/compiler.h"

struct dl; /* a loaded library */

/*
 * dl_open - loads the library at path. All its symbols are bound at once, and none of them is
 * offered to other libraries.
 *
 * The library is always opened by its path and never searched for. So it finds the libraries that
 * it needs in its own folder ($ORIGIN), whatever the current folder is. When the dynamic linker
 * does not find one of them, it is taken from that folder, if it is there under its SONAME.
 *
 * The dynamic linker identifies a library by its name. While a library is in memory, the linker
 * returns it again, even when another file has replaced it. A file that has changed since then is
 * therefore loaded under another name.
 * Thread: any.
 * Errors: STATUS_NOT_FOUND  with the dynamic linker's own words
 * Source: reference/behaviours §19.15
 */
NODISCARD struct status *dl_open(const char *path, struct dl **ret_dl);

/*
 * dl_offer_self - makes the exported symbols of this code visible to every library that is loaded
 * from now on. That matters in a program, or Java, that has loaded this code by dlopen() without
 * RTLD_GLOBAL.
 */
void dl_offer_self(void);

/*
 * dl_stay - replaces dl_close(): the library stays in memory until the process ends. This is for
 * libraries on which running threads may still depend, such as by destructors of their thread-local
 * variables. The library no longer needs its file, which may be overwritten.
 *
 * Returns whether that is new: false when the library was loaded before and stays already.
 */
bool dl_stay(struct dl *dl);

/* dl_close - unloads the library; NULL is fine. No thread may run in it or point into it. */
void dl_close(struct dl *dl);

/*
 * dl_symbol - the address of a symbol that the library must have.
 *
 * Errors: STATUS_NOT_FOUND  the library does not have it
 */
NODISCARD struct status *dl_symbol(struct dl *dl, const char *name, void **ret_address);

/* dl_optional_symbol - the address, or NULL when there is none. */
void *dl_optional_symbol(struct dl *dl, const char *name);

#endif
