/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server and a client of OpenSSL that have shaken hands over two wires in memory, set up as
 * net/tls_files.c sets up a connection. What fails ends the program. Thread: one at a time.
 */
#ifndef CONCH_BENCH_MICRO_TLS_PAIR_H
#define CONCH_BENCH_MICRO_TLS_PAIR_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>

enum { WIRE_BYTES = 64 << 10 };

/* Bytes on the way in one direction. */
struct wire {
    size_t at, end;
    char bytes[WIRE_BYTES];
};

struct tls_pair {
    SSL *server, *client;
    struct wire to_server, to_client;
};

/* tls_server - a context with a certificate that signs itself, as the server's files would be. */
SSL_CTX *tls_server(void);

/* tls_pair_connect, tls_pair_done - *p need not be cleared. */
void tls_pair_connect(struct tls_pair *p, SSL_CTX *server, SSL_CTX *client);
void tls_pair_done(struct tls_pair *p);

/* tls_check - ends the program unless that is fine. */
void tls_check(bool fine, const char *what);

#endif
