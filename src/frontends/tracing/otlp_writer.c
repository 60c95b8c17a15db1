/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the writer that are not inline: JSON, and messages of an unexpected length. Thread:
 * one at a time. */
#include "frontends/tracing/otlp_writer.h"

#include "frontends/tracing/trace_context.h"

enum { MAX_ID_BYTES = 16 };

void otlp_writer_init(struct otlp_writer *w, struct buf *out, bool is_json)
{
    *w = (struct otlp_writer){.out = out, .is_json = is_json, .json = {.out = out}};
    if (is_json)
        json_put_open(&w->json, '{');
}

void otlp_writer_done(struct otlp_writer *w)
{
    if (w->is_json)
        json_put_close(&w->json, '}');
}

/* Makes room for a length that has more bytes than expected, or closes the gap. False: no memory.
 */
bool otlp_move_message(struct otlp_writer *w, struct otlp_mark mark, size_t n_bytes, size_t need)
{
    struct buf *b = w->out;
    if (need > mark.n_length_bytes && !otlp_find_room(w, need - mark.n_length_bytes))
        return false;
    memmove(b->data + mark.at + need, b->data + mark.at + mark.n_length_bytes, n_bytes);
    b->size = mark.at + need + n_bytes;
    return true;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

void otlp_json_begin(struct otlp_writer *w, const char *name, char bracket)
{
    if (name)
        json_put_name(&w->json, name);
    json_put_open(&w->json, bracket);
}

void otlp_json_end(struct otlp_writer *w, char bracket)
{
    json_put_close(&w->json, bracket);
}

void otlp_json_text(struct otlp_writer *w, const char *name, const char *text, size_t length)
{
    json_put_name(&w->json, name);
    json_put_string(&w->json, text, length);
}

void otlp_json_id(struct otlp_writer *w, const char *name, const uint8_t *id, size_t n_bytes)
{
    char hex[2 * MAX_ID_BYTES + 1];
    otlp_json_text(w, name, hex, (size_t)(trace_print_id(hex, id, n_bytes) - hex));
}

void otlp_json_number(struct otlp_writer *w, const char *name, int64_t value)
{
    json_put_name(&w->json, name);
    json_put_int64(&w->json, value);
}

/* A number of 64 bits, which JSON has as text. */
void otlp_json_long(struct otlp_writer *w, const char *name, uint64_t value, bool is_signed)
{
    json_put_name(&w->json, name);
    json_put_value(&w->json);
    buf_addc(w->out, '"');
    if (is_signed)
        json_write_int64(w->out, (int64_t)value);
    else
        json_write_uint64(w->out, value);
    buf_addc(w->out, '"');
}

void otlp_json_text_pair(struct otlp_writer *w, const char *key, size_t key_length,
                         const char *text, size_t length)
{
    otlp_json_begin(w, NULL, '{');
    otlp_json_text(w, "key", key, key_length);
    otlp_json_begin(w, "value", '{');
    otlp_json_text(w, "stringValue", text, length);
    otlp_json_end(w, '}');
    otlp_json_end(w, '}');
}

void otlp_json_int_pair(struct otlp_writer *w, const char *key, size_t key_length, int64_t value)
{
    otlp_json_begin(w, NULL, '{');
    otlp_json_text(w, "key", key, key_length);
    otlp_json_begin(w, "value", '{');
    otlp_json_long(w, "intValue", (uint64_t)value, true);
    otlp_json_end(w, '}');
    otlp_json_end(w, '}');
}

void otlp_json_event(struct otlp_writer *w, uint64_t ns, const char *name, size_t length)
{
    otlp_json_begin(w, NULL, '{');
    otlp_json_long(w, "timeUnixNano", ns, false);
    otlp_json_text(w, "name", name, length);
    otlp_json_end(w, '}');
}
