/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of an ensemble's request and of the requests that it makes for its steps, by a tracer of
 * the test's own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core/request/request_trace.h"
#include "core/server/server.h"
#include "lib/fake_model.h"

static const char config[] = "input { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\n"
                             "output { name: \"X\" data_type: TYPE_FP32 dims: [ 1 ] }\n";

/* What the tracer has heard: each trace is named after its depth below the first one. */
struct tracer {
    struct trace trace;
    int depth;
};

static char heard[4096];
static int n_traces;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

static void note(struct trace *t, const char *what)
{
    pthread_mutex_lock(&mu);
    size_t length = strlen(heard);
    snprintf(heard + length, sizeof(heard) - length, "%d %s %s\n",
             CONTAINER_OF(t, struct tracer, trace)->depth, t->model_name, what);
    pthread_mutex_unlock(&mu);
}

static void note_activity(struct trace *t, enum trace_activity activity, uint64_t ns)
{
    (void)ns;
    note(t, trace_activity_name(activity));
}

static struct trace *make_child(struct trace *t);

static void free_tracer(struct trace *t)
{
    trace_done(t);
    mem_free(CONTAINER_OF(t, struct tracer, trace));
    n_traces--;
}

static void release_tracer(struct trace *t)
{
    note(t, "released");
    trace_free(t);
}

static const struct trace_ops ops = {
    .activity = note_activity,
    .release = release_tracer,
    .spawn = make_child,
    .free = free_tracer,
};

static struct trace *make_tracer(unsigned int level, uint64_t parent_id, int depth)
{
    struct tracer *t = mem_alloc(sizeof(*t));
    trace_init(&t->trace, &ops, level, parent_id);
    t->depth = depth;
    n_traces++;
    return &t->trace;
}

static struct trace *make_child(struct trace *t)
{
    return make_tracer(t->level, t->id, CONTAINER_OF(t, struct tracer, trace)->depth + 1);
}

static struct status *execute(struct instance *in, struct request **requests, uint32_t n)
{
    (void)in;
    for (uint32_t i = 0; i < n; i++)
        fake_answer(requests[i]);
    return NULL;
}

static void add_value(struct request *r, const float *value)
{
    struct input *in;
    int64_t one = 1;
    struct tensor_buffer data = {.base = value, .size_bytes = sizeof(*value)};
    assert_null(request_add_input(r, "A", 1, DTYPE_FP32, &one, 1, &in));
    assert_null(request_add_data(r, in, &data));
}

static void a_step_has_a_child_of_the_trace(void **state)
{
    static const float value = 1;
    struct fake_request outer, step;
    struct fake_model f;

    (void)state;
    heard[0] = '\0';
    fake_model_make(&f, config, 1, execute);
    fake_request_make(&outer, &f);
    fake_request_make(&step, &f);
    outer.request.maker.trace = make_tracer(TRACE_TIMESTAMPS, 0, 0);
    trace_step(&step.request, &outer.request);
    const struct trace *child = step.request.maker.trace;
    assert_int_equal(child->parent_id, outer.request.maker.trace->id);
    assert_true(child->id > child->parent_id);
    assert_int_equal(child->level, TRACE_TIMESTAMPS);
    assert_string_equal(child->model_name, "");
    add_value(&step.request, &value);
    assert_null(server_infer(&f.server, &step.request));
    fake_request_wait(&step);
    assert_null(step.request.maker.trace);
    assert_string_equal(heard, "1 m REQUEST_START\n1 m QUEUE_START\n1 m REQUEST_END\n"
                               "1 m released\n");
    assert_int_equal(n_traces, 1);
    trace_drop(&outer.request);
    assert_int_equal(n_traces, 0);
    fake_model_end(&f);
    fake_request_end(&step);
    fake_request_end(&outer);
}

static void nobody_hears_of_a_step_that_is_refused(void **state)
{
    struct fake_request outer, step;
    struct fake_model f;

    (void)state;
    heard[0] = '\0';
    fake_model_make(&f, config, 1, execute);
    fake_request_make(&outer, &f);
    fake_request_make(&step, &f);
    outer.request.maker.trace = make_tracer(TRACE_TIMESTAMPS, 0, 0);
    trace_step(&step.request, &outer.request);
    struct status *st = server_infer(&f.server, &step.request); /* it lacks its input */
    assert_non_null(st);
    status_free(st);
    trace_drop(&step.request);
    assert_null(step.request.maker.trace);
    assert_string_equal(heard, "");
    assert_int_equal(n_traces, 1);
    trace_drop(&outer.request);
    fake_model_end(&f);
    fake_request_end(&step);
    fake_request_end(&outer);
}

static void without_a_trace_there_is_no_child(void **state)
{
    struct request outer = {0}, step = {0};
    (void)state;
    trace_step(&step, &outer);
    assert_null(step.maker.trace);
    trace_drop(&step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_a_child_of_the_trace),
        cmocka_unit_test(nobody_hears_of_a_step_that_is_refused),
        cmocka_unit_test(without_a_trace_there_is_no_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
