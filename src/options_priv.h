/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the option table.
 */
#ifndef CONCH_OPTIONS_PRIV_H
#define CONCH_OPTIONS_PRIV_H

#include "base/compiler.h"
#include "options.h"

enum option_kind {
    KIND_NONE,
    KIND_BOOL,
    KIND_INT,
    KIND_INT64,
    KIND_REAL,
    KIND_LEVEL,
    KIND_TEXT,
    KIND_LIST,
};

enum option_group {
    GROUP_GENERAL,
    GROUP_SERVER,
    GROUP_LOGGING,
    GROUP_REPOSITORY,
    GROUP_HTTP,
    GROUP_GRPC,
    GROUP_SAGEMAKER,
    GROUP_VERTEX,
    GROUP_METRICS,
    GROUP_TRACING,
    GROUP_BACKEND,
    GROUP_AGENT,
    GROUP_CACHE,
    GROUP_RATE,
    GROUP_DEVICE,
    GROUP_SHARED_MEMORY,
    GROUP_CONCH,
    GROUP_DEPRECATED,
};

enum option_effect {
    EFFECT_HONOURED,
    EFFECT_INERT,
    EFFECT_ONLY,
    EFFECT_ASKS,
    EFFECT_PARTLY,
};

struct option {
    const char *flag; /* without the dashes */
    enum option_group group;
    enum option_kind kind;
    const char *argument;
    const char *initial;
    /*
     * Checks text, whose number is in v. A LIST in v does not have the text yet. Returns NULL or
     * the error, which the caller frees.
     */
    char *(*check)(const struct option *option, const struct option_value *v, const char *text);
    enum option_effect effect;
    bool (*asks)(const char *text);
    const char *harmless;
    const char *feature; /* the missing feature */
    const char *help;
};

extern const struct option option_table[N_OPTIONS];

/* options_print_line - prints a line of --help: a flag, and beside it its description. */
void options_print_line(FILE *out, const char *left, const char *right);

/* option_message - makes a message, which the caller frees with free(). Aborts without memory. */
char *option_message(const char *fmt, ...) PRINTF_LIKE(1, 2);

/*
 * option_parse_int, _bool, _real - the whole text as a number. Return NULL or the error, to be
 * freed.
 */
char *option_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret_value);
char *option_parse_bool(const char *text, int64_t *ret_value);
char *option_parse_real(const char *text, double *ret_value);

/*
 * options_find - finds the option with this whole name. Returns N_OPTIONS and *ret_wrong, to be
 * freed, if there is none.
 */
enum option_id options_find(const char *name, size_t length, char **ret_wrong);

/* options_take - checks the text and takes it as a value. Returns NULL or the error, to be freed.
 */
char *options_take(struct options *o, enum option_id id, enum option_source source,
                   const char *text);

/* options_keep - copies the text; the copy lives as long as o. */
char *options_keep(struct options *o, const char *text);

/*
 * options_take_environment, options_take_file - take the options that are not given yet. Return
 * NULL or the error, to be freed, with the variable or the line.
 */
char *options_take_environment(struct options *o);
char *options_take_file(struct options *o, const char *path);

/* The checks that options.def names, in options_check.c. */
#define CHECK(name)                                                                                \
    char *name(const struct option *option, const struct option_value *v, const char *text)
CHECK(check_not_negative);
CHECK(check_positive);
CHECK(check_port_range);
CHECK(check_log_format);
CHECK(check_control_mode);
CHECK(check_config_name);
CHECK(check_max_input_size);
CHECK(check_memory_budget);
CHECK(check_header_size);
CHECK(check_restricted);
CHECK(check_origins);
CHECK(check_grpc_threads);
CHECK(check_response_pool);
CHECK(check_compression);
CHECK(check_interval);
CHECK(check_metrics_config);
CHECK(check_trace_config);
CHECK(check_trace_level);
CHECK(check_backend_config);
CHECK(check_agent_directory);
CHECK(check_cache_config);
CHECK(check_rate_limit);
CHECK(check_rate_resource);
CHECK(check_gpu_size);
CHECK(check_gpu_limit);
CHECK(check_host_policy);
bool metrics_config_asks(const char *text);

/*
 * trace_config_value - the value if text sets the name ("rate", "triton,file"), which may belong to
 * a mode; NULL: it sets something else. trace_config_exporter - "<name>=<value>" of what text sets
 * for the mode opentelemetry, or NULL. trace_level_is_off, trace_level_has_tensors - the meaning of
 * a level; trace_mode_is_opentelemetry - of a mode.
 */
const char *trace_config_value(const char *text, const char *name);
const char *trace_config_exporter(const char *text);
bool trace_mode_is_opentelemetry(const char *text);
bool trace_level_is_off(const char *text);
bool trace_level_has_tensors(const char *text);

/*
 * options_check_together - checks flags against each other. Returns NULL or the error, to be freed.
 */
char *options_check_together(const struct options *o);

#endif
