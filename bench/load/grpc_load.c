/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_grpc_load - a closed-loop gRPC client.
 *
 * Sends one prepared message over and over: by unary calls, a fixed number of them outstanding on
 * each connection, or in bidirectional streams, a fixed number of messages outstanding in each.
 * Prints the same line of JSON as bench_load, and measures in the same phases (phase.h). A request
 * of a decoupled model is answered when as many messages have come as were announced.
 *
 * One thread. What a turn of the loop has to say on a connection leaves by one write. Answers are
 * never collected. Each is compared with the first one's length and its leading bytes.
 */
#include "grpc_conn.h"
#include "options.h"
#include "phase.h"
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

struct grpc_options {
    struct load_options common;
    const char *message_path;
    const char *method;
    unsigned calls, depth, answers;
    bool streams, tls;
};

struct grpc_load {
    struct grpc_options opt;
    struct grpc_plan plan;
    struct grpc_conn **conns;
    unsigned n_active; /* connections of the phase … */
    unsigned n_calls;  /* … calls of each … */
    unsigned depth;    /* … and requests outstanding in each */

    char *first_body;
    size_t first_cap, first_len;
    bool have_first, differs;

    struct phase phase;
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
    size_t max = l->opt.common.verify_len < l->first_len ? l->opt.common.verify_len : l->first_len;
    if (at >= max)
        return;
    n_bytes = n_bytes < max - at ? n_bytes : max - at;
    l->differs |= memcmp(l->first_body + at, bytes, n_bytes) != 0;
}

static void count_message(struct grpc_conn *c, size_t n_bytes)
{
    struct grpc_load *l = c->owner;

    l->phase.tally.messages++;
    if (!l->have_first) {
        l->have_first = true;
        l->first_len = n_bytes;
    } else if (l->differs || n_bytes != l->first_len) {
        l->phase.tally.mismatched++;
    }
    l->differs = false;
}

static void count_answer(struct grpc_conn *c, uint64_t begun_ns, bool fine)
{
    struct grpc_load *l = c->owner;

    phase_count_answer(&l->phase, begun_ns, tally_now_ns());
    l->phase.tally.failed += !fine;
    c->needs_flush = true; /* there is room for another request */
}

/* ---- Phases --------------------------------------------------------------------------------- */

static void refill_conn(struct grpc_load *l, struct grpc_conn *c)
{
    uint64_t now_ns = tally_now_ns();

    for (unsigned i = 0; l->phase.issuing && i < l->n_calls; i++) {
        while (grpc_conn_is_free(c, i, l->depth)) {
            grpc_conn_ask(c, i, now_ns);
            l->phase.outstanding++;
        }
    }
    grpc_conn_flush(c);
}

static void begin_calls(void *client)
{
    struct grpc_load *l = client;

    for (unsigned i = 0; i < l->n_active; i++)
        refill_conn(l, l->conns[i]);
}

static void handle_event(void *client, void *conn, uint32_t events)
{
    struct grpc_conn *c = conn;

    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
        grpc_conn_read(c);
    if (c->needs_flush)
        refill_conn(client, c);
}

/* Sends one request alone; its first answer is what all others are compared with. */
static void learn_first_answer(struct grpc_load *l)
{
    l->n_active = l->n_calls = l->depth = 1;
    phase_run(&l->phase, 0);
    if (!l->have_first)
        tally_die("the first request was not answered");
    l->n_active = l->opt.common.connections;
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
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)l->opt.common.port)};

    if (inet_pton(AF_INET, l->opt.common.host, &to.sin_addr) != 1)
        tally_die("not an IPv4 address: %s", l->opt.common.host);
    l->phase.epoll = epoll_create1(EPOLL_CLOEXEC);
    l->conns = calloc(l->opt.common.connections, sizeof(struct grpc_conn *));
    for (unsigned i = 0; l->conns && i < l->opt.common.connections; i++) {
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};

        ev.data.ptr = l->conns[i] = malloc(sizeof(struct grpc_conn));
        if (!l->conns[i])
            tally_die("out of memory");
        grpc_conn_open(l->conns[i], &l->plan, l, &to, l->opt.tls);
        if (epoll_ctl(l->phase.epoll, EPOLL_CTL_ADD, l->conns[i]->channel.fd, &ev) != 0)
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

static void set_option(struct grpc_options *o, int option)
{
    switch (option) {
    case 'm':
        o->message_path = optarg;
        break;
    case 'M':
        o->method = optarg;
        break;
    case 'd':
        o->calls = load_options_number(optarg);
        break;
    case 'S':
        o->streams = true;
        o->depth = load_options_number(optarg);
        break;
    case 'a':
        o->answers = load_options_number(optarg);
        break;
    case 't':
        o->tls = true;
        break;
    default:
        if (load_options_set(&o->common, option))
            break;
        fputs(grpc_usage, stderr);
        exit(2);
    }
}

static void parse_options(struct grpc_options *o, int argc, char **argv)
{
    static const struct option longs[] = {
        LOAD_OPTIONS,
        {"message", required_argument, NULL, 'm'},
        {"method", required_argument, NULL, 'M'},
        {"calls", required_argument, NULL, 'd'},
        {"stream", required_argument, NULL, 'S'},
        {"answers", required_argument, NULL, 'a'},
        {"tls", no_argument, NULL, 't'},
        {NULL, 0, NULL, 0},
    };
    int c;

    load_options_init(&o->common);
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
        set_option(o, c);
    bool fine = load_options_are_valid(&o->common) && o->message_path && o->calls > 0 &&
                o->calls <= GRPC_MAX_CALLS && o->answers > 0 && optind == argc;
    if (!fine || (o->streams && (o->depth == 0 || o->depth > GRPC_MAX_REQUESTS)))
        set_option(o, '?');
}

int main(int argc, char **argv)
{
    struct grpc_load l = {
        .opt = {.method = "/inference.GRPCInferenceService/ModelInfer", .calls = 1, .answers = 1},
        .plan = {.got = compare_body, .got_message = count_message, .answered = count_answer},
        .phase = {.begin = begin_calls, .event = handle_event},
    };

    l.phase.client = &l;
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
    phase_measure(&l.phase, &l.opt.common, l.first_body, l.first_len);
    return 0;
}
