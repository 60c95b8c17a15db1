/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of `conch check`. The flags that affect reading are the server's, with its help
 * and its checks (options.def), so that a user checks with the flags that the server gets.
 */
#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "conch/check.h"
#include "options_priv.h"

struct arguments {
    struct conch_check_options check;
    const char **repositories;
    const char **ignored;
    const char *explained; /* a code, or "all"; NULL: none */
    bool help;
};

struct flag {
    enum option_id same; /* the server's option of that name; N_OPTIONS: our own */
    /* Reads the value; returns NULL, or its fault. */
    char *(*take)(struct arguments *a, const char *value);
    const char *name;
    const char *argument; /* NULL: takes none */
    const char *help;     /* NULL: the server's */
};

static void append_text(const char ***list, size_t *n, const char *text)
{
    *list = reallocarray(*list, *n + 1, sizeof(**list));
    if (!*list)
        abort();
    (*list)[(*n)++] = text;
}

/* ---- the values ------------------------------------------------------------------------------ */

static char *take_help(struct arguments *a, const char *value)
{
    (void)value;
    a->help = true;
    return NULL;
}

static char *take_format(struct arguments *a, const char *value)
{
    static const char *const names[] = {[CONCH_CHECK_HUMAN] = "human",
                                        [CONCH_CHECK_SHORT] = "short",
                                        [CONCH_CHECK_JSON] = "json",
                                        [CONCH_CHECK_SARIF] = "sarif",
                                        [CONCH_CHECK_GITHUB] = "github"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(value, names[i]) == 0) {
            a->check.format = (enum conch_check_format)i;
            return NULL;
        }
    }
    return option_message("unknown format '%s', there are human, short, json, sarif and github",
                          value);
}

static char *take_strict(struct arguments *a, const char *value)
{
    (void)value;
    a->check.strict = true;
    return NULL;
}

static const struct conch_check_code *find_code(const char *name, size_t length)
{
    size_t n_codes;
    const struct conch_check_code *codes = conch_check_codes(&n_codes);
    for (size_t i = 0; i < n_codes; i++) {
        if (strlen(codes[i].name) == length && memcmp(codes[i].name, name, length) == 0)
            return &codes[i];
    }
    /* What is an error now was a warning once, and workflows may have it. */
    for (size_t i = 0; i < n_codes; i++) {
        if (!codes[i].is_warning && codes[i].can_ignore && strlen(codes[i].name) == length &&
            name[0] == 'W' && memcmp(codes[i].name + 1, name + 1, length - 1) == 0)
            return &codes[i];
    }
    return NULL;
}

static char *refuse_code(const char *name, size_t length)
{
    return option_message("there is no code '%.*s'; --help lists them", (int)length, name);
}

static char *take_ignore(struct arguments *a, const char *value)
{
    for (const char *p = value;; p++) {
        size_t length = strcspn(p, ",");
        const struct conch_check_code *code = find_code(p, length);
        if (!code)
            return refuse_code(p, length);
        if (!code->can_ignore)
            return option_message(
                "'%s' cannot be ignored: the server would refuse what it is about", code->name);
        append_text(&a->ignored, &a->check.n_ignored, code->name);
        p += length;
        if (!*p)
            return NULL;
    }
}

static char *take_explain(struct arguments *a, const char *value)
{
    const struct conch_check_code *code = find_code(value, strlen(value));
    if (!code && strcmp(value, "all") != 0)
        return refuse_code(value, strlen(value));
    a->explained = code ? code->name : value;
    return NULL;
}

static char *take_repository(struct arguments *a, const char *value)
{
    append_text(&a->repositories, &a->check.n_repositories, value);
    return NULL;
}

static char *take_config_name(struct arguments *a, const char *value)
{
    a->check.model_config_name = value;
    return NULL;
}

static char *take_disable(struct arguments *a, const char *value)
{
    (void)value;
    a->check.disable_auto_complete_config = true;
    return NULL;
}

static char *take_backends(struct arguments *a, const char *value)
{
    a->check.backend_directory = value;
    return NULL;
}

static char *take_namespacing(struct arguments *a, const char *value)
{
    int64_t yes = 0;
    char *wrong = option_parse_bool(value, &yes);
    a->check.model_namespacing = yes;
    return wrong;
}

static char *take_follow(struct arguments *a, const char *value)
{
    int64_t yes = 0;
    char *wrong = option_parse_bool(value, &yes);
    a->check.follow_symlinks = yes;
    return wrong;
}

static const struct flag flags[] = {
    {N_OPTIONS, take_help, "help", NULL, "Show this text."},
    {N_OPTIONS, take_format, "format", "name",
     "How to print: 'human', with the lines of the configurations; 'short', one line for each "
     "finding; 'json' or 'sarif', one document; 'github', annotations of a GitHub workflow."},
    {N_OPTIONS, take_explain, "explain", "code",
     "Say what this code means, with an example and its cure ('all': each code). Nothing is "
     "checked."},
    {N_OPTIONS, take_strict, "strict", NULL, "Warnings, too, make the exit code 1."},
    {N_OPTIONS, take_ignore, "ignore", "codes",
     "Leave out what has these codes (separated by commas): warnings, and errors that depend on "
     "what this machine has installed. May be repeated."},
    {.same = OPT_MODEL_REPOSITORY,
     .take = take_repository,
     .help = "The same as naming the repository without a flag."},
    {.same = OPT_MODEL_CONFIG_NAME, .take = take_config_name},
    {.same = OPT_DISABLE_AUTO_COMPLETE_CONFIG, .take = take_disable},
    {.same = OPT_MODEL_NAMESPACING, .take = take_namespacing},
    {.same = OPT_REPOSITORY_FOLLOW_SYMLINKS, .take = take_follow},
    {.same = OPT_BACKEND_DIRECTORY, .take = take_backends},
};

static const char *name_of(const struct flag *f)
{
    return f->name ? f->name : option_table[f->same].flag;
}

static const char *argument_of(const struct flag *f)
{
    if (f->same == N_OPTIONS)
        return f->argument;
    return option_table[f->same].kind == KIND_NONE ? NULL : option_table[f->same].argument;
}

/* ---- the command line ------------------------------------------------------------------------ */

static const struct flag *find_check_flag(const char *name, size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        if (strlen(name_of(&flags[i])) == length && memcmp(name_of(&flags[i]), name, length) == 0)
            return &flags[i];
    }
    return NULL;
}

/* Reads the value of one flag; the server's own check of it comes first. */
static char *take_flag_value(struct arguments *a, const struct flag *f, const char *value)
{
    const struct option *o = f->same < N_OPTIONS ? &option_table[f->same] : NULL;
    struct option_value v = {.text = value};
    char *wrong = o && o->check ? o->check(o, &v, value) : NULL;
    if (!wrong)
        wrong = f->take(a, value);
    if (!wrong)
        return NULL;
    char *whole = option_message("--%s: %s", name_of(f), wrong);
    free(wrong);
    return whole;
}

static char *parse_check_arguments(struct arguments *a, int argc, char *const argv[])
{
    bool only_repositories = false;
    for (int i = 1; i < argc && !a->help && !a->explained; i++) {
        const char *name = argv[i] + 2;
        if (only_repositories || argv[i][0] != '-' || !argv[i][1]) {
            take_repository(a, argv[i]);
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            only_repositories = true;
            continue;
        }
        size_t length = argv[i][1] == '-' ? strcspn(name, "=") : 0;
        const struct flag *f = find_check_flag(name, length);
        if (!f)
            return option_message("unrecognized option '%s'", argv[i]);
        const char *value = name[length] ? name + length + 1 : NULL;
        if (value && !argument_of(f))
            return option_message("option '--%s' doesn't allow an argument", name_of(f));
        if (!value && argument_of(f) && i + 1 == argc)
            return option_message("option '--%s' requires an argument", name_of(f));
        if (!value && argument_of(f))
            value = argv[++i];
        char *wrong = take_flag_value(a, f, value);
        if (wrong)
            return wrong;
    }
    if (!a->help && !a->explained && !a->check.n_repositories)
        return option_message("no repository is named");
    return NULL;
}

static void print_help(void)
{
    char left[128];
    printf("Usage: conch check [options] <repository>…\n\n"
           "Says what a server would refuse in these model repositories, and what works but bites\n"
           "later, with file, line and column. Nothing is loaded.\n\nOptions\n");
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        const struct flag *f = &flags[i];
        const char *argument = argument_of(f);
        snprintf(left, sizeof(left), "  --%s%s%s%s", name_of(f), argument ? " <" : "",
                 argument ? argument : "", argument ? ">" : "");
        options_print_line(stdout, left, f->help ? f->help : option_table[f->same].help);
    }
    printf("\nExit code\n");
    options_print_line(stdout, "  0", "Nothing is wrong; there may be warnings.");
    options_print_line(stdout, "  1", "There are errors; with --strict, or warnings.");
    options_print_line(stdout, "  2", "Wrong usage, or a repository cannot be read.");
    printf("\nCodes (E: error, W: warning; --explain says more about each)\n");
    size_t n_codes;
    const struct conch_check_code *codes = conch_check_codes(&n_codes);
    for (size_t i = 0; i < n_codes; i++) {
        snprintf(left, sizeof(left), "  %s", codes[i].name);
        options_print_line(stdout, left, codes[i].meaning);
    }
}

static void print_paragraph(const char *text)
{
    enum { COLUMNS = 80 };
    size_t at = 0;
    for (; *text; text += strspn(text, " ")) {
        size_t length = strcspn(text, " ");
        bool breaks = at && at + 1 + length > COLUMNS;
        printf("%s%.*s", breaks ? "\n" : at ? " " : "", (int)length, text);
        at = breaks || !at ? length : at + 1 + length;
        text += length;
    }
    printf("\n");
}

/* Prints files of conch_check_code.example, indented. */
static void print_files(const char *title, const char *files)
{
    bool commanded = *files == '$';
    printf("\n%s\n\n", title);
    if (!commanded)
        printf("    $ conch check models\n");
    for (const char *line = files; *line;) {
        int length = (int)strcspn(line, "\n");
        printf("    %.*s\n", length, line);
        line += length + 1;
    }
}

static void explain_code(const struct conch_check_code *code)
{
    printf("%s\n", code->name);
    print_paragraph(code->meaning);
    printf("\n");
    print_paragraph(code->about);
    if (code->can_ignore)
        printf("'--ignore=%s' leaves it out.\n", code->name);
    print_files("Example:", code->example);
    print_files("Cure:", code->cure);
}

static void explain(const char *name)
{
    size_t n_codes;
    const struct conch_check_code *codes = conch_check_codes(&n_codes);
    bool all = strcmp(name, "all") == 0;
    for (size_t i = 0; i < n_codes; i++) {
        if (all && i)
            printf("\n");
        if (all || strcmp(codes[i].name, name) == 0)
            explain_code(&codes[i]);
    }
}

int check_main(int argc, char *const argv[], const char *backends)
{
    struct arguments a = {.check = {.size = sizeof(a.check), .backend_directory = backends}};
    int code = 0;
    char *wrong = parse_check_arguments(&a, argc, argv);
    if (wrong) {
        command_print_wrong("check", wrong);
        code = CONCH_CHECK_UNUSABLE;
    } else if (a.help) {
        print_help();
    } else if (a.explained) {
        explain(a.explained);
    } else {
        a.check.repositories = a.repositories;
        a.check.ignored = a.ignored;
        const char *no_colour = getenv("NO_COLOR");
        a.check.colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour);
        a.check.progress = isatty(STDERR_FILENO) ? stderr : NULL;
        code = (int)conch_check(&a.check);
    }
    free(wrong);
    free(a.repositories);
    free(a.ignored);
    return code;
}
