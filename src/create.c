/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `conch new`. The files are compiled in (src/templates/, and the example scale). "@NAME@" and
 * "@INCLUDE@", "@CONCH@" are replaced in paths and texts, and what the example calls itself.
 */
#include "create.h"

#include <ctype.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "options_priv.h"
#include "templates.h"

static const char usage[] =
    "Usage: conch new model <folder>\n"
    "       conch new backend <folder>\n"
    "\n"
    "Makes the files that a model in Python, or a backend in C with a model that uses it, begins\n"
    "with. The last part of the folder is the name: 'conch new model models/iris' makes the model\n"
    "'iris' in the repository 'models'. What exists is not changed.\n";

struct template_file {
    const char *path; /* in the folder; NULL ends */
    const char *text;
};

static const struct template_file of_model[] = {
    {"config.pbtxt", template_model_config}, {"1/model.py", template_model}, {NULL, NULL}};

static const char version_text[] =
    "The backend @NAME@ reads no file. Put here what it is to read.\n";

static const struct template_file of_backend[] = {
    {"Makefile", template_makefile},
    {"@NAME@.c", template_backend},
    {"models/@NAME@/config.pbtxt", template_backend_config},
    {"models/@NAME@/1/README.txt", version_text},
    {NULL, NULL},
};

/* ---- Texts ----------------------------------------------------------------------------------- */

struct substitution {
    const char *from, *to;
};

static char *substitute(const char *text, const struct substitution *s, size_t n)
{
    char *out = NULL;
    size_t size;
    FILE *to = open_memstream(&out, &size);
    if (!to)
        abort();
    while (*text) {
        size_t i = 0;
        while (i < n && strncmp(text, s[i].from, strlen(s[i].from)) != 0)
            i++;
        if (i < n)
            fputs(s[i].to, to);
        else
            fputc(*text, to);
        text += i < n ? strlen(s[i].from) : 1;
    }
    if (fclose(to) != 0)
        abort();
    return out;
}

static char *find_program(void)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[MAX(length, 0)] = '\0';
    return option_message("%s", length > 0 ? path : "conch");
}

/*
 * The folder of the public headers: that of the installation, or of the sources when the program
 * runs where it was built. *ret_found: it has them.
 */
static char *find_headers(const char *program, bool *ret_found)
{
    static const char *const places[] = {"/../include", "/../../../include"};
    char *copy = option_message("%s", program), *found = NULL;
    const char *bin = dirname(copy);
    *ret_found = false;
    for (size_t i = 0; i < ARRAY_SIZE(places) && !*ret_found; i++) {
        char *folder = option_message("%s%s", bin, places[i]);
        char *header = option_message("%s/triton/core/tritonbackend.h", folder);
        *ret_found = access(header, R_OK) == 0;
        if (*ret_found)
            found = realpath(folder, NULL);
        free(header);
        free(folder);
    }
    free(copy);
    return found ? found : option_message("/usr/local/include");
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Makes the folders above the path. */
static bool make_parents(const char *path)
{
    char *copy = option_message("%s", path);
    bool made = true;
    for (char *p = strchr(copy + 1, '/'); p && made; p = strchr(p + 1, '/')) {
        *p = '\0';
        made = mkdir(copy, 0777) == 0 || errno == EEXIST;
        *p = '/';
    }
    free(copy);
    return made;
}

static bool write_template(const char *path, const char *text)
{
    if (!make_parents(path))
        return false;
    FILE *to = fopen(path, "wxe");
    if (!to)
        return false;
    bool written = fputs(text, to) >= 0;
    return fclose(to) == 0 && written;
}

static char *write_templates(const char *folder, const struct template_file *files,
                             const struct substitution *s, size_t n)
{
    for (; files->path; files++) {
        char *below = substitute(files->path, s, n);
        char *path = option_message("%s/%s", folder, below);
        char *text = substitute(files->text, s, n);
        char *wrong = NULL;
        if (write_template(path, text))
            printf("%s\n", path);
        else
            wrong = option_message("%s: %s", path, strerror(errno));
        free(text);
        free(path);
        free(below);
        if (wrong)
            return wrong;
    }
    return NULL;
}

/* ---- The command ----------------------------------------------------------------------------- */

/* A backend's name is part of the name of its library and of a file in C. */
static bool is_name(const char *name, bool of_library)
{
    if (!*name || *name == '.' || *name == '-')
        return false;
    for (const char *p = name; *p; p++) {
        bool is_plain = isalnum((unsigned char)*p) || *p == '_' || *p == '-';
        if (!is_plain && (of_library || (*p != '.' && *p != ' ')))
            return false;
    }
    return true;
}

static void print_next_of_model(const char *folder)
{
    char *copy = option_message("%s", folder);
    const char *repository = dirname(copy);
    printf("\nNext:\n"
           "  conch check %s\n"
           "  conch %s\n"
           "\nThe model needs NumPy, in the python3 of the PATH.\n",
           folder, repository);
    free(copy);
}

static void print_next_of_backend(const char *folder, bool has_headers, const char *include)
{
    printf("\nNext:\n"
           "  cd %s\n"
           "  make run\n",
           folder);
    if (!has_headers)
        printf("\nThe headers (triton/core/tritonbackend.h) are not installed beside this program: "
               "the\nMakefile looks in %s. Set INCLUDE to the folder that has them.\n",
               include);
}

static char *create(const char *kind, const char *folder)
{
    bool is_backend = strcmp(kind, "backend") == 0, has_headers;
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    struct stat st;
    if (!is_name(name, is_backend))
        return option_message("'%s' cannot be the name of a %s: %s", name, kind,
                              is_backend ? "letters, digits, '_' and '-' can"
                                         : "letters, digits, '_', '-', '.' and blanks can");
    if (lstat(folder, &st) == 0)
        return option_message("'%s' exists already", folder);
    char *program = find_program(), *include = find_headers(program, &has_headers);
    char *quoted = option_message("\"%s\"", name);
    const struct substitution s[] = {
        {"@NAME@", name},         {"@INCLUDE@", include},
        {"@CONCH@", program},     {"/* scale - a complete backend: ", "/* A backend: "},
        {"*scale(", "*compute("}, {" scale(", " compute("},
        {"\"scale\"", quoted},
    };
    char *wrong = write_templates(folder, is_backend ? of_backend : of_model, s, ARRAY_SIZE(s));
    if (!wrong && is_backend)
        print_next_of_backend(folder, has_headers, include);
    else if (!wrong)
        print_next_of_model(folder);
    free(quoted);
    free(include);
    free(program);
    return wrong;
}

int create_main(int argc, char *const argv[])
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    bool is_known = argc == 3 && (strcmp(argv[1], "model") == 0 || strcmp(argv[1], "backend") == 0);
    if (!is_known) {
        command_print_wrong("new", "'new' makes a 'model' or a 'backend' in a folder");
        return 2;
    }
    char *folder = option_message("%s", argv[2]);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = '\0';
    char *wrong = create(argv[1], folder);
    if (wrong)
        fprintf(stderr, "conch: %s\n", wrong);
    int code = wrong ? 1 : 0;
    free(wrong);
    free(folder);
    return code;
}
