/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing JSON onto a buffer: strings and Booleans, tensors in blocks of values, and the writer
 * that sets the commas. json_print.c makes the digits; json_print_avx512.c or json_print_avx2.c
 * prints the usual floats where the processor has what these need. No state; any thread.
 */
#include "base/buf.h"
#include "base/json_priv.h"

/* ---- single values -------------------------------------------------------------------------- */

void json_write_bool(struct buf *b, bool value)
{
    buf_adds(b, value ? "true" : "false");
}

void json_write_string(struct buf *b, const char *s, size_t length)
{
    static const char hex[16] = "0123456789ABCDEF";
    const char *end = s + length;
    buf_addc(b, '"');
    for (;;) {
        const char *stop = json_plain_run(s, end);
        buf_add(b, s, (size_t)(stop - s));
        if (stop == end)
            break;
        unsigned char c = (unsigned char)*stop;
        char escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        const char *name = c == '"' || c == '\\' ? stop
                           : c == '\b'           ? "b"
                           : c == '\f'           ? "f"
                           : c == '\n'           ? "n"
                           : c == '\r'           ? "r"
                           : c == '\t'           ? "t"
                                                 : NULL;
        if (name)
            escape[1] = *name;
        buf_add(b, escape, name ? 2 : 6);
        s = stop + 1;
    }
    buf_addc(b, '"');
}

/* ---- tensors -------------------------------------------------------------------------------- */

enum { BLOCK = 64 };

/* Writes n values, each behind a comma; returns the end. */
typedef char *(*print_values_fn)(char *out, const void *values, size_t n);

/*
 * Writes blocks of values directly into the buffer, or by way of the stack where the buffer's
 * maximum is near, so that it is exact to the byte.
 */
static void write_array(struct buf *b, const void *values, size_t n, size_t value_bytes,
                        print_values_fn print_values)
{
    char block[BLOCK * JSON_NUMBER_ROOM];
    size_t start = b->size;
    if (n == 0)
        buf_addc(b, '[');
    for (size_t i = 0; i < n && !b->failed; i += BLOCK) {
        bool direct = b->max - b->size >= sizeof(block);
        char *from = direct ? buf_reserve(b, sizeof(block)) : block;
        if (!from)
            return;
        const char *next = (const char *)values + i * value_bytes;
        size_t n_bytes = (size_t)(print_values(from, next, MIN(n - i, (size_t)BLOCK)) - from);
        if (direct)
            b->size += n_bytes;
        else
            buf_add(b, block, n_bytes);
    }
    if (b->failed)
        return;
    if (n > 0)
        b->data[start] = '['; /* instead of the first comma */
    buf_addc(b, ']');
}

/* WRITE_ARRAY(name, type) - defines a bulk writer. */
#define WRITE_ARRAY(name, type)                                                                    \
    void json_write_##name(struct buf *b, const type *values, size_t n)                            \
    {                                                                                              \
        write_array(b, values, n, sizeof(type), json_print_##name);                                \
    }

void json_write_f32s(struct buf *b, const float *values, size_t n)
{
    write_array(b, values, n, sizeof(*values),
                json_way == JSON_AVX512 ? json_print_f32s_avx512
                : json_way == JSON_AVX2 ? json_print_f32s_avx2
                                        : json_print_f32s);
}

void json_write_shortest_f32s(struct buf *b, const float *values, size_t n)
{
    write_array(b, values, n, sizeof(*values),
                json_way == JSON_AVX512 ? json_print_shortest_f32s_avx512
                : json_way == JSON_AVX2 ? json_print_shortest_f32s_avx2
                                        : json_print_shortest_f32s);
}

WRITE_ARRAY(f64s, double)
WRITE_ARRAY(i8s, int8_t)
WRITE_ARRAY(i16s, int16_t)
WRITE_ARRAY(i32s, int32_t)
WRITE_ARRAY(i64s, int64_t)
WRITE_ARRAY(u8s, uint8_t)
WRITE_ARRAY(u16s, uint16_t)
WRITE_ARRAY(u32s, uint32_t)
WRITE_ARRAY(u64s, uint64_t)
WRITE_ARRAY(bools, uint8_t)

/* ---- the writer that sets commas ------------------------------------------------------------ */

void json_put_value(struct json_writer *w)
{
    if (w->comma)
        buf_addc(w->out, ',');
    w->comma = true;
}

void json_put_open(struct json_writer *w, char bracket)
{
    json_put_value(w);
    buf_addc(w->out, bracket);
    w->comma = false;
}

void json_put_close(struct json_writer *w, char bracket)
{
    buf_addc(w->out, bracket);
    w->comma = true;
}

void json_put_name_n(struct json_writer *w, const char *name, size_t length)
{
    json_put_value(w);
    json_write_string(w->out, name, length);
    buf_addc(w->out, ':');
    w->comma = false;
}

void json_put_name(struct json_writer *w, const char *name)
{
    json_put_name_n(w, name, strlen(name));
}

void json_put_string(struct json_writer *w, const char *s, size_t length)
{
    json_put_value(w);
    json_write_string(w->out, s, length);
}

void json_put_text(struct json_writer *w, const char *s)
{
    json_put_string(w, s, strlen(s));
}

void json_put_bool(struct json_writer *w, bool value)
{
    json_put_value(w);
    json_write_bool(w->out, value);
}

void json_put_int64(struct json_writer *w, int64_t value)
{
    json_put_value(w);
    json_write_int64(w->out, value);
}

void json_put_uint64(struct json_writer *w, uint64_t value)
{
    json_put_value(w);
    json_write_uint64(w->out, value);
}

void json_put_double(struct json_writer *w, double value)
{
    json_put_value(w);
    json_write_double(w->out, value);
}
