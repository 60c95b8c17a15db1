/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of an ensemble's request against a plain evaluator, which walks the same graph
 * by recursion. The graphs are random, with up to 50 steps: decoupled ones, optional outputs,
 * conditions, failing ones. The events come in random order. Every value is freed once, no value is
 * freed while a step reads it, and each request has one end.
 */
#include "core/sched/ensemble_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/config/config.h"

enum {
    MAX_STEPS = 50,
    MAX_TENSORS = 400,
    MAX_INPUTS = 200,
    MAX_OUTPUTS = 200,
    MAX_VALUES = 200000,
    MAX_ANSWERS = 4096,
};

#ifdef __SANITIZE_THREAD__
enum { FEWER = 10 }; /* no thread is in it, and it takes a minute */
#else
enum { FEWER = 1 };
#endif

static uint64_t seed;
static struct {
    uint32_t whole, several, failed, injected; /* requests that ended this way */
} ends;

static uint64_t random_bits(void) /* xorshift64*: the same values in every run */
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return seed * 0x2545f4914f6cdd1dULL;
}

static uint32_t pick(uint32_t n) /* of 0 … n-1 */
{
    return (uint32_t)((random_bits() >> 33) % n);
}

static bool chance(uint32_t percent)
{
    return pick(100) < percent;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9ULL;
    return x ^ x >> 29;
}

/* ---- A graph --------------------------------------------------------------------------------- */

struct graph_step {
    uint32_t n_inputs, n_outputs, condition; /* a tensor; MAX_TENSORS: none */
    uint32_t inputs[MAX_INPUTS], outputs[3];
    bool decoupled;
};

struct graph {
    uint32_t n_steps, n_tensors, n_inputs, n_outputs;
    struct graph_step steps[MAX_STEPS]; /* writers before readers */
    uint32_t place[MAX_STEPS];          /* of each in the configuration */
    uint32_t outputs[MAX_OUTPUTS];
    bool is_read[MAX_TENSORS];
    bool may_fail; /* some steps fail for some inputs */
};

static void read_tensor(struct graph *g, struct graph_step *s, uint32_t tensor)
{
    s->inputs[s->n_inputs++] = tensor;
    g->is_read[tensor] = true;
}

static struct graph_step *add_step(struct graph *g)
{
    struct graph_step *s = &g->steps[g->n_steps++];
    *s = (struct graph_step){.condition = MAX_TENSORS};
    return s;
}

static void add_outputs(struct graph *g, struct graph_step *s)
{
    s->n_outputs = 1 + pick(3);
    for (uint32_t i = 0; i < s->n_outputs; i++)
        s->outputs[i] = g->n_tensors++;
}

/* Adds steps that read tensors from `first` on. */
static void add_block(struct graph *g, uint32_t first, uint32_t n_steps)
{
    for (uint32_t i = 0; i < n_steps; i++) {
        struct graph_step *s = add_step(g);
        uint32_t n = 1 + pick(3);
        for (uint32_t j = 0; j < n; j++)
            read_tensor(g, s, first + pick(g->n_tensors - first));
        if (chance(15)) {
            s->condition = first + pick(g->n_tensors - first);
            g->is_read[s->condition] = true;
        }
        add_outputs(g, s);
    }
}

/* A step that reads all that no other one reads. */
static void add_decoupled(struct graph *g, uint32_t first)
{
    struct graph_step *s = add_step(g);
    s->decoupled = true;
    for (uint32_t i = first; i < g->n_tensors; i++) {
        if (!g->is_read[i])
            read_tensor(g, s, i);
    }
    if (s->n_inputs == 0)
        read_tensor(g, s, first);
    add_outputs(g, s);
}

static void make_graph(struct graph *g, uint32_t max_steps)
{
    uint32_t n_decoupled = chance(50) ? 0 : 1 + pick(3), first = 0;
    memset(g, 0, sizeof(*g));
    g->n_inputs = g->n_tensors = 1 + pick(3);
    g->may_fail = chance(30);
    uint32_t per_block = (max_steps - n_decoupled) / (n_decoupled + 1);
    for (uint32_t i = 0; i <= n_decoupled; i++) {
        add_block(g, first, i == 0 ? 1 + pick(per_block) : pick(per_block + 1));
        for (uint32_t j = first; i == 0 && j < g->n_inputs; j++) {
            if (!g->is_read[j])
                read_tensor(g, &g->steps[0], j);
        }
        if (i == n_decoupled)
            break;
        add_decoupled(g, first);
        first = g->n_tensors - g->steps[g->n_steps - 1].n_outputs;
    }
    for (uint32_t i = first; i < g->n_tensors; i++) {
        if ((!g->is_read[i] || chance(10)) && (i >= g->n_inputs || chance(30)))
            g->outputs[g->n_outputs++] = i;
    }
    if (g->n_outputs == 0)
        g->outputs[g->n_outputs++] = g->n_tensors - 1;
    for (uint32_t i = 0; i < g->n_steps; i++) { /* a random order in the configuration */
        uint32_t j = pick(i + 1);
        g->place[i] = g->place[j];
        g->place[j] = i;
    }
}

/* In the maps the inputs of the ensemble are x0 …, the other tensors t3 … */
static void print_step(struct buf *b, const struct graph *g, const struct graph_step *s,
                       uint32_t index)
{
    buf_addf(b, "step { model_name: 'm%u' model_version: -1 ", index);
    for (uint32_t i = 0; i < s->n_inputs; i++)
        buf_addf(b, "input_map { key: 'i%u' value: 't%u' } ", i, s->inputs[i]);
    if (s->condition != MAX_TENSORS)
        buf_addf(b, "input_map { key: 'CONCH_IF' value: 't%u' } ", s->condition);
    for (uint32_t i = 0; i < s->n_outputs; i++)
        buf_addf(b, "output_map { key: 'o%u' value: 't%u' } ", i, s->outputs[i]);
    buf_adds(b, "} ");
    (void)g;
}

static struct model_config *make_config(const char *text)
{
    struct config_facts facts = {.model_name = "E", .auto_complete = true};
    struct model_config *c = NULL;
    struct status *st = model_config_parse_text(text, strlen(text), "f", &c);
    if (!st)
        st = model_config_prepare(c, &facts);
    if (st && status_code(st) != STATUS_UNSUPPORTED)
        fail_msg("%s: %s", status_message(st), text);
    status_free(st);
    return c;
}

static struct model_config *config_of_graph(const struct graph *g, bool *ret_decoupled)
{
    uint32_t by_place[MAX_STEPS];
    AUTO(buf) b = BUF_INIT(1 << 20);
    buf_adds(&b, "platform: 'ensemble' max_batch_size: 0 ");
    for (uint32_t i = 0; i < g->n_inputs; i++)
        buf_addf(&b, "input { name: 't%u' data_type: TYPE_FP32 dims: 1 } ", i);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        buf_addf(&b, "output { name: 't%u' data_type: TYPE_FP32 dims: 1 } ", g->outputs[i]);
    buf_adds(&b, "ensemble_scheduling { ");
    for (uint32_t i = 0; i < g->n_steps; i++)
        by_place[g->place[i]] = i;
    for (uint32_t i = 0; i < g->n_steps; i++) {
        print_step(&b, g, &g->steps[by_place[i]], by_place[i]);
        ret_decoupled[i] = g->steps[by_place[i]].decoupled;
    }
    buf_adds(&b, "}");
    return make_config(buf_text(&b));
}

/* ---- What the models compute ----------------------------------------------------------------- */

/* The hash of what a step reads; 0 stands for an absent value. */
static uint64_t hash_inputs(uint32_t step, const uint64_t *inputs, uint32_t n)
{
    uint64_t h = mix(77, step);
    for (uint32_t i = 0; i < n; i++)
        h = mix(h, inputs[i]);
    return h;
}

static uint32_t n_responses(const struct graph_step *s, uint64_t h)
{
    return s->decoupled ? (uint32_t)(h >> 7) % 4 : 1;
}

static bool does_fail(const struct graph *g, uint64_t h)
{
    return g->may_fail && h % 61 == 0;
}

static uint64_t make_value(uint64_t h, uint32_t response, uint32_t output)
{
    uint64_t v = mix(mix(h, response), output);
    return v % 11 == 0 ? 0 : v | 2;
}

static bool is_true(uint64_t v)
{
    return v % 3 != 0;
}

/* ---- The plain evaluator --------------------------------------------------------------------- */

struct expected {
    const struct graph *g;
    bool requested[MAX_OUTPUTS];
    bool needed[MAX_STEPS];
    bool fails;
    uint32_t n_answers;
    uint64_t answers[MAX_ANSWERS];
};

static void need_tensor(struct expected *e, uint32_t tensor)
{
    for (uint32_t i = 0; i < e->g->n_steps; i++) {
        const struct graph_step *s = &e->g->steps[i];
        for (uint32_t j = 0; j < s->n_outputs; j++) {
            if (s->outputs[j] != tensor || e->needed[i])
                continue;
            e->needed[i] = true;
            for (uint32_t k = 0; k < s->n_inputs; k++)
                need_tensor(e, s->inputs[k]);
            if (s->condition != MAX_TENSORS)
                need_tensor(e, s->condition);
        }
    }
}

static uint64_t hash_answer(const struct expected *e, const uint64_t *values)
{
    uint64_t h = 1;
    for (uint32_t i = 0; i < e->g->n_outputs; i++)
        h = mix(h, e->requested[i] ? values[e->g->outputs[i]] : 5);
    return h;
}

/* Evaluates from that step on; each response of a decoupled step goes its own way. */
static void evaluate(struct expected *e, uint32_t step, const uint64_t *before)
{
    const struct graph *g = e->g;
    uint64_t values[MAX_TENSORS], inputs[MAX_INPUTS];
    memcpy(values, before, sizeof(values));
    for (; step < g->n_steps; step++) {
        const struct graph_step *s = &g->steps[step];
        if (!e->needed[step])
            continue;
        for (uint32_t i = 0; i < s->n_inputs; i++)
            inputs[i] = values[s->inputs[i]];
        uint64_t h = hash_inputs(step, inputs, s->n_inputs);
        bool skip = s->condition != MAX_TENSORS && !is_true(values[s->condition]);
        e->fails |= !skip && does_fail(g, h); /* maybe after its responses, so go on */
        uint32_t n = skip ? 1 : n_responses(s, h);
        for (uint32_t r = 0; r < n; r++) {
            for (uint32_t i = 0; i < s->n_outputs; i++)
                values[s->outputs[i]] = skip ? 0 : make_value(h, r, i);
            if (s->decoupled)
                evaluate(e, step + 1, values);
        }
        if (s->decoupled)
            return;
    }
    assert_true(e->n_answers < MAX_ANSWERS);
    e->answers[e->n_answers++] = hash_answer(e, values);
}

/* ---- The run --------------------------------------------------------------------------------- */

struct value {
    struct ensemble_value head;
    uint64_t bits;
    bool freed;
};

/* A step that the test, as its owner, executes. */
struct executing {
    struct ensemble_step_run *s;
    uint32_t step;
    uint64_t hash;
    uint32_t n_left, n_sent;
    uint32_t n_inputs;
    struct value *inputs[MAX_INPUTS + 1];
    bool released, ended, fails;
};

struct driver {
    const struct graph *g;
    struct ensemble_run *run;
    const struct expected *e;
    uint32_t n_values, n_freed, n_executing, n_answers;
    struct value *values; /* MAX_VALUES */
    struct executing executing[MAX_ANSWERS];
    uint64_t answers[MAX_ANSWERS];
    bool final, failed, injected, deadlock;
};

static struct ensemble_value *new_value(struct driver *d, uint64_t bits)
{
    if (!bits)
        return NULL;
    assert_true(d->n_values < MAX_VALUES);
    struct value *v = &d->values[d->n_values++];
    *v = (struct value){.bits = bits};
    return &v->head;
}

static struct value *value_of(struct ensemble_value *v)
{
    return (struct value *)(void *)v;
}

static void drain_gone(struct driver *d)
{
    struct ensemble_value *next;
    for (struct ensemble_value *v = ensemble_run_take_gone(d->run); v; v = next) {
        next = v->next;
        assert_false(value_of(v)->freed);
        value_of(v)->freed = true;
        d->n_freed++;
    }
}

static void check_alive(const struct executing *x)
{
    for (uint32_t i = 0; i < x->n_inputs; i++)
        assert_true(!x->inputs[i] || !x->inputs[i]->freed);
}

static uint32_t step_of_model(const struct driver *d, uint32_t index)
{
    const struct ensemble_plan *p = d->run->plan;
    return (uint32_t)strtoul(p->models[p->steps[index].model].name + 1, NULL, 10);
}

static void begin_step(struct driver *d, struct ensemble_step_run *s)
{
    const struct ensemble_step *step = &d->run->plan->steps[s->step];
    uint64_t bits[MAX_INPUTS];
    assert_true(d->n_executing < MAX_ANSWERS);
    struct executing *x = &d->executing[d->n_executing++];
    *x = (struct executing){.s = s, .step = step_of_model(d, s->step), .n_inputs = step->n_inputs};
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        /* In the order of the model's names, as the evaluator reads them. */
        uint32_t number = (uint32_t)strtoul(step->inputs[i].name + 1, NULL, 10);
        struct ensemble_value *v = ensemble_run_input(d->run, s, step->inputs[i].tensor);
        x->inputs[number] = v ? value_of(v) : NULL;
        bits[number] = v ? value_of(v)->bits : 0;
    }
    assert_true(d->e->needed[x->step]);
    x->hash = hash_inputs(x->step, bits, step->n_inputs);
    x->n_left = n_responses(&d->g->steps[x->step], x->hash);
    x->fails = does_fail(d->g, x->hash);
    check_alive(x);
}

static void begin_or_skip(struct driver *d, struct ensemble_step_run *s)
{
    const struct ensemble_step *step = &d->run->plan->steps[s->step];
    if (step->condition != ENSEMBLE_NONE) {
        struct ensemble_value *v = ensemble_run_input(d->run, s, step->condition);
        if (!is_true(v ? value_of(v)->bits : 0)) {
            ensemble_run_skip(d->run, s);
            return;
        }
    }
    begin_step(d, s);
}

static void send_response(struct driver *d, struct executing *x)
{
    const struct ensemble_step *step = &d->run->plan->steps[x->s->step];
    struct ensemble_value *outputs[3] = {0};
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        uint32_t number = (uint32_t)strtoul(step->outputs[i].name + 1, NULL, 10);
        outputs[i] = new_value(d, make_value(x->hash, x->n_sent, number));
    }
    x->n_sent++;
    x->ended = --x->n_left == 0 && !x->fails && chance(50);
    ensemble_run_respond(d->run, x->s, outputs, NULL, x->ended, NULL);
}

/* One event of a step that is executing. */
static void advance_step(struct driver *d, uint32_t i)
{
    struct executing *x = &d->executing[i];
    check_alive(x);
    if (!x->released && (x->ended || chance(25))) {
        x->released = true;
        x->n_inputs = 0;
        ensemble_run_release(d->run, x->s);
    } else if (x->fails && !x->ended && (x->n_left == 0 || chance(50))) {
        x->ended = true;
        ensemble_run_respond(d->run, x->s, NULL, NULL, true, status_new(STATUS_INTERNAL, "no"));
    } else if (!x->ended && x->n_left) {
        send_response(d, x);
    } else if (!x->ended) {
        x->ended = true;
        ensemble_run_respond(d->run, x->s, NULL, NULL, true, NULL);
    }
    if (x->ended && x->released)
        *x = d->executing[--d->n_executing];
}

static void take_answer(struct driver *d, const struct ensemble_answer *a)
{
    uint64_t h = 1;
    assert_false(d->final);
    d->final = a->is_final;
    d->deadlock |= a->is_deadlock;
    d->failed |= a->error != NULL;
    assert_true(!a->error || a->is_final);
    status_free(a->error);
    if (!a->wave)
        return;
    for (uint32_t i = 0; i < d->g->n_outputs; i++) {
        struct ensemble_value *v = ensemble_run_output(d->run, a->wave, i);
        if (!d->e->requested[i]) {
            h = mix(h, 5);
            continue;
        }
        assert_true(!v || !value_of(v)->freed);
        h = mix(h, v ? value_of(v)->bits : 0);
    }
    assert_true(d->n_answers < MAX_ANSWERS);
    d->answers[d->n_answers++] = h;
}

/* One random event. */
static void advance(struct driver *d, bool *answering)
{
    struct ensemble_answer a;
    struct ensemble_step_run *s;
    switch (pick(5)) {
    case 0:
        if (!*answering && ensemble_run_next_answer(d->run, &a)) {
            take_answer(d, &a);
            *answering = true;
        } else if (*answering) {
            assert_false(ensemble_run_next_answer(d->run, &a));
            ensemble_run_answered(d->run);
            *answering = false;
        }
        break;
    case 1:
        if ((s = ensemble_run_next_step(d->run)))
            begin_or_skip(d, s);
        break;
    case 2:
        drain_gone(d);
        break;
    default:
        if (d->n_executing)
            advance_step(d, pick(d->n_executing));
    }
}

static int compare_bits(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void check_answers(struct driver *d, struct expected *e)
{
    uint32_t at = 0;
    qsort(d->answers, d->n_answers, sizeof(uint64_t), compare_bits);
    qsort(e->answers, e->n_answers, sizeof(uint64_t), compare_bits);
    assert_true(d->final);
    assert_false(d->deadlock);
    assert_int_equal(d->n_values, d->n_freed);
    ends.failed += d->failed;
    ends.injected += d->injected;
    ends.several += d->n_answers > 1;
    if (!d->injected) {
        ends.whole += !e->fails;
        assert_int_equal(d->failed, e->fails);
        if (!e->fails)
            assert_int_equal(d->n_answers, e->n_answers);
    }
    for (uint32_t i = 0; i < d->n_answers; i++, at++) { /* each is one of those expected */
        while (at < e->n_answers && e->answers[at] != d->answers[i])
            at++;
        assert_true(at < e->n_answers);
    }
}

static void drive(struct driver *d, uint32_t inject_at)
{
    bool answering = false;
    for (uint32_t n = 0; !ensemble_run_is_over(d->run) || answering || d->n_executing; n++) {
        assert_true(n < 10000000);
        if (n == inject_at) {
            d->injected = true;
            ensemble_run_fail(d->run, status_new(STATUS_CANCELLED, "%s", ""));
        }
        advance(d, &answering);
    }
    drain_gone(d);
    ensemble_run_done(d->run);
}

static void choose_requested(struct expected *e, uint64_t *set, bool all)
{
    uint32_t one = pick(e->g->n_outputs);
    for (uint32_t i = 0; i < e->g->n_outputs; i++) {
        e->requested[i] = all || i == one || chance(40);
        if (!e->requested[i])
            continue;
        ensemble_set_add(set, i);
        need_tensor(e, e->g->outputs[i]);
    }
}

/* One request with random inputs, outputs and order, which is given up at that event. Returns
 * whether it has come so far. */
static bool run_once(const struct graph *g, const struct ensemble_plan *p, struct pool *pool,
                     struct value *values, uint32_t inject_at)
{
    struct driver *d = mem_zalloc(sizeof(*d));
    struct expected *e = mem_zalloc(sizeof(*e));
    uint64_t bits[MAX_TENSORS] = {0}, set[MAX_OUTPUTS / 64 + 1] = {0};
    struct ensemble_value *inputs[8];
    bool all = chance(50);
    e->g = d->g = g;
    d->e = e;
    d->values = values;
    choose_requested(e, set, all);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        bits[i] = chance(15) ? 0 : random_bits() | 1;
        inputs[i] = new_value(d, bits[i]);
    }
    evaluate(e, 0, bits);
    d->run = mem_alloc(ensemble_run_bytes(p));
    ensemble_run_init(d->run, p, pool, NULL);
    ensemble_run_begin(d->run, all ? NULL : set, inputs);
    drive(d, inject_at);
    check_answers(d, e);
    bool injected = d->injected;
    mem_free(d->run);
    mem_free(e);
    mem_free(d);
    return injected;
}

static void random_graphs_agree_with_the_evaluator(void **unused)
{
    (void)unused;
    struct pool *pool = pool_new("waves", 1 << 20, 0);
    struct value *values = mem_alloc(MAX_VALUES * sizeof(*values));
    struct graph *g = mem_zalloc(sizeof(*g));
    seed = 20261123;
    for (uint32_t i = 0; i < 1000 / FEWER; i++) {
        bool decoupled[MAX_STEPS];
        struct ensemble_plan *p;
        make_graph(g, 8 + pick(MAX_STEPS - 7));
        struct model_config *c = config_of_graph(g, decoupled);
        assert_null(ensemble_plan_new(c, decoupled, &p));
        for (uint32_t j = 0; j < 5; j++)
            run_once(g, p, pool, values, chance(25) ? pick(400) : UINT32_MAX);
        ensemble_plan_free(p);
        model_config_free(c);
    }
    struct pool_stats stats;
    pool_stats(pool, &stats);
    assert_int_equal(stats.used_bytes, 0);
    /* The graphs are not all trivial. */
    const uint32_t least = 200 / FEWER;
    assert_true(ends.whole > least && ends.several > least && ends.failed > least &&
                ends.injected > least);
    pool_free(pool);
    mem_free(values);
    mem_free(g);
}

/* As a cancel, a deadline or an error of a thread ends it: at the first event, at the second … */
static void a_request_may_be_given_up_at_each_event(void **unused)
{
    (void)unused;
    struct pool *pool = pool_new("waves", 1 << 20, 0);
    struct value *values = mem_alloc(MAX_VALUES * sizeof(*values));
    struct graph *g = mem_zalloc(sizeof(*g));
    uint32_t n_events = 0;
    for (uint32_t i = 0; i < (FEWER > 1 ? 4 : 15); i++) {
        bool decoupled[MAX_STEPS];
        struct ensemble_plan *p;
        seed = 1000003 + i;
        make_graph(g, 8 + pick(12));
        struct model_config *c = config_of_graph(g, decoupled);
        assert_null(ensemble_plan_new(c, decoupled, &p));
        uint64_t same = random_bits();
        for (uint32_t at = 0, more = true; more && at < 300; at++, n_events++) {
            seed = same; /* the same request again, one event further */
            more = run_once(g, p, pool, values, at);
        }
        ensemble_plan_free(p);
        model_config_free(c);
    }
    struct pool_stats stats;
    pool_stats(pool, &stats);
    assert_int_equal(stats.used_bytes, 0);
    assert_true(n_events > 500 / FEWER);
    pool_free(pool);
    mem_free(values);
    mem_free(g);
}

/* ---- Single cases ---------------------------------------------------------------------------- */

#define ENDS(steps)                                                                                \
    "platform: 'ensemble' input { name: 'X' data_type: TYPE_FP32 dims: 1 } "                       \
    "output { name: 'Y' data_type: TYPE_FP32 dims: 1 } ensemble_scheduling { " steps " }"
#define STEP(model, input, output)                                                                 \
    "step { model_name: '" model "' model_version: -1 input_map { key: 'I' value: '" input         \
    "' } output_map { key: 'O' value: '" output "' } } "

struct single {
    struct model_config *config;
    struct ensemble_plan *plan;
    struct pool *pool;
    struct ensemble_run *run;
    struct value values[16];
};

static void single_start(struct single *t, const char *text, bool decoupled, size_t max_bytes)
{
    bool all[4] = {decoupled, decoupled, decoupled, decoupled};
    t->config = make_config(text);
    memset(t->values, 0, sizeof(t->values));
    assert_null(ensemble_plan_new(t->config, all, &t->plan));
    t->pool = pool_new("waves", 0, max_bytes);
    t->run = mem_alloc(ensemble_run_bytes(t->plan));
    ensemble_run_init(t->run, t->plan, t->pool, NULL);
    ensemble_run_begin(t->run, NULL, (struct ensemble_value *[]){&t->values[0].head});
}

static void single_end(struct single *t, uint32_t n_values)
{
    uint32_t n = 0;
    for (struct ensemble_value *v = ensemble_run_take_gone(t->run); v; v = v->next)
        n++;
    assert_int_equal(n, n_values);
    assert_true(ensemble_run_is_over(t->run));
    ensemble_run_done(t->run);
    mem_free(t->run);
    pool_free(t->pool);
    ensemble_plan_free(t->plan);
    model_config_free(t->config);
}

static void expect_error(struct single *t, const char *text)
{
    struct ensemble_answer a;
    assert_true(ensemble_run_next_answer(t->run, &a));
    assert_true(a.is_final && !a.wave && a.error);
    assert_string_equal(status_message(a.error), text);
    status_free(a.error);
    ensemble_run_answered(t->run);
}

static void a_second_response_is_an_error_that_names_the_step(void **unused)
{
    (void)unused;
    struct single t;
    struct ensemble_answer a;
    single_start(&t, ENDS(STEP("m", "X", "A") STEP("n", "A", "Y")), false, 0);
    struct ensemble_step_run *s = ensemble_run_next_step(t.run);
    ensemble_run_respond(t.run, s, (struct ensemble_value *[]){&t.values[1].head}, NULL, false,
                         NULL);
    struct ensemble_step_run *other = ensemble_run_next_step(t.run);
    ensemble_run_respond(t.run, s, (struct ensemble_value *[]){&t.values[2].head}, NULL, true,
                         NULL);
    ensemble_run_release(t.run, s);
    assert_false(ensemble_run_next_answer(t.run, &a)); /* the other step has not ended */
    ensemble_run_respond(t.run, other, (struct ensemble_value *[]){&t.values[3].head}, NULL, true,
                         NULL);
    ensemble_run_release(t.run, other);
    expect_error(&t, "step 0, model 'm', has sent more than one response, but is not decoupled");
    single_end(&t, 4);
}

static void a_step_that_ends_without_a_response_is_a_deadlock(void **unused)
{
    (void)unused;
    struct single t;
    struct ensemble_answer a;
    single_start(&t, ENDS(STEP("m", "X", "A") STEP("n", "A", "Y")), false, 0);
    struct ensemble_step_run *s = ensemble_run_next_step(t.run);
    ensemble_run_respond(t.run, s, NULL, NULL, true, NULL);
    ensemble_run_release(t.run, s);
    assert_true(ensemble_run_next_answer(t.run, &a));
    assert_true(a.is_deadlock && a.is_final && !a.wave && !a.error);
    ensemble_run_answered(t.run);
    single_end(&t, 1);
}

static void a_decoupled_step_without_a_response_is_no_deadlock(void **unused)
{
    (void)unused;
    struct single t;
    struct ensemble_answer a;
    single_start(&t, ENDS(STEP("m", "X", "Y")), true, 0);
    struct ensemble_step_run *s = ensemble_run_next_step(t.run);
    ensemble_run_respond(t.run, s, NULL, NULL, true, NULL);
    ensemble_run_release(t.run, s);
    assert_true(ensemble_run_next_answer(t.run, &a));
    assert_true(!a.is_deadlock && a.is_final && !a.wave && !a.error);
    ensemble_run_answered(t.run);
    single_end(&t, 1);
}

static void without_memory_for_a_wave_the_request_fails(void **unused)
{
    (void)unused;
    struct single t;
    single_start(&t, ENDS(STEP("m", "X", "Y")), true, 1);
    struct ensemble_step_run *s = ensemble_run_next_step(t.run);
    ensemble_run_respond(t.run, s, (struct ensemble_value *[]){&t.values[1].head}, NULL, true,
                         NULL);
    ensemble_run_release(t.run, s);
    expect_error(&t, "out of memory");
    single_end(&t, 2);
}

static void a_cancelled_request_begins_nothing(void **unused)
{
    (void)unused;
    struct single t;
    single_start(&t, ENDS(STEP("m", "X", "A") STEP("n", "A", "Y")), false, 0);
    ensemble_run_fail(t.run, status_new(STATUS_CANCELLED, "first"));
    ensemble_run_fail(t.run, status_new(STATUS_INTERNAL, "second"));
    assert_null(ensemble_run_next_step(t.run));
    expect_error(&t, "first");
    single_end(&t, 1);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static void refuse(const char *text, const bool *decoupled, const char *error)
{
    struct ensemble_plan *p;
    struct model_config *c = make_config(text);
    struct status *st = ensemble_plan_new(c, decoupled, &p);
    assert_non_null(st);
    assert_string_equal(status_message(st), error);
    status_free(st);
    model_config_free(c);
}

static void sources_of_different_responses_may_not_meet(void **unused)
{
    (void)unused;
    static const bool first[] = {true, false, false}, two[] = {true, true, false};
    const char *join =
        ENDS(STEP("d", "X", "A") STEP("e", "X", "B") "step { model_name: 'j' model_version: -1 "
                                                     "input_map { key: 'I' value: 'A' } "
                                                     "input_map { key: 'J' value: 'B' } "
                                                     "output_map { key: 'O' value: 'Y' } }");
    const char *error = "in ensemble E, step of model 'j' receives inputs originated from "
                        "different decoupled models";
    refuse(join, first, error);
    refuse(join, two, error);
    refuse("platform: 'ensemble' input { name: 'X' data_type: TYPE_FP32 dims: 1 } "
           "output { name: 'Y' data_type: TYPE_FP32 dims: 1 } "
           "output { name: 'Z' data_type: TYPE_FP32 dims: 1 } ensemble_scheduling { " STEP(
               "d", "X", "Y") STEP("e", "X", "Z") "}",
           first,
           "in ensemble E, step of model 'E' receives inputs originated from different decoupled "
           "models");
}

static void steps_with_one_model_share_it(void **unused)
{
    (void)unused;
    static const bool none[3] = {0};
    struct ensemble_plan *p;
    struct model_config *c =
        make_config(ENDS(STEP("m", "X", "A") STEP("n", "A", "B") STEP("m", "B", "Y")));
    assert_null(ensemble_plan_new(c, none, &p));
    assert_int_equal(p->n_models, 2);
    assert_int_equal(p->steps[0].model, p->steps[2].model);
    assert_int_equal(ensemble_plan_find_output(p, "Y"), 0);
    assert_int_equal(ensemble_plan_find_output(p, "A"), ENSEMBLE_NONE);
    assert_false(ensemble_plan_is_decoupled(p));
    ensemble_plan_free(p);
    model_config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_agree_with_the_evaluator),
        cmocka_unit_test(a_request_may_be_given_up_at_each_event),
        cmocka_unit_test(a_second_response_is_an_error_that_names_the_step),
        cmocka_unit_test(a_step_that_ends_without_a_response_is_a_deadlock),
        cmocka_unit_test(a_decoupled_step_without_a_response_is_no_deadlock),
        cmocka_unit_test(without_memory_for_a_wave_the_request_fails),
        cmocka_unit_test(a_cancelled_request_begins_nothing),
        cmocka_unit_test(sources_of_different_responses_may_not_meet),
        cmocka_unit_test(steps_with_one_model_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
