/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_load - a closed-loop HTTP/1.1 client.
 *
 * Sends one prepared request over and over on N kept-alive connections, plain or with TLS, each
 * with a fixed number of requests outstanding, and prints one line of JSON: the requests answered,
 * p50 and p99 of every latency, and the CPU time that the server's process used meanwhile
 * (phase.h).
 *
 * One thread. Replies are read into one buffer that stays in the cache and are never collected. The
 * body of every reply is compared with the first one's length and its leading bytes.
 */
#include "channel.h"
#include "options.h"
#include "phase.h"
#include "reply.h"
#include "tally.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    MAX_PIPELINE = 256,
    READ_SIZE = 256 * 1024,
    WRITE_VECTORS = 64,
};

struct http_options {
    struct load_options common;
    const char *request_path;
    unsigned pipeline;
    unsigned answers; /* that each reply has */
    bool tls, is_fresh;
};

struct conn {
    struct channel channel;
    struct reply reply;
    bool differs; /* the body in progress differs from the first one */

    /* Requests are sent whole, so the position in the stream gives the position in the request. */
    size_t unsent;      /* bytes of begun requests not yet accepted by the kernel */
    uint64_t n_begun;   /* requests begun on this connection */
    uint64_t n_replied; /* complete replies; a reply may arrive before its request is fully sent */
    uint64_t n_done;    /* sent and replied to: these count as answered */
    uint64_t begun_ns[MAX_PIPELINE];
};

struct load {
    struct http_options opt;
    struct sockaddr_in addr;
    char *request;
    uint32_t n_changed; /* with --fresh */
    size_t request_len;
    struct conn *conns;
    unsigned n_active; /* connections of the phase … */
    unsigned pipeline; /* … and requests outstanding on each */
    char *scratch;     /* READ_SIZE; all connections read into it */

    /* The first good reply. */
    char *first_body;
    size_t first_len;
    bool have_first;

    struct phase phase;
};

static void conn_open(struct load *l, struct conn *c)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};

    channel_open(&c->channel, &l->addr, l->opt.tls ? "http/1.1" : NULL);
    reply_reset(&c->reply);
    c->differs = false;
    c->unsent = 0;
    c->n_begun = c->n_replied = c->n_done = 0;
    if (epoll_ctl(l->phase.epoll, EPOLL_CTL_ADD, c->channel.fd, &ev) != 0)
        tally_die("epoll_ctl: %s", strerror(errno));
}

/* Its last bytes, of a tensor, become others than those of the requests before. */
static void change_request(struct load *l)
{
    l->n_changed++;
    memcpy(l->request + l->request_len - sizeof(l->n_changed), &l->n_changed, sizeof(l->n_changed));
}

static void conn_send(struct load *l, struct conn *c)
{
    while (c->unsent > 0) {
        struct iovec iov[WRITE_VECTORS];
        size_t left = c->unsent;
        int n = 0;
        ssize_t sent;

        if (l->opt.is_fresh)
            change_request(l);
        while (left > 0 && n < WRITE_VECTORS) {
            size_t piece = left % l->request_len ? left % l->request_len : l->request_len;

            iov[n].iov_base = l->request + (l->request_len - piece);
            iov[n].iov_len = piece;
            left -= piece;
            n++;
        }
        sent = channel_send(&c->channel, iov, n);
        if (sent < 0) {
            if (errno == EAGAIN)
                return;
            if (errno == EPIPE || errno == ECONNRESET)
                return; /* the read side reports it */
            tally_die("writev: %s", strerror(errno));
        }
        c->unsent -= (size_t)sent;
    }
}

/* Begins requests until the pipeline is full. */
static void conn_refill(struct load *l, struct conn *c)
{
    uint64_t now = tally_now_ns();

    while (l->phase.issuing && c->n_begun - c->n_done < l->pipeline) {
        c->begun_ns[c->n_begun % MAX_PIPELINE] = now;
        c->n_begun++;
        c->unsent += l->request_len;
        l->phase.outstanding++;
    }
    conn_send(l, c);
}

/* Counts the requests that are both sent and replied to. */
static void conn_settle(struct load *l, struct conn *c)
{
    uint64_t n_sent = c->n_begun - (c->unsent + l->request_len - 1) / l->request_len;
    uint64_t now;

    if (c->n_done == c->n_replied || c->n_done == n_sent)
        return;
    now = tally_now_ns();
    while (c->n_done < c->n_replied && c->n_done < n_sent) {
        phase_count_answer(&l->phase, c->begun_ns[c->n_done % MAX_PIPELINE], now);
        l->phase.tally.messages += l->opt.answers;
        c->n_done++;
    }
}

static void body_span(struct load *l, struct conn *c, const char *span, size_t len)
{
    size_t pos = c->reply.body_pos - len;

    if (c->reply.status / 100 != 2) {
        if (l->phase.tally.failed == 0 && pos == 0)
            fprintf(stderr, "load: status %d: %.*s\n", c->reply.status,
                    (int)(len < 400 ? len : 400), span);
        return;
    }
    if (!l->have_first) {
        /* Only the first request of all is sent alone (learn_first()). */
        l->first_body = realloc(l->first_body, pos + len);
        if (!l->first_body)
            tally_die("no memory for a reply of %zu bytes", pos + len);
        memcpy(l->first_body + pos, span, len);
        return;
    }
    if (pos >= l->opt.common.verify_len || pos >= l->first_len)
        return; /* a wrong length is counted at the end */
    if (len > l->opt.common.verify_len - pos)
        len = l->opt.common.verify_len - pos;
    if (len > l->first_len - pos)
        len = l->first_len - pos;
    if (memcmp(l->first_body + pos, span, len) != 0)
        c->differs = true;
}

static void reply_end(struct load *l, struct conn *c)
{
    if (c->n_replied == c->n_begun)
        tally_die("a reply to no request");
    c->n_replied++;
    if (c->reply.status / 100 != 2) {
        l->phase.tally.failed++;
    } else if (!l->have_first) {
        l->have_first = true;
        l->first_len = c->reply.body_len;
    } else if (c->differs || c->reply.body_len != l->first_len) {
        l->phase.tally.mismatched++;
    }
    c->differs = false;
}

static void conn_read(struct load *l, struct conn *c)
{
    for (;;) {
        ssize_t n = channel_recv(&c->channel, l->scratch, READ_SIZE);
        const char *bytes = l->scratch, *span = NULL, *why = NULL;
        size_t left, span_len = 0;
        bool ended = false;

        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            break;
        left = (size_t)n;
        for (bool more = true; more;) {
            switch (reply_feed(&c->reply, &bytes, &left, &span, &span_len, &why)) {
            case REPLY_MORE:
                more = false;
                break;
            case REPLY_BODY:
                body_span(l, c, span, span_len);
                break;
            case REPLY_END:
                reply_end(l, c);
                ended = true;
                if (c->reply.close)
                    goto closed;
                break;
            case REPLY_ERROR:
                tally_die("%s", why);
            }
        }
        if (ended) {
            conn_settle(l, c);
            conn_refill(l, c);
        }
        if (n < READ_SIZE)
            return;
    }
closed:
    /* Outstanding requests are dropped: they are neither answered nor counted. */
    conn_settle(l, c);
    l->phase.outstanding -= c->n_begun - c->n_done;
    l->phase.tally.reconnects++;
    channel_close(&c->channel);
    if (l->phase.tally.reconnects > 1000)
        tally_die("the server closes its connections: %s:%u", l->opt.common.host,
                  l->opt.common.port);
    conn_open(l, c);
    conn_refill(l, c);
}

static void begin_requests(void *client)
{
    struct load *l = client;

    for (unsigned i = 0; i < l->n_active; i++)
        conn_refill(l, &l->conns[i]);
}

static void conn_event(void *client, void *conn, uint32_t events)
{
    struct load *l = client;
    struct conn *c = conn;

    if (events & EPOLLOUT && c->unsent > 0) {
        conn_send(l, c);
        conn_settle(l, c);
        conn_refill(l, c);
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
        conn_read(l, c);
}

/* Sends one request alone; its reply is what all others are compared with. */
static void learn_first(struct load *l)
{
    l->n_active = l->pipeline = 1;
    phase_run(&l->phase, 0);
    if (!l->have_first)
        tally_die("the first request was not answered with 2xx");
    l->n_active = l->opt.common.connections;
    l->pipeline = l->opt.pipeline;
}

static void request_read(struct load *l)
{
    struct stat st;
    FILE *f = fopen(l->opt.request_path, "re");

    if (!f || fstat(fileno(f), &st) != 0 || st.st_size == 0)
        tally_die("%s: %s", l->opt.request_path, f ? "empty" : strerror(errno));
    l->request_len = (size_t)st.st_size;
    l->request = malloc(l->request_len);
    if (!l->request || fread(l->request, 1, l->request_len, f) != l->request_len)
        tally_die("%s: cannot read it", l->opt.request_path);
    fclose(f);
}

static const char usage[] =
    "usage: bench_load --port N --request FILE [options]\n"
    "  --host ADDRESS      IPv4 address of the server (127.0.0.1)\n"
    "  --request FILE      the bytes of one request, head and body\n"
    "  --connections N     connections, all kept alive (1)\n"
    "  --pipeline N        requests outstanding per connection, up to 256 (1)\n"
    "  --answers N         answers that each reply has, such as events (1)\n"
    "  --fresh             each request ends with four bytes of its own\n"
    "  --tls               TLS, with ALPN; the certificate is not verified\n"
    "  --warmup S          seconds before counting starts (0.3)\n"
    "  --seconds S         seconds counted (2)\n"
    "  --verify N          leading bytes of each body held against the first reply (4096)\n"
    "  --first FILE        write the first reply's body there\n"
    "  --counters FILE     64-bit counts whose growth is reported\n"
    "  --pid N             process whose CPU time is read\n"
    "  --cpus MASK         cores whose busy time is read, bit n = core n (3)\n";

static struct http_options options_parse(int argc, char **argv)
{
    static const struct option longs[] = {
        LOAD_OPTIONS,
        {"request", required_argument, NULL, 'r'},
        {"pipeline", required_argument, NULL, 'd'},
        {"answers", required_argument, NULL, 'a'},
        {"tls", no_argument, NULL, 't'},
        {"fresh", no_argument, NULL, 'F'},
        {NULL, 0, NULL, 0},
    };
    struct http_options o = {.pipeline = 1, .answers = 1};
    bool valid = true;
    int c;

    load_options_init(&o.common);
    while (valid && (c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 'r')
            o.request_path = optarg;
        else if (c == 'd')
            o.pipeline = load_options_number(optarg);
        else if (c == 'a')
            o.answers = load_options_number(optarg);
        else if (c == 't')
            o.tls = true;
        else if (c == 'F')
            o.is_fresh = true;
        else
            valid &= load_options_set(&o.common, c);
    }
    if (!valid || !load_options_are_valid(&o.common) || !o.request_path || o.pipeline == 0 ||
        o.pipeline > MAX_PIPELINE || optind != argc) {
        fputs(usage, stderr);
        exit(2);
    }
    return o;
}

int main(int argc, char **argv)
{
    struct load l = {
        .opt = options_parse(argc, argv),
        .phase = {.begin = begin_requests, .event = conn_event},
    };

    l.phase.client = &l;
    l.addr.sin_family = AF_INET;
    l.addr.sin_port = htons((uint16_t)l.opt.common.port);
    if (inet_pton(AF_INET, l.opt.common.host, &l.addr.sin_addr) != 1)
        tally_die("not an IPv4 address: %s", l.opt.common.host);
    signal(SIGPIPE, SIG_IGN);
    request_read(&l);
    l.n_changed = (uint32_t)(tally_now_ns() / 1000); /* other runs have begun elsewhere */
    l.scratch = malloc(READ_SIZE);
    l.conns = calloc(l.opt.common.connections, sizeof(*l.conns));
    l.phase.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!l.scratch || !l.conns || l.phase.epoll < 0)
        tally_die("start: %s", strerror(errno));
    for (unsigned i = 0; i < l.opt.common.connections; i++)
        conn_open(&l, &l.conns[i]);

    learn_first(&l);
    phase_measure(&l.phase, &l.opt.common, l.first_body, l.first_len);
    return 0;
}
