/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An instance without a process: its readiness, when the model's is_ready() hangs. The test is the
 * child that answers, or does not.
 */
#include "common/backend.c"
#include "common/doc.c"
#include "python/instance.c"
#include "python/pack.c"

#include "lib/python_stand_ins.h"

#include <setjmp.h>

#include <cmocka.h>

/* ---- What is not under test ------------------------------------------------------------------ */

static uint64_t n_questions, last_question;

bool channel_say(struct channel *c, uint32_t kind, uint64_t id, channel_pack_fn *pack,
                 const void *arg)
{
    (void)c;
    (void)pack;
    (void)arg;
    assert_int_equal(kind, NOTE_IS_READY);
    n_questions++;
    last_question = id;
    return true;
}

struct child *child_ref(struct child *c)
{
    return c;
}

void child_unref(struct child *c)
{
    (void)c;
}

void child_condemn(struct child *c, const char *fmt, ...)
{
    (void)c;
    fail_msg("condemned: %s", fmt);
}

void child_dismiss(struct child *c, const char *cause)
{
    (void)c;
    fail_msg("dismissed: %s", cause);
}

const char *child_cause(struct child *c)
{
    (void)c;
    return "has ended";
}

TRITONSERVER_Error *child_read_apart(struct child *c)
{
    (void)c;
    return NULL;
}

TRITONSERVER_Error *child_start(const struct child_start *start, struct child **ret_child)
{
    (void)start;
    *ret_child = NULL;
    return NULL;
}

void families_count_restart(const char *model, const char *version)
{
    (void)model;
    (void)version;
}

void *arena_take(struct arena *a, uint64_t size_bytes, uint64_t *ret_at)
{
    (void)a;
    (void)size_bytes;
    *ret_at = 0;
    return NULL;
}

void block_hand(struct arena *a, uint64_t at)
{
    (void)a;
    (void)at;
}

void channel_ring(struct channel *c, uint64_t at, uint64_t size_bytes)
{
    (void)c;
    (void)at;
    (void)size_bytes;
}

void execution_done(struct execution *e)
{
    (void)e;
}

enum conch_finish execute_finish(struct instance *in, bool may_wait)
{
    (void)in;
    (void)may_wait;
    return CONCH_FINISH_OVER;
}

/* ---- Readiness ------------------------------------------------------------------------------- */

static struct child process;

/* A child that has initialised the model, which has is_ready(). */
static void open_it(struct instance *in)
{
    *in = (struct instance){.name = "m_0_0", .stage = STARTING, .child_lives = true};
    pthread_mutex_init(&in->mu, NULL);
    pthread_cond_init(&in->changed, NULL);
    become_ready(in, &process, true);
    n_questions = last_question = 0;
}

static void close_it(struct instance *in)
{
    pthread_cond_destroy(&in->changed);
    pthread_mutex_destroy(&in->mu);
}

static bool is_ready(struct instance *in)
{
    TRITONSERVER_Error *err = instance_ready(in);
    const bool ready = !err;

    TRITONSERVER_ErrorDelete(err);
    return ready;
}

static void answer(struct instance *in, uint64_t id, bool ready)
{
    const uint8_t message[] = {0, ready};
    struct unpacker u = {.at = (const char *)message, .left = sizeof message};

    assert_true(on_readiness(in, &process, id, &u));
}

struct asking {
    struct instance *in;
    pthread_t thread;
    bool ready;
};

static void *ask(void *arg)
{
    struct asking *a = arg;

    a->ready = is_ready(a->in);
    return NULL;
}

/* Asks on a thread, and answers the question. */
static bool ask_and_answer(struct instance *in, bool ready)
{
    struct asking a = {.in = in};
    uint64_t id = 0;

    pthread_mutex_lock(&in->mu);
    const uint64_t before = in->question;
    pthread_mutex_unlock(&in->mu);
    assert_int_equal(pthread_create(&a.thread, NULL, ask, &a), 0);
    while (id <= before) {
        pthread_mutex_lock(&in->mu);
        id = in->question;
        pthread_mutex_unlock(&in->mu);
    }
    answer(in, id, ready);
    pthread_join(a.thread, NULL);
    return a.ready;
}

/* The thread that asks waits once, and not again and again: it may be one that other models wait
 * for. */
static void a_model_that_hangs_is_not_asked_again(void **state)
{
    (void)state;
    struct instance in;

    open_it(&in);
    assert_true(ask_and_answer(&in, true));
    assert_false(is_ready(&in)); /* 5 s without an answer */
    assert_int_equal(n_questions, 2);
    const uint64_t hangs = last_question;
    for (int i = 0; i < 100; i++)
        assert_false(is_ready(&in));
    assert_int_equal(n_questions, 2);

    /* What is old says nothing of now, but that the model answers. */
    answer(&in, hangs, true);
    assert_false(ask_and_answer(&in, false));
    assert_true(ask_and_answer(&in, true));
    assert_int_equal(n_questions, 4);
    close_it(&in);
}

/* A new process does not owe the answers of the one before. */
static void a_new_process_is_asked(void **state)
{
    (void)state;
    struct instance in;

    open_it(&in);
    in.is_overdue = true;
    assert_false(is_ready(&in));
    on_ended(&in, &process);
    assert_false(is_ready(&in));
    assert_int_equal(n_questions, 0);
    in.stage = STARTING;
    become_ready(&in, &process, true);
    assert_true(ask_and_answer(&in, true));
    close_it(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_hangs_is_not_asked_again),
        cmocka_unit_test(a_new_process_is_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
