/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_grpc_load - a closed-loop gRPC client.
 *
 * Sends one prepared message over and over: by unary calls, a fixed number of them outstanding on
 * each connection, or in bidirectional streams, a fixed number of messages outstanding in each.
 * Prints the same line of JSON as bench_load, and measures in the same phases (load.c). A request
 * of a decoupled model is answered when as many messages have come as were announced.
 *
 * One thread. What a turn of the loop has to say on a connection leaves by one write. Answers are
 * never collected. Each is compared with the first one's length and its leading bytes.
 */
#include "grpc_conn.h"
#include "tally.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

struct grpc_load_options {
    const char *host;
    unsigned port;
    const char *message_path;
    const char *counters_path;
    const char *first_path;
    const char *method;
    unsigned connections, calls, depth, answers;
    bool streams, tls;
    double warmup_s, seconds;
    size_t verify_len;
    pid_t server;
    uint64_t cpus;
};

struct grpc_load {
    struct grpc_load_options opt;
    struct grpc_plan plan;
    int epoll;
    struct grpc_conn **conns;
    unsigned n_active; /* connections of the phase … */
    unsigned n_calls;  /* … calls of each … */
    unsigned depth;    /* … and requests outstanding in each */

    char *first_body;
    size_t first_cap, first_len;
    bool have_first, differs;

    bool issuing;
    uint64_t deadline_ns;
    uint64_t outstanding;
    struct tally tally;
};

/* ---- Answers -------------------------------------------------------------------------------- */

static void hold_first(struct grpc_load *l, size_t at, const char *bytes, size_t n_bytes)
{
    if (at + n_bytes > l->first_cap) {
        l->first_cap = 2 * (at + n_bytes);
        l->first_body = realloc(l->first_body, l->first_cap);
        if (!l->first_body)
            tally_die("no memory for the first answer");
    }
    memcpy(l->first_body + at, bytes, n_bytes);
}

static void compare_body(struct grpc_conn *c, size_t at, const char *bytes, size_t n_bytes)
{
    struct grpc_load *l = c->owner;

    if (!l->have_first) {
        hold_first(l, at, bytes, n_bytes);
        return;
    }
    size_t max = l->opt.verify_len < l->first_len ? l->opt.verify_len : l->first_len;
    if (at >= max)
        return;
    n_bytes = n_bytes < max - at ? n_bytes : max - at;
    l->differs |= memcmp(l->first_body + at, bytes, n_bytes) != 0;
}

static void count_message(struct grpc_conn *c, size_t n_bytes)
{
    struct grpc_load *l = c->owner;

    l->tally.messages++;
    if (!l->have_first) {
        l->have_first = true;
        l->first_len = n_bytes;
    } else if (l->differs || n_bytes != l->first_len) {
        l->tally.mismatched++;
    }
    l->differs = false;
}

static void count_answer(struct grpc_conn *c, uint64_t begun_ns, bool fine)
{
    struct grpc_load *l = c->owner;
    uint64_t now_ns = tally_now_ns();

    tally_record(&l->tally, now_ns - begun_ns);
    l->tally.failed += !fine;
    l->outstanding--;
    c->needs_flush = true; /* there is room for another request */
    if (now_ns >= l->deadline_ns)
        l->issuing = false;
}

/* ---- Phases --------------------------------------------------------------------------------- */

static void refill_conn(struct grpc_load *l, struct grpc_conn *c)
{
    uint64_t now_ns = tally_now_ns();

    for (unsigned i = 0; l->issuing && i < l->n_calls; i++) {
        while (grpc_conn_is_free(c, i, l->depth)) {
            grpc_conn_ask(c, i, now_ns);
            l->outstanding++;
        }
    }
    grpc_conn_flush(c);
}

/* As in load.c: requests for this long, then waits for all answers; 0: one round of requests. */
static void run_grpc_phase(struct grpc_load *l, double seconds)
{
    uint64_t last_messages = 0, last_progress = tally_now_ns();

    tally_reset(&l->tally);
    l->issuing = true;
    l->deadline_ns = last_progress + (uint64_t)(seconds * 1e9);
    for (unsigned i = 0; i < l->n_active; i++)
        refill_conn(l, l->conns[i]);
    if (seconds <= 0)
        l->issuing = false;
    while (l->issuing || l->outstanding > 0) {
        struct epoll_event events[64];
        int n = epoll_wait(l->epoll, events, 64, 100);

        if (n < 0 && errno != EINTR)
            tally_die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            struct grpc_conn *c = events[i].data.ptr;

            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
                grpc_conn_read(c);
            if (c->needs_flush)
                refill_conn(l, c);
        }
        if (n > 0 && l->tally.messages > last_messages) {
            last_messages = l->tally.messages;
            last_progress = tally_now_ns();
            continue;
        }
        if (tally_now_ns() > l->deadline_ns)
            l->issuing = false;
        if (tally_now_ns() - last_progress > TALLY_STALL_LIMIT_S * 1000000000ull)
            tally_die("no answer for %d s with %llu requests outstanding", TALLY_STALL_LIMIT_S,
                      (unsigned long long)l->outstanding);
    }
}

/* Sends one request alone; its first answer is what all others are compared with. */
static void learn_first_answer(struct grpc_load *l)
{
    l->n_active = l->n_calls = l->depth = 1;
    run_grpc_phase(l, 0);
    if (!l->have_first)
        tally_die("the first request was not answered");
    if (l->opt.first_path) {
        FILE *f = fopen(l->opt.first_path, "we");

        if (!f || fwrite(l->first_body, 1, l->first_len, f) != l->first_len || fclose(f) != 0)
            tally_die("%s: %s", l->opt.first_path, strerror(errno));
    }
    l->n_active = l->opt.connections;
    l->n_calls = l->opt.calls;
    l->depth = l->opt.streams ? l->opt.depth : 1;
}

/* ---- Start ---------------------------------------------------------------------------------- */

static void read_message(struct grpc_load *l)
{
    struct stat st;
    FILE *f = fopen(l->opt.message_path, "re");

    if (!f || fstat(fileno(f), &st) != 0)
        tally_die("%s: %s", l->opt.message_path, strerror(errno));
    size_t n = (size_t)st.st_size;
    char *wire = malloc(GRPC_PREFIX_BYTES + n);
    if (!wire || fread(wire + GRPC_PREFIX_BYTES, 1, n, f) != n)
        tally_die("%s: cannot read it", l->opt.message_path);
    fclose(f);
    wire[0] = 0;
    for (int i = 0; i < 4; i++)
        wire[1 + i] = (char)(n >> (24 - 8 * i));
    l->plan.wire = wire;
    l->plan.wire_bytes = GRPC_PREFIX_BYTES + n;
}

static void open_conns(struct grpc_load *l)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)l->opt.port)};

    if (inet_pton(AF_INET, l->opt.host, &to.sin_addr) != 1)
        tally_die("not an IPv4 address: %s", l->opt.host);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->conns = calloc(l->opt.connections, sizeof(struct grpc_conn *));
    for (unsigned i = 0; l->conns && i < l->opt.connections; i++) {
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};

        ev.data.ptr = l->conns[i] = malloc(sizeof(struct grpc_conn));
        if (!l->conns[i])
            tally_die("out of memory");
        grpc_conn_open(l->conns[i], &l->plan, l, &to, l->opt.tls);
        if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->conns[i]->channel.fd, &ev) != 0)
            tally_die("epoll_ctl: %s", strerror(errno));
    }
}

static const char grpc_usage[] =
    "usage: bench_grpc_load --port N --message FILE [options]\n"
    "  --host ADDRESS      IPv4 address of the server (127.0.0.1)\n"
    "  --message FILE      the bytes of the message, without its prefix\n"
    "  --method PATH       /inference.GRPCInferenceService/ModelInfer\n"
    "  --connections N     connections (1)\n"
    "  --calls N           calls outstanding, or streams, per connection, up to 256 (1)\n"
    "  --stream N          the method is a stream; N messages outstanding in each, up to 256\n"
    "  --answers N         messages that answer a request of a stream (1)\n"
    "  --tls               TLS, with ALPN; the certificate is not verified\n"
    "  --warmup S          seconds before counting starts (0.3)\n"
    "  --seconds S         seconds counted (2)\n"
    "  --verify N          leading bytes of each answer held against the first one (4096)\n"
    "  --first FILE        write the first answer there\n"
    "  --counters FILE     64-bit counts whose growth is reported\n"
    "  --pid N             process whose CPU time is read\n"
    "  --cpus MASK         cores whose busy time is read, bit n = core n (3)\n";

static unsigned get_number(const char *text)
{
    return (unsigned)strtoul(text, NULL, 10);
}

static void set_option(struct grpc_load_options *o, int option)
{
    switch (option) {
    case 'h':
        o->host = optarg;
        break;
    case 'p':
        o->port = get_number(optarg);
        break;
    case 'm':
        o->message_path = optarg;
        break;
    case 'M':
        o->method = optarg;
        break;
    case 'c':
        o->connections = get_number(optarg);
        break;
    case 'd':
        o->calls = get_number(optarg);
        break;
    case 'S':
        o->streams = true;
        o->depth = get_number(optarg);
        break;
    case 'a':
        o->answers = get_number(optarg);
        break;
    case 't':
        o->tls = true;
        break;
    case 'w':
        o->warmup_s = strtod(optarg, NULL);
        break;
    case 's':
        o->seconds = strtod(optarg, NULL);
        break;
    case 'v':
        o->verify_len = strtoull(optarg, NULL, 10);
        break;
    case 'f':
        o->first_path = optarg;
        break;
    case 'n':
        o->counters_path = optarg;
        break;
    case 'P':
        o->server = (pid_t)strtol(optarg, NULL, 10);
        break;
    case 'C':
        o->cpus = strtoull(optarg, NULL, 0);
        break;
    default:
        fputs(grpc_usage, stderr);
        exit(2);
    }
}

static void parse_options(struct grpc_load_options *o, int argc, char **argv)
{
    static const struct option longs[] = {
        {"host", required_argument, NULL, 'h'},
        {"port", required_argument, NULL, 'p'},
        {"message", required_argument, NULL, 'm'},
        {"method", required_argument, NULL, 'M'},
        {"connections", required_argument, NULL, 'c'},
        {"calls", required_argument, NULL, 'd'},
        {"stream", required_argument, NULL, 'S'},
        {"answers", required_argument, NULL, 'a'},
        {"tls", no_argument, NULL, 't'},
        {"warmup", required_argument, NULL, 'w'},
        {"seconds", required_argument, NULL, 's'},
        {"verify", required_argument, NULL, 'v'},
        {"first", required_argument, NULL, 'f'},
        {"pid", required_argument, NULL, 'P'},
        {"cpus", required_argument, NULL, 'C'},
        {"counters", required_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
        set_option(o, c);
    bool fine = o->message_path && o->port > 0 && o->port < 65536 && o->connections > 0 &&
                o->calls > 0 && o->calls <= GRPC_MAX_CALLS && o->answers > 0 && optind == argc;
    if (!fine || (o->streams && (o->depth == 0 || o->depth > GRPC_MAX_REQUESTS)))
        set_option(o, '?');
}

int main(int argc, char **argv)
{
    struct grpc_load l = {
        .opt = {.host = "127.0.0.1",
                .method = "/inference.GRPCInferenceService/ModelInfer",
                .connections = 1,
                .calls = 1,
                .answers = 1,
                .warmup_s = 0.3,
                .seconds = 2,
                .verify_len = 4096,
                .cpus = 3},
        .plan = {.got = compare_body, .got_message = count_message, .answered = count_answer},
    };
    struct tally_frame frame;

    parse_options(&l.opt, argc, argv);
    l.plan.path = l.opt.method;
    l.plan.streams = l.opt.streams;
    l.plan.n_calls = l.opt.calls;
    l.plan.n_answers = l.opt.answers;
    l.plan.scratch = malloc(GRPC_READ_BYTES);
    signal(SIGPIPE, SIG_IGN);
    read_message(&l);
    open_conns(&l);

    learn_first_answer(&l);
    run_grpc_phase(&l, l.opt.warmup_s);
    tally_begin(&frame, l.opt.server, l.opt.cpus, l.opt.counters_path);
    run_grpc_phase(&l, l.opt.seconds);
    tally_end(&frame, l.opt.server, l.opt.cpus, l.opt.counters_path);
    tally_report(&l.tally, &frame, l.first_len);
    return 0;
}
