/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of the program. options.def has one entry per flag; everything here follows from
 * that table: parsing, checking, --help.
 *
 * Long flags only, as Triton has them: --x=v and --x v, and any prefix of a name that fits only one
 * flag. Which features exist is part of the table: a flag that only sizes or places a missing one
 * is accepted with a warning, one that asks for it is refused by name.
 */
#ifndef CONCH_OPTIONS_H
#define CONCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct TRITONSERVER_Error;
struct TRITONSERVER_ServerOptions;
struct conch_http_options;
struct conch_metrics_options;

enum option_id {
#define OPTION(group, id, ...) OPT_##id,
#include "options.def"
    N_OPTIONS
};

/* Texts are borrowed from argv, the environment or the table. */
struct option_value {
    bool given; /* on the command line */
    int64_t number;
    double real;
    const char *text; /* NULL when there is neither a value nor a default */
    const char **list;
    size_t n_list;
};

struct options {
    struct option_value values[N_OPTIONS];
    char **notices; /* lines that the user should see once: what is deprecated or has no effect */
    size_t n_notices;
};

/*
 * options_parse - the whole command line, checked.
 *
 * @argv  kept: values point into it
 * Returns NULL, or what is wrong in one or two lines, which the caller frees. `o` is to be ended
 * either way. What follows --help is not looked at; with --version flags need not fit together.
 */
char *options_parse(struct options *o, int argc, char *const argv[]);
void options_done(struct options *o);

/*
 * options_apply - hands values to the setters of the C API that options.def names, in its order:
 * those of the log, or all others.
 *
 * @ret_what  on error, what failed, such as "setting host policy"; valid until the next
 * call
 */
struct TRITONSERVER_Error *options_apply(const struct options *o, bool of_log,
                                         struct TRITONSERVER_ServerOptions *so,
                                         const char **ret_what);

/*
 * options_backend_directory - where backends stand when no option says it: beside the program, in a
 * build folder under backends/, installed under lib/conch/backends/; else where Triton has them.
 * Valid until the next call.
 */
const char *options_backend_directory(void);

/* options_apply_http, options_apply_metrics - set the members that options.def names. */
void options_apply_http(const struct options *o, struct conch_http_options *http);
void options_apply_metrics(const struct options *o, struct conch_metrics_options *metrics);

/* options_help - all flags with their defaults, by group, for a terminal of 100 columns. */
void options_help(FILE *out, const char *program);

static inline bool option_bool(const struct options *o, enum option_id id)
{
    return o->values[id].number != 0;
}

static inline int64_t option_int(const struct options *o, enum option_id id)
{
    return o->values[id].number;
}

static inline double option_real(const struct options *o, enum option_id id)
{
    return o->values[id].real;
}

static inline const char *option_text(const struct options *o, enum option_id id)
{
    return o->values[id].text;
}

#endif
