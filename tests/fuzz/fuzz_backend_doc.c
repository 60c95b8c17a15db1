/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON reader of the backends. A document that it accepts must be written and read again as the
 * same tree, and each value's raw text must be a document of its own.
 */
#include "common/doc.c"

#include <assert.h>

static void write_value(FILE *to, const struct doc_value *v)
{
    const char *separator = "";

    switch (v->type) {
    case DOC_ARRAY:
    case DOC_OBJECT:
        putc(v->type == DOC_ARRAY ? '[' : '{', to);
        for (const struct doc_value *item = v->first; item; item = item->next) {
            fputs(separator, to);
            separator = ",";
            if (item->key) {
                doc_write_string(to, item->key);
                putc(':', to);
            }
            write_value(to, item);
        }
        putc(v->type == DOC_ARRAY ? ']' : '}', to);
        break;
    case DOC_STRING:
        doc_write_string(to, v->string);
        break;
    case DOC_BOOL:
        fputs(v->boolean ? "true" : "false", to);
        break;
    case DOC_NULL:
    case DOC_NUMBER:
        fwrite(v->raw, 1, v->raw_len, to);
        break;
    }
}

static void compare(const struct doc_value *a, const struct doc_value *b)
{
    int64_t x = 0, y = 0;

    assert(a->type == b->type && a->n_items == b->n_items && a->boolean == b->boolean);
    assert(!a->key == !b->key && (!a->key || strcmp(a->key, b->key) == 0));
    if (a->type == DOC_STRING) /* a zero byte inside ends the written string */
        assert(strcmp(a->string, b->string) == 0);
    if (a->type == DOC_NUMBER)
        assert(doc_int(a, &x) == doc_int(b, &y) && x == y);
    for (a = a->first, b = b->first; a; a = a->next, b = b->next)
        compare(a, b);
}

static void check_raw(const struct doc_value *v)
{
    const char *why;
    struct doc *alone = doc_parse(v->raw, v->raw_len, &why);

    assert(alone && doc_root(alone)->type == v->type && doc_root(alone)->n_items == v->n_items);
    doc_free(alone);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *why = NULL;
    struct doc *d = doc_parse((const char *)data, size, &why), *again;
    char *text = NULL;
    size_t len;
    FILE *to;

    if (!d) {
        assert(why);
        return 0;
    }
    to = open_memstream(&text, &len);
    assert(to);
    write_value(to, doc_root(d));
    fclose(to);
    again = doc_parse(text, len, &why);
    assert(again);
    compare(doc_root(d), doc_root(again));
    check_raw(doc_root(d));
    for (const struct doc_value *v = doc_first(doc_root(d)); v; v = v->next)
        check_raw(v);
    doc_free(again);
    doc_free(d);
    free(text);
    return 0;
}
