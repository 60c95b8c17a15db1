/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The powers of ten to 128 bits, which exact reading and shortest writing of doubles need. They
 * are computed when the library is loaded (in about 60 µs) rather than listed: 668 pairs of
 * 17-digit constants could not be reviewed.
 *
 * Positive powers are 5^k, kept whole in a long integer. Negative ones are 2^N / 5^k, divided by 5
 * again and again; cutting off at each step gives the same as cutting off once, since
 * floor(floor(x / a) / b) = floor(x / (a·b)). The factor 2^k of 10^k only shifts.
 */
#include "base/json_priv.h"

struct json_pow10 json_pow10_table[JSON_POW10_MAX - JSON_POW10_MIN + 1];

/* 5^342 has 795 bits: 2^N / 5^342 keeps 128 and more for N = 1023. 5^325 has 755 bits. */
enum { N_WORDS = 32 };

struct big {
    uint32_t words[N_WORDS]; /* least significant first */
};

static void big_times_5(struct big *b)
{
    uint64_t carry = 0;
    for (int i = 0; i < N_WORDS; i++) {
        carry += (uint64_t)b->words[i] * 5;
        b->words[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static void big_over_5(struct big *b)
{
    uint64_t rest = 0;
    for (int i = N_WORDS; i-- > 0;) {
        rest = rest << 32 | b->words[i];
        b->words[i] = (uint32_t)(rest / 5);
        rest %= 5;
    }
}

/* Returns the 32 bits from position `from` (counted from the least significant bit) upwards. */
static uint32_t big_bits(const struct big *b, int from)
{
    uint64_t pair = 0;
    for (int i = 1; i >= 0; i--) {
        int word = (from >> 5) + i; /* an arithmetic shift: positions below 0 are zeros */
        pair = pair << 32 | (word >= 0 && word < N_WORDS ? b->words[word] : 0);
    }
    return (uint32_t)(pair >> (from & 31));
}

/* Returns the top 128 bits. */
static struct json_pow10 big_top(const struct big *b)
{
    int top = N_WORDS - 1;
    while (b->words[top] == 0)
        top--;
    int n_bits = 32 * top + 32 - __builtin_clz(b->words[top]);
    return (struct json_pow10){
        .hi = (uint64_t)big_bits(b, n_bits - 32) << 32 | big_bits(b, n_bits - 64),
        .lo = (uint64_t)big_bits(b, n_bits - 96) << 32 | big_bits(b, n_bits - 128),
    };
}

__attribute__((constructor)) static void compute_table(void)
{
    struct big b = {.words = {1}};
    for (int k = 0; k <= JSON_POW10_MAX; k++) {
        json_pow10_table[k - JSON_POW10_MIN] = big_top(&b);
        big_times_5(&b);
    }
    b = (struct big){.words = {[N_WORDS - 1] = 0x80000000}};
    for (int k = -1; k >= JSON_POW10_MIN; k--) {
        big_over_5(&b);
        json_pow10_table[k - JSON_POW10_MIN] = big_top(&b);
    }
    json_print_prepare();
}
