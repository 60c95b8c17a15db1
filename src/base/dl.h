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
 * dl_open - loads the library at path, with all its symbols bound now and none of them offered to
 * other libraries.
 *
 * Always opened by its path, never searched for, so that the library finds what it depends on
 * beside itself ($ORIGIN) wherever we were started. What the dynamic linker then misses is taken
 * from the library's own folder, too, if it is there under the name that it gives itself.
 *
 * The linker knows a library by its name: what is still in memory it gives again, even when another
 * file has taken its place. So a file that has changed since then is loaded under another name.
 * Errors: STATUS_NOT_FOUND  with the dynamic linker's own words
 * Source: reference/behaviours §19.15
 */
NODISCARD struct status *dl_open(const char *path, struct dl **ret_dl);

/*
 * dl_offer_self - what this code exports is found by every library that is loaded from now on, also
 * when the program around it has loaded this code for itself alone: a program that calls dlopen()
 * without RTLD_GLOBAL, or Java.
 */
void dl_offer_self(void);

/*
 * dl_stay - instead of dl_close(): the library stays in memory until the process ends, since
 * threads that go on may have something of it, such as destructors of what they keep for it. It
 * does not need its file any more, which may be overwritten.
 *
 * Returns whether that is new: false, when it was loaded before and stays already.
 */
bool dl_stay(struct dl *dl);

/* dl_close - gives the library up; NULL is fine. Nothing may run in it, or point to it, any more.
 */
void dl_close(struct dl *dl);

/*
 * dl_symbol - the address of a symbol that must be there.
 *
 * Errors: STATUS_NOT_FOUND
 */
NODISCARD struct status *dl_symbol(struct dl *dl, const char *name, void **ret_address);

/* dl_optional_symbol - the address, or NULL when there is none. */
void *dl_optional_symbol(struct dl *dl, const char *name);

#endif
