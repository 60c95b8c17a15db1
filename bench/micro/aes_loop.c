/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time of AES-256-GCM alone, by OpenSSL, for a request and its answer: opens so many bytes and
 * seals so many, in pieces as large as the records of TLS.
 *
 *     bench_aes_loop BYTES_IN BYTES_OUT SECONDS
 *
 * Prints {"aes_us":…}. Thread: main alone.
 */
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RECORD_BYTES = 16 << 10, TAG_BYTES = 16 };

static const unsigned char key[32], nonce[12];

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void check(bool fine)
{
    if (fine)
        return;
    fprintf(stderr, "bench_aes_loop: OpenSSL failed\n");
    exit(1);
}

/* Seals or opens n_bytes; each record has a tag. */
static void pass(EVP_CIPHER_CTX *c, bool seals, const unsigned char *from, unsigned char *to,
                 size_t n_bytes, unsigned char (*tags)[TAG_BYTES])
{
    for (size_t at = 0; at < n_bytes; at += RECORD_BYTES, tags++) {
        size_t n = n_bytes - at < RECORD_BYTES ? n_bytes - at : RECORD_BYTES;
        int done = 0, rest = 0;
        check(EVP_CipherInit_ex(c, NULL, NULL, NULL, nonce, seals) == 1 &&
              EVP_CipherUpdate(c, to + at, &done, from + at, (int)n) == 1);
        check(seals || EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tags) == 1);
        check(EVP_CipherFinal_ex(c, to + at + done, &rest) == 1);
        check(!seals || EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, tags) == 1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: bench_aes_loop BYTES_IN BYTES_OUT SECONDS\n");
        return 2;
    }
    size_t n_in = strtoull(argv[1], NULL, 10), n_out = strtoull(argv[2], NULL, 10);
    size_t n_most = (n_in > n_out ? n_in : n_out) + RECORD_BYTES;
    unsigned char *plain = calloc(1, n_most), *sealed = calloc(1, n_most);
    unsigned char *to = calloc(1, n_most);
    unsigned char(*tags)[TAG_BYTES] = calloc(n_most / RECORD_BYTES + 1, 2 * TAG_BYTES);
    unsigned char(*answer_tags)[TAG_BYTES] = tags + n_most / RECORD_BYTES + 1;
    EVP_CIPHER_CTX *opener = EVP_CIPHER_CTX_new(), *sealer = EVP_CIPHER_CTX_new();
    check(plain && sealed && to && tags && opener && sealer &&
          EVP_CipherInit_ex(opener, EVP_aes_256_gcm(), NULL, key, nonce, 0) == 1 &&
          EVP_CipherInit_ex(sealer, EVP_aes_256_gcm(), NULL, key, nonce, 1) == 1);
    pass(sealer, true, plain, sealed, n_in, tags);
    double rounds = 0, at = cpu_us(), end = at + atof(argv[3]) * 1e6, now = at;
    for (; now < end; now = cpu_us(), rounds++) {
        pass(opener, false, sealed, to, n_in, tags);
        pass(sealer, true, plain, to, n_out, answer_tags);
    }
    printf("{\"aes_us\":%.3f}\n", rounds > 0 ? (now - at) / rounds : 0);
    return 0;
}
