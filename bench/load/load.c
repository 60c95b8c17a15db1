/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_load - a closed-loop HTTP/1.1 client.
 *
 * Sends one prepared request over and over on N kept-alive connections, each with a fixed number of
 * requests outstanding, and prints one line of JSON: the requests answered, p50 and p99 of every
 * latency, and the CPU time that the server's process used meanwhile.
 *
 * The measured phase starts and ends without an outstanding request: the warm-up is drained first,
 * the CPU time is read, requests flow for the given time, the last ones are drained, and the CPU
 * time is read again. So the CPU time belongs to exactly the requests that are counted, however
 * slow one is.
 *
 * One thread. Replies are read into one buffer that stays in the cache and are never collected. The
 * body of every reply is compared with the first one's length and its leading bytes.
 */
#include "reply.h"
#include "tally.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

struct options {
    const char *host;
    unsigned port;
    const char *request_path;
    const char *counters_path; /* an array of 64-bit counts that another process keeps */
    const char *first_path; /* where the first reply's body is written, for the caller to check */
    unsigned connections;
    unsigned pipeline;
    double warmup_s;
    double seconds;
    size_t verify_len; /* leading bytes of each body that are compared with the first one's */
    pid_t server;
    uint64_t cpus;
};

struct conn {
    int fd;
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
    struct options opt;
    struct sockaddr_in addr;
    char *request;
    size_t request_len;
    int epoll;
    struct conn *conns;
    char *scratch; /* READ_SIZE; all connections read into it */

    /* The first good reply. */
    char *first_body;
    size_t first_len;
    bool have_first;

    /* The phase in progress. */
    bool issuing;
    uint64_t deadline_ns;
    uint64_t outstanding;
    struct tally tally;
};

static void conn_open(struct load *l, struct conn *c)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    int one = 1;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&l->addr, sizeof(l->addr)) != 0)
        tally_die("connect to %s:%u: %s", l->opt.host, l->opt.port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    reply_reset(&c->reply);
    c->differs = false;
    c->unsent = 0;
    c->n_begun = c->n_replied = c->n_done = 0;
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &ev) != 0)
        tally_die("epoll_ctl: %s", strerror(errno));
}

static void conn_send(struct load *l, struct conn *c)
{
    while (c->unsent > 0) {
        struct iovec iov[WRITE_VECTORS];
        size_t left = c->unsent;
        int n = 0;
        ssize_t sent;

        while (left > 0 && n < WRITE_VECTORS) {
            size_t piece = left % l->request_len ? left % l->request_len : l->request_len;

            iov[n].iov_base = l->request + (l->request_len - piece);
            iov[n].iov_len = piece;
            left -= piece;
            n++;
        }
        sent = writev(c->fd, iov, n);
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

    while (l->issuing && c->n_begun - c->n_done < l->opt.pipeline) {
        c->begun_ns[c->n_begun % MAX_PIPELINE] = now;
        c->n_begun++;
        c->unsent += l->request_len;
        l->outstanding++;
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
        tally_record(&l->tally, now - c->begun_ns[c->n_done % MAX_PIPELINE]);
        c->n_done++;
        l->outstanding--;
    }
    if (now >= l->deadline_ns)
        l->issuing = false;
}

static void body_span(struct load *l, struct conn *c, const char *span, size_t len)
{
    size_t pos = c->reply.body_pos - len;

    if (c->reply.status / 100 != 2) {
        if (l->tally.failed == 0 && pos == 0)
            fprintf(stderr, "load: status %d: %.*s\n", c->reply.status,
                    (int)(len < 400 ? len : 400), span);
        return;
    }
    if (!l->have_first) {
        /* Only the first request of all is sent alone (learn_first()). */
        if (!l->first_body)
            l->first_body = malloc(c->reply.body_len);
        if (!l->first_body)
            tally_die("no memory for a reply of %zu bytes", c->reply.body_len);
        memcpy(l->first_body + pos, span, len);
        return;
    }
    if (c->reply.body_len != l->first_len || pos >= l->opt.verify_len)
        return; /* a wrong length is counted at the end */
    if (len > l->opt.verify_len - pos)
        len = l->opt.verify_len - pos;
    if (memcmp(l->first_body + pos, span, len) != 0)
        c->differs = true;
}

static void reply_end(struct load *l, struct conn *c)
{
    if (c->n_replied == c->n_begun)
        tally_die("a reply to no request");
    c->n_replied++;
    if (c->reply.status / 100 != 2) {
        l->tally.failed++;
    } else if (!l->have_first) {
        l->have_first = true;
        l->first_len = c->reply.body_len;
    } else if (c->differs || c->reply.body_len != l->first_len) {
        l->tally.mismatched++;
    }
    c->differs = false;
}

static void conn_read(struct load *l, struct conn *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, l->scratch, READ_SIZE, 0);
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
    l->outstanding -= c->n_begun - c->n_done;
    l->tally.reconnects++;
    close(c->fd);
    if (l->tally.reconnects > 1000)
        tally_die("the server closes its connections: %s:%u", l->opt.host, l->opt.port);
    conn_open(l, c);
    conn_refill(l, c);
}

static void conn_event(struct load *l, struct conn *c, uint32_t events)
{
    if (events & EPOLLOUT && c->unsent > 0) {
        conn_send(l, c);
        conn_settle(l, c);
        conn_refill(l, c);
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
        conn_read(l, c);
}

/*
 * Sends requests on the first n connections for this many seconds, then waits until all are
 * answered. With seconds 0 each connection sends one pipeline's worth.
 */
static void run_phase(struct load *l, unsigned n_conns, double seconds)
{
    uint64_t last_answered = 0, last_progress;

    tally_reset(&l->tally);
    l->issuing = true;
    last_progress = tally_now_ns();
    l->deadline_ns = last_progress + (uint64_t)(seconds * 1e9);
    for (unsigned i = 0; i < n_conns; i++)
        conn_refill(l, &l->conns[i]);
    if (seconds <= 0)
        l->issuing = false;

    while (l->issuing || l->outstanding > 0) {
        struct epoll_event events[64];
        int n = epoll_wait(l->epoll, events, 64, 100);

        if (n < 0 && errno != EINTR)
            tally_die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < n; i++)
            conn_event(l, events[i].data.ptr, events[i].events);
        if (n > 0 && l->tally.answered > last_answered) {
            last_answered = l->tally.answered;
            last_progress = tally_now_ns();
            continue;
        }
        if (tally_now_ns() > l->deadline_ns)
            l->issuing = false;
        if (tally_now_ns() - last_progress > TALLY_STALL_LIMIT_S * 1000000000ull)
            tally_die("no reply for %d s with %llu requests outstanding", TALLY_STALL_LIMIT_S,
                      (unsigned long long)l->outstanding);
    }
}

/* Sends one request alone; its reply is what all others are compared with. */
static void learn_first(struct load *l)
{
    unsigned pipeline = l->opt.pipeline;

    l->opt.pipeline = 1;
    run_phase(l, 1, 0);
    l->opt.pipeline = pipeline;
    if (!l->have_first)
        tally_die("the first request was not answered with 2xx");
    if (l->opt.first_path) {
        FILE *f = fopen(l->opt.first_path, "we");

        if (!f || fwrite(l->first_body, 1, l->first_len, f) != l->first_len || fclose(f) != 0)
            tally_die("%s: %s", l->opt.first_path, strerror(errno));
    }
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
    "  --warmup S          seconds before counting starts (0.3)\n"
    "  --seconds S         seconds counted (2)\n"
    "  --verify N          leading bytes of each body held against the first reply (4096)\n"
    "  --first FILE        write the first reply's body there\n"
    "  --counters FILE     64-bit counts whose growth is reported\n"
    "  --pid N             process whose CPU time is read\n"
    "  --cpus MASK         cores whose busy time is read, bit n = core n (3)\n";

static struct options options_parse(int argc, char **argv)
{
    static const struct option longs[] = {
        {"host", required_argument, NULL, 'h'},
        {"port", required_argument, NULL, 'p'},
        {"request", required_argument, NULL, 'r'},
        {"connections", required_argument, NULL, 'c'},
        {"pipeline", required_argument, NULL, 'd'},
        {"warmup", required_argument, NULL, 'w'},
        {"seconds", required_argument, NULL, 's'},
        {"verify", required_argument, NULL, 'v'},
        {"first", required_argument, NULL, 'f'},
        {"pid", required_argument, NULL, 'P'},
        {"cpus", required_argument, NULL, 'C'},
        {"counters", required_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    struct options o = {
        .host = "127.0.0.1",
        .connections = 1,
        .pipeline = 1,
        .warmup_s = 0.3,
        .seconds = 2,
        .verify_len = 4096,
        .cpus = 3,
    };
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (c) {
        case 'h':
            o.host = optarg;
            break;
        case 'p':
            o.port = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'r':
            o.request_path = optarg;
            break;
        case 'c':
            o.connections = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'd':
            o.pipeline = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'w':
            o.warmup_s = strtod(optarg, NULL);
            break;
        case 's':
            o.seconds = strtod(optarg, NULL);
            break;
        case 'v':
            o.verify_len = strtoull(optarg, NULL, 10);
            break;
        case 'f':
            o.first_path = optarg;
            break;
        case 'n':
            o.counters_path = optarg;
            break;
        case 'P':
            o.server = (pid_t)strtol(optarg, NULL, 10);
            break;
        case 'C':
            o.cpus = strtoull(optarg, NULL, 0);
            break;
        default:
            fputs(usage, stderr);
            exit(2);
        }
    }
    if (!o.request_path || o.port == 0 || o.port > 65535 || o.connections == 0 || o.pipeline == 0 ||
        o.pipeline > MAX_PIPELINE || optind != argc) {
        fputs(usage, stderr);
        exit(2);
    }
    return o;
}

int main(int argc, char **argv)
{
    struct load l = {.opt = options_parse(argc, argv)};
    struct tally_frame frame;

    l.addr.sin_family = AF_INET;
    l.addr.sin_port = htons((uint16_t)l.opt.port);
    if (inet_pton(AF_INET, l.opt.host, &l.addr.sin_addr) != 1)
        tally_die("not an IPv4 address: %s", l.opt.host);
    signal(SIGPIPE, SIG_IGN);
    request_read(&l);
    l.scratch = malloc(READ_SIZE);
    l.conns = calloc(l.opt.connections, sizeof(*l.conns));
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!l.scratch || !l.conns || l.epoll < 0)
        tally_die("start: %s", strerror(errno));
    for (unsigned i = 0; i < l.opt.connections; i++)
        conn_open(&l, &l.conns[i]);

    learn_first(&l);
    run_phase(&l, l.opt.connections, l.opt.warmup_s);
    tally_begin(&frame, l.opt.server, l.opt.cpus, l.opt.counters_path);
    run_phase(&l, l.opt.connections, l.opt.seconds);
    tally_end(&frame, l.opt.server, l.opt.cpus, l.opt.counters_path);
    l.tally.messages = l.tally.answered;
    tally_report(&l.tally, &frame, l.first_len);
    return 0;
}
