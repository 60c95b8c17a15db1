/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints --help: the table for reading. Flags in a column of their own, their descriptions beside
 * them.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "options_priv.h"

enum { FLAG_COLUMNS = 38, ALL_COLUMNS = 100 };

static const char *const headings[] = {
    [GROUP_GENERAL] = "General",
    [GROUP_SERVER] = "Server",
    [GROUP_LOGGING] = "Logging",
    [GROUP_REPOSITORY] = "Model repository",
    [GROUP_HTTP] = "HTTP",
    [GROUP_GRPC] = "gRPC",
    [GROUP_SAGEMAKER] = "SageMaker",
    [GROUP_VERTEX] = "Vertex AI",
    [GROUP_METRICS] = "Metrics",
    [GROUP_TRACING] = "Tracing",
    [GROUP_BACKEND] = "Backends",
    [GROUP_AGENT] = "Repository agents",
    [GROUP_CACHE] = "Response cache",
    [GROUP_RATE] = "Rate limiter",
    [GROUP_DEVICE] = "Memory and devices",
    [GROUP_SHARED_MEMORY] = "Shared memory",
    [GROUP_CONCH] = "Conch's own",
    [GROUP_DEPRECATED] = "Deprecated",
};

/* Counts characters, not bytes. */
static int count_columns(const char *text, size_t n_bytes)
{
    int n = 0;
    for (size_t i = 0; i < n_bytes; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* Prints text from the given column on, with line breaks between words, behind a margin. */
static void print_behind(FILE *out, const char *text, int at, int margin)
{
    while (*text) {
        size_t length = strcspn(text, " ");
        int width = count_columns(text, length);
        if (at > margin && at + 1 + width > ALL_COLUMNS) {
            fprintf(out, "\n%*s", margin, "");
            at = margin;
        }
        if (at > margin) {
            fputc(' ', out);
            at++;
        }
        fwrite(text, 1, length, out);
        at += width;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_wrapped(FILE *out, const char *text, int at)
{
    print_behind(out, text, at, FLAG_COLUMNS);
}

static void print_margin_paragraph(FILE *out, const char *text)
{
    enum { MARGIN = 4 }; /* an option begins with 2 blanks */
    fprintf(out, "%*s", MARGIN, "");
    print_behind(out, text, MARGIN, MARGIN);
}

void options_print_line(FILE *out, const char *left, const char *right)
{
    int width = count_columns(left, strlen(left));
    fputs(left, out);
    if (width + 2 > FLAG_COLUMNS)
        fprintf(out, "\n%*s", FLAG_COLUMNS, "");
    else
        fprintf(out, "%*s", FLAG_COLUMNS - width, "");
    print_wrapped(out, right, FLAG_COLUMNS);
}

static bool is_inert(const struct option *option)
{
    return option->effect == EFFECT_INERT || option->effect == EFFECT_ASKS;
}

static void print_option(FILE *out, const struct option *option)
{
    char left[128], right[512];
    snprintf(left, sizeof(left), "  --%s%s%s%s", option->flag, option->argument ? " <" : "",
             option->argument ? option->argument : "", option->argument ? ">" : "");
    const char *initial = option->initial && *option->initial ? option->initial : NULL;
    const char *yet = is_inert(option)                                     ? " (no effect yet)"
                      : option->effect == EFFECT_ONLY && !option->harmless ? " (not yet)"
                                                                           : "";
    char only[64] = "";
    if (option->effect == EFFECT_ONLY && option->harmless)
        snprintf(only, sizeof(only), *option->harmless ? " (only %s so far)" : " (not yet)",
                 option->harmless);
    snprintf(right, sizeof(right), "%s%s%s%s%s%s", option->help, initial ? " [" : "",
             initial ? initial : "", initial ? "]" : "", yet, only);
    options_print_line(out, left, right);
}

/* The options that people use, in the order of the table. */
static const enum option_id common[] = {
    OPT_HELP,         OPT_EXIT_TIMEOUT_SECS, OPT_LOG_VERBOSE,    OPT_LOG_FORMAT,
    OPT_LOG_FILE,     OPT_MODEL_REPOSITORY,  OPT_EXIT_ON_ERROR,  OPT_MODEL_CONTROL_MODE,
    OPT_LOAD_MODEL,   OPT_HTTP_ADDRESS,      OPT_HTTP_PORT,      OPT_HTTP_THREAD_COUNT,
    OPT_ALLOW_GRPC,   OPT_GRPC_ADDRESS,      OPT_GRPC_PORT,      OPT_ALLOW_METRICS,
    OPT_METRICS_PORT, OPT_BACKEND_DIRECTORY, OPT_BACKEND_CONFIG, OPT_CONFIG,
};

static bool is_common(enum option_id id)
{
    for (size_t i = 0; i < ARRAY_SIZE(common); i++) {
        if (common[i] == id)
            return true;
    }
    return false;
}

/* The heading as one word of small letters: "model-repository", "conchs-own". */
static void print_topic(char *out, size_t size, const char *heading)
{
    size_t n = 0;
    for (const char *p = heading; *p && n + 1 < size; p++) {
        if (*p != '\'')
            out[n++] = *p == ' ' ? '-' : (char)tolower((unsigned char)*p);
    }
    out[n] = '\0';
}

char *options_topics(void)
{
    char *all = option_message("all"), word[64];
    for (size_t i = 0; i < ARRAY_SIZE(headings); i++) {
        print_topic(word, sizeof(word), headings[i]);
        char *more = option_message("%s %s", all, word);
        free(all);
        all = more;
    }
    return all;
}

static bool is_in_topic(enum option_id id, const char *topic)
{
    const struct option *option = &option_table[id];
    char word[64];
    if (!topic)
        return is_common(id);
    if (strcmp(topic, "all") == 0)
        return true;
    print_topic(word, sizeof(word), headings[option->group]);
    const char *flag = strncmp(topic, "--", 2) == 0 ? topic + 2 : topic;
    return strcasecmp(word, topic) == 0 || strcmp(option->flag, flag) == 0;
}

/* The options that are accepted without effect, by what they would act on, in one paragraph. */
static void print_inert(FILE *out, bool bold)
{
    static const char about[] =
        "These are accepted with a warning, so that the command lines of Triton work.";
    char *text = option_message("%s", about);
    for (int id = 0; id < N_OPTIONS; id++) {
        const struct option *option = &option_table[id];
        bool is_first = is_inert(option);
        for (int k = 0; k < id && is_first; k++)
            is_first = !is_inert(&option_table[k]) ||
                       strcmp(option_table[k].feature, option->feature) != 0;
        if (!is_first)
            continue;
        char *more = option_message("%s For %s:", text, option->feature);
        for (int k = id; k < N_OPTIONS; k++) {
            if (!is_inert(&option_table[k]) ||
                strcmp(option_table[k].feature, option->feature) != 0)
                continue;
            char *next =
                option_message("%s%s --%s", more, k == id ? "" : ",", option_table[k].flag);
            free(more);
            more = next;
        }
        free(text);
        text = option_message("%s.", more);
        free(more);
    }
    fprintf(out, "\n%sWithout effect yet%s\n", bold ? "\033[1m" : "", bold ? "\033[0m" : "");
    print_margin_paragraph(out, text);
    free(text);
}

static void print_usage(FILE *out, const char *program, const char *topic)
{
    bool ours = strcmp(program, "conch") == 0;
    fprintf(
        out,
        "Usage: %s --model-repository=<path> [options]\n"
        "%s"
        "\n"
        "Serves the models of a repository over HTTP and gRPC. --flag=value and --flag value are\n"
        "the same; names may be cut short where they stay unique. [Defaults] are in brackets.\n",
        program,
        ours ? "       conch <folder or file.onnx> [options]\n"
               "       conch check <path>…                say what is wrong in model repositories\n"
               "       conch config <model>               print a model's completed config.pbtxt\n"
               "       conch new model <folder>           begin a model in Python\n"
               "       conch new backend <folder>         begin a backend in C\n"
             : "");
    if (ours && !topic)
        fputs("These are the options that people use; --help all shows all of them.\n", out);
}

bool options_help(FILE *out, const char *program, const char *topic)
{
    const char *no_colour = getenv("NO_COLOR");
    bool bold = isatty(fileno(out)) && !(no_colour && *no_colour), any = false;
    int before = -1;
    for (int id = 0; id < N_OPTIONS && !any; id++)
        any = is_in_topic(id, topic);
    if (!any)
        return false;
    bool all = topic && strcmp(topic, "all") == 0, is_ours = strcmp(program, "conch") == 0;
    if (!topic || all)
        print_usage(out, program, topic);
    for (int id = 0; id < N_OPTIONS; id++) {
        const struct option *option = &option_table[id];
        bool is_told_below = all && is_inert(option) && is_ours;
        if (!is_in_topic(id, topic) || is_told_below)
            continue;
        if ((int)option->group != before)
            fprintf(out, "\n%s%s%s\n", bold ? "\033[1m" : "", headings[option->group],
                    bold ? "\033[0m" : "");
        before = (int)option->group;
        print_option(out, option);
    }
    if (all && is_ours)
        print_inert(out, bold);
    return true;
}
