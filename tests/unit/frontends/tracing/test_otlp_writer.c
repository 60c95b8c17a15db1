/* SPDX-License-Identifier: Apache-2.0 */
/* Messages have their lengths, however long they are and whatever was expected; JSON has the same
 * fields; a full buffer is told, at each byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/status.h"
#include "frontends/tracing/otlp_writer.h"

static const struct otlp_field of_outer = {300, "outer"}, of_inner = {2, "inner"},
                               of_text = {1, "text"}, of_number = {7, "number"},
                               of_list = {3, "list"}, of_long = {4, "long"}, of_id = {5, "id"};
static const uint8_t id[] = {0xab, 0, 0x1f};

/* A field of bytes of that number, which must come next. */
static struct pbwire_bytes next_bytes(struct pbwire *in, uint32_t number)
{
    struct pbwire_field f = {0};
    assert_true(pbwire_next(in, &f));
    assert_true(pbwire_is(&f, number, PBWIRE_BYTES));
    return f.bytes;
}

/* A message within a message, with a text of that length, and a text behind. */
static void write_nested(struct buf *out, bool is_json, const char *text, size_t length,
                         uint8_t n_length_bytes)
{
    struct otlp_writer w;
    otlp_writer_init(&w, out, is_json);
    struct otlp_mark outer = otlp_begin_message(&w, of_outer, n_length_bytes);
    struct otlp_mark inner = otlp_begin_message(&w, of_inner, n_length_bytes);
    otlp_put_text(&w, of_text, text, length);
    otlp_end(&w, inner);
    otlp_put_int32(&w, of_number, 1);
    otlp_end(&w, outer);
    otlp_put_text(&w, of_text, "behind", 6);
    otlp_writer_done(&w);
}

static void read_nested(const struct buf *written, const char *text, size_t length)
{
    struct pbwire in = pbwire_of(written->data, written->size);
    struct pbwire_bytes outer = next_bytes(&in, 300), behind = next_bytes(&in, 1);
    struct pbwire within = pbwire_of(outer.at, outer.length);
    struct pbwire_bytes inner = next_bytes(&within, 2);
    struct pbwire innermost = pbwire_of(inner.at, inner.length);
    struct pbwire_bytes found = next_bytes(&innermost, 1);
    struct pbwire_field number;
    assert_int_equal(found.length, length);
    assert_memory_equal(found.at, text, length);
    assert_true(innermost.at == innermost.end);
    assert_true(pbwire_next(&within, &number) && pbwire_is(&number, 7, PBWIRE_VARINT));
    assert_true(within.at == within.end);
    assert_true(behind.length == 6 && memcmp(behind.at, "behind", 6) == 0 && in.at == in.end);
}

static void messages_have_any_length(void **state)
{
    (void)state;
    static const size_t lengths[] = {0,     1,     121,   122,   123,     124,     125,    126,
                                     127,   128,   16370, 16376, 16377,   16378,   16379,  16380,
                                     16381, 16384, 65536, 65540, 2097140, 2097146, 2097152};
    char *text = malloc(lengths[ARRAY_SIZE(lengths) - 1]);
    memset(text, 'x', lengths[ARRAY_SIZE(lengths) - 1]);
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        for (uint8_t guess = 1; guess <= 4; guess++) {
            AUTO(buf) out = BUF_INIT(4 << 20);
            write_nested(&out, false, text, lengths[i], guess);
            assert_null(buf_status(&out));
            read_nested(&out, text, lengths[i]);
        }
    }
    free(text);
}

/* One of each. */
static void write_all(struct buf *out, bool is_json)
{
    struct otlp_writer w;
    otlp_writer_init(&w, out, is_json);
    otlp_begin_list(&w, of_list);
    otlp_put_text_pair(&w, of_list, "k", 1, "v\"", 2);
    otlp_put_int_pair(&w, of_list, "n", 1, -1);
    otlp_put_event(&w, of_list, UINT64_MAX, "e", 1);
    otlp_end(&w, otlp_begin_item(&w, of_list, 1));
    otlp_end_list(&w);
    otlp_put_id(&w, of_id, id, sizeof(id));
    otlp_put_fixed64(&w, of_long, 1);
    otlp_put_fixed32(&w, of_number, 4);
    otlp_put_int32(&w, of_number, -5);
    otlp_writer_done(&w);
}

static void json_has_the_same_fields(void **state)
{
    (void)state;
    AUTO(buf) json = BUF_INIT(4096);
    AUTO(buf) bytes = BUF_INIT(4096);
    write_all(&json, true);
    assert_string_equal(buf_text(&json),
                        "{\"list\":[{\"key\":\"k\",\"value\":{\"stringValue\":\"v\\\"\"}},"
                        "{\"key\":\"n\",\"value\":{\"intValue\":\"-1\"}},"
                        "{\"timeUnixNano\":\"18446744073709551615\",\"name\":\"e\"},{}],"
                        "\"id\":\"ab001f\",\"long\":\"1\",\"number\":4,\"number\":-5}");
    write_all(&bytes, false);
    static const char want[] =
        "\x1a\x09\x0a\x01k\x12\x04\x0a\x02v\""
        "\x1a\x10\x0a\x01n\x12\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        "\x1a\x0c\x09\xff\xff\xff\xff\xff\xff\xff\xff\x12\x01"
        "e\x1a\x00\x2a\x03\xab\x00\x1f\x21\x01\x00\x00\x00\x00\x00\x00\x00"
        "\x3d\x04\x00\x00\x00\x38\xfb\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    assert_int_equal(bytes.size, sizeof(want) - 1);
    assert_memory_equal(bytes.data, want, sizeof(want) - 1);
}

static void a_full_buffer_is_told(void **state)
{
    (void)state;
    for (int is_json = 0; is_json < 2; is_json++) {
        for (size_t max = 0; max < 130; max++) {
            AUTO(buf) out = BUF_INIT(max);
            AUTO(buf) nested = BUF_INIT(max);
            struct status *st;
            write_all(&out, is_json);
            write_nested(&nested, is_json,
                         "0123456789012345678901234567890123456789"
                         "0123456789012345678901234567890123456789"
                         "0123456789012345678901234567890123456789",
                         120, 1);
            st = buf_status(&nested);
            assert_non_null(st);
            status_free(st);
            assert_true(out.size <= max && nested.size <= max);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_have_any_length),
        cmocka_unit_test(json_has_the_same_fields),
        cmocka_unit_test(a_full_buffer_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
