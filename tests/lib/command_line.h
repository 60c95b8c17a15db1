/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines as text, for the tests of options. This header includes the program's .c files,
 * which belong to no library. A test includes it once, after cmocka.h.
 */
#ifndef CONCH_TESTS_LIB_COMMAND_LINE_H
#define CONCH_TESTS_LIB_COMMAND_LINE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.c"
#include "options_check.c"
#include "options_help.c"
#include "options_sources.c"

enum { MAX_ARGS = 16 };

/* parse_line - parses the flags of a line, which blanks separate; a word of the line may not
 * contain any. */
static inline char *parse_line(struct options *o, const char *line)
{
    static char copy[1024];
    char *argv[MAX_ARGS + 1] = {(char *)(uintptr_t) "conch"};
    int argc = 1;
    snprintf(copy, sizeof(copy), "%s", line);
    char *rest = NULL;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        assert_true(argc < MAX_ARGS);
        argv[argc++] = word;
    }
    return options_parse(o, argc, argv);
}

/* expect_ok, expect_wrong - the line is accepted, or refused with that text. */
static inline void expect_ok(const char *line)
{
    struct options o;
    char *wrong = parse_line(&o, line);
    if (wrong)
        fail_msg("%s: %s", line, wrong);
    options_done(&o);
}

/* Is it this error? What the values may be stands behind the reference's text. */
static inline bool is_error(const char *wrong, const char *text)
{
    size_t n = strlen(text);
    return strncmp(wrong, text, n) == 0 &&
           (!wrong[n] || strncmp(wrong + n, "; valid are ", 12) == 0);
}

static inline void expect_wrong(const char *line, const char *text)
{
    struct options o;
    char *wrong = parse_line(&o, line);
    if (!wrong)
        fail_msg("%s was accepted, not answered with: %s", line, text);
    if (!is_error(wrong, text))
        fail_msg("%s was answered with: %s\nnot with: %s", line, wrong, text);
    free(wrong);
    options_done(&o);
}

/* clear_environment - a setup: clears the environment variables that options are read from. */
static inline int clear_environment(void **unused)
{
    (void)unused;
    unsetenv("AIP_MODE");
    unsetenv("AIP_STORAGE_URI");
    unsetenv("AIP_HTTP_PORT");
    return 0;
}

#endif
