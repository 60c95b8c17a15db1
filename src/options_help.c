/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints --help: the table for reading. Flags in a column of their own, their descriptions beside
 * them.
 */
#include <string.h>

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

/* Prints text from the given column on, with line breaks between words. */
static void print_wrapped(FILE *out, const char *text, int at)
{
    while (*text) {
        size_t length = strcspn(text, " ");
        int width = count_columns(text, length);
        if (at > FLAG_COLUMNS && at + 1 + width > ALL_COLUMNS) {
            fprintf(out, "\n%*s", FLAG_COLUMNS, "");
            at = FLAG_COLUMNS;
        }
        if (at > FLAG_COLUMNS) {
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

static void print_option(FILE *out, const struct option *option)
{
    char left[128], right[512];
    snprintf(left, sizeof(left), "  --%s%s%s%s", option->flag, option->argument ? " <" : "",
             option->argument ? option->argument : "", option->argument ? ">" : "");
    const char *initial = option->initial && *option->initial ? option->initial : NULL;
    bool inert = option->effect == EFFECT_INERT || option->effect == EFFECT_ASKS;
    const char *yet = inert                                                ? " (no effect yet)"
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

void options_help(FILE *out, const char *program)
{
    fprintf(
        out,
        "Usage: %s --model-repository=<path> [options]\n"
        "%s"
        "\n"
        "Serves the models of a repository over HTTP and gRPC. --flag=value and --flag value are\n"
        "the same; names may be cut short where they stay unique. [Defaults] are in brackets.\n",
        program,
        strcmp(program, "conch") == 0
            ? "       conch check <path>…    say what is wrong in model repositories (check --help)\n"
            : "");
    for (int id = 0; id < N_OPTIONS; id++) {
        const struct option *option = &option_table[id];
        if (id == 0 || option->group != option[-1].group)
            fprintf(out, "\n%s\n", headings[option->group]);
        print_option(out, option);
    }
}
