/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `conch check REPO…`: the command line around conch_check() of conch/check.h.
 */
#ifndef CONCH_CHECK_COMMAND_H
#define CONCH_CHECK_COMMAND_H

/*
 * check_main - argv[0] is "check"; returns the exit code.
 *
 * @backends  where backend libraries are looked for unless an option says it
 */
int check_main(int argc, char *const argv[], const char *backends);

#endif
