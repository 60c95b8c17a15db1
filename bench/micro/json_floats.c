/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_floats [ROUNDS] - how long FP32 tensors take to parse from JSON text: our pull parser, which
 * writes the values into the tensor, compared with yyjson building its DOM of the same text
 * (without the walk over the DOM that a server would need besides). yyjson gets its memory from a
 * block that is allocated before, so that page faults do not count.
 *
 * Both parse the same text in turn, round after round; the medians are printed as JSON. The values
 * are compared first, since a parser that reads other numbers is useless, however fast.
 */
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "yyjson.h"

enum { PICTURE = 3 * 224 * 224, SMALL = 16, MAX_ROUNDS = 99, VALUE_TEXT_MAX = 32 };

/*
 * A number of tensors as text, and the result of the last one. There are many small tensors, all
 * different: the processor would learn a single one by heart, which it cannot with clients'
 * tensors.
 */
struct text {
    const char *name;
    void (*print)(char *to, double random); /* prints one value, from a number in [0, 1) */
    size_t n_values;                        /* of one tensor */
    size_t n_tensors;
    char **at;
    size_t *len;
    float *values;
    char *pool; /* yyjson's memory */
    size_t pool_len;
};

static uint64_t cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void print_pixel(char *to, double random)
{
    snprintf(to, VALUE_TEXT_MAX, "%.6f", 5.4 * random - 2.7);
}

/* As Python prints an FP32 value: converted to a double, which takes 17 digits. */
static void print_widened(char *to, double random)
{
    snprintf(to, VALUE_TEXT_MAX, "%.17g", (double)(float)(5.4 * random - 2.7));
}

static void print_whole(char *to, double random)
{
    snprintf(to, VALUE_TEXT_MAX, "%d", (int)(256 * random));
}

/* As C prints an FP32 value without loss: nine digits. */
static void print_tiny(char *to, double random)
{
    snprintf(to, VALUE_TEXT_MAX, "%.8e", random * random * random * 1e-3);
}

static void fail(const struct text *t, const char *what)
{
    fprintf(stderr, "json_floats: %s: %s\n", t->name, what);
    exit(1);
}

static double random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) * 0x1p-53;
}

static void text_make(struct text *t)
{
    uint64_t state = 88172645463325252u;
    size_t longest = 0;

    t->at = calloc(t->n_tensors, sizeof(*t->at));
    t->len = calloc(t->n_tensors, sizeof(*t->len));
    t->values = calloc(t->n_values, sizeof(*t->values));
    if (!t->at || !t->len || !t->values)
        fail(t, "out of memory");
    for (size_t i = 0; i < t->n_tensors; i++) {
        char *p = malloc(t->n_values * VALUE_TEXT_MAX + 2);

        t->at[i] = p;
        if (!p)
            fail(t, "out of memory");
        for (size_t n = 0; n < t->n_values; n++) {
            *p++ = n > 0 ? ',' : '[';
            t->print(p, random_next(&state));
            p += strlen(p);
        }
        *p++ = ']';
        t->len[i] = (size_t)(p - t->at[i]);
        longest = t->len[i] > longest ? t->len[i] : longest;
    }
    t->pool_len = yyjson_read_max_memory_usage(longest, 0);
    t->pool = malloc(t->pool_len);
    if (!t->pool)
        fail(t, "out of memory");
    memset(t->pool, 1, t->pool_len);
}

static void conch_parse(struct text *t, size_t i)
{
    struct json j;
    size_t n = 0;

    json_init(&j, t->at[i], t->len[i], NULL);
    if (!json_read_f32s(&j, t->values, t->n_values, &n) || !json_end(&j) || n != t->n_values)
        fail(t, "our parser refuses the text");
}

static yyjson_doc *yyjson_parse(struct text *t, size_t i)
{
    yyjson_read_err error;
    yyjson_doc *doc;
    yyjson_alc alc;

    yyjson_alc_pool_init(&alc, t->pool, t->pool_len);
    /* With these flags the text is only read; others write to it. */
    doc = yyjson_read_opts(t->at[i], t->len[i], 0, &alc, &error);
    if (!doc)
        fail(t, error.msg);
    return doc;
}

static void text_compare(struct text *t, size_t i)
{
    yyjson_doc *doc = yyjson_parse(t, i);
    yyjson_val *value;
    size_t n, max;

    conch_parse(t, i);
    yyjson_arr_foreach(yyjson_doc_get_root(doc), n, max, value)
    {
        if ((float)yyjson_get_num(value) != t->values[n])
            fail(t, "the two parsers read different values");
    }
    if (max != t->n_values)
        fail(t, "the two parsers read different numbers of values");
    yyjson_doc_free(doc);
}

/* Returns the CPU time of one tensor in µs, over enough of them to be measurable. */
static double time_us(struct text *t, bool ours)
{
    size_t n = 0;
    uint64_t from = cpu_ns(), used;

    do {
        for (size_t i = 0; i < t->n_tensors; i++) {
            if (ours)
                conch_parse(t, i);
            else
                yyjson_doc_free(yyjson_parse(t, i));
        }
        n += t->n_tensors;
        used = cpu_ns() - from;
    } while (used < 50000000);
    return (double)used / 1e3 / (double)n;
}

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    struct text texts[] = {
        {.name = "picture, 7 digits (-1.234567)",
         .print = print_pixel,
         .n_values = PICTURE,
         .n_tensors = 1},
        {.name = "picture, 17 digits (FP32 as Python prints it)",
         .print = print_widened,
         .n_values = PICTURE,
         .n_tensors = 1},
        {.name = "picture, whole numbers (0..255)",
         .print = print_whole,
         .n_values = PICTURE,
         .n_tensors = 1},
        {.name = "picture, exponents (1.23456789e-05)",
         .print = print_tiny,
         .n_values = PICTURE,
         .n_tensors = 1},
        {.name = "16 values, 7 digits", .print = print_pixel, .n_values = SMALL, .n_tensors = 2000},
    };
    size_t n_texts = sizeof(texts) / sizeof(texts[0]);
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 3;

    if (rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: json_floats [ROUNDS, at most %d]\n", MAX_ROUNDS);
        return 2;
    }
    printf("[");
    for (size_t i = 0; i < n_texts; i++) {
        double conch[MAX_ROUNDS], yyjson[MAX_ROUNDS];
        struct text *t = &texts[i];

        text_make(t);
        for (size_t n = 0; n < t->n_tensors; n++)
            text_compare(t, n);
        for (int r = 0; r < rounds; r++) {
            conch[r] = time_us(t, true);
            yyjson[r] = time_us(t, false);
        }
        qsort(conch, (size_t)rounds, sizeof(conch[0]), double_compare);
        qsort(yyjson, (size_t)rounds, sizeof(yyjson[0]), double_compare);
        printf("%s\n {\"text\": \"%s\", \"bytes\": %zu, \"values\": %zu, \"conch_us\": %.3f, "
               "\"yyjson_us\": %.3f}",
               i ? "," : "", t->name, t->len[0], t->n_values, conch[rounds / 2],
               yyjson[rounds / 2]);
    }
    printf("\n]\n");
    return 0;
}
