/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lint_print_start() and lint_print_end() frame the report; print_human(), print_json() and
 * print_github() print one finding each. Texts from outside pass through add_clean() or
 * put_clean(), so that no name forges a line. Thread: the caller's.
 */
#include "lint/print.h"

#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "lint/findings.h"

enum { MAX_LINE_BYTES = 1 << 20 };

static const char *severity_name(const struct lint_finding *item)
{
    return lint_codes[item->code].is_warning ? "warning" : "error";
}

/* ---- names and texts from outside ------------------------------------------------------------ */

/* How many bytes here would move a terminal's cursor or end the line? */
static size_t control_bytes(const char *s)
{
    unsigned char c = (unsigned char)s[0], next = (unsigned char)s[c != '\0'];
    if (c < 0x20 || c == 0x7f)
        return 1;
    return c == 0xc2 && next >= 0x80 && next < 0xa0 ? 2 : 0; /* U+0080 to U+009F */
}

/* Adds a text on one line, harmless to terminals. */
static void add_clean(struct buf *out, const char *s)
{
    char *text = utf8_printable(s);
    for (const char *c = text; *c; c++) {
        size_t n = control_bytes(c);
        if (*c == '\n') {
            buf_adds(out, "\\n");
        } else if (n == 0) {
            buf_addc(out, *c);
        } else {
            for (size_t i = 0; i < n; i++)
                buf_addf(out, "\\x%02X", (unsigned char)c[i]);
            c += n - 1;
        }
    }
    mem_free(text);
}

/* ---- For people ------------------------------------------------------------------------------ */

static void print_human(struct lint_printer *p, const struct lint_finding *item, struct buf *line)
{
    const char *on = !p->colour                          ? ""
                     : lint_codes[item->code].is_warning ? "\x1b[1;35m"
                                                         : "\x1b[1;31m";
    const char *bold = p->colour ? "\x1b[1m" : "", *off = p->colour ? "\x1b[0m" : "";

    buf_adds(line, bold);
    add_clean(line, item->file);
    if (item->line)
        buf_addf(line, ":%u:%u", item->line, item->column);
    buf_addf(line, ":%s %s%s:%s ", off, on, severity_name(item), off);
    add_clean(line, item->text);
    if (item->advice) {
        buf_adds(line, "; ");
        add_clean(line, item->advice);
    }
    buf_addf(line, " [%s]\n", lint_codes[item->code].name);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_clean(struct json_writer *w, const char *name, const char *s)
{
    json_put_name(w, name);
    if (!s) {
        json_put_value(w);
        buf_adds(w->out, "null");
        return;
    }
    char *text = utf8_printable(s);
    json_put_text(w, text);
    mem_free(text);
}

static void print_json(struct lint_printer *p, const struct lint_finding *item, struct buf *line)
{
    struct json_writer w = {.out = line};
    buf_adds(line, p->comma ? ",\n" : "\n");
    p->comma = true;
    json_put_open(&w, '{');
    put_clean(&w, "file", item->file);
    json_put_name(&w, "line");
    json_put_uint64(&w, item->line);
    json_put_name(&w, "column");
    json_put_uint64(&w, item->column);
    put_clean(&w, "severity", severity_name(item));
    put_clean(&w, "code", lint_codes[item->code].name);
    put_clean(&w, "model", item->model);
    put_clean(&w, "text", item->text);
    put_clean(&w, "suggestion", item->advice);
    json_put_close(&w, '}');
}

/* ---- GitHub ---------------------------------------------------------------------------------- */

/* Escapes GitHub's own syntax; in properties also : and , */
static void add_github(struct buf *out, const char *s, bool property)
{
    AUTO(buf) clean = BUF_INIT(MAX_LINE_BYTES);
    add_clean(&clean, s);
    for (const char *c = buf_text(&clean); *c; c++) {
        if (*c == '%' || (property && (*c == ':' || *c == ',')))
            buf_addf(out, "%%%02X", (unsigned char)*c);
        else
            buf_addc(out, *c);
    }
}

static void print_github(const struct lint_finding *item, struct buf *line)
{
    buf_addf(line, "::%s file=", severity_name(item));
    add_github(line, item->file, true);
    if (item->line)
        buf_addf(line, ",line=%u,col=%u", item->line, item->column);
    buf_adds(line, ",title=");
    add_github(line, lint_codes[item->code].name, true);
    buf_adds(line, "::");
    add_github(line, item->text, false);
    if (item->advice) {
        buf_adds(line, "; ");
        add_github(line, item->advice, false);
    }
    buf_addc(line, '\n');
}

/* ---- the report ------------------------------------------------------------------------------ */

void lint_print_start(struct lint_printer *p)
{
    if (p->format == CONCH_CHECK_JSON)
        fputs("{\"findings\":[", p->out);
}

void lint_print_findings(struct lint_printer *p, const struct lint_findings *f)
{
    AUTO(buf) line = BUF_INIT(MAX_LINE_BYTES);
    for (size_t i = 0; i < f->n; i++) {
        const struct lint_finding *item = &f->items[i];
        buf_reset(&line);
        switch (p->format) {
        case CONCH_CHECK_JSON:
            print_json(p, item, &line);
            break;
        case CONCH_CHECK_GITHUB:
            print_github(item, &line);
            break;
        default:
            print_human(p, item, &line);
        }
        fwrite(buf_text(&line), 1, line.size, p->out);
    }
}

static const char *plural_ending(size_t n)
{
    return n == 1 ? "" : "s";
}

void lint_print_end(struct lint_printer *p, const struct lint_totals *t)
{
    if (p->format == CONCH_CHECK_JSON) {
        fprintf(p->out,
                "\n],\"models\":%zu,\"errors\":%zu,\"warnings\":%zu,\"hidden\":%zu,"
                "\"seconds\":%.3f}\n",
                t->n_models, t->n_errors, t->n_warnings, t->n_hidden, t->seconds);
    } else {
        fprintf(p->out, "%zu model%s, %zu error%s, %zu warning%s", t->n_models,
                plural_ending(t->n_models), t->n_errors, plural_ending(t->n_errors), t->n_warnings,
                plural_ending(t->n_warnings));
        if (t->n_hidden)
            fprintf(p->out, " (%zu not shown: at most %d of each model)", t->n_hidden,
                    LINT_MAX_FINDINGS);
        fprintf(p->out, ", %.3f s\n", t->seconds);
    }
    fflush(p->out);
}
