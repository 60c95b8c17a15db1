/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of the program. options.def has one entry per flag; parsing, checks and --help
 * are made from that table.
 *
 * All flags are long, as in Triton: --x=v or --x v. Any prefix of a name that fits only one flag is
 * accepted, too. The table also says which features are missing. A flag that only sizes or places a
 * missing feature is accepted with a warning. A flag that asks for one is refused, and the error
 * names the feature.
 */
#ifndef CONCH_OPTIONS_H
#define CONCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct TRITONSERVER_Error;
struct TRITONSERVER_ServerOptions;
struct conch_grpc_options;
struct conch_http_options;
struct conch_metrics_options;
struct conch_trace_options;

enum option_id {
#define OPTION(group, id, ...) OPT_##id,
#include "options.def"
    N_OPTIONS
};

/* Where the value of an option is from; a later one counts before those in front of it. */
enum option_source {
    SOURCE_DEFAULT,
    SOURCE_FILE,
    SOURCE_ENVIRONMENT,
    SOURCE_COMMAND_LINE,
};

/* Texts are borrowed from argv, the environment, the table, or options.kept. */
struct option_value {
    bool given; /* the value is no default */
    enum option_source source;
    int64_t number;
    double real;
    const char *text; /* NULL when there is neither a value nor a default */
    const char **list;
    size_t n_list;
};

struct options {
    struct option_value values[N_OPTIONS];
    char **notices; /* lines to show to the user: what is deprecated or has no effect */
    size_t n_notices;
    char **kept; /* memory that texts point into */
    size_t n_kept;
};

/*
 * options_parse - parses and checks the whole command line, then the variables CONCH_… and the file
 * of --config for the options that it does not have.
 *
 * @o     ended by options_done(), on error, too
 * @argv  must outlive o, whose values point into it
 * Returns NULL, or the error in one or two lines, which the caller frees with free(). Nothing after
 * --help is read. With --version, flags may contradict each other.
 */
char *options_parse(struct options *o, int argc, char *const argv[]);
void options_done(struct options *o);

/*
 * options_apply - passes values to the setters of the C API that options.def names, in its order.
 *
 * @of_log    true: only the options of the log; false: all others
 * @ret_what  on error: the step that failed, such as "setting host policy"; valid until the next
 *            call
 * Returns NULL, or the error of the setter, which the caller owns.
 */
struct TRITONSERVER_Error *options_apply(const struct options *o, bool of_log,
                                         struct TRITONSERVER_ServerOptions *so,
                                         const char **ret_what);

/*
 * options_backend_directory - the folder of the backends when no option names one. It is beside the
 * program: backends/ in a build folder, lib/conch/backends/ in an installation. Else it is the
 * folder that Triton uses. Valid until the next call.
 */
const char *options_backend_directory(void);
/* options_cache_directory - the same for the caches: caches/, lib/conch/caches/. */
const char *options_cache_directory(void);

/*
 * options_apply_http, options_apply_grpc, options_apply_metrics - set the members that options.def
 * names. Texts and lists are borrowed from o.
 */
void options_apply_http(const struct options *o, struct conch_http_options *http);
/* Those of a service of HTTP's kind: HTTP's, with its own port and threads, and without TLS. */
void options_apply_sagemaker(const struct options *o, struct conch_http_options *http);
void options_apply_vertex_ai(const struct options *o, struct conch_http_options *http);
void options_apply_grpc(const struct options *o, struct conch_grpc_options *grpc);
void options_apply_metrics(const struct options *o, struct conch_metrics_options *metrics);

/* options_apply_trace - sets the members that the options of traces give. The caller frees the list
 * `settings` with free(), but not its texts. */
void options_apply_trace(const struct options *o, struct conch_trace_options *trace);

/* options_knows - whether the argument is a flag, and whether its value is the argument behind. */
bool options_knows(const char *arg, bool *ret_takes_next);

/*
 * options_help - prints flags with their defaults, by group, for a terminal of 100 columns.
 * Headings are bold on a terminal, unless NO_COLOR is set.
 *
 * @topic  NULL: the flags that people use; "all"; the name of a group ("http"), or of a flag
 * Returns whether there is such a topic; if not, nothing is printed.
 */
bool options_help(FILE *out, const char *program, const char *topic);

/*
 * options_print_config - prints the value of each option as a file for --config, by their sources:
 * first what the command line gives, last the defaults.
 *
 * @backends  the folder of the backends when no option names one
 * @caches    … of the caches
 */
void options_print_config(FILE *out, const struct options *o, const char *backends,
                          const char *caches);

/* options_are_in_environment - does a variable say what to serve? */
bool options_are_in_environment(void);

/* options_topics - the topics of --help with blanks between them; to be freed with free(). */
char *options_topics(void);

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
