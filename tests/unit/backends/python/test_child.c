/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child without a process: the test writes to the child's end of the socket, and there is no
 * watcher, so that the test decides which thread reads when.
 */
#define reply_error child_reply_error /* the server, which is in the program, has one, too */

#include "common/backend.c"
#include "common/doc.c"
#include "python/channel.c"
#include "python/child.c"
#include "python/memory.c"
#include "python/pack.c"
#include "python/reply.c"
#include "python/tensor.c"

#include <setjmp.h>
#include <sys/stat.h>

#include <cmocka.h>

#define MB (UINT64_C(1) << 20)

/* ---- What is not under test ------------------------------------------------------------------ */

bool watcher_add(struct watch *w, int fd, uint32_t events)
{
    (void)events;
    w->fd = fd;
    return true;
}

void watcher_change(struct watch *w, uint32_t events)
{
    (void)w;
    (void)events;
}

void watcher_remove(struct watch *w)
{
    w->fd = -1;
}

static struct job *posted; /* the last one */

void watcher_post(struct job *j)
{
    posted = j;
}

void watcher_set_timer(struct timer *t, uint64_t at_ns)
{
    t->at_ns = at_ns;
    t->set = true;
}

void watcher_clear_timer(struct timer *t)
{
    t->set = false;
}

static unsigned int n_readers;

TRITONSERVER_Error *watcher_run(void (*run)(void *arg), void *arg)
{
    (void)run;
    (void)arg;
    n_readers++;
    return NULL;
}

TRITONSERVER_Error *process_spawn(struct process *p, const struct process_start *start)
{
    (void)p;
    (void)start;
    return NULL;
}

static unsigned int n_killed;

void process_kill(const struct process *p)
{
    (void)p;
    n_killed++;
}

void process_reap(struct process *p)
{
    snprintf(p->cause, sizeof p->cause, "was ended by the test");
}

bool process_has_ended(const struct process *p)
{
    (void)p;
    return false;
}

void process_done(struct process *p)
{
    (void)p;
}

const char *environment_python(const struct environment *e)
{
    (void)e;
    return "";
}

const char *const *environment_variables(const struct environment *e)
{
    (void)e;
    return NULL;
}

struct calls *calls_new(void)
{
    return NULL;
}

void calls_free(struct calls *all)
{
    (void)all;
}

void calls_cancel(struct child *c)
{
    (void)c;
}

bool call_start(struct child *c, uint64_t id, struct unpacker *u, uint64_t message)
{
    (void)c;
    (void)id;
    (void)u;
    (void)message;
    return true;
}

void call_cancel(struct child *c, uint64_t id)
{
    (void)c;
    (void)id;
}

struct families *families_new(void)
{
    return NULL;
}

void families_free(struct families *f)
{
    (void)f;
}

bool families_ask(struct child *c, uint32_t kind, uint64_t id, struct unpacker *u)
{
    (void)c;
    (void)kind;
    (void)id;
    (void)u;
    return true;
}

bool control_ask(struct child *c, uint32_t kind, uint64_t id, struct unpacker *u)
{
    (void)c;
    (void)kind;
    (void)id;
    (void)u;
    return true;
}

static unsigned int n_responses;

bool respond_by_sender(struct child *c, uint64_t key, struct unpacker *u)
{
    (void)c;
    (void)key;
    (void)u;
    n_responses++;
    return true;
}

void respond_never(struct child *c, uint64_t key)
{
    (void)c;
    (void)key;
}

void respond_forget_statistics(struct pending *p)
{
    (void)p;
}

/* ---- A child ----------------------------------------------------------------------------------
 */

static void on_greeted(void *owner, struct child *c)
{
    (void)c;
    ++*(unsigned int *)owner;
}

/* As an instance of a decoupled model does. */
static bool on_reported(void *owner, struct child *c, uint32_t kind, struct unpacker *u)
{
    (void)owner;
    (void)kind;
    (void)u;
    assert_null(child_read_apart(c));
    return true;
}

static unsigned int n_ended;

static void on_ended(void *owner, struct child *c)
{
    (void)owner;
    (void)c;
    n_ended++;
}

static const struct child_owner ops = {
    .greeted = on_greeted, .reported = on_reported, .ended = on_ended};

static void open_child(struct child *c, unsigned int *n_greeted)
{
    *c = (struct child){.n_refs = 1000, .free_pending = UINT32_MAX, .kick = -1, .ops = &ops};
    c->name = strdup("m_0_0");
    c->owner = n_greeted;
    *n_greeted = 0;
    n_readers = n_killed = n_responses = n_ended = 0;
    pthread_mutex_init(&c->mu, NULL);
    pthread_cond_init(&c->changed, NULL);
    assert_null(channel_open(&c->channel, MB, MB, 4 * MB));
    assert_int_equal(ftruncate(c->channel.up_fd, (off_t)MB), 0);
    c->pidfd = (struct watch){.fd = -1, .ready = on_pidfd};
    c->socket = (struct watch){.fd = c->channel.socket, .ready = on_socket};
}

static void close_child(struct child *c)
{
    free_pendings(c);
    channel_close(&c->channel);
    pthread_mutex_destroy(&c->mu);
    pthread_cond_destroy(&c->changed);
    if (c->kick >= 0)
        close(c->kick);
    free(c->cause);
    free(c->former_name);
    free(c->name);
}

static void say(const struct child *c, uint32_t kind, uint64_t id)
{
    const struct note n = {.kind = kind, .n_blocks = 1, .id = id, .at = 64, .size_bytes = 64};

    assert_int_equal(send(c->channel.their_socket, &n, sizeof n, 0), sizeof n);
}

/* Otherwise two threads would read: responses change their order, and the watcher waits for clients
 * that read slowly. */
static void the_watcher_leaves_the_notes_to_the_reader_apart(void **state)
{
    struct child c;
    struct note rest;
    unsigned int n_greeted;

    (void)state;
    open_child(&c, &n_greeted);
    say(&c, NOTE_HELLO, PROTOCOL_VERSION);
    say(&c, NOTE_INITIALIZED, 0);
    say(&c, NOTE_RESPONSE, 1);
    on_socket(&c.socket, EPOLLIN);
    assert_int_equal(n_greeted, 1);
    assert_int_equal(n_readers, 1);
    assert_int_equal(n_responses, 0);
    assert_int_equal(c.socket.fd, -1);
    assert_int_equal(channel_receive(&c.channel, &rest), CHANNEL_NOTE);
    assert_int_equal(rest.kind, NOTE_RESPONSE);
    assert_int_equal(n_killed, 0);
    close_child(&c);
}

static void a_child_that_does_not_greet_first_is_ended(void **state)
{
    struct child c;
    unsigned int n_greeted;

    (void)state;
    open_child(&c, &n_greeted);
    say(&c, NOTE_INITIALIZED, 0);
    say(&c, NOTE_RESPONSE, 1);
    on_socket(&c.socket, EPOLLIN);
    assert_int_equal(n_killed, 1);
    assert_int_equal(n_readers, 0);
    assert_int_equal(n_responses, 0); /* nothing is read any more */
    assert_string_equal(child_cause(&c), "has sent an impossible message (3)");
    close_child(&c);
}

static void another_protocol_is_refused(void **state)
{
    struct child c;
    unsigned int n_greeted;

    (void)state;
    open_child(&c, &n_greeted);
    say(&c, NOTE_HELLO, PROTOCOL_VERSION + 1);
    on_socket(&c.socket, EPOLLIN);
    assert_int_equal(n_greeted, 0);
    assert_int_equal(n_killed, 1);
    close_child(&c);
}

static void one_that_closes_its_socket_has_a_moment_to_end(void **state)
{
    struct child c;
    unsigned int n_greeted;

    (void)state;
    open_child(&c, &n_greeted);
    say(&c, NOTE_HELLO, PROTOCOL_VERSION);
    channel_started(&c.channel); /* closes the child's end */
    on_socket(&c.socket, EPOLLIN | EPOLLHUP);
    assert_int_equal(n_greeted, 1);
    assert_int_equal(n_killed, 0);
    assert_true(c.hello.set);
    on_hello_due(&c.hello);
    assert_int_equal(n_killed, 1);
    assert_string_equal(child_cause(&c), "has closed its socket");
    close_child(&c);
}

/* Its former owner hears nothing more, and may go. */
static void a_child_has_a_new_owner_from_the_watchers_next_job_on(void **state)
{
    struct child c;
    unsigned int n_greeted, n_greeted_later = 0;
    TRITONBACKEND_ModelInstance *instance = (TRITONBACKEND_ModelInstance *)(void *)&c;
    const struct child_start start = {
        .name = "m_0_1", .instance = instance, .ops = &ops, .owner = &n_greeted_later};

    (void)state;
    open_child(&c, &n_greeted);
    assert_true(child_adopt(&c, &start));
    assert_string_equal(c.name, "m_0_0");
    assert_int_equal(n_greeted_later, 0);
    posted->run(posted);
    assert_string_equal(c.name, "m_0_1");
    assert_ptr_equal(c.instance, instance);
    assert_ptr_equal(c.owner, &n_greeted_later);
    assert_int_equal(n_greeted_later, 1);
    assert_int_equal(n_greeted, 0);
    assert_int_equal(n_ended, 0);
    close_child(&c);
}

static void the_new_owner_hears_of_an_end_that_came_first(void **state)
{
    struct child c;
    unsigned int n_greeted, n_greeted_later = 0;
    const struct child_start start = {.name = "m_0_1", .ops = &ops, .owner = &n_greeted_later};

    (void)state;
    open_child(&c, &n_greeted);
    assert_true(child_adopt(&c, &start));
    atomic_store(&c.ended, true);
    posted->run(posted);
    assert_int_equal(n_ended, 1);
    assert_int_equal(n_greeted_later, 0);
    close_child(&c);
}

static void memory_is_trimmed_a_second_after_the_last_large_block(void **state)
{
    struct child c;
    unsigned int n_greeted;
    uint64_t at;
    struct stat st;

    (void)state;
    open_child(&c, &n_greeted);
    c.channel.large = on_large;
    c.channel.arg = &c;
    c.trim_due.run = on_trim_due;
    posted = NULL;
    memset(channel_take(&c.channel, 3 * MB, &at), 1, 3 * MB);
    assert_ptr_equal(posted, &c.trim_due);
    posted = NULL;
    arena_drop(c.channel.down, at);
    assert_non_null(channel_take(&c.channel, MB, &at)); /* the job is on its way */
    assert_null(posted);
    arena_drop(c.channel.down, at);
    on_trim_due(&c.trim_due);
    assert_true(c.trim.set);
    assert_int_equal(c.trim.at_ns, c.large_ns + IDLE_NS);
    c.trim.set = false;
    on_idle(&c.trim); /* a second has not gone by */
    assert_true(c.trim.set);
    c.large_ns -= IDLE_NS;
    c.trim.set = false;
    on_idle(&c.trim);
    assert_false(c.trim.set);
    assert_int_equal(fstat(c.channel.down_fd, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 <= MB);
    assert_non_null(channel_take(&c.channel, MB, &at));
    assert_ptr_equal(posted, &c.trim_due);
    atomic_store(&c.ended, true);
    on_trim_due(&c.trim_due); /* one that has ended is trimmed no more */
    assert_false(c.trim.set);
    close_child(&c);
}

/* ---- Keys -------------------------------------------------------------------------------------
 */

enum { N_KEYS = 1000 };

static void a_key_names_one_request_and_no_later_one(void **state)
{
    static TRITONBACKEND_Request *requests[N_KEYS];
    static uint64_t keys[N_KEYS], later[N_KEYS];
    struct child c;
    unsigned int n_greeted;

    (void)state;
    open_child(&c, &n_greeted);
    assert_true(child_register(&c, requests, N_KEYS, keys));
    pthread_mutex_lock(&c.mu);
    for (int i = 0; i < N_KEYS; i++) {
        struct pending *p = child_find_locked(&c, keys[i]);

        assert_non_null(p);
        for (int k = 0; k < i; k++)
            assert_true(keys[k] != keys[i]);
        p->executes = false;
        p->is_final = true;
        child_forget_locked(&c, p);
        assert_null(child_find_locked(&c, keys[i]));
    }
    assert_null(child_find_locked(&c, 0));
    assert_null(child_find_locked(&c, UINT64_MAX));
    assert_null(child_find_locked(&c, UINT32_MAX));
    pthread_mutex_unlock(&c.mu);
    assert_true(child_register(&c, requests, N_KEYS, later));
    for (int i = 0; i < N_KEYS; i++) {
        for (int k = 0; k < N_KEYS; k++)
            assert_true(keys[k] != later[i]);
    }
    close_child(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_watcher_leaves_the_notes_to_the_reader_apart),
        cmocka_unit_test(a_child_that_does_not_greet_first_is_ended),
        cmocka_unit_test(another_protocol_is_refused),
        cmocka_unit_test(one_that_closes_its_socket_has_a_moment_to_end),
        cmocka_unit_test(a_child_has_a_new_owner_from_the_watchers_next_job_on),
        cmocka_unit_test(the_new_owner_hears_of_an_end_that_came_first),
        cmocka_unit_test(memory_is_trimmed_a_second_after_the_last_large_block),
        cmocka_unit_test(a_key_names_one_request_and_no_later_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
