/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of numbers by AVX2 and by AVX-512, compared with the same code one by one, on processors
 * that have them: the same text, the same values, and the same failure at the same position.
 * test_json_number.c and test_json_print.c compare the code one by one with the C library. The
 * environment variable CONCH_JSON_ROUNDS multiplies the rounds.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json_priv.h"

enum { MAX_VALUES = 400, MAX_TEXT = 96 * MAX_VALUES };

#ifdef __SANITIZE_THREAD__
enum { FEWER = 20 }; /* no thread is in it, and it takes a minute */
#else
enum { FEWER = 1 };
#endif
static size_t rounds = 1;
static enum json_way best; /* the best that the processor has */

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t random_bits(void) /* xorshift64*: the same values in every run */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1d;
}

static unsigned random_below(unsigned n)
{
    return (unsigned)((random_bits() >> 32) * n >> 32);
}

static int read_rounds(void **unused)
{
    (void)unused;
    const char *more = getenv("CONCH_JSON_ROUNDS");
    rounds = more ? (size_t)strtoul(more, NULL, 10) : 1;
    return 0;
}

/* ---- writing -------------------------------------------------------------------------------- */

typedef void (*write_floats_fn)(struct buf *b, const float *values, size_t n);

static void write_one_by_one(struct buf *b, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_addc(b, i > 0 ? ',' : '[');
        json_write_double(b, (double)values[i]);
    }
    if (n == 0)
        buf_addc(b, '[');
    buf_addc(b, ']');
}

/* Writes floats with the function that handles the difficult ones; test_json_print.c compares
 * it with the C library. */
static void write_shortest_one_by_one(struct buf *b, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char text[JSON_NUMBER_ROOM];
        size_t length = (size_t)(json_print_shortest(text, values[i]) - text);
        text[0] = i > 0 ? ',' : '[';
        buf_add(b, text, length);
    }
    if (n == 0)
        buf_addc(b, '[');
    buf_addc(b, ']');
}

static void compare(write_floats_fn together, write_floats_fn single, const float *values, size_t n)
{
    static struct buf array = BUF_INIT(1 << 20), singles = BUF_INIT(1 << 20);
    buf_reset(&array);
    buf_reset(&singles);
    together(&array, values, n);
    single(&singles, values, n);
    size_t size = MIN(array.size, singles.size), same = 0, index = 0;
    if (array.size == singles.size && memcmp(array.data, singles.data, size) == 0)
        return;
    for (; same < size && array.data[same] == singles.data[same]; same++)
        index += array.data[same] == ',';
    size_t from = same;
    while (from > 0 && array.data[from - 1] != ',')
        from--;
    fail_msg("value %zu of %zu, %a: %.*s is not %.*s", index, n, (double)values[index], 30,
             buf_text(&array) + from, 30, buf_text(&singles) + from);
}

/* Writes the values as an array, and one by one with the functions that print any number, and
 * compares. */
static void check_write(const float *values, size_t n)
{
    for (int way = 0; way <= (int)best; way++) {
        json_way = (enum json_way)way;
        if (way != JSON_ONE_BY_ONE)
            compare(json_write_f32s, write_one_by_one, values, n);
        compare(json_write_shortest_f32s, write_shortest_one_by_one, values, n);
    }
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* Of each exponent and sign: both ends, their neighbours, and many in between. */
static void every_exponent_is_written(void **unused)
{
    (void)unused;
    float values[MAX_VALUES];
    for (uint32_t exponent = 0; exponent < 512; exponent++) {
        for (size_t r = 0; r < (15 * rounds + FEWER - 1) / FEWER; r++) {
            for (size_t i = 0; i < MAX_VALUES; i++)
                values[i] = float_of(exponent << 23 | (uint32_t)(random_bits() >> 41));
            for (uint32_t i = 0; i < 8; i++) {
                values[2 * i] = float_of(exponent << 23 | i);
                values[2 * i + 1] = float_of(exponent << 23 | (0x7fffff - i));
            }
            check_write(values, MAX_VALUES);
        }
    }
}

/* Blocks of every length in which some values can be written together and others cannot. */
static void mixed_blocks_are_written(void **unused)
{
    (void)unused;
    float values[MAX_VALUES];
    for (size_t r = 0; r < 10000 * rounds / FEWER; r++) {
        size_t n = random_below(100);
        unsigned rare = random_below(12);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)random_bits();
            bool any = random_below(12) < rare;
            values[i] = float_of(any ? bits : (bits & 0x87ffffff) | 0x38000000);
            if (random_below(8) == 0)
                values[i] = float_of(bits & 0x80000000);
        }
        check_write(values, n);
    }
}

/* Few digits, and halves, where rounding meets ties and trailing zeros are removed. */
static void numbers_of_few_digits_are_written(void **unused)
{
    (void)unused;
    static const float units[] = {1,       0.5F,    0.25F,   0.125F,   0.0625F,   0.1F,
                                  0.01F,   0.001F,  0.0001F, 0.00001F, 0.000001F, 10,
                                  100.25F, 0x1p-9F, 0x1p-7F, 0x1p-14F, 0x1p-16F,  0x1p-20F};
    float values[MAX_VALUES];
    for (size_t u = 0; u < ARRAY_SIZE(units); u++) {
        for (int from = -70000; from < 70000; from += MAX_VALUES * FEWER) {
            for (int i = 0; i < MAX_VALUES; i++)
                values[i] = (float)(from + i) * units[u];
            check_write(values, MAX_VALUES);
        }
    }
}

static void check_maximum(write_floats_fn write, const float values[100])
{
    AUTO(buf) whole = BUF_INIT(1 << 20);
    write(&whole, values, 100);
    assert_false(whole.failed);
    for (size_t max = whole.size - 300; max < whole.size + 3; max++) {
        struct buf b = BUF_INIT(max);
        write(&b, values, 100);
        assert_int_equal(b.failed, max < whole.size);
        if (!b.failed)
            assert_memory_equal(b.data, whole.data, whole.size);
        buf_done(&b);
    }
}

static void arrays_are_written_up_to_the_maximum(void **unused)
{
    (void)unused;
    float values[100];
    for (size_t i = 0; i < 100; i++)
        values[i] = float_of((uint32_t)random_bits() & 0xbfffffff);
    check_maximum(json_write_f32s, values);
    check_maximum(json_write_shortest_f32s, values);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* The types of elements. */
static const struct type {
    size_t bytes;
    char letter; /* of its name: float, integer, unsigned */
} types[] = {{4, 'f'}, {8, 'f'}, {1, 'i'}, {2, 'i'}, {4, 'i'},
             {8, 'i'}, {1, 'u'}, {2, 'u'}, {4, 'u'}, {8, 'u'}};

struct result {
    bool ok;
    size_t n;
    enum json_failure failure;
    size_t at, failed_at;
    _Alignas(8) char values[8 * MAX_VALUES];
};

static bool read_values(struct json *j, struct type type, void *out, size_t max, size_t *ret_n)
{
    if (type.letter == 'f')
        return type.bytes == 4 ? json_read_f32s(j, out, max, ret_n)
                               : json_read_f64s(j, out, max, ret_n);
    switch (type.bytes) {
    case 1:
        return type.letter == 'i' ? json_read_i8s(j, out, max, ret_n)
                                  : json_read_u8s(j, out, max, ret_n);
    case 2:
        return type.letter == 'i' ? json_read_i16s(j, out, max, ret_n)
                                  : json_read_u16s(j, out, max, ret_n);
    case 4:
        return type.letter == 'i' ? json_read_i32s(j, out, max, ret_n)
                                  : json_read_u32s(j, out, max, ret_n);
    default:
        return type.letter == 'i' ? json_read_i64s(j, out, max, ret_n)
                                  : json_read_u64s(j, out, max, ret_n);
    }
}

/* Reads the elements into memory that ends after max of them. */
static void read_text(struct result *r, enum json_way way, struct type type, const char *text,
                      size_t length, size_t max)
{
    struct json j;
    char *out = malloc(max * type.bytes + !max);
    assert_non_null(out);
    json_init(&j, text, length, NULL);
    r->n = 0;
    json_way = way;
    r->ok = read_values(&j, type, out, max, &r->n);
    r->failure = j.failure;
    r->at = (size_t)(j.p - text);
    r->failed_at = j.failed_at ? (size_t)(j.failed_at - text) : 0;
    memcpy(r->values, out, r->n * type.bytes);
    free(out);
}

static void compare_read(enum json_way way, struct type type, const char *text, size_t length,
                         size_t max)
{
    static struct result together, single;
    read_text(&together, way, type, text, length, max);
    read_text(&single, JSON_ONE_BY_ONE, type, text, length, max);
    if (together.ok != single.ok || together.failure != single.failure ||
        together.at != single.at || together.failed_at != single.failed_at ||
        together.n != single.n)
        fail_msg("%c%zu, way %d, read together: %d, %zu values, failure %d at %zu; one by one: %d, "
                 "%zu values, failure %d at %zu: %.*s",
                 type.letter, 8 * type.bytes, (int)way, together.ok, together.n, together.failure,
                 together.failed_at, single.ok, single.n, single.failure, single.failed_at,
                 (int)length, text);
    for (size_t i = 0; i < single.n; i++) {
        const char *mine = together.values + i * type.bytes;
        if (memcmp(mine, single.values + i * type.bytes, type.bytes) != 0)
            fail_msg("%c%zu, way %d: value %zu is another one, one by one: %.*s", type.letter,
                     8 * type.bytes, (int)way, i, (int)length, text);
    }
}

/* Reads the text as all types, into memory that ends after the elements. */
static void check_read(const char *text, size_t length, size_t max)
{
    char *copy = malloc(length + !length);
    assert_non_null(copy);
    memcpy(copy, text, length);
    for (int way = JSON_AVX2; way <= (int)best; way++) {
        for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
            if (types[i].letter == 'f' || way == JSON_AVX512)
                compare_read((enum json_way)way, types[i], copy, length, max);
        }
    }
    free(copy);
}

/* Writes a number in one of the forms that clients send; most numbers have at most `most`
 * digits. */
static size_t put_number(char *out, unsigned most)
{
    char digits[32];
    unsigned n = 1 + random_below(most), point = random_below(n + 1), at = 0;
    for (unsigned i = 0; i < n; i++)
        digits[i] = (char)('0' + random_below(10));
    if (random_below(2) > 0)
        out[at++] = '-';
    if (random_below(3) == 0)
        point = n;
    if (point == 0 || digits[0] == '0') {
        out[at++] = '0';
        point = 0;
    }
    memcpy(out + at, digits, point);
    at += point;
    if (point < n && (point > 0 || random_below(8) > 0)) {
        out[at++] = '.';
        memcpy(out + at, digits + point, n - point);
        at += n - point;
    }
    if (random_below(400) == 0)
        at += (unsigned)sprintf(out + at, "e%d", (int)random_below(20) - 10);
    return at;
}

/* Writes an array of n numbers, and returns the length of its text. */
static size_t make_array(char *out, size_t n, unsigned most)
{
    static const char *const between[] = {",", ", ", ",  ", ",\n", " ,", "],["};
    unsigned usual = random_below(2), unusual = 20 + random_below(2000);
    bool whole = random_below(3) == 0, plain = random_below(3) == 0;
    size_t length = (size_t)sprintf(out, "%34s[[", "");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) {
            const char *text = between[random_below(unusual) ? usual : random_below(6)];
            memcpy(out + length, text, strlen(text));
            length += strlen(text);
        }
        size_t n_bytes = put_number(out + length, random_below(200) ? most : 25);
        char *point = whole ? memchr(out + length, '.', n_bytes) : NULL;
        if (point) /* only integers */
            n_bytes = (size_t)(point - (out + length));
        if (plain && out[length] == '-') /* and unsigned */
            memmove(out + length, out + length + 1, --n_bytes);
        length += n_bytes;
    }
    return length + (size_t)sprintf(out + length, "]]");
}

static void random_numbers_are_read(void **unused)
{
    (void)unused;
    static char text[MAX_TEXT];
    for (size_t r = 0; r < 4000 * rounds / FEWER; r++) {
        size_t n = 1 + random_below(MAX_VALUES);
        size_t length = make_array(text, n, 1 + random_below(26));
        /* Chooses where in a window of 64 bytes the number begins, and whether all of it fits. */
        size_t shift = random_below(35);
        check_read(text + shift, length - shift, random_below(8) ? MAX_VALUES : random_below(400));
    }
}

/* Each length of number at each position of a window. */
static void every_layout_is_read(void **unused)
{
    (void)unused;
    static char text[MAX_TEXT];
    for (int before = 1; before <= 20; before += FEWER > 1 ? 6 : 1) {
        for (int behind = 0; behind <= 20; behind++) {
            for (int style = 0; style < 4; style++) {
                size_t length = (size_t)sprintf(text, "%34s[", "");
                for (int i = 0; i < 150; i++) {
                    /* "-987654.98765"; every third number is short, so that all positions occur */
                    bool is_short = i % 3 == 2;
                    length += (size_t)sprintf(
                        text + length, "%s%s%.*s%s%.*s", i ? "," : "",
                        style & 1 ? (i ? " -" : "-") : "", is_short ? 1 : before,
                        "9876543210987654", behind && !is_short ? "." : "", is_short ? 0 : behind,
                        style & 2 ? "00000000000000000001" : "98765432109876543210");
                }
                length += (size_t)sprintf(text + length, "]");
                check_read(text, length, MAX_VALUES);
            }
        }
    }
}

/* Decimals at and around the middle of two floats, where a small error gives the wrong float. */
static void decimals_between_two_floats_are_read(void **unused)
{
    (void)unused;
    static char text[MAX_TEXT];
    for (size_t r = 0; r < 300 * rounds / FEWER; r++) {
        size_t length = (size_t)sprintf(text, "%34s[", "");
        for (size_t i = 0; i < 200; i++) {
            uint32_t bits = 0x38000000 + (uint32_t)(random_bits() % 0x10000000);
            double middle = ((double)float_of(bits) + (double)float_of(bits + 1)) / 2;
            int digits = 8 + (int)random_below(15);
            length += (size_t)sprintf(text + length, "%s%s%.*f", i ? "," : "",
                                      random_below(2) ? "-" : "", digits, middle);
            if (random_below(2))
                text[length - 1] = (char)('0' + random_below(10));
        }
        length += (size_t)sprintf(text + length, "]");
        check_read(text, length, MAX_VALUES);
    }
}

/* One byte is replaced: an error, or a number of another form, somewhere in a run. */
static void errors_are_those_of_reading_one_by_one(void **unused)
{
    (void)unused;
    static const char others[] = "0123456789--..,,eE+ []{}\n\tNnI\"/:\x80\xff";
    static char text[MAX_TEXT];
    for (size_t r = 0; r < 800 * rounds / FEWER; r++) {
        size_t length = make_array(text, 80 + random_below(100), 1 + random_below(26));
        for (size_t change = 0; change < 20; change++) {
            size_t at = 36 + random_below((unsigned)length - 36);
            char was = text[at];
            text[at] = others[random_below(sizeof(others))]; /* also by its zero byte */
            check_read(text, length, MAX_VALUES);
            text[at] = was;
        }
        check_read(text, random_below((unsigned)length), MAX_VALUES);
    }
}

/* Compares the values with those of the C library. */
static void values_are_those_of_strtod(void **unused)
{
    (void)unused;
    static char text[MAX_TEXT];
    float floats[MAX_VALUES];
    double doubles[MAX_VALUES];
    for (size_t r = 0; r < 1500 * rounds / FEWER; r++) {
        struct json j;
        size_t n;
        size_t length = make_array(text, MAX_VALUES, 1 + random_below(26));
        json_init(&j, text, length, NULL);
        json_way = (enum json_way)(r % (best + 1u));
        assert_true(json_read_f32s(&j, floats, MAX_VALUES, &n));
        json_init(&j, text, length, NULL);
        assert_true(json_read_f64s(&j, doubles, MAX_VALUES, &n));
        assert_int_equal(n, MAX_VALUES);
        const char *p = text;
        for (size_t i = 0; i < n; i++) {
            p += strspn(p, "[], \n");
            char *after;
            double want = strtod(p, &after);
            float want_float = (float)want;
            if (memcmp(&want, &doubles[i], 8) != 0 || memcmp(&want_float, &floats[i], 4) != 0)
                fail_msg("%.*s was read as %.17g and %.9g", (int)(after - p), p, doubles[i],
                         (double)floats[i]);
            p = after;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_exponent_is_written),
        cmocka_unit_test(mixed_blocks_are_written),
        cmocka_unit_test(numbers_of_few_digits_are_written),
        cmocka_unit_test(arrays_are_written_up_to_the_maximum),
        cmocka_unit_test(random_numbers_are_read),
        cmocka_unit_test(every_layout_is_read),
        cmocka_unit_test(decimals_between_two_floats_are_read),
        cmocka_unit_test(errors_are_those_of_reading_one_by_one),
        cmocka_unit_test(values_are_those_of_strtod),
    };
    best = json_way;
    if (best == JSON_ONE_BY_ONE) {
        print_message("the processor has no AVX2: nothing to compare\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, read_rounds, NULL);
}
