/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS with each allocation failing, OpenSSL's own among them: a connection is served or ends, and
 * all memory comes back.
 */
#include "lib/tls_client.h"

#include <errno.h>

#include "base/budget.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "frontends/net/tls.h"
#include "frontends/net/tls_files.h"
#include "lib/fault.h"

static struct tls_papers papers;
static struct tls_files *files;
/* A handshake has thousands of allocations, and a run takes a millisecond. So one in that many of
 * OpenSSL's may fail. */
enum { ONE_IN = 7 };

static bool fails;                 /* while the server's side runs */
static unsigned int n_allocations; /* OpenSSL's, of this run */

/* Whether this allocation is the one that fails. */
static bool must_fail(void)
{
    if (!fails || n_allocations++ % ONE_IN != 0)
        return false;
    void *probe = mem_try_alloc(1);
    mem_free(probe);
    return !probe;
}

static void *allocate(size_t n_bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return must_fail() ? NULL : malloc(n_bytes);
}

static void *reallocate(void *p, size_t n_bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return must_fail() ? NULL : realloc(p, n_bytes);
}

static void give_back(void *p, const char *file, int line)
{
    (void)file;
    (void)line;
    free(p);
}

/* Answers what has come with the same bytes, for a large answer many times. */
static bool serve_once(struct tls *t)
{
    char room[1000];
    static char answer[300000];
    struct iovec space = {room, sizeof(room)}, piece = {answer, sizeof(answer)};
    ssize_t n = tls_read(t, &space, 1);
    if (n > 0)
        n = tls_write(t, &piece, 1);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        return false;
    return tls_flush(t) != TLS_FAILED;
}

static struct status *serve(void *arg)
{
    struct tls_client client;
    struct budget *budget = budget_new(1 << 30);
    struct pool *pool = pool_new("test", 0, 0);
    bool good = true, established = false;
    size_t n_got = 0;
    (void)arg;
    n_allocations = 0;
    pool_set_budget(pool, budget);
    tlsc_init(&client, &papers, "\x02h2");
    tlsc_use_certificate(&client, papers.client, papers.client_key);

    fails = true;
    struct tls *t = tls_new(files, client.far_fd, pool, budget);
    fails = false;
    good = t != NULL;
    for (int i = 0; i < 8 && good; i++) {
        char got[70000];
        int n;
        if (SSL_do_handshake(client.ssl) == 1 && i < 5)
            (void)SSL_write(client.ssl, "hello", 5);
        (void)tlsc_send(&client, SIZE_MAX);
        fails = true;
        if (established) {
            good = serve_once(t);
        } else {
            enum tls_result result = tls_handshake(t);
            established = result == TLS_DONE;
            good = result != TLS_FAILED;
        }
        fails = false;
        tlsc_receive(&client);
        while (established && (n = SSL_read(client.ssl, got, sizeof(got))) > 0)
            n_got += (size_t)n;
    }
    fails = true;
    if (t)
        (void)tls_end(t);
    tls_free(t);
    fails = false;
    close(client.far_fd);
    tlsc_done(&client);
    pool_free(pool);
    budget_unref(budget);
    return good && n_got > 300000 ? NULL : status_no_memory();
}

static void a_connection(void **state)
{
    (void)state;
    struct tls_options o = {
        .certificate = papers.server, .key = papers.server_key, .root = papers.root, .alpn = "h2"};
    assert_null(tls_files_start(&o, &files));
    assert_true(fault_each_allocation(serve, NULL) >= 60);
    tls_files_stop(files);
}

static struct status *start_files(void *arg)
{
    struct tls_options o = {
        .certificate = papers.server, .key = papers.server_key, .root = papers.root, .alpn = "h2"};
    struct tls_files *f;
    (void)arg;
    n_allocations = 0;
    fails = true;
    struct status *st = tls_files_start(&o, &f);
    fails = false;
    if (!st) {
        tls_files_stop(f);
        return NULL;
    }
    assert_true(status_message(st)[0] != '\0');
    status_free(st); /* OpenSSL may name another reason than the lack of memory */
    return status_no_memory();
}

static void the_files(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(start_files, NULL) >= 60);
}

static int make_papers(void **state)
{
    (void)state;
    tlsc_make_papers(&papers);
    struct tls_options o = {.certificate = papers.server, .key = papers.server_key, .alpn = "h2"};
    assert_null(tls_files_start(&o, &files));
    assert_null(serve(NULL)); /* what OpenSSL makes once is made */
    tls_files_stop(files);
    return 0;
}

static int remove_papers(void **state)
{
    (void)state;
    tlsc_remove_papers(&papers);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection),
        cmocka_unit_test(the_files),
    };
    if (CRYPTO_set_mem_functions(allocate, reallocate, give_back) != 1)
        return 1;
    return cmocka_run_group_tests(tests, make_papers, remove_papers);
}
