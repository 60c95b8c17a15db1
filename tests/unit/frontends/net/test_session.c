/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection with a session that is not HTTP/1.1. The session greets, echoes its input, and ends
 * at a time of its own or when the service drains.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/budget.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "frontends/net/conn.h"
#include "frontends/net/listener.h"
#include "frontends/net/upkeep.h"
#include "frontends/net/worker.h"
#include "lib/fake_clock.h"

/* ---- The protocol ---------------------------------------------------------------------------- */

struct echo {
    struct session session;
    struct net_env *env;
    struct out_piece greeting, piece;
    char text[64]; /* the bytes to send back */
    size_t n_text;
    uint64_t end_ns; /* when the session ends; UINT64_MAX: with the client */
    bool is_sending, is_over;
};

static uint64_t life_ns; /* of new sessions; 0: without an end */
static int n_begun, n_aborted, n_checks, n_drained;

static struct echo *echo_of(struct session *s)
{
    return CONTAINER_OF(s, struct echo, session);
}

static const struct echo *const_echo_of(const struct session *s)
{
    return (const struct echo *)(const void *)s;
}

static void begin_echo(struct session *s, struct net_env *env)
{
    struct echo *e = echo_of(s);
    n_begun++;
    e->env = env;
    e->end_ns = life_ns > 0 ? loop_now_ns(env->loop) + life_ns : UINT64_MAX;
    e->greeting = (struct out_piece){.bytes = "hello ", .n_bytes = 6};
    out_queue_add(&s->out, &e->greeting);
    s->on_output(s); /* before the client has sent anything */
}

static void abort_echo(struct session *s)
{
    n_aborted++;
    out_queue_drop(&s->out);
}

static bool wants_input(const struct session *s)
{
    const struct echo *e = const_echo_of(s);
    return !e->is_over && !e->is_sending && e->n_text == 0;
}

static int find_space(struct session *s, struct iovec space[2])
{
    if (!wants_input(s))
        return 0;
    space[0] = (struct iovec){echo_of(s)->env->scratch, sizeof(echo_of(s)->text)};
    return 1;
}

static void keep_text(struct session *s, size_t n_bytes)
{
    struct echo *e = echo_of(s);
    memcpy(e->text, e->env->scratch, n_bytes);
    e->n_text = n_bytes;
    s->on_output(s);
}

static void do_nothing(struct session *s)
{
    (void)s;
}

static void end_echo(struct session *s)
{
    echo_of(s)->is_over = true;
}

static uint64_t count_no_body(const struct session *s)
{
    (void)s;
    return 0;
}

static void on_piece_sent(void *owner)
{
    struct echo *e = owner;
    e->is_sending = false;
    e->n_text = 0;
}

static void queue_text(struct session *s)
{
    struct echo *e = echo_of(s);
    if (e->n_text == 0 || e->is_sending)
        return;
    e->is_sending = true;
    e->piece = (struct out_piece){
        .bytes = e->text, .n_bytes = e->n_text, .release = on_piece_sent, .owner = e};
    out_queue_add(&s->out, &e->piece);
}

static bool is_echo_over(const struct session *s)
{
    return const_echo_of(s)->is_over && s->out.n_bytes == 0;
}

static bool is_echo_idle(const struct session *s)
{
    return s->out.n_bytes == 0;
}

static void get_no_input(const struct session *s, struct session_input *ret_input)
{
    (void)s;
    *ret_input = (struct session_input){.kind = INPUT_NONE};
}

static size_t weigh_nothing(const struct session *s)
{
    (void)s;
    return 0;
}

static void refuse_echo(struct session *s, enum session_refusal why)
{
    (void)why;
    end_echo(s);
}

static void drain_echo(struct session *s)
{
    n_drained++;
    end_echo(s);
}

static void check_echo(struct session *s, uint64_t now_ns)
{
    n_checks++;
    if (now_ns >= echo_of(s)->end_ns)
        end_echo(s);
}

static uint64_t get_end(const struct session *s)
{
    return const_echo_of(s)->end_ns;
}

static struct net_env *new_env(const struct net_env *members, const void *settings)
{
    struct net_env *env = mem_alloc(sizeof(*env));
    assert_string_equal(settings, "settings");
    *env = *members;
    return env;
}

static void free_env(struct net_env *env)
{
    mem_free(env);
}

static bool settle_nothing(struct net_env *env)
{
    (void)env;
    return true;
}

static void trim_nothing(struct net_env *env)
{
    (void)env;
}

static const struct protocol echo_protocol = {
    .session_bytes = sizeof(struct echo),
    .begin = begin_echo,
    .abort = abort_echo,
    .wants_input = wants_input,
    .read_space = find_space,
    .received = keep_text,
    .resume = do_nothing,
    .end_input = end_echo,
    .body_left = count_no_body,
    .queue_output = queue_text,
    .is_over = is_echo_over,
    .is_idle = is_echo_idle,
    .get_input = get_no_input,
    .weigh = weigh_nothing,
    .refuse = refuse_echo,
    .drain = drain_echo,
    .check_time = check_echo,
    .get_next_ns = get_end,
    .env_new = new_env,
    .env_free = free_env,
    .settle = settle_nothing,
    .trim = trim_nothing,
};

/* ---- The worker and its client ----------------------------------------------------------------
 */

static struct listener listener;
static struct worker worker;
static struct worker_service service;
static const struct net_timeouts timeouts;
static struct budget *memory;
static struct clock_fake now;
static int client;

static void connect_client(void)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    client = fds[0];
    listener.n_open++;
    conn_give(&service, &service, fds[1], NULL);
}

/* The bytes that have come since the last call; "." when the connection is closed. */
static const char *heard(void)
{
    static char text[64];
    ssize_t n = recv(client, text, sizeof(text) - 1, 0);
    if (n == 0)
        return ".";
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static int start(void **state)
{
    (void)state;
    memset(&worker, 0, sizeof(worker));
    memset(&listener, 0, sizeof(listener));
    n_begun = n_aborted = n_checks = n_drained = 0;
    life_ns = 0;
    memory = budget_new(1 << 30);
    assert_null(worker_init(&worker, memory));
    upkeep_begin(&worker);
    clock_fake_init(&now, 1000 * NS_PER_S);
    worker.loop.clock = &now.clock;
    loop_refresh_time(&worker.loop);
    struct net_env members = worker_get_env(&worker, &echo_protocol);
    upkeep_serve(&worker, &service, &listener, &timeouts,
                 echo_protocol.env_new(&members, "settings"));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    upkeep_serve_no_more(&service);
    assert_int_equal(listener.n_open, 0);
    assert_int_equal(n_aborted, n_begun);
    echo_protocol.env_free(service.env);
    worker_done(&worker);
    budget_unref(memory);
    close(client);
    return 0;
}

static void run_iteration(void)
{
    loop_iterate(&worker.loop, 0);
}

/* ---- Tests ------------------------------------------------------------------------------------
 */

static void a_session_may_send_first(void **state)
{
    (void)state;
    connect_client();
    run_iteration();
    assert_string_equal(heard(), "hello ");
    assert_int_equal(send(client, "abc", 3, MSG_NOSIGNAL), 3);
    run_iteration();
    assert_string_equal(heard(), "abc");
    assert_int_equal(send(client, "def", 3, MSG_NOSIGNAL), 3);
    run_iteration();
    assert_string_equal(heard(), "def");
    shutdown(client, SHUT_WR);
    run_iteration();
    assert_string_equal(heard(), ".");
}

static void a_session_is_checked_at_its_time(void **state)
{
    (void)state;
    life_ns = 100 * NS_PER_MS;
    connect_client();
    run_iteration();
    assert_string_equal(heard(), "hello ");
    clock_fake_advance(&now, 99 * NS_PER_MS);
    run_iteration();
    assert_string_equal(heard(), "");
    assert_int_equal(n_checks, 0); /* check_time() is not called before */
    clock_fake_advance(&now, NS_PER_MS);
    run_iteration();
    assert_int_equal(n_checks, 1);
    assert_string_equal(heard(), ".");
}

static void a_session_without_a_time_is_checked_each_second(void **state)
{
    (void)state;
    connect_client();
    run_iteration();
    for (int i = 0; i < 3; i++) {
        clock_fake_advance(&now, NS_PER_S);
        run_iteration();
    }
    assert_int_equal(n_checks, 3);
    assert_string_equal(heard(), "hello ");
}

static void a_draining_service_drains_its_sessions(void **state)
{
    (void)state;
    connect_client();
    run_iteration();
    assert_string_equal(heard(), "hello ");
    service.env->draining = true;
    LIST_FOR_EACH_SAFE (link, &worker.conns) {
        conn_drain(LIST_ENTRY(link, struct conn, link));
    }
    assert_int_equal(n_drained, 1);
    assert_string_equal(heard(), ".");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_session_may_send_first, start, stop),
        cmocka_unit_test_setup_teardown(a_session_is_checked_at_its_time, start, stop),
        cmocka_unit_test_setup_teardown(a_session_without_a_time_is_checked_each_second, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_draining_service_drains_its_sessions, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
