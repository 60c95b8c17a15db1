/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SARIF counts columns in characters; a finding counts as protobuf does, in bytes with wide tabs.
 * So the line of the configuration is read for its column, and quoted as the region's snippet.
 * Thread: the caller's.
 */
#include "lint/sarif.h"

#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "lint/findings.h"
#include "lint/printer.h"

enum { MAX_HEAD_BYTES = 1 << 20 };

static void put_member(struct json_writer *w, const char *name, const char *text)
{
    char *clean = utf8_printable(text);
    json_put_name(w, name);
    json_put_text(w, clean);
    mem_free(clean);
}

/* A message: { "text": … } */
static void put_text_object(struct json_writer *w, const char *name, const char *text)
{
    json_put_name(w, name);
    json_put_open(w, '{');
    put_member(w, "text", text);
    json_put_close(w, '}');
}

static const char *sarif_level(enum lint_code code)
{
    return lint_codes[code].is_warning ? "warning" : "error";
}

static void put_rule(struct json_writer *w, enum lint_code code)
{
    const struct conch_check_code *c = &lint_codes[code];
    char *help = mem_printf("%s\n\nExample:\n\n%s\nCure:\n\n%s", c->about, c->example, c->cure);
    json_put_open(w, '{');
    put_member(w, "id", c->name);
    put_text_object(w, "shortDescription", c->meaning);
    put_text_object(w, "fullDescription", c->about);
    put_text_object(w, "help", help);
    json_put_name(w, "defaultConfiguration");
    json_put_open(w, '{');
    put_member(w, "level", sarif_level(code));
    json_put_close(w, '}');
    json_put_close(w, '}');
    mem_free(help);
}

void sarif_print_start(const struct lint_printer *p)
{
    AUTO(buf) head = BUF_INIT(MAX_HEAD_BYTES);
    struct json_writer w = {.out = &head};
    json_put_open(&w, '{');
    put_member(&w, "$schema",
               "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/"
               "sarif-schema-2.1.0.json");
    put_member(&w, "version", "2.1.0");
    json_put_name(&w, "runs");
    json_put_open(&w, '[');
    json_put_open(&w, '{');
    json_put_name(&w, "tool");
    json_put_open(&w, '{');
    json_put_name(&w, "driver");
    json_put_open(&w, '{');
    put_member(&w, "name", "conch check");
    put_member(&w, "version", CONCH_VERSION);
    json_put_name(&w, "rules");
    json_put_open(&w, '[');
    for (int code = 0; code < N_LINT_CODES; code++)
        put_rule(&w, (enum lint_code)code);
    json_put_close(&w, ']');
    json_put_close(&w, '}');
    json_put_close(&w, '}');
    put_member(&w, "columnKind", "unicodeCodePoints");
    json_put_name(&w, "results");
    json_put_open(&w, '[');
    fwrite(buf_text(&head), 1, head.size, p->out);
}

/* The path as a URI: relative to the folder of the check, or a file of this machine. */
static void put_uri(struct json_writer *w, const char *file)
{
    static const char plain[] = "/-_.~";
    AUTO(buf) uri = BUF_INIT(MAX_HEAD_BYTES);
    if (*file == '/')
        buf_adds(&uri, "file://");
    for (const char *c = file; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        if (letter || (*c >= '0' && *c <= '9') || strchr(plain, *c))
            buf_addc(&uri, *c);
        else
            buf_addf(&uri, "%%%02X", (unsigned char)*c);
    }
    put_member(w, "uri", buf_text(&uri));
}

/* Counts the characters; a byte that begins none counts as one. */
static uint64_t characters(const char *s, size_t n_bytes)
{
    uint64_t n = 0;
    for (size_t i = 0, size; i < n_bytes; i += size, n++) {
        size = utf8_sequence(s + i, n_bytes - i);
        size = size ? size : 1;
    }
    return n;
}

static void put_snippet(struct json_writer *w, const struct lint_line *l)
{
    char *text = mem_strndup(l->text, l->length);
    put_text_object(w, "snippet", text);
    mem_free(text);
}

static void put_region(struct json_writer *w, const struct lint_finding *item,
                       const struct lint_line *l)
{
    json_put_name(w, "region");
    json_put_open(w, '{');
    json_put_name(w, "startLine");
    json_put_uint64(w, item->line);
    if (l) {
        uint64_t begin = characters(l->text, l->at) + 1;
        size_t end = l->at + l->width < l->length ? l->at + l->width : l->length;
        json_put_name(w, "startColumn");
        json_put_uint64(w, begin);
        json_put_name(w, "endColumn");
        json_put_uint64(w, end > l->at ? characters(l->text, end) + 1 : begin);
        put_snippet(w, l);
    }
    json_put_close(w, '}');
}

void sarif_print_finding(struct lint_printer *p, const struct storage *storage,
                         const struct lint_finding *item, struct buf *line)
{
    struct json_writer w = {.out = line};
    struct lint_line source;
    bool quoted = lint_source_line(&p->sources, storage, item, &source);
    char *text =
        item->advice ? mem_printf("%s; %s", item->text, item->advice) : mem_strdup(item->text);

    buf_adds(line, p->comma ? ",\n" : "\n");
    p->comma = true;
    json_put_open(&w, '{');
    put_member(&w, "ruleId", lint_codes[item->code].name);
    json_put_name(&w, "ruleIndex");
    json_put_uint64(&w, item->code);
    put_member(&w, "level", sarif_level(item->code));
    put_text_object(&w, "message", text);
    json_put_name(&w, "locations");
    json_put_open(&w, '[');
    json_put_open(&w, '{');
    json_put_name(&w, "physicalLocation");
    json_put_open(&w, '{');
    json_put_name(&w, "artifactLocation");
    json_put_open(&w, '{');
    put_uri(&w, item->file);
    json_put_close(&w, '}');
    if (item->line)
        put_region(&w, item, quoted ? &source : NULL);
    json_put_close(&w, '}');
    json_put_close(&w, '}');
    json_put_close(&w, ']');
    json_put_close(&w, '}');
    mem_free(text);
}

void sarif_print_end(const struct lint_printer *p, const struct lint_totals *t)
{
    AUTO(buf) notes = BUF_INIT(MAX_HEAD_BYTES);
    struct json_writer w = {.out = &notes};
    json_put_open(&w, '[');
    for (size_t i = 0; i < t->n_notes; i++) {
        json_put_open(&w, '{');
        put_member(&w, "level", "note");
        put_text_object(&w, "message", t->notes[i]);
        json_put_close(&w, '}');
    }
    json_put_close(&w, ']');
    fprintf(p->out,
            "\n],\"invocations\":[{\"executionSuccessful\":%s,"
            "\"toolExecutionNotifications\":%s}],"
            "\"properties\":{\"models\":%zu,\"errors\":%zu,\"warnings\":%zu,\"hidden\":%zu}}]}\n",
            t->unreadable ? "false" : "true", buf_text(&notes), t->n_models, t->n_errors,
            t->n_warnings, t->n_hidden);
}
