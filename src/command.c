/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns commands, folders and files on the command line into options.
 *
 * One file is served from a repository that has a configuration and a link to the file's folder as
 * the version: a model whose weights lie in other files beside it finds them.
 */
#include "command.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "options_priv.h"

static const char *const commands[] = {"serve", "check", "config", "new", "help", "version"};

/* ---- One file -------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);
    return length > n && strcmp(text + length - n, end) == 0;
}

/* Writes a text of config.pbtxt in quotes. */
static void write_quoted(FILE *to, const char *text)
{
    fputc('"', to);
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fputc('\\', to);
        fputc(*p, to);
    }
    fputc('"', to);
}

static bool write_file_config(const char *path, const char *file_name)
{
    FILE *to = fopen(path, "we");
    if (!to)
        return false;
    fputs("backend: \"onnxruntime\"\ndefault_model_filename: ", to);
    write_quoted(to, file_name);
    fputc('\n', to);
    return fclose(to) == 0;
}

/* Fills the repository of a file: NAME/config.pbtxt and NAME/1, a link to the file's folder. */
static bool fill_repository(const char *root, const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash + 1;
    int stem = (int)(strrchr(name, '.') - name);
    char *model = option_message("%s/%.*s", root, stem, name);
    char *config = option_message("%s/config.pbtxt", model);
    char *version = option_message("%s/1", model);
    char *folder = option_message("%.*s", slash == file ? 1 : (int)(slash - file), file);
    bool filled =
        mkdir(model, 0700) == 0 && write_file_config(config, name) && symlink(folder, version) == 0;
    free(folder);
    free(version);
    free(config);
    free(model);
    return filled;
}

static char *make_repository(struct command *c, const char *path)
{
    char file[PATH_MAX];
    const char *temporary = getenv("TMPDIR");
    if (!realpath(path, file))
        return option_message("%s: %s", path, strerror(errno));
    c->temporary_root =
        option_message("%s/conch-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(c->temporary_root)) {
        char *wrong = option_message("%s: %s", c->temporary_root, strerror(errno));
        free(c->temporary_root);
        c->temporary_root = NULL;
        return wrong;
    }
    c->file = option_message("%s", file);
    if (!fill_repository(c->temporary_root, file))
        return option_message("cannot make a repository of '%s': %s", path, strerror(errno));
    return NULL;
}

/* Removes what fill_repository() has made; nothing behind the link. */
static void remove_repository(const char *root, const char *file)
{
    const char *name = strrchr(file, '/') + 1;
    int stem = (int)(strrchr(name, '.') - name);
    static const char *const parts[] = {"/1", "/config.pbtxt", ""};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        char *path = option_message("%s/%.*s%s", root, stem, name, parts[i]);
        remove(path);
        free(path);
    }
    rmdir(root);
}

/* ---- Words ----------------------------------------------------------------------------------- */

static void add_made(struct command *c, char *text)
{
    c->made[c->n_made++] = text;
    c->argv[c->argc++] = text;
}

static char *refuse_word(const char *word)
{
    const char *meant = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (str_nearer(word, commands[i], &least))
            meant = commands[i];
    }
    if (meant)
        return option_message("Unexpected argument: %s; did you mean '%s'?", word, meant);
    return option_message("Unexpected argument: %s: it is no folder, no .onnx file and no command "
                          "(serve, check, config, new, help, version)",
                          word);
}

static char *take_word(struct command *c, const char *word)
{
    struct stat st;
    bool exists = stat(word, &st) == 0;
    if (exists && S_ISDIR(st.st_mode)) {
        add_made(c, option_message("--model-repository=%s", word));
        return NULL;
    }
    if (exists && S_ISREG(st.st_mode) && ends_with(word, ".onnx")) {
        if (c->temporary_root)
            return option_message(
                "'%s': one file is served at a time; put several into a folder of "
                "models",
                word);
        char *wrong = make_repository(c, word);
        if (wrong)
            return wrong;
        add_made(c, option_message("--model-repository=%s", c->temporary_root));
        add_made(c, option_message("--repository-follow-symlinks=true"));
        return NULL;
    }
    return refuse_word(word);
}

/* From a flag on that is unknown, all is left to options_parse(), which says so. */
static char *read_words(struct command *c, int argc, char *const argv[], int i)
{
    bool is_fault = false, takes_next;
    for (; i < argc; i++) {
        char *wrong = NULL;
        if (is_fault) {
            c->argv[c->argc++] = argv[i];
        } else if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            c->kind = COMMAND_HELP;
            c->topic = i + 1 < argc ? argv[i + 1] : NULL;
            return NULL;
        } else if (strcmp(argv[i], "-V") == 0) {
            add_made(c, option_message("--version"));
        } else if (argv[i][0] != '-') {
            wrong = take_word(c, argv[i]);
        } else {
            c->argv[c->argc++] = argv[i];
            is_fault = !options_knows(argv[i], &takes_next);
            if (takes_next && i + 1 < argc)
                c->argv[c->argc++] = argv[++i];
        }
        if (wrong)
            return wrong;
    }
    return NULL;
}

char *command_read(struct command *c, int argc, char *const argv[])
{
    size_t room = (size_t)argc * 3 + 1;
    *c = (struct command){.argv = calloc(room, sizeof(char *)),
                          .made = calloc(room, sizeof(char *))};
    if (!c->argv || !c->made)
        abort();
    c->argv[c->argc++] = argv[0];
    if (argc == 1 && !getenv("AIP_STORAGE_URI") && !options_are_in_environment())
        c->kind = COMMAND_BRIEF;
    int i = 1;
    if (argc > 1 && strcmp(argv[1], "help") == 0) {
        c->kind = COMMAND_HELP;
        c->topic = argc > 2 ? argv[2] : NULL;
        return NULL;
    }
    if (argc > 1 && strcmp(argv[1], "version") == 0) {
        add_made(c, option_message("--version"));
        i++;
    } else if (argc > 1 && strcmp(argv[1], "serve") == 0) {
        i++;
    }
    return read_words(c, argc, argv, i);
}

void command_done(struct command *c)
{
    if (c->temporary_root)
        remove_repository(c->temporary_root, c->file);
    for (int i = 0; i < c->n_made; i++)
        free(c->made[i]);
    free(c->temporary_root);
    free(c->file);
    free(c->made);
    free(c->argv);
}

void command_print_wrong(const char *command, const char *message)
{
    fputs("conch: ", stderr);
    for (const char *p = message; *p; p++)
        fputc(*p == '\n' ? ' ' : *p, stderr);
    fprintf(stderr, "\nTry 'conch %s%s--help'.\n", command ? command : "", command ? " " : "");
}

void command_print_brief(void)
{
    printf(
        "conch " CONCH_VERSION ": an inference server, a drop-in for NVIDIA Triton\n"
        "\n"
        "  conch models/         serve a folder of models, such as models/iris/1/model.onnx\n"
        "  conch iris.onnx       serve one file as the model 'iris'\n"
        "  conch check models/   find the mistakes in a folder of models, without serving it\n"
        "  conch config, new     see what completes a configuration; begin a model or a backend\n"
        "\n"
        "HTTP listens on port 8000, gRPC on 8001, metrics on 8002. Any client of Triton works.\n"
        "\n"
        "  conch --help          the options that people use\n"
        "  conch --help all      all options, as man conch has them; --help TOPIC those of a topic\n"
        "  conch version         the version, and the backends that are there\n");
}
