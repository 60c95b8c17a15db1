/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_copy: reads documents from stdin, each after its length (32 bits, little endian), and
 * answers each on stdout in the same way: '=' and the document as our writer prints it after our
 * reader has parsed it, or '!' and the first syntax error.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"

static void copy_value(struct json *j, struct json_writer *w)
{
    struct json_str s;
    struct json_number n;
    bool b;
    switch (json_peek(j)) {
    case JSON_OBJECT:
        json_put_open(w, '{');
        json_enter_object(j);
        while (json_next_member(j, &s)) {
            json_put_name_n(w, s.at, s.length);
            copy_value(j, w);
        }
        json_put_close(w, '}');
        break;
    case JSON_ARRAY:
        json_put_open(w, '[');
        json_enter_array(j);
        while (json_next_element(j))
            copy_value(j, w);
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
    default:
        json_skip_value(j);
        json_put_value(w);
        buf_adds(w->out, "null");
        break;
    }
}

static void answer(const char *text, size_t length)
{
    struct arena arena;
    struct json j;
    struct json_error error;
    AUTO(buf) out = BUF_INIT(64 << 20);
    struct json_writer w = {.out = &out};
    arena_init(&arena, NULL, 0, 64 << 20, NULL, NULL);
    json_init(&j, text, length, &arena);
    copy_value(&j, &w);
    bool ok = json_end(&j);
    if (ok == json_check(text, length, &error)) {
        if (!ok) {
            buf_reset(&out);
            buf_addf(&out, "%s at %zu", error.text, error.offset);
        }
    } else {
        ok = false;
        buf_reset(&out);
        buf_adds(&out, "walking and checking do not agree");
    }
    uint32_t size = (uint32_t)out.size + 1;
    fwrite(&size, 4, 1, stdout);
    fputc(ok ? '=' : '!', stdout);
    fwrite(buf_text(&out), 1, out.size, stdout);
    arena_reset(&arena);
}

int main(void)
{
    uint32_t length;
    while (fread(&length, 4, 1, stdin) == 1) {
        char *text = malloc(length + !length); /* an exact copy, so that asan sees its end */
        if (!text || fread(text, 1, length, stdin) != length)
            return 1;
        answer(text, length);
        free(text);
    }
    return 0;
}
