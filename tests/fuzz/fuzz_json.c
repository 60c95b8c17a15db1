/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON from outside. Whatever the bytes, walking value by value and json_check() agree whether they
 * are a document. A document that was read and written again is a document, and reads as the same.
 * The bulk readers do not leave their bounds, accept only arrays of their type, and read the same
 * many values at once as one by one.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/compiler.h"
#include "base/json_priv.h"

enum { MAX_INPUT = 1 << 16, MAX_DEPTH = 50 };

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Reads one value and writes it again; a value deeper than MAX_DEPTH is skipped, and null is
 * written for it. */
static void copy_value(struct json *j, struct json_writer *w, int depth)
{
    struct json_str s;
    struct json_number n;
    bool b;
    if (depth == MAX_DEPTH) {
        json_skip_value(j);
        json_put_value(w);
        buf_adds(w->out, "null");
        return;
    }
    switch (json_peek(j)) {
    case JSON_OBJECT:
        json_put_open(w, '{');
        json_enter_object(j);
        while (json_next_member(j, &s)) {
            json_put_name_n(w, s.at, s.length);
            copy_value(j, w, depth + 1);
        }
        json_put_close(w, '}');
        break;
    case JSON_ARRAY:
        json_put_open(w, '[');
        json_enter_array(j);
        while (json_next_element(j))
            copy_value(j, w, depth + 1);
        json_put_close(w, ']');
        break;
    case JSON_STRING:
        if (json_read_string(j, &s))
            json_put_string(w, s.at, s.length);
        break;
    case JSON_NUMBER:
        if (!json_read_number(j, &n))
            break;
        if (n.kind == JSON_INT64)
            json_put_int64(w, n.i64);
        else if (n.kind == JSON_UINT64)
            json_put_uint64(w, n.u64);
        else
            json_put_double(w, n.d);
        break;
    case JSON_BOOL:
        if (json_read_bool(j, &b))
            json_put_bool(w, b);
        break;
    case JSON_NULL:
        if (json_read_null(j)) {
            json_put_value(w);
            buf_adds(w->out, "null");
        }
        break;
    case JSON_NONE:
        json_skip_value(j); /* fails, as it must */
        break;
    }
}

/* Prints the document as this library writes it; false when it is no document. */
static bool copy_document(const char *text, size_t length, struct buf *out)
{
    struct arena arena;
    struct json j;
    struct json_writer w = {.out = out};
    arena_init(&arena, NULL, 0, 64 << 20, NULL, NULL);
    json_init(&j, text, length, &arena);
    copy_value(&j, &w, 0);
    bool ok = json_end(&j);
    EXPECT(ok || j.failure == JSON_SYNTAX);
    arena_reset(&arena);
    return ok;
}

static void read_tensors(const char *text, size_t length, bool is_document)
{
    size_t max = length / 4, n = 0, bytes = 0, n_single = 0;
    void *out = malloc(max * 8 + 1); /* so that one value too many is seen */
    void *singles = malloc(max * 8 + 1);
    enum json_way best = json_way;
    const char *after;
    bool ok;
    struct json start, j, single;
    json_init(&start, text, length, NULL);
#define READ(function, type)                                                                       \
    j = start;                                                                                     \
    ok = function(&j, (type *)out, max, &n);                                                       \
    after = j.p;                                                                                   \
    if (ok) {                                                                                      \
        EXPECT(n <= max);                                                                          \
        EXPECT(!is_document || json_end(&j));                                                      \
    } else {                                                                                       \
        EXPECT(j.failure != JSON_OK && (j.failure != JSON_SYNTAX || !is_document));                \
    }                                                                                              \
    for (int way = 0; way < (int)best; way++) {                                                    \
        json_way = (enum json_way)way;                                                             \
        single = start;                                                                            \
        function(&single, (type *)singles, max, &n_single);                                        \
        json_way = best;                                                                           \
        EXPECT(single.failure == j.failure && single.failed_at == j.failed_at);                    \
        EXPECT(single.p == after);                                                                 \
        EXPECT(j.failure != JSON_OK ||                                                             \
               (n == n_single && memcmp(out, singles, n * sizeof(type)) == 0));                    \
    }
    READ(json_read_i8s, int8_t)
    READ(json_read_i16s, int16_t)
    READ(json_read_i32s, int32_t)
    READ(json_read_i64s, int64_t)
    READ(json_read_u8s, uint8_t)
    READ(json_read_u16s, uint16_t)
    READ(json_read_u32s, uint32_t)
    READ(json_read_u64s, uint64_t)
    READ(json_read_bools, uint8_t)
    READ(json_read_f32s, float)
    READ(json_read_f64s, double)
    if (j.failure == JSON_OK) {
        AUTO(buf) b = BUF_INIT(64 << 20);
        double *again = malloc(n * 8 + 1);
        size_t n_again;
        json_write_f64s(&b, out, n);
        json_init(&j, b.data, b.size, NULL);
        EXPECT(json_read_f64s(&j, again, n, &n_again) && n == n_again);
        EXPECT(memcmp(again, out, n * 8) == 0);
        free(again);
    }
    j = start;
    if (json_read_strings(&j, NULL, 0, max, &n, &bytes)) {
        char *strings = malloc(bytes + 1);
        size_t n_again, bytes_again;
        j = start;
        EXPECT(json_read_strings(&j, strings, bytes, max, &n_again, &bytes_again));
        EXPECT(n == n_again && bytes == bytes_again);
        free(strings);
    }
    free(singles);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MAX_INPUT)
        return 0;
    char *text = malloc(size + !size); /* an exact copy: no byte behind it may be read */
    memcpy(text, data, size);

    struct json_error error = {NULL, 0};
    bool is_document = json_check(text, size, &error);
    EXPECT(is_document || (error.text && error.offset <= size));

    AUTO(buf) once = BUF_INIT(64 << 20);
    AUTO(buf) twice = BUF_INIT(64 << 20);
    EXPECT(copy_document(text, size, &once) == is_document);
    if (is_document) {
        EXPECT(json_check(once.data, once.size, &error));
        EXPECT(copy_document(once.data, once.size, &twice));
        EXPECT(once.size == twice.size && memcmp(once.data, twice.data, once.size) == 0);
    }
    read_tensors(text, size, is_document);
    free(text);
    return 0;
}
