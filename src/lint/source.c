/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings are sorted by file and line, so that each file is read once and each line is sought from
 * the one before. A file is read again through its storage, since keeping all configurations of a
 * large repository would need too much memory. Thread: the caller's.
 */
#include "lint/source.h"

#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/config/config.h"
#include "core/storage/storage.h"
#include "lint/findings.h"

enum { TAB_COLUMNS = 8 }; /* the text parser counts so, as protobuf does */

/* Makes the file of the finding the current one; on error it is empty. */
static void read_source_file(struct lint_sources *s, const struct storage *storage,
                             const char *file)
{
    size_t root = strlen(storage->root);
    if (s->file && strcmp(s->file, file) == 0)
        return;
    lint_sources_done(s);
    s->file = mem_strdup(file);
    buf_init(&s->text, CONFIG_MAX_BYTES);
    s->line = 1;
    if (strncmp(file, storage->root, root) != 0 || file[root] != '/')
        return;
    struct status *st = storage_read(storage, file + root + 1, &s->text);
    if (st)
        buf_reset(&s->text);
    status_free(st);
}

static bool find_line(struct lint_sources *s, uint32_t line)
{
    const char *text = buf_text(&s->text);
    if (line < s->line) {
        s->line = 1;
        s->line_at = 0;
    }
    while (s->line < line) {
        const char *end = memchr(text + s->line_at, '\n', s->text.size - s->line_at);
        if (!end)
            return false;
        s->line_at = (size_t)(end - text) + 1;
        s->line++;
    }
    return true;
}

static size_t byte_of_column(const struct lint_line *l, uint32_t column)
{
    size_t i = 0;
    for (size_t at = 0; i < l->length && at + 1 < column; i++)
        at = l->text[i] == '\t' ? at + TAB_COLUMNS - at % TAB_COLUMNS : at + 1;
    return i;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-' || c == '+';
}

/* A name, a number, a string with its quotes, or one sign. */
static size_t word_width(const struct lint_line *l)
{
    const char *word = l->text + l->at;
    size_t room = l->length - l->at, n = 1;
    if (room && is_word(*word)) {
        while (n < room && is_word(word[n]))
            n++;
    } else if (room && (*word == '"' || *word == '\'')) {
        while (n < room && word[n] != *word)
            n += word[n] == '\\' ? 2 : 1;
        n++;
    }
    return n > room && room ? room : n;
}

bool lint_source_line(struct lint_sources *s, const struct storage *storage,
                      const struct lint_finding *item, struct lint_line *ret_line)
{
    if (!storage || !item->line)
        return false;
    read_source_file(s, storage, item->file);
    if (!s->text.size || !find_line(s, item->line))
        return false;
    struct lint_line l = {.text = s->text.data + s->line_at};
    const char *end = memchr(l.text, '\n', s->text.size - s->line_at);
    l.length = end ? (size_t)(end - l.text) : s->text.size - s->line_at;
    if (l.length && l.text[l.length - 1] == '\r')
        l.length--;
    l.at = byte_of_column(&l, item->column);
    l.width = word_width(&l);
    *ret_line = l;
    return true;
}

void lint_sources_done(struct lint_sources *s)
{
    buf_done(&s->text);
    mem_free(s->file);
    *s = (struct lint_sources){0};
}
