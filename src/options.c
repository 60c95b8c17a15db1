/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the command line by the table in options.def. options_sources.c has the environment and
 * the file of options.
 *
 * It does not use getopt_long, which prints its errors itself, and with which each new flag of ours
 * could make a prefix ambiguous that start scripts for Triton use. Here our own flags match only in
 * full.
 */
#include "options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "options_priv.h"

#define HONOURED                  EFFECT_HONOURED, NULL, NULL, NULL
#define INERT(feature)            EFFECT_INERT, NULL, NULL, feature
#define ONLY(harmless, feature)   EFFECT_ONLY, NULL, harmless, feature
#define ASKS(function, feature)   EFFECT_ASKS, function, NULL, feature
#define PARTLY(function, feature) EFFECT_PARTLY, function, NULL, feature

const struct option option_table[N_OPTIONS] = {
#define OPTION(group, id, flag, kind, argument, initial, check, effect, keeper, help)              \
    {flag, GROUP_##group, KIND_##kind, argument, initial, check, effect, help},
#include "options.def"
};

char *option_message(const char *fmt, ...)
{
    char *text;
    va_list ap;
    va_start(ap, fmt);
    int length = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (length < 0)
        abort();
    return text;
}

static void *grow_list(void *list, size_t n, size_t item_bytes)
{
    list = reallocarray(list, n + 1, item_bytes);
    if (!list)
        abort();
    return list;
}

static void add_notice(struct options *o, char *text)
{
    o->notices = grow_list(o->notices, o->n_notices, sizeof(*o->notices));
    o->notices[o->n_notices++] = text;
}

/* ---- values --------------------------------------------------------------------------------- */

char *option_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret_value)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end)
        return option_message("Invalid option value. Got %s; valid are whole numbers", text);
    if (errno == ERANGE || value < min || value > max)
        return option_message("Provided option value is out of bound. Got %s; valid are %jd to %jd",
                              text, (intmax_t)min, (intmax_t)max);
    *ret_value = value;
    return NULL;
}

char *option_parse_real(const char *text, double *ret_value)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end)
        return option_message("Invalid option value. Got %s; valid are numbers", text);
    if (errno == ERANGE)
        return option_message(
            "Provided option value is out of bound. Got %s; valid are numbers from "
            "-1.8e308 to 1.8e308",
            text);
    *ret_value = value;
    return NULL;
}

static bool is_any_word(const char *text, const char *a, const char *b, const char *c)
{
    return strcasecmp(text, a) == 0 || strcasecmp(text, b) == 0 || strcasecmp(text, c) == 0;
}

char *option_parse_bool(const char *text, int64_t *ret_value)
{
    *ret_value = is_any_word(text, "true", "on", "1");
    if (*ret_value || is_any_word(text, "false", "off", "0"))
        return NULL;
    return option_message("invalid value for bool option: %s; valid are true, on, 1, false, off, 0",
                          text);
}

static char *parse_value(const struct option *option, struct option_value *v, const char *text)
{
    char *wrong = NULL;
    switch (option->kind) {
    case KIND_NONE:
        v->number = 1;
        return NULL;
    case KIND_BOOL:
        wrong = option_parse_bool(text, &v->number);
        break;
    case KIND_INT:
        wrong = option_parse_int(text, INT32_MIN, INT32_MAX, &v->number);
        break;
    case KIND_INT64:
        wrong = option_parse_int(text, INT64_MIN, INT64_MAX, &v->number);
        break;
    case KIND_REAL:
        wrong = option_parse_real(text, &v->real);
        break;
    case KIND_LEVEL:
        if (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0)
            wrong = option_parse_bool(text, &v->number);
        else
            wrong = option_parse_int(text, INT32_MIN, INT32_MAX, &v->number);
        break;
    case KIND_TEXT:
    case KIND_LIST:
        break;
    }
    if (!wrong && option->check)
        wrong = option->check(option, v, text);
    return wrong;
}

/* ---- The effect of a flag -------------------------------------------------------------------- */

/* Does this value ask for a feature that does not exist yet? */
static bool asks_for_more(const struct option *option, const struct option_value *v,
                          const char *text)
{
    int64_t harmless;
    switch (option->effect) {
    case EFFECT_HONOURED:
    case EFFECT_INERT:
        return false;
    case EFFECT_ASKS:
    case EFFECT_PARTLY:
        return option->asks(text);
    case EFFECT_ONLY:
        break;
    }
    if (!option->harmless)
        return true;
    switch (option->kind) {
    case KIND_BOOL:
        return v->number != (strcmp(option->harmless, "true") == 0);
    case KIND_INT:
    case KIND_INT64:
        free(option_parse_int(option->harmless, INT64_MIN, INT64_MAX, &harmless));
        return v->number != harmless;
    default:
        return strcasecmp(text, option->harmless) != 0;
    }
}

static char *refusal_of(const struct option *option, const char *text)
{
    return option_message("--%s%s%s asks for what Conch does not have yet: %s", option->flag,
                          text ? "=" : "", text ? text : "", option->feature);
}

char *options_keep(struct options *o, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        abort();
    o->kept = grow_list(o->kept, o->n_kept, sizeof(*o->kept));
    o->kept[o->n_kept++] = copy;
    return copy;
}

char *options_take(struct options *o, enum option_id id, enum option_source source,
                   const char *text)
{
    const struct option *option = &option_table[id];
    struct option_value *v = &o->values[id];
    char *wrong = parse_value(option, v, text);
    if (wrong) {
        char *whole = option_message("Bad option: \"--%s\".\n%s", option->flag, wrong);
        free(wrong);
        return whole;
    }
    bool first = !v->given;
    v->given = true;
    v->source = source;
    v->text = text;
    if (option->kind == KIND_LIST) {
        if (id == OPT_MODEL_STORE)
            v = &o->values[OPT_MODEL_REPOSITORY];
        v->source = source;
        v->list = grow_list(v->list, v->n_list, sizeof(*v->list));
        v->list[v->n_list++] = text;
    }
    if (first && (option->effect == EFFECT_INERT || option->effect == EFFECT_ASKS))
        add_notice(o, option_message("--%s has no effect yet: it is for %s", option->flag,
                                     option->feature));
    return NULL;
}

/* Finds the first flag whose last value (any value, of a list) asks for a missing feature. */
static char *check_effects(const struct options *o)
{
    for (int id = 0; id < N_OPTIONS; id++) {
        const struct option_value *v = &o->values[id];
        if (!v->given)
            continue;
        if (option_table[id].kind != KIND_LIST) {
            if (asks_for_more(&option_table[id], v, v->text))
                return refusal_of(&option_table[id], v->text);
            continue;
        }
        for (size_t i = 0; i < v->n_list; i++) {
            if (asks_for_more(&option_table[id], v, v->list[i]))
                return refusal_of(&option_table[id], v->list[i]);
        }
    }
    return NULL;
}

static void add_deprecations(struct options *o)
{
    static const struct {
        enum option_id id;
        const char *replacement;
    } traces[] = {
        {OPT_TRACE_FILE, "triton,file=<path>"},
        {OPT_TRACE_LEVEL, "level=<OFF|TIMESTAMPS|TENSORS>"},
        {OPT_TRACE_RATE, "rate=<count>"},
        {OPT_TRACE_COUNT, "count=<count>"},
        {OPT_TRACE_LOG_FREQUENCY, "triton,log-frequency=<count>"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(traces); i++) {
        if (o->values[traces[i].id].given)
            add_notice(o, option_message("Warning: '--%s' has been deprecated. Please use "
                                         "'--trace-config %s' instead.",
                                         option_table[traces[i].id].flag, traces[i].replacement));
    }
    const struct option_value *cache = &o->values[OPT_RESPONSE_CACHE_BYTE_SIZE];
    if (cache->given)
        add_notice(o, option_message(
                          "Warning: '--response-cache-byte-size' has been deprecated! This will "
                          "default to the 'local' cache implementation with the provided byte "
                          "size for its config. Please use '--cache-config' instead. The "
                          "equivalent --cache-config CLI args would be: "
                          "'--cache-config=local,size=%s'",
                          cache->text));
    struct option_value *strict = &o->values[OPT_STRICT_MODEL_CONFIG];
    struct option_value *disable = &o->values[OPT_DISABLE_AUTO_COMPLETE_CONFIG];
    if (!strict->given)
        return;
    add_notice(o, option_message("Warning: '--strict-model-config' has been deprecated! Please use "
                                 "'--disable-auto-complete-config' instead."));
    if (disable->given && !strict->number)
        add_notice(
            o, option_message("Warning: Overriding deprecated '--strict-model-config' from False "
                              "to True in favor of '--disable-auto-complete-config'!"));
    else
        disable->number = strict->number;
}

/* ---- the command line ----------------------------------------------------------------------- */

static char *refuse_flag(const char *name, size_t length)
{
    char *given = option_message("%.*s", (int)length, name);
    const char *meant = NULL;
    size_t least = SIZE_MAX;
    for (int id = 0; id < N_OPTIONS; id++) {
        if (str_nearer(given, option_table[id].flag, &least))
            meant = option_table[id].flag;
    }
    char *wrong =
        meant ? option_message("unrecognized option '--%s'; did you mean '--%s'?", given, meant)
              : option_message("unrecognized option '--%s'", given);
    free(given);
    return wrong;
}

/* Finds the flag that the first `length` characters of name mean; or returns N_OPTIONS and
 * *ret_wrong. */
static enum option_id find_flag(const char *name, size_t length, char **ret_wrong)
{
    enum option_id found = N_OPTIONS;
    char *several = NULL;
    for (int id = 0; id < N_OPTIONS && length > 0; id++) {
        const char *flag = option_table[id].flag;
        if (strncmp(flag, name, length) != 0)
            continue;
        if (flag[length] == '\0') {
            free(several);
            return id;
        }
        if (option_table[id].group == GROUP_CONCH)
            continue;
        if (found != N_OPTIONS) {
            char *more = several ? option_message("%s '--%s'", several, flag)
                                 : option_message("'--%s' '--%s'", option_table[found].flag, flag);
            free(several);
            several = more;
        }
        found = id;
    }
    if (several) {
        *ret_wrong = option_message("option '--%.*s' is ambiguous; possibilities: %s", (int)length,
                                    name, several);
        free(several);
        return N_OPTIONS;
    }
    if (found == N_OPTIONS)
        *ret_wrong = refuse_flag(name, length);
    return found;
}

enum option_id options_find(const char *name, size_t length, char **ret_wrong)
{
    for (int id = 0; id < N_OPTIONS; id++) {
        const char *flag = option_table[id].flag;
        if (strncmp(flag, name, length) == 0 && flag[length] == '\0')
            return id;
    }
    *ret_wrong = refuse_flag(name, length);
    return N_OPTIONS;
}

bool options_knows(const char *arg, bool *ret_takes_next)
{
    char *wrong = NULL;
    size_t length = strlen(arg) > 2 ? strcspn(arg + 2, "=") : 0;
    *ret_takes_next = false;
    if (strncmp(arg, "--", 2) != 0 || length == 0)
        return false;
    enum option_id id = find_flag(arg + 2, length, &wrong);
    free(wrong);
    if (id == N_OPTIONS)
        return false;
    *ret_takes_next = option_table[id].kind != KIND_NONE && !arg[2 + length];
    return true;
}

static void set_by_mode(struct options *o, enum option_id id, bool value)
{
    o->values[id].number = value;
    o->values[id].text = value ? "true" : "false";
    o->values[id].source = SOURCE_ENVIRONMENT;
}

static void set_defaults(struct options *o)
{
    *o = (struct options){0};
    for (int id = 0; id < N_OPTIONS; id++) {
        const struct option *option = &option_table[id];
        struct option_value *v = &o->values[id];
        if (!option->initial)
            continue;
        v->text = option->initial;
        char *wrong = parse_value(option, v, option->initial);
        if (wrong) /* our own table */
            abort();
    }
    const char *mode = getenv("AIP_MODE");
    if (mode && strcmp(mode, "PREDICTION") == 0) {
        set_by_mode(o, OPT_ALLOW_HTTP, false);
        set_by_mode(o, OPT_ALLOW_GRPC, false);
        set_by_mode(o, OPT_ALLOW_VERTEX_AI, true);
    }
}

/* Takes the options that the command line does not have from the environment and from a file. */
static char *take_other_sources(struct options *o)
{
    char *wrong = options_take_environment(o);
    const char *path = o->values[OPT_CONFIG].text;
    return wrong || !*path ? wrong : options_take_file(o, path);
}

/* Applies Vertex AI's variables to options that nothing else gives. */
static char *apply_vertex_ai(struct options *o)
{
    struct option_value *repositories = &o->values[OPT_MODEL_REPOSITORY];
    const char *storage = getenv("AIP_STORAGE_URI");
    if (repositories->n_list == 0 && storage) {
        repositories->list = grow_list(NULL, 0, sizeof(*repositories->list));
        repositories->list[repositories->n_list++] = storage;
        repositories->source = SOURCE_ENVIRONMENT;
    }
    struct option_value *port = &o->values[OPT_VERTEX_AI_PORT];
    const char *given = getenv("AIP_HTTP_PORT");
    if (o->values[OPT_ALLOW_VERTEX_AI].number && !port->given && given) {
        char *wrong = option_parse_int(given, INT32_MIN, INT32_MAX, &port->number);
        if (wrong) {
            char *text = option_message("AIP_HTTP_PORT: %s", wrong);
            free(wrong);
            return text;
        }
        port->text = given;
        port->source = SOURCE_ENVIRONMENT;
    }
    return NULL;
}

char *options_parse(struct options *o, int argc, char *const argv[])
{
    char *wrong = NULL;
    set_defaults(o);
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i] + 2, *value = NULL;
        if (strncmp(argv[i], "--", 2) != 0) {
            if (argv[i][0] == '-' && argv[i][1])
                return option_message("invalid option -- '%c'", argv[i][1]);
            return option_message("Unexpected argument: %s", argv[i]);
        }
        if (!*name) { /* "--": only arguments follow, and there may be none */
            if (i + 1 < argc)
                return option_message("Unexpected argument: %s", argv[i + 1]);
            break;
        }
        const char *equals = strchr(name, '=');
        enum option_id id =
            find_flag(name, equals ? (size_t)(equals - name) : strlen(name), &wrong);
        if (wrong)
            return wrong;
        const char *flag = option_table[id].flag;
        if (option_table[id].kind == KIND_NONE) {
            if (equals)
                return option_message("option '--%s' doesn't allow an argument", flag);
        } else if (equals) {
            value = equals + 1;
        } else {
            if (i + 1 == argc)
                return option_message("option '--%s' requires an argument", flag);
            value = argv[++i];
        }
        wrong = options_take(o, id, SOURCE_COMMAND_LINE, value);
        if (wrong)
            return wrong;
        if (id == OPT_HELP)
            return NULL;
    }
    if (o->values[OPT_VERSION].given)
        return NULL;
    wrong = take_other_sources(o);
    if (!wrong)
        wrong = apply_vertex_ai(o);
    if (!wrong)
        wrong = options_check_together(o);
    if (!wrong)
        wrong = check_effects(o);
    if (!wrong)
        add_deprecations(o);
    return wrong;
}

void options_done(struct options *o)
{
    for (int id = 0; id < N_OPTIONS; id++)
        free(o->values[id].list);
    for (size_t i = 0; i < o->n_notices; i++)
        free(o->notices[i]);
    free(o->notices);
    for (size_t i = 0; i < o->n_kept; i++)
        free(o->kept[i]);
    free(o->kept);
}
