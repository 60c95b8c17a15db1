/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network layer with real sockets and system calls that fail now and then (faultlib.c), without
 * a model server around it: workers, connections, replies at once and by way of another thread.
 * Every request must be answered correctly, in order, on its own connection.
 *
 * The program starts itself again under faultlib, once per seed. The clients are threads of its own
 * that use sendto() and recvfrom(), which faultlib leaves alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/loop.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "frontends/net/server.h"

enum {
    N_CLIENTS = 4,
    N_CONNECTIONS = 15, /* of each client, one after the other */
    N_REQUESTS = 6,     /* pipelined on each */
    LARGE_BYTES = 300000,
    MOST_ROUNDS = 20,
    N_KINDS = 6, /* of faults, enum kind in faultlib.c */
};

/* The handler: the reply is the body; for /later it is sent by another thread. */

struct part {
    struct message message;
    struct http_reply reply;
    struct iovec body;
    bool later;
};

static struct loop detour;

static void echo(struct exchange *x)
{
    struct part *p = exchange_part(x);
    p->body = (struct iovec){x->body, x->body_size};
    p->reply = (struct http_reply){.status = 200, .headers = "", .body = &p->body, .n_body = 1};
    exchange_reply(x, &p->reply);
}

static void on_return(struct message *m)
{
    echo(exchange_of_part(CONTAINER_OF(m, struct part, message)));
}

static void on_detour(struct message *m)
{
    struct exchange *x = exchange_of_part(CONTAINER_OF(m, struct part, message));
    m->deliver = on_return;
    loop_post(x->env->net.loop, m);
}

static void on_head(struct exchange *x, const struct http_head *head)
{
    struct part *p = exchange_part(x);
    struct span path = head_path(head);
    p->later = path.length == 6 && memcmp(path.at, "/later", 6) == 0;
}

static void on_request(struct exchange *x)
{
    struct part *p = exchange_part(x);
    if (!p->later) {
        echo(x);
        return;
    }
    p->message.deliver = on_detour;
    loop_post(&detour, &p->message);
}

static void on_end(struct exchange *x)
{
    (void)x;
}

static const struct http_handler handler = {
    .part_bytes = sizeof(struct part),
    .on_head = on_head,
    .on_request = on_request,
    .on_end = on_end,
};

static void run_detour(void *arg)
{
    (void)arg;
    loop_run(&detour);
}

/* A client; it notes what it finds wrong in `problem`. */

struct client {
    struct thread thread;
    int number, port;
    char problem[200];
    char *buffer; /* LARGE_BYTES and a head */
};

static void say(struct client *c, const char *what, long detail)
{
    if (!c->problem[0])
        snprintf(c->problem, sizeof(c->problem), "client %d: %s (%ld)", c->number, what, detail);
}

static bool send_all(struct client *c, int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = sendto(fd, bytes, size, MSG_NOSIGNAL, NULL, 0);
        if (n < 0) {
            say(c, "send", errno);
            return false;
        }
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

static size_t body_bytes(int request)
{
    static const size_t sizes[N_REQUESTS] = {0, 10, LARGE_BYTES, 1, 70000, 4000};
    return sizes[request];
}

static void fill(char *body, size_t size, int client, int connection, int request)
{
    memset(body, 'a' + (client * 7 + connection * 3 + request) % 26, size);
}

static bool send_requests(struct client *c, int fd, int connection)
{
    for (int i = 0; i < N_REQUESTS; i++) {
        size_t size = body_bytes(i);
        int head =
            snprintf(c->buffer, 200, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
                     (connection + i) % 2 ? "/later" : "/now", size);
        fill(c->buffer + head, size, c->number, connection, i);
        if (!send_all(c, fd, c->buffer, (size_t)head + size))
            return false;
    }
    return true;
}

/* Reads the head byte by byte, because what follows belongs to the body. */
static bool receive_head(struct client *c, int fd, size_t *ret_body)
{
    char head[600];
    size_t n = 0;
    while (n < 4 || memcmp(head + n - 4, "\r\n\r\n", 4) != 0) {
        if (n == sizeof(head) - 1 || recvfrom(fd, head + n, 1, 0, NULL, NULL) != 1) {
            say(c, "no head", (long)n);
            return false;
        }
        n++;
    }
    head[n] = '\0';
    const char *length = strcasestr(head, "content-length:");
    if (memcmp(head, "HTTP/1.1 200 ", 13) != 0 || !length) {
        say(c, "not 200", strtol(head + 9, NULL, 10));
        return false;
    }
    *ret_body = strtoul(length + 15, NULL, 10);
    return true;
}

static bool receive_replies(struct client *c, int fd, int connection)
{
    static const size_t most = LARGE_BYTES;
    for (int i = 0; i < N_REQUESTS; i++) {
        size_t size = 0, got = 0;
        if (!receive_head(c, fd, &size))
            return false;
        if (size != body_bytes(i)) {
            say(c, "a body of another size", (long)size);
            return false;
        }
        while (got < size) {
            ssize_t n = recvfrom(fd, c->buffer + got, size - got, 0, NULL, NULL);
            if (n <= 0) {
                say(c, "the body ends early", (long)got);
                return false;
            }
            got += (size_t)n;
        }
        char *expected = c->buffer + most;
        fill(expected, size, c->number, connection, i);
        if (memcmp(c->buffer, expected, size) != 0) {
            say(c, "another body", i);
            return false;
        }
    }
    return true;
}

struct sending {
    struct thread thread;
    struct client *client;
    char *buffer;
    int fd, connection;
    bool fine;
};

/* Requests and replies may each be larger than the sockets' buffers, so both directions run at
 * once. */
static void send_aside(void *arg)
{
    struct sending *s = arg;
    struct client own = *s->client;
    own.buffer = s->buffer;
    own.problem[0] = '\0';
    s->fine = send_requests(&own, s->fd, s->connection);
}

static void be_client(void *arg)
{
    struct client *c = arg;
    c->buffer = mem_alloc(2 * LARGE_BYTES + 1000);
    struct sending s = {.client = c, .buffer = mem_alloc(LARGE_BYTES + 1000)};
    for (s.connection = 0; s.connection < N_CONNECTIONS && !c->problem[0]; s.connection++) {
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)c->port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        s.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(s.fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
            say(c, "connect", errno);
        } else {
            struct status *st = thread_start(&s.thread, "sender", send_aside, &s);
            if (st) {
                say(c, "no thread", 0);
                status_free(st);
            } else {
                receive_replies(c, s.fd, s.connection);
                if (c->problem[0])
                    shutdown(s.fd, SHUT_RDWR); /* otherwise the sender might wait for ever */
                thread_join(&s.thread);
                if (!s.fine)
                    say(c, "the requests did not leave", s.connection);
            }
        }
        close(s.fd);
    }
    mem_free(s.buffer);
    mem_free(c->buffer);
}

/* Returns the first kind of fault that has not occurred so far, or N_KINDS. */
static int missing_kind(void)
{
    uint64_t counts[N_KINDS] = {0};
    int kind = 0, fd = open(getenv("FAULT_COUNTS"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, counts, sizeof(counts), 0), sizeof(counts));
    close(fd);
    while (kind < N_KINDS && counts[kind] > 0)
        kind++;
    return kind;
}

/* Which call fails depends on the order of threads, so this repeats until each kind has
 * occurred. */
static void every_request_is_answered_correctly(void **state)
{
    (void)state;
    struct net_options o;
    struct net_server *server = NULL;
    net_options_init(&o);
    o.address = "127.0.0.1";
    o.n_threads = 2;
    o.http1.handler = &handler;
    assert_null(loop_init(&detour, clock_real()));
    struct thread detour_thread;
    assert_null(thread_start(&detour_thread, "detour", run_detour, NULL));
    assert_null(net_server_start(&o, &server));

    static struct client clients[N_CLIENTS];
    bool fine = true;
    enum net_end end;
    for (int round = 0; fine && (round == 0 || (round < MOST_ROUNDS && missing_kind() < N_KINDS));
         round++) {
        for (int i = 0; i < N_CLIENTS; i++) {
            clients[i] = (struct client){.number = i, .port = net_server_port(server)};
            assert_null(thread_start(&clients[i].thread, "client", be_client, &clients[i]));
        }
        for (int i = 0; i < N_CLIENTS; i++) {
            thread_join(&clients[i].thread);
            fine &= !clients[i].problem[0];
        }
    }
    unsigned int cut_off = net_server_stop(server, monotonic_ns() + 60 * NS_PER_S, NULL, &end);
    assert_int_equal(end, NET_FREED);
    loop_stop(&detour);
    thread_join(&detour_thread);
    loop_done(&detour);
    for (int i = 0; i < N_CLIENTS; i++) {
        if (clients[i].problem[0])
            fail_msg("%s", clients[i].problem);
    }
    assert_int_equal(cut_off, 0);
}

/* Otherwise the test above has shown nothing. */
static void faults_of_every_kind_occurred(void **state)
{
    (void)state;
    if (missing_kind() < N_KINDS)
        fail_msg("no fault of kind %d was given", missing_kind());
}

static int run_under_faults(const char *seed)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char counts[] = "/tmp/test-net-XXXXXX", sanitizer[300];
        close(mkstemp(counts));
        const char *before = getenv("ASAN_OPTIONS");
        snprintf(sanitizer, sizeof(sanitizer), "%s:verify_asan_link_order=0", before ? before : "");
        setenv("ASAN_OPTIONS", sanitizer, 1);
        /* By its name, because the loader would split a path with a space. */
        setenv("LD_PRELOAD", "faultlib.so", 1);
        setenv("LD_LIBRARY_PATH", CONCH_BUILD_DIR "/tests", 1);
        setenv("FAULT_SEED", seed, 1);
        setenv("FAULT_COUNTS", counts, 1);
        execl("/proc/self/exe", "test-fault-net", (char *)NULL);
        _exit(9);
    }
    int result = -1;
    while (waitpid(pid, &result, 0) < 0 && errno == EINTR) {
    }
    return result == 0 ? 0 : 1;
}

int main(void)
{
    if (!getenv("FAULT_SEED"))
        return run_under_faults("1") | run_under_faults("2") | run_under_faults("3");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_is_answered_correctly),
        cmocka_unit_test(faults_of_every_kind_occurred),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(getenv("FAULT_COUNTS"));
    return result;
}
