/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that must end the process runs in a child process.
 */
#ifndef CONCH_TESTS_LIB_DEATH_H
#define CONCH_TESTS_LIB_DEATH_H

/*
 * assert_aborts - fails the test unless run(arg) ends a child process by SIGABRT, with `words`
 * somewhere in what it wrote to stderr.
 */
void assert_aborts(void (*run)(void *arg), void *arg, const char *words);

#endif
