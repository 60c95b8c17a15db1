/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `conch config`. What a backend completes, only the backend knows: so the model is loaded, by a
 * server of this process that has no ports and no other model.
 */
#include "show_config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "conch/conch.h"
#include "options_priv.h"
#include "triton/core/tritonserver.h"

static const char usage[] =
    "Usage: conch config [options] <model's folder or file.onnx>\n"
    "\n"
    "Prints the config.pbtxt of a model with all that the server and its backend complete. The model\n"
    "is loaded, but not served: no port is opened. The options are the server's, such as\n"
    "--backend-directory or --backend-config.\n";

struct shown {
    char *path;       /* of the model's folder, or of a file */
    char *name;       /* of the model */
    char *repository; /* "--model-repository=…"; NULL: command_read() makes one for the file */
    char *model;      /* "--load-model=…" */
};

static void shown_done(struct shown *s)
{
    free(s->path);
    free(s->name);
    free(s->repository);
    free(s->model);
}

/* Removes the end, if the text has it behind something. */
static bool cut_end(char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);
    if (length <= n || strcmp(text + length - n, end) != 0)
        return false;
    text[length - n] = '\0';
    return true;
}

static char *find_shown_model(struct shown *s, const char *path)
{
    struct stat st;
    s->path = realpath(path, NULL);
    if (!s->path)
        return option_message("%s: %s", path, strerror(errno));
    cut_end(s->path, "/config.pbtxt");
    if (stat(s->path, &st) != 0)
        return option_message("%s: %s", s->path, strerror(errno));
    char *slash = strrchr(s->path, '/');
    s->name = option_message("%s", slash + 1);
    if (!S_ISDIR(st.st_mode)) {
        if (!cut_end(s->name, ".onnx"))
            return option_message("'%s' is no .onnx file and no model's folder", path);
    } else if (!*s->name) {
        return option_message("'%s' is no model's folder", path);
    } else {
        s->repository = option_message("--model-repository=%.*s",
                                       slash == s->path ? 1 : (int)(slash - s->path), s->path);
    }
    s->model = option_message("--load-model=%s", s->name);
    return NULL;
}

/* The error of a failed load: the reason alone, without the count in front of it. */
static void print_load_error(const char *name, TRITONSERVER_Error *error)
{
    static const char before[] = "models failed:\n  ";
    const char *text = TRITONSERVER_ErrorMessage(error), *reasons = strstr(text, before);
    if (reasons)
        text = reasons + sizeof(before) - 1;
    fprintf(stderr, "conch: %s%s%.*s\n", reasons ? "" : name, reasons ? "" : ": ",
            (int)strcspn(text, "\n"), text);
    TRITONSERVER_ErrorDelete(error);
}

static int load_and_print(const struct options *o, const char *name)
{
    TRITONSERVER_ServerOptions *so = NULL;
    TRITONSERVER_Server *server = NULL;
    const char *what = name;
    TRITONSERVER_Error *error = TRITONSERVER_ServerOptionsNew(&so);
    if (!error)
        error = options_apply(o, true, so, &what);
    if (!error)
        error = options_apply(o, false, so, &what);
    if (!error)
        error = TRITONSERVER_ServerNew(&server, so);
    if (!error)
        error = conch_server_print_model_config(server, name, -1, stdout);
    if (so)
        TRITONSERVER_ErrorDelete(TRITONSERVER_ServerOptionsDelete(so));
    if (server)
        TRITONSERVER_ErrorDelete(TRITONSERVER_ServerDelete(server));
    if (!error)
        return 0;
    print_load_error(what, error);
    return 1;
}

/* Separates the path from the options. Returns NULL or the error, to be freed. */
static char *read_arguments(int argc, char *const argv[], char **ret_options, int *ret_n,
                            const char **ret_path)
{
    bool takes_next;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            if (*ret_path)
                return option_message("one model is shown at a time: '%s' and '%s'", *ret_path,
                                      argv[i]);
            *ret_path = argv[i];
            continue;
        }
        ret_options[(*ret_n)++] = argv[i];
        options_knows(argv[i], &takes_next);
        if (takes_next && i + 1 < argc)
            ret_options[(*ret_n)++] = argv[++i];
    }
    return *ret_path ? NULL : option_message("no model is named");
}

/* Quiet, explicit, one model; the caller's options follow, so that they count. */
static int run_shown(struct shown *s, char *const given[], int n_given, char **ret_wrong)
{
    static const char *const quiet[] = {"conch", "--log-info=false", "--log-warning=false",
                                        "--log-error=false", "--model-control-mode=explicit"};
    char **argv = calloc(ARRAY_SIZE(quiet) + (size_t)n_given + 3, sizeof(*argv));
    struct command c = {0};
    struct options o = {0};
    int code = 2, n = 0;
    if (!argv)
        abort();
    for (size_t i = 0; i < ARRAY_SIZE(quiet); i++)
        argv[n++] = option_message("%s", quiet[i]);
    argv[n++] = s->model;
    argv[n++] = s->repository ? s->repository : s->path;
    for (int i = 0; i < n_given; i++)
        argv[n++] = given[i];
    *ret_wrong = command_read(&c, n, argv);
    if (!*ret_wrong)
        *ret_wrong = options_parse(&o, c.argc, c.argv);
    if (!*ret_wrong)
        code = load_and_print(&o, s->name);
    options_done(&o);
    command_done(&c);
    for (size_t i = 0; i < ARRAY_SIZE(quiet); i++)
        free(argv[i]);
    free(argv);
    return code;
}

int show_config_main(int argc, char *const argv[])
{
    char **given = calloc((size_t)argc + 1, sizeof(*given));
    struct shown s = {0};
    const char *path = NULL;
    int n_given = 0, code = 2;
    if (!given)
        abort();
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        free(given);
        return 0;
    }
    char *wrong = read_arguments(argc, argv, given, &n_given, &path);
    if (!wrong)
        wrong = find_shown_model(&s, path);
    if (!wrong)
        code = run_shown(&s, given, n_given, &wrong);
    if (wrong)
        command_print_wrong("config", wrong);
    free(wrong);
    shown_done(&s);
    free(given);
    return code;
}
