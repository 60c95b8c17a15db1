/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of a collector. A line "OTEL_…=value" is a variable, any other one a setting of the
 * command line. What is accepted keeps its bounds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "frontends/tracing/otlp_settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_LINES = 64 };

static char *lines[MAX_LINES];
static size_t n_lines;

static void expect(bool fine)
{
    if (!fine)
        abort();
}

static char *find_variable(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < n_lines; i++) {
        if (strncmp(lines[i], name, length) == 0 && lines[i][length] == '=')
            return lines[i] + length + 1;
    }
    return NULL;
}

static void split_lines(char *text)
{
    for (n_lines = 0; text && n_lines < MAX_LINES;) {
        char *newline = strchr(text, '\n');
        if (newline)
            *newline = '\0';
        lines[n_lines++] = text;
        text = newline ? newline + 1 : NULL;
    }
}

static void check_settings(const struct otlp_settings *s)
{
    expect(s->max_batch_size >= 1 && s->max_batch_size <= s->max_queue_size);
    expect(strncasecmp(s->url, "http", 4) == 0);
    for (size_t i = 0; i < s->headers.n; i++)
        expect(*s->headers.items[i].name && !strpbrk(s->headers.items[i].name, ": \r\n") &&
               !strpbrk(s->headers.items[i].value, "\r\n"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *given[MAX_LINES];
    size_t n_given = 0;
    struct otlp_settings *s;
    char *text = mem_strndup((const char *)data, size);
    split_lines(text);
    for (size_t i = 0; i < n_lines; i++) {
        if (strncmp(lines[i], "OTEL_", 5) != 0)
            given[n_given++] = lines[i];
    }
    struct status *st = otlp_settings_new(given, n_given, find_variable, &s);
    if (!st) {
        check_settings(s);
        otlp_settings_free(s);
    }
    status_free(st);
    mem_free(text);
    return 0;
}
