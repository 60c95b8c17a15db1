/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a process in which a BUG_ON() found something. It needs no lock and no log. Any
 * thread.
 */
#include "base/compiler.h"

#include <stdio.h>
#include <stdlib.h>

NORETURN void bug(const char *file, int line, const char *condition)
{
    fprintf(stderr, "conch: bug at %s:%d: %s\n", file, line, condition);
    abort();
}
