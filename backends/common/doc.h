/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc - a small strict JSON reader for backends.
 *
 * A backend gets its configuration as JSON and may only use the public headers, so it cannot share
 * the server's parser. This one reads a whole text into a tree, once, when a model loads; nothing
 * here is meant for the path of a request.
 *
 * Strict means RFC 8259 with one value and nothing after it. Of members with the same name the
 * first is used. The document owns all values and texts; doc_free() frees them.
 */
#ifndef BACKENDS_COMMON_DOC_H
#define BACKENDS_COMMON_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum doc_type { DOC_NULL, DOC_BOOL, DOC_NUMBER, DOC_STRING, DOC_ARRAY, DOC_OBJECT };

struct doc_value {
    enum doc_type type;
    bool boolean;    /* DOC_BOOL */
    const char *key; /* name of the member; NULL for elements of arrays and the root */
    const char *raw; /* the value as it stands in the text, raw_len bytes */
    size_t raw_len;
    const char *string; /* DOC_STRING: decoded, with a zero byte behind its string_len bytes */
    size_t string_len;
    size_t n_items;          /* DOC_ARRAY, DOC_OBJECT */
    struct doc_value *first; /* DOC_ARRAY, DOC_OBJECT: its first item */
    struct doc_value *next;  /* the item after this one */
};

struct doc;

/*
 * doc_parse - read a text.
 * @text     copied
 * @ret_why  set when the result is NULL: what is wrong, a constant
 * Returns a document for doc_free(), or NULL. Containers nest 64 deep at most.
 */
struct doc *doc_parse(const char *text, size_t len, const char **ret_why);
void doc_free(struct doc *d);

/* doc_root - the value of the whole text. */
const struct doc_value *doc_root(const struct doc *d);

/* doc_get - a member of an object; NULL if there is none, or v is no object or NULL. */
const struct doc_value *doc_get(const struct doc_value *v, const char *key);

/* doc_first - first item of an array or object; NULL if v is something else or NULL. */
const struct doc_value *doc_first(const struct doc_value *v);

/* doc_count - number of items; 0 if v is no container or NULL. */
size_t doc_count(const struct doc_value *v);

/* doc_string - a string's text; the argument `otherwise` if v is no string or NULL. */
const char *doc_string(const struct doc_value *v, const char *otherwise);

/* doc_int - a whole number, or a string that holds one, as protobuf prints 64-bit numbers. */
bool doc_int(const struct doc_value *v, int64_t *ret_number);

/* doc_true - is v the word true? False: it is anything else, or NULL. */
bool doc_true(const struct doc_value *v);

/* doc_write_string - write s as a JSON string. */
void doc_write_string(FILE *to, const char *s);

#ifdef __cplusplus
}
#endif
#endif
