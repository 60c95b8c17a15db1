/* SPDX-License-Identifier: Apache-2.0 */
/*
 * banned - functions that our code may not name. The build includes this file before the first line
 * of each of our C files, so no file includes it by itself.
 *
 * The headers that declare these functions come first, since the compiler rejects every mention
 * after the poison, even a declaration.
 */
#ifndef CONCH_BASE_BANNED_H
#define CONCH_BASE_BANNED_H

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef CONCH_USES_OPENSSL /* set for the files that do (src/CMakeLists.txt) */
#include <openssl/ssl.h>  /* has parameters of the name rand */
#endif

/* These write without knowing the room, or leave a string without its zero byte. */
#pragma GCC poison strcpy stpcpy strcat strncpy strncat sprintf vsprintf gets
/* These keep hidden state that another thread may change. */
#pragma GCC poison strtok asctime ctime localtime gmtime rand srand
/* These do not report that a text is not a number. */
#pragma GCC poison atoi atol atoll atof
/* alloca() with a size from outside may overrun the stack. */
#undef alloca
#pragma GCC poison alloca
/* Another process may create the file between the choice of the name and the open. */
#pragma GCC poison tmpnam tempnam mktemp

#endif
