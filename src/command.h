/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of the command line that are no options: commands, the folder or the file to be served,
 * and the short flags -h and -V. They are turned into options, so that the option table stays the
 * one place where options are described. Not used under the name tritonserver, whose command line
 * is Triton's.
 */
#ifndef CONCH_COMMAND_H
#define CONCH_COMMAND_H

#include <stdbool.h>

struct command {
    enum command_kind { COMMAND_RUN, COMMAND_BRIEF, COMMAND_HELP } kind;
    const char *topic; /* of COMMAND_HELP; NULL: none was named */
    int argc;          /* for options_parse() */
    char **argv;       /* NULL ends */
    char **made;       /* the texts in argv that are not the caller's; NULL ends */
    int n_made;
    char *temporary_root; /* the repository of one file; NULL: none */
    char *file;           /* … and that file's path */
};

/*
 * command_read - reads the words. A folder becomes --model-repository, a file of ONNX a repository
 * of its own, in a temporary folder that command_done() removes.
 *
 * @c     ended by command_done(), on error, too
 * @argv  must outlive c
 * Returns NULL, or the error in one line, which the caller frees with free().
 */
char *command_read(struct command *c, int argc, char *const argv[]);
void command_done(struct command *c);

/* command_print_brief - prints in a few lines what the program is, how it is used, where help is.
 */
void command_print_brief(void);

/*
 * command_print_wrong - prints on stderr what is wrong with the words of a command, on one line,
 * and where its help is. All commands do it in this form.
 *
 * @command  such as "check"; NULL: the server
 * @message  in one or more lines
 */
void command_print_wrong(const char *command, const char *message);

#endif
