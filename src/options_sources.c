/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options that are not on the command line: from the environment, then from a file. An option that
 * an earlier source gives is left as it is; a list is that of one source.
 *
 * A line of the file is `name = value`, `name value`, or the name alone for a flag without a value;
 * blank lines and those that begin with # are skipped. A variable is CONCH_ and the name in capital
 * letters; each line of its value is one value of a list.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "options_priv.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_NAME = 128 };

static const char blanks[] = " \t\r";

/* Does an earlier source give the option, or the other one that fills the same list? */
static bool is_taken(const struct options *o, enum option_id id, enum option_source source)
{
    const struct option_value *v = &o->values[id];
    bool taken = v->given && v->source != source;
    if (id == OPT_MODEL_STORE || id == OPT_MODEL_REPOSITORY) {
        v = &o->values[id == OPT_MODEL_STORE ? OPT_MODEL_REPOSITORY : OPT_MODEL_STORE];
        taken |= v->given && v->source != source;
    }
    return taken;
}

/* Takes a value; of a flag without a value the text says whether it is given. NULL: it is. */
static char *take(struct options *o, enum option_id id, enum option_source source, const char *text)
{
    if (option_table[id].kind == KIND_NONE) {
        int64_t is_given = 1;
        char *wrong = text && *text ? option_parse_bool(text, &is_given) : NULL;
        if (wrong || !is_given)
            return wrong;
        text = NULL;
    }
    return options_take(o, id, source, text);
}

static char *prefixed(const char *where, char *wrong)
{
    char *whole = option_message("%s: %s", where, wrong);
    free(wrong);
    return whole;
}

/* ---- The environment ------------------------------------------------------------------------- */

/* The command line alone has these. */
static bool is_for_command_line(enum option_id id)
{
    return id == OPT_HELP || id == OPT_VERSION || id == OPT_PRINT_CONFIG;
}

static void name_variable(enum option_id id, char name[MAX_NAME])
{
    size_t length = (size_t)snprintf(name, MAX_NAME, "CONCH_%s", option_table[id].flag);
    for (size_t i = 0; i < length; i++) {
        if (name[i] == '-')
            name[i] = '_';
        else if (name[i] >= 'a' && name[i] <= 'z')
            name[i] = (char)(name[i] - 'a' + 'A');
    }
}

/* Takes each line of the variable as a value. The lines are kept in o->kept. */
static char *take_lines(struct options *o, enum option_id id, const char *text)
{
    char *wrong = NULL, *copy = options_keep(o, text), *rest = copy, *line;
    while (!wrong && (line = strsep(&rest, "\n")))
        wrong = *line ? take(o, id, SOURCE_ENVIRONMENT, line) : NULL;
    return wrong;
}

char *options_take_environment(struct options *o)
{
    for (int id = 0; id < N_OPTIONS; id++) {
        char name[MAX_NAME], *wrong;
        name_variable(id, name);
        const char *text = getenv(name);
        if (!text || is_for_command_line(id) || is_taken(o, id, SOURCE_ENVIRONMENT))
            continue;
        wrong = option_table[id].kind == KIND_LIST ? take_lines(o, id, text)
                                                   : take(o, id, SOURCE_ENVIRONMENT, text);
        if (wrong)
            return prefixed(name, wrong);
    }
    return NULL;
}

bool options_are_in_environment(void)
{
    static const enum option_id serving[] = {OPT_MODEL_REPOSITORY, OPT_MODEL_STORE, OPT_CONFIG};
    char name[MAX_NAME];
    for (size_t i = 0; i < ARRAY_SIZE(serving); i++) {
        name_variable(serving[i], name);
        if (getenv(name))
            return true;
    }
    return false;
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Takes a line, which has no line end; it is cut into name and value. */
static char *take_line(struct options *o, char *line)
{
    char *wrong = NULL, *name = line + strspn(line, blanks), *end = name + strlen(name);
    while (end > name && strchr(blanks, end[-1]))
        *--end = '\0';
    if (!*name || *name == '#')
        return NULL;
    char *value = name + strcspn(name, " \t=");
    size_t length = (size_t)(value - name);
    value += strspn(value, blanks);
    bool has_value = *value != '\0';
    value += *value == '=';
    value += strspn(value, blanks);
    enum option_id id = options_find(name, length, &wrong);
    if (wrong)
        return wrong;
    if (is_for_command_line(id) || id == OPT_CONFIG)
        return option_message("--%s is for the command line", option_table[id].flag);
    if (!has_value && option_table[id].kind != KIND_NONE)
        return option_message("option '--%s' requires an argument", option_table[id].flag);
    return is_taken(o, id, SOURCE_FILE) ? NULL : take(o, id, SOURCE_FILE, has_value ? value : NULL);
}

static char *take_lines_of_file(struct options *o, const char *path, FILE *from)
{
    char *line = NULL, *wrong = NULL;
    size_t room = 0;
    ssize_t n;
    for (int number = 1; !wrong && (n = getline(&line, &room, from)) >= 0; number++) {
        line[strcspn(line, "\n")] = '\0';
        if (strlen(line) + 1 < (size_t)n)
            wrong = option_message("the line is no text");
        else
            wrong = take_line(o, options_keep(o, line));
        if (wrong) {
            char *where = option_message("%s:%d", path, number);
            wrong = prefixed(where, wrong);
            free(where);
        }
    }
    free(line);
    return wrong || !ferror(from) ? wrong : option_message("%s: %s", path, strerror(errno));
}

/* Opens the file without waiting for a writer. Returns NULL and *ret_wrong if it cannot be read. */
static FILE *open_option_file(const char *path, char **ret_wrong)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *from = NULL;
    if (fd < 0 || fstat(fd, &st) != 0)
        *ret_wrong = option_message("%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        *ret_wrong = option_message("%s: it is no regular file", path);
    else if (st.st_size > MAX_FILE_BYTES)
        *ret_wrong = option_message("%s: it has %lld bytes, at most %d are read", path,
                                    (long long)st.st_size, MAX_FILE_BYTES);
    else if (!(from = fdopen(fd, "r")))
        *ret_wrong = option_message("%s: %s", path, strerror(errno));
    if (!from && fd >= 0)
        close(fd);
    return from;
}

char *options_take_file(struct options *o, const char *path)
{
    char *wrong = NULL;
    FILE *from = open_option_file(path, &wrong);
    if (!from)
        return prefixed("--config", wrong);
    wrong = take_lines_of_file(o, path, from);
    fclose(from);
    return wrong;
}

/* ---- What counts in the end ------------------------------------------------------------------ */

static void print_option_value(FILE *out, const struct options *o, enum option_id id)
{
    const struct option *option = &option_table[id];
    const struct option_value *v = &o->values[id];
    for (size_t i = 0; i < v->n_list; i++)
        fprintf(out, "%s = %s\n", option->flag, v->list[i]);
    if (option->kind == KIND_NONE && v->given)
        fprintf(out, "%s\n", option->flag);
    else if (option->kind != KIND_LIST && v->text)
        fprintf(out, "%s = %s\n", option->flag, v->text);
}

void options_print_config(FILE *out, const struct options *o, const char *backends,
                          const char *caches)
{
    static const char *const titles[] = {
        [SOURCE_DEFAULT] = "defaults",
        [SOURCE_FILE] = "from the file of --config",
        [SOURCE_ENVIRONMENT] = "from the environment",
        [SOURCE_COMMAND_LINE] = "from the command line",
    };
    for (int source = SOURCE_COMMAND_LINE; source >= SOURCE_DEFAULT; source--) {
        fprintf(out, "%s# %s\n", source == SOURCE_COMMAND_LINE ? "" : "\n", titles[source]);
        for (int id = 0; id < N_OPTIONS; id++) {
            if ((int)o->values[id].source == source && !is_for_command_line(id) &&
                id != OPT_CONFIG && id != OPT_MODEL_STORE)
                print_option_value(out, o, id);
        }
        if (source == SOURCE_DEFAULT && !o->values[OPT_BACKEND_DIRECTORY].text)
            fprintf(out, "%s = %s\n", option_table[OPT_BACKEND_DIRECTORY].flag, backends);
        if (source == SOURCE_DEFAULT && !o->values[OPT_CACHE_DIRECTORY].text)
            fprintf(out, "%s = %s\n", option_table[OPT_CACHE_DIRECTORY].flag, caches);
    }
}
