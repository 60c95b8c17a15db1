/* SPDX-License-Identifier: Apache-2.0 */
/*
 * banned - functions that our code may not name. The build includes this file before the first
 * line of every C file of ours, so no file includes it by itself.
 *
 * The headers that declare them come first: poison spoils every later mention, a declaration too.
 */
#ifndef CONCH_BASE_BANNED_H
#define CONCH_BASE_BANNED_H

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Write without knowing how much room there is, or leave a string without its end. */
#pragma GCC poison strcpy stpcpy strcat strncpy strncat sprintf vsprintf gets
/* Keep hidden state that another thread changes. */
#pragma GCC poison strtok asctime ctime localtime gmtime rand srand
/* Cannot tell a number from nonsense. */
#pragma GCC poison atoi atol atoll atof
/* A size from outside would move the stack. */
#undef alloca
#pragma GCC poison alloca
/* Race with whoever creates the file first. */
#pragma GCC poison tmpnam tempnam mktemp

#endif
