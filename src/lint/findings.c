/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list keeps LINT_MAX_FINDINGS findings and only counts those that follow. Texts are copied.
 * lint_sort() keeps equal findings in their order. One thread at a time uses a list.
 */
#include "lint/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_TEXT_BYTES = 4000 };

#define ERROR   false, false
#define MISSING false, true
#define WARNING true, true

const struct conch_check_code lint_codes[N_LINT_CODES] = {
#define CODE(id, name, severity, meaning, about, example, cure)                                    \
    {name, severity, meaning, about, example, cure},
#include "lint/codes.def"
#undef CODE
};

enum lint_code lint_code_named(const char *name, size_t length)
{
    for (int code = 0; code < N_LINT_CODES; code++) {
        if (strlen(lint_codes[code].name) == length &&
            memcmp(lint_codes[code].name, name, length) == 0)
            return code;
    }
    return N_LINT_CODES;
}

static bool is_ignored(const struct lint_findings *f, enum lint_code code)
{
    return f->ignored && f->ignored[code];
}

bool lint_wants(const struct lint_findings *f, enum lint_code code)
{
    return f->n < LINT_MAX_FINDINGS && !is_ignored(f, code);
}

/* Names from outside may be long; then the end is cut off. */
static char *make_text(const char *fmt, va_list ap) PRINTF_LIKE(1, 0);
static char *make_text(const char *fmt, va_list ap)
{
    char text[MAX_TEXT_BYTES];
    vsnprintf(text, sizeof(text), fmt, ap);
    size_t length = strlen(text);
    while (length && text[length - 1] == ' ') /* some of the reference's lists end so */
        length--;
    return mem_strndup(text, length);
}

void lint_add(struct lint_findings *f, enum lint_code code, struct lint_position position,
              const char *advice, const char *fmt, ...)
{
    if (is_ignored(f, code))
        return;
    if (lint_codes[code].is_warning)
        f->n_warnings++;
    else
        f->n_errors++;
    if (f->n == LINT_MAX_FINDINGS)
        return;
    if (f->n == f->capacity) {
        f->capacity = f->capacity ? f->capacity * 2 : 4;
        f->items = mem_realloc(f->items, f->capacity * sizeof(*f->items));
    }
    va_list ap;
    va_start(ap, fmt);
    f->items[f->n++] = (struct lint_finding){
        .code = code,
        .file = mem_strdup(position.file),
        .line = position.line,
        .column = position.column,
        .text = make_text(fmt, ap),
        .advice = advice ? mem_strdup(advice) : NULL,
        .model = f->model ? mem_strdup(f->model) : NULL,
    };
    va_end(ap);
}

static bool goes_before(const struct lint_finding *a, const struct lint_finding *b)
{
    int by_file = strcmp(a->file, b->file);
    if (by_file != 0)
        return by_file < 0;
    return a->line != b->line ? a->line < b->line : a->column < b->column;
}

void lint_sort(struct lint_findings *f)
{
    for (size_t i = 1; i < f->n; i++) { /* there are few, and most are in order */
        struct lint_finding item = f->items[i];
        size_t k = i;
        for (; k > 0 && goes_before(&item, &f->items[k - 1]); k--)
            f->items[k] = f->items[k - 1];
        f->items[k] = item;
    }
}

void lint_findings_done(struct lint_findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        mem_free(f->items[i].file);
        mem_free(f->items[i].text);
        mem_free(f->items[i].advice);
        mem_free(f->items[i].model);
    }
    mem_free(f->items);
    *f = (struct lint_findings){0};
}
