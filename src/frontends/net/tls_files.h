/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a service that speaks TLS: the server's certificate and private key, and the roots
 * of its clients' certificates. A thread, "tls-files", looks at them once a second. When they have
 * changed, and then not for a second, it reads them again. New connections get what the files have;
 * connections that exist keep what they have. A change that is unfit is logged once, and the last
 * good content stays in use. So no loop reads a file.
 */
#ifndef CONCH_FRONTENDS_NET_TLS_FILES_H
#define CONCH_FRONTENDS_NET_TLS_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct ssl_ctx_st; /* OpenSSL's SSL_CTX */
struct tls_files;

struct tls_options {
    const char *certificate; /* path, PEM: the server's certificate, then those up to its root */
    const char *key;         /* path, PEM: its private key, without a passphrase */
    const char *root;        /* path, PEM: the roots of clients' certificates, which every client
                                must then show; NULL: no client is asked for one */
    const char *alpn;        /* the protocols of the service by ALPN, the preferred one first:
                                "h2", "http/1.1,http/1.0" */
    bool alpn_is_optional;   /* a client that offers no protocol is served; one that offers others
                                only is told so. Otherwise a client must negotiate */
    uint64_t check_ns;       /* the time between two looks at the files; 0: a second */
};

/*
 * tls_files_start - reads the files and watches them. The caller ends it with tls_files_stop().
 *
 * Thread: any; it reads files.
 * @o  copied
 * Errors: STATUS_INVALID_ARG  a file is missing or unfit; the message names it and has OpenSSL's
 *                             reason
 *         STATUS_UNAVAILABLE  no thread is left
 */
NODISCARD struct status *tls_files_start(const struct tls_options *o, struct tls_files **ret);

/* tls_files_stop - ends the thread and frees all; NULL is fine. No connection may be left. */
void tls_files_stop(struct tls_files *f);

/* tls_files_alpn - the protocol that each client must negotiate, or NULL when it need not; valid as
 * long as f. Thread: any. */
const char *tls_files_alpn(const struct tls_files *f);

/*
 * tls_files_get - what a new connection is to use. The caller ends the reference with
 * SSL_CTX_free(). Thread: any.
 */
struct ssl_ctx_st *tls_files_get(struct tls_files *f);

/*
 * tls_files_certificate_s - the time that the certificate in use has left, in seconds; negative
 * when it has expired. False: its end is not known. Thread: any.
 */
bool tls_files_certificate_s(struct tls_files *f, double *ret_left_s);

#endif
