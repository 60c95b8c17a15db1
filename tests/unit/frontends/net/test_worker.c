/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a worker in one iteration of its loop. The test runs the iterations, and counts. */
#include <sys/prctl.h>
#include <sys/resource.h>

#include "lib/worker_driver.h"

enum {
    N_UPLOADS = 64,
    SENT_BYTES = MAX_SAID_BYTES, /* of each body, before the counted iterations */
    BODY_BYTES = 192 << 10,
};

static struct client uploads[N_UPLOADS], other;
static size_t unread_at_request; /* of all uploads, when the last request was handled */

static size_t unread_of_all(void)
{
    size_t n = 0;
    for (int i = 0; i < N_UPLOADS && uploads[i].fd > 0; i++)
        n += unread(&uploads[i]);
    return n;
}

static void note_unread(void)
{
    unread_at_request = unread_of_all();
}

static int start_uploads(void **state)
{
    memset(uploads, 0, sizeof(uploads));
    start(state);
    on_each_request = note_unread;
    return 0;
}

/* Begins uploads, of which many bytes arrive at the same time. */
static void begin_uploads(void)
{
    for (int i = 0; i < N_UPLOADS; i++) {
        char head[96];
        come(&uploads[i]);
        snprintf(head, sizeof(head), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
                 BODY_BYTES);
        say(&uploads[i], head);
    }
    for (int i = 0; i < MAX_ITERATIONS && unread_of_all() > 0; i++)
        iteration();
    for (int i = 0; i < N_UPLOADS; i++)
        say_bytes(&uploads[i], SENT_BYTES);
}

/* A body that has waited for its pages goes on, also when no byte has arrived meanwhile. */
static void a_body_goes_on_when_its_pages_are_made(void **state)
{
    (void)state;
    enum { MADE_BYTES = 1000 };
    begin_uploads();
    for (int i = 0; i < MAX_ITERATIONS && unread_of_all() > 0; i++)
        iteration();
    struct conn *c = LIST_ENTRY(worker.conns.next, struct conn, link);
    struct client *client = &uploads[0];
    while (client->far_fd != c->fd)
        client++;
    struct exchange *x = CONTAINER_OF(&c->session, struct http1, session)->current;
    x->body_made = x->body_size + MADE_BYTES;
    x->order = (struct page_order *)x; /* one in progress */
    say_bytes(client, MADE_BYTES);
    for (int i = 0; i < 3; i++)
        iteration();
    assert_int_equal(x->body_size, x->body_made);

    x->order = NULL;
    x->body_made = x->body_capacity;
    conn_on_space(&c->session);
    for (int i = 0; i < 3; i++)
        iteration(); /* finds nothing to read */
    say_bytes(client, BODY_BYTES - SENT_BYTES - MADE_BYTES);
    for (int i = 0; i < 3; i++)
        iteration();
    assert_int_equal(heard(client, "196608."), 1);
    for (int i = 0; i < N_UPLOADS; i++)
        leave(&uploads[i]);
}

static long faults(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt;
}

static void end_chunks(struct client *c)
{
    while (send(c->fd, "0\r\n\r\n", 5, MSG_NOSIGNAL) < 0)
        (void)loop_iterate(&worker.loop, NS_PER_MS);
}

/* In chunks, as much as the socket takes between two iterations */
static void upload_chunks(struct client *c, size_t n_bytes)
{
    static char chunk[ITERATION_BYTES + 16];
    const size_t n_chunk =
        (size_t)snprintf(chunk, 16, "%x\r\n", ITERATION_BYTES) + ITERATION_BYTES + 2;
    memset(chunk + n_chunk - ITERATION_BYTES - 2, 'x', ITERATION_BYTES);
    memcpy(chunk + n_chunk - 2, "\r\n", 2);
    say(c, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (size_t at = 0, left = n_bytes / ITERATION_BYTES * n_chunk; left > 0;) {
        ssize_t n = send(c->fd, chunk + at, MIN(n_chunk - at, left), MSG_NOSIGNAL);
        if (n > 0) {
            at = (at + (size_t)n) % n_chunk;
            left -= (size_t)n;
            continue;
        }
        (void)loop_iterate(&worker.loop, NS_PER_MS);
    }
}

/* The loop writes to pages that exist: it does not wait while the kernel finds them. */
static void another_thread_makes_the_pages_of_a_chunked_body(void **state)
{
    (void)state;
    enum { LARGE_BYTES = 64 << 20, PAGE_BYTES = 4096 };
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0); /* so that pages can be counted */
    assert_null(budget_start(memory));
    worker.budget.iteration_bytes = ITERATION_BYTES * 16;
    come(&asker);
    long before = faults();
    upload_chunks(&asker, LARGE_BYTES);
    end_chunks(&asker);
    while (heard(&asker, "67108864.") == 0)
        (void)loop_iterate(&worker.loop, NS_PER_MS);
#if !defined(__SANITIZE_THREAD__) &&                                                               \
    !defined(__SANITIZE_ADDRESS__) /* whose allocator has pages of its own */
    /* Faults of the first 4 MiB, until the body counts as large, and of other work. */
    assert_in_range(faults() - before, 0, (EXCHANGE_ORDERED_BYTES + (4 << 20)) / PAGE_BYTES);
#else
    (void)before;
#endif

    /* A client that leaves within its body, and one whose body is refused. */
    upload_chunks(&asker, LARGE_BYTES / 2);
    leave(&asker);
    iteration();
    come(&asker);
    limits->max_body_bytes = 30 << 20;
    upload_chunks(&asker, 29 << 20);
    end_chunks(&asker);
    while (heard(&asker, "30408704.") == 0)
        (void)loop_iterate(&worker.loop, NS_PER_MS);
    say(&asker, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1e00001\r\n");
    static char some[64 << 10];
    while (heard(&asker, " 413 ") == 0) {
        (void)send(asker.fd, some, sizeof(some), MSG_NOSIGNAL);
        (void)loop_iterate(&worker.loop, 0);
    }
    leave(&asker);
    iteration();
    budget_stop(memory);
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
}

/* However much has arrived, an iteration reads a limited amount of bodies, after all other work. */
static void an_iteration_has_a_budget_of_bytes(void **state)
{
    (void)state;
    come(&asker);
    begin_uploads();
    size_t before = unread_of_all();
    assert_int_equal(before, N_UPLOADS * SENT_BYTES);
    for (int i = 1; i <= N_UPLOADS * PORTION_BYTES / ITERATION_BYTES; i++) {
        say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        iteration();
        assert_int_equal(n_requests, i);
        assert_int_equal(heard(&asker, "0."), i);    /* in the same iteration */
        assert_int_equal(unread_at_request, before); /* before any body */
        assert_int_equal(before - unread_of_all(), ITERATION_BYTES);
        before = unread_of_all();
    }
    for (int i = 0; i < N_UPLOADS; i++) /* one portion each */
        assert_int_equal(SENT_BYTES - unread(&uploads[i]), PORTION_BYTES);

    /* All bytes are read, although no further event reports them. */
    int n_iterations = 0;
    for (; unread_of_all() > 0; n_iterations++) {
        assert_true(n_iterations < MAX_ITERATIONS);
        iteration();
    }
    assert_int_equal(n_iterations, N_UPLOADS * (SENT_BYTES - PORTION_BYTES) / ITERATION_BYTES);
    for (int i = 0; i < N_UPLOADS; i++)
        say_bytes(&uploads[i], BODY_BYTES - SENT_BYTES);
    for (int i = 0; i < N_UPLOADS; i++) {
        for (int k = 0; k < MAX_ITERATIONS && heard(&uploads[i], "196608.") == 0; k++)
            iteration();
        assert_int_equal(heard(&uploads[i], "196608."), 1);
        leave(&uploads[i]);
    }
    leave(&asker);
}

static uint64_t look_ns; /* added at each reading of the clock */

static uint64_t tell_time(struct clock *c)
{
    struct clock_fake *fake = CONTAINER_OF(c, struct clock_fake, clock);
    return fake->time_ns += look_ns;
}

/* Time is limited, too: when the kernel is slow to give memory, an iteration reads less, but not
 * nothing. */
static void an_iteration_has_a_budget_of_time(void **state)
{
    (void)state;
    come(&asker);
    begin_uploads();
    now.clock.now_ns = tell_time;
    static const struct {
        uint64_t look_ns;
        int n_portions; /* in each iteration */
    } cases[] = {{2 * NS_PER_MS, 3},
                 {4 * NS_PER_MS, 2},
                 {NS_PER_S, 1},
                 {0, ITERATION_BYTES / PORTION_BYTES}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        look_ns = cases[i].look_ns;
        for (int k = 0; k < 3; k++) {
            size_t before = unread_of_all();
            say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            iteration();
            assert_int_equal(heard(&asker, "0."), 3 * i + k + 1);
            assert_int_equal(before - unread_of_all(), cases[i].n_portions * PORTION_BYTES);
        }
    }
    for (int i = 0; i < MAX_ITERATIONS && unread_of_all() > 0; i++)
        iteration();
    assert_int_equal(unread_of_all(), 0);
    for (int i = 0; i < N_UPLOADS; i++)
        leave(&uploads[i]);
    leave(&asker);
    iteration();
}

/* The number of requests is limited, too, so that a client with many does not delay others. */
static void an_iteration_has_a_budget_of_requests(void **state)
{
    (void)state;
    enum { N = 100 };
    n_requests = 0;
    come(&asker);
    come(&other);
    for (int i = 0; i < N; i++)
        say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    say(&other, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    int done = 0;
    for (int i = 0; i < 2; i++) {
        iteration();
        assert_in_range(n_requests - done, 1, 2 * ITERATION_REQUESTS);
        done = n_requests;
    }
    assert_int_equal(heard(&other, "0."), 1);
    for (int i = 0; i < MAX_ITERATIONS && heard(&asker, "0.") < N; i++) {
        iteration();
        assert_in_range(n_requests - done, 0, 2 * ITERATION_REQUESTS);
        done = n_requests;
    }
    assert_int_equal(heard(&asker, "0."), N);
    leave(&asker);
    leave(&other);
}

/* A client that has sent everything, much of it unread, and leaves. */
static void requests_sent_before_the_end_are_handled(void **state)
{
    (void)state;
    enum { N = 30 };
    n_requests = 0;
    come(&asker);
    for (int i = 0; i < N; i++)
        say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(shutdown(asker.fd, SHUT_WR), 0);
    for (int i = 0; i < MAX_ITERATIONS && !list_empty(&worker.conns); i++)
        iteration();
    assert_true(list_empty(&worker.conns)); /* the end was noticed, too */
    assert_int_equal(heard(&asker, "0."), N);
    leave(&asker);

    come(&asker);
    come(&other);
    for (int i = 0; i < N; i++)
        say(&asker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    iteration();
    leave(&asker); /* while it waits for its next portion */
    say(&other, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < MAX_ITERATIONS && heard(&other, "0.") == 0; i++)
        iteration();
    assert_int_equal(heard(&other, "0."), 1);
    leave(&other);
}

/*
 * Requests that are received begin in the next iterations, although no reply leaves, so that a
 * model which answers late gets all of them.
 */
static void a_pipeline_begins_before_its_first_reply(void **state)
{
    enum { N = 7 * ITERATION_REQUESTS };
    (void)state;
    come(&asker);
    for (int i = 0; i < N; i++)
        say(&asker, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 20; i++)
        iteration();
    assert_int_equal(n_requests, N);
    assert_int_equal(n_held, N);
    for (unsigned int i = 0; i < n_held; i++)
        exchange_reply_text(all_held[i], 200, NULL, "", 0);
    iteration();
    iteration();
    assert_int_equal(heard(&asker, "HTTP/1.1 200 "), N);
    leave(&asker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_iteration_has_a_budget_of_bytes, start_uploads, stop),
        cmocka_unit_test_setup_teardown(an_iteration_has_a_budget_of_time, start_uploads, stop),
        cmocka_unit_test_setup_teardown(a_body_goes_on_when_its_pages_are_made, start_uploads,
                                        stop),
        cmocka_unit_test_setup_teardown(another_thread_makes_the_pages_of_a_chunked_body,
                                        start_uploads, stop),
        cmocka_unit_test_setup_teardown(an_iteration_has_a_budget_of_requests, start_uploads, stop),
        cmocka_unit_test_setup_teardown(requests_sent_before_the_end_are_handled, start_uploads,
                                        stop),
        cmocka_unit_test_setup_teardown(a_pipeline_begins_before_its_first_reply, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
