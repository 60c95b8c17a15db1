/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks model repositories without serving them: finds what a server would refuse, and what it
 * would accept but what fails later, with file, line and column. No model is loaded or executed, so
 * the check is quick, and safe for untrusted repositories. `conch check` is this function with a
 * command line.
 */
#ifndef CONCH_CHECK_H
#define CONCH_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CONCH_DECLSPEC
#define CONCH_DECLSPEC __attribute__((__visibility__("default")))
#endif

enum conch_check_format {
    CONCH_CHECK_HUMAN,  /* each finding with its line of the configuration */
    CONCH_CHECK_JSON,   /* one document */
    CONCH_CHECK_GITHUB, /* annotations of a GitHub workflow */
    CONCH_CHECK_SHORT,  /* one line for each finding */
    CONCH_CHECK_SARIF,  /* one document of SARIF 2.1.0, the format of code scanners */
};

/* A member that is 0 or NULL has its default; all texts are borrowed during the call. */
struct conch_check_options {
    size_t size; /* of this struct, as the caller knows it */
    const char *const *repositories;
    size_t n_repositories;

    enum conch_check_format format;
    bool colour;                /* for human readers, by terminal escapes */
    bool strict;                /* warnings count as errors */
    const char *const *ignored; /* codes to leave out; each must be one that can be ignored */
    size_t n_ignored;
    FILE *out;      /* where findings go; NULL = stdout */
    FILE *progress; /* a terminal for the progress; NULL = none */

    /* As the server's options of the same names. */
    const char *model_config_name;
    bool disable_auto_complete_config;
    const char *backend_directory; /* NULL: backend libraries are not searched */
    bool model_namespacing;
    bool follow_symlinks; /* --repository-follow-symlinks */
};

enum conch_check_result {
    CONCH_CHECK_FINE,     /* nothing, or warnings only */
    CONCH_CHECK_FAULTS,   /* errors; with `strict` also warnings */
    CONCH_CHECK_UNUSABLE, /* an option is invalid, or a repository cannot be read */
};

/*
 * conch_check - checks the repositories and prints its findings, sorted by model, then a summary.
 *
 * Thread: any; starts a few of its own, which end before it returns.
 */
CONCH_DECLSPEC enum conch_check_result conch_check(const struct conch_check_options *options);

struct conch_check_code {
    const char *name; /* "W-batch-dim" */
    bool is_warning;
    bool can_ignore; /* a warning, or an error that depends on what this machine has installed */
    const char *meaning;
    const char *about; /* why it matters, and what to do */
    /*
     * Files that give the finding, and files that do not. A line that begins with a blank is a line
     * of the file above, behind four blanks. "PATH/" is an empty folder, "PATH -> TO" a symbolic
     * link, "PATH = FROM" a copy of a file of Conch's sources. "$ COMMAND" comes first where the
     * command is not "conch check models".
     */
    const char *example, *cure;
};

/* conch_check_codes - all codes of findings, errors first; the table is static. */
CONCH_DECLSPEC const struct conch_check_code *conch_check_codes(size_t *ret_n);

#ifdef __cplusplus
}
#endif

#endif
