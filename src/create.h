/* SPDX-License-Identifier: Apache-2.0 */
/* `conch new`: the files that a model or a backend begins with. */
#ifndef CONCH_CREATE_H
#define CONCH_CREATE_H

/*
 * create_main - makes the folder of a model in Python, or of a backend in C with a model of it, and
 * prints the files and what to do next. Nothing that exists is changed.
 *
 * @argv  argv[0] is "new"; then "model" or "backend", then the folder, whose last part is the name
 * Returns the exit code: 1 if the files cannot be made, 2 if the arguments are wrong.
 */
int create_main(int argc, char *const argv[]);

#endif
