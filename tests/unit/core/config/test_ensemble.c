/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do ensembles fit their models? The texts are the genuine Triton's for the same configurations,
 * except that some of Triton's name the ensemble instead of the step's model (decoupled).
 */
#include "core/config/ensemble.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

#define MODEL(batch, type, dims, more)                                                             \
    "backend: 'identity' max_batch_size: " batch " input { name: 'I' data_type: " type             \
    " dims: " dims " " more " } output { name: 'O' data_type: " type " dims: " dims " }"
#define ENSEMBLE(batch, dims, steps)                                                               \
    "platform: 'ensemble' max_batch_size: " batch                                                  \
    " input { name: 'X' data_type: TYPE_FP32 dims: " dims                                          \
    " } output { name: 'Y' data_type: TYPE_FP32 dims: " dims " } ensemble_scheduling { " steps     \
    " }"
#define STEP_OF(model, version, input, from, output, to)                                           \
    "step { model_name: '" model "' model_version: " version " input_map { key: '" input           \
    "' value: '" from "' } output_map { key: '" output "' value: '" to "' } } "
#define STEP(model, from, to) STEP_OF(model, "-1", "I", from, "O", to)
#define FP32(dims)            MODEL("0", "TYPE_FP32", dims, "")
/* Step 1 runs if the output C of `model` is true; the output Y is that of step 2. */
#define SKIPS(model, of)                                                                           \
    "step { model_name: '" model "' model_version: -1 input_map { key: 'I' value: 'X' } "          \
    "output_map { key: 'C' value: 'T' } output_map { key: 'O' value: 'A' } } "                     \
    "step { model_name: '" of "' model_version: -1 input_map { key: 'I' value: 'A' } "             \
    "input_map { key: 'CONCH_IF' value: 'T' } output_map { key: 'O' value: 'B' } } "               \
    "step { model_name: 'optional' model_version: -1 input_map { key: 'J' value: 'B' } "           \
    "input_map { key: 'I' value: 'X' } output_map { key: 'O' value: 'Y' } }"
#define DECOUPLED     " model_transaction_policy { decoupled: true }"
#define SECOND_OUTPUT " output { name: 'Z' data_type: TYPE_FP32 dims: [4] }"
#define JOIN                                                                                       \
    "step { model_name: 'two' model_version: -1 input_map { key: 'I' value: 'A' } "                \
    "input_map { key: 'J' value: 'B' } output_map { key: 'O' value: 'Y' } }"

static const struct {
    const char *name, *text;
} library[] = {
    {"id4", FP32("[4]")},
    {"id8", FP32("[8]")},
    {"any", FP32("[-1]")},
    {"int", MODEL("0", "TYPE_INT32", "[4]", "")},
    {"b4", MODEL("4", "TYPE_FP32", "[4]", "")},
    {"b8", MODEL("8", "TYPE_FP32", "[4]", "")},
    {"two", FP32("[4]") " input { name: 'J' data_type: TYPE_FP32 dims: [4] }"},
    {"optional", FP32("[4]") " input { name: 'J' data_type: TYPE_FP32 dims: [4] optional: true }"},
    {"flag", FP32("[4]") " output { name: 'C' data_type: TYPE_BOOL dims: [1] }"},
    {"flags", MODEL("8", "TYPE_FP32", "[4]", "") " output { name: 'C' data_type: TYPE_BOOL dims: "
                                                 "[1] }"},
    {"wide", FP32("[4]") " output { name: 'C' data_type: TYPE_BOOL dims: [3] }"},
    {"any_flag", FP32("[4]") " output { name: 'C' data_type: TYPE_BOOL dims: [-1] }"},
    {"named", FP32("[4]") " input { name: 'CONCH_IF' data_type: TYPE_BOOL dims: [1] }"},
    {"d1", FP32("[4]") DECOUPLED},
    {"d2", FP32("[4]") DECOUPLED},
    {"open", "backend: 'onnxruntime'"},
    {"half", "backend: 'onnxruntime' input { name: 'I' data_type: TYPE_FP32 dims: [4] }"},
    {"loop_a", ENSEMBLE("0", "[4]", STEP("loop_b", "X", "Y"))},
    {"loop_b", ENSEMBLE("0", "[4]", STEP("loop_c", "X", "Y"))},
    {"loop_c", ENSEMBLE("0", "[4]", STEP("loop_a", "X", "Y"))},
    {"to_loop", ENSEMBLE("0", "[4]", STEP("loop_a", "X", "Y"))},
    {"itself", ENSEMBLE("0", "[4]", STEP("itself", "X", "Y"))},
    {"sound", ENSEMBLE("0", "[4]", STEP("id4", "X", "Y"))},
};

enum { N_LIBRARY = sizeof(library) / sizeof(library[0]) };

static struct model_config *parsed[N_LIBRARY];

static struct model_config *parse(const char *name, const char *text)
{
    struct config_facts facts = {.model_name = name, .auto_complete = true};
    struct model_config *c = NULL;
    struct status *st = model_config_parse_text(text, strlen(text), "f", &c);
    if (!st)
        st = model_config_prepare(c, &facts);
    if (st && status_code(st) != STATUS_UNSUPPORTED)
        fail_msg("%s: %s", name, status_message(st));
    status_free(st);
    return c;
}

static int start(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LIBRARY; i++)
        parsed[i] = parse(library[i].name, library[i].text);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LIBRARY; i++)
        model_config_free(parsed[i]);
    return 0;
}

static enum ensemble_answer find(void *arg, const Inference__ModelEnsembling__Step *step,
                                 struct ensemble_member *ret)
{
    (void)arg;
    *ret = (struct ensemble_member){.is_complete = true};
    if (strcmp(step->model_name, "broken") == 0) {
        ret->why = "it is broken";
        return ENSEMBLE_INVALID;
    }
    if (strcmp(step->model_name, "unloaded") == 0) {
        ret->why = step->model_version == -1 ? "no memory" : NULL;
        return ENSEMBLE_NO_VERSION;
    }
    if (strcmp(step->model_name, "empty") == 0)
        return ENSEMBLE_NO_VERSION;
    for (size_t i = 0; i < N_LIBRARY; i++) {
        if (strcmp(library[i].name, step->model_name) != 0)
            continue;
        ret->pb = parsed[i]->pb;
        ret->is_complete =
            strcmp(library[i].name, "open") != 0 && strcmp(library[i].name, "half") != 0;
        return ENSEMBLE_FOUND;
    }
    ret->advice = "did you mean \"id4\"?";
    return ENSEMBLE_NO_MODEL;
}

static const struct ensemble_lookup lookup = {.find = find};

static const struct {
    const char *text, *fault; /* NULL: no fault */
} cases[] = {
    {ENSEMBLE("0", "[4]", STEP("id4", "X", "Y")), NULL},
    {ENSEMBLE("0", "[4]", STEP("any", "X", "Y")), NULL},
    {ENSEMBLE("0", "[4]", STEP("optional", "X", "Y")), NULL},
    {ENSEMBLE("0", "[4]", STEP("nope", "X", "Z") STEP("nada", "Z", "Y")),
     "ensemble e contains models that are not available or ambiguous: nope, nada (f:1:"},
    {ENSEMBLE("0", "[4]", STEP_OF("empty", "7", "I", "X", "O", "Y")),
     "ensemble 'e' depends on 'empty' whose required version 7 is not loaded. (f:1:"},
    {ENSEMBLE("0", "[4]", STEP("empty", "X", "Y")),
     "ensemble 'e' depends on 'empty' which has no loaded version (f:1:"},
    {ENSEMBLE("0", "[4]", STEP("unloaded", "X", "Y")),
     "ensemble 'e' depends on 'unloaded' which has no loaded version. Model 'unloaded' loading "
     "failed with error: no memory (f:1:"},
    {ENSEMBLE("0", "[4]", STEP("broken", "X", "Y")),
     "ensemble 'e' depends on 'broken' which is not valid. Model 'broken' failed with error: it is "
     "broken (f:1:"},
    {ENSEMBLE("0", "[4]", STEP("int", "X", "Y")),
     "in ensemble e, ensemble tensor X: inconsistent data type: TYPE_FP32 is inferred from model e "
     "while TYPE_INT32 is inferred from model int (f:1:"},
    {ENSEMBLE("0", "[4]", STEP("id8", "X", "Y")),
     "in ensemble e, ensemble tensor X: inconsistent shape: [4] is inferred from model e while [8] "
     "is inferred from model id8 (f:1:"},
    {ENSEMBLE("0", "[4]", STEP("id4", "X", "Z") STEP("id8", "Z", "Y")),
     "in ensemble e, ensemble tensor Z: inconsistent shape: [4] is inferred from model id4 while "
     "[8] is inferred from model id8 (f:1:"},
    {ENSEMBLE("0", "[4]", STEP_OF("id4", "-1", "K", "X", "O", "Y")),
     "in ensemble e, ensemble tensor X is mapping to non-existing input K in model id4 (f:1:"},
    {ENSEMBLE("0", "[4]", STEP_OF("id4", "-1", "I", "X", "Q", "Y")),
     "in ensemble e, ensemble tensor Y is mapped from non-existing output Q in model id4 (f:1:"},
    {ENSEMBLE("0", "[4]", STEP("two", "X", "Y")),
     "in ensemble e, input J in model two is not mapped to any ensemble tensors (f:1:"},
    /* batches */
    {ENSEMBLE("8", "[4]", STEP("b4", "X", "Y")),
     "ensemble e allows maximum batch size 8, but it contains model b4 which only allows maximum "
     "batch size to be 4 (f:1:"},
    {ENSEMBLE("4", "[4]", STEP("b8", "X", "Y")), NULL},
    {ENSEMBLE("4", "[4]", STEP("id4", "X", "Y")), NULL},
    {ENSEMBLE("0", "[4]", STEP("b4", "X", "Y")), NULL},
    {ENSEMBLE("0", "[-1,4]", STEP("b4", "X", "Y")), NULL},
    {ENSEMBLE("0", "[2,4]", STEP("b4", "X", "Y")), NULL},
    {ENSEMBLE("4", "[1]", STEP("any", "X", "Y")), NULL},
    {ENSEMBLE("4", "[1]", STEP("id4", "X", "Y")),
     "in ensemble e, ensemble tensor X: inconsistent shape: [-1,1] is inferred from model e while "
     "[4] is inferred from model id4 (f:1:"},
    {ENSEMBLE("0", "[2,5]", STEP("b4", "X", "Y")),
     "in ensemble e, ensemble tensor X: inconsistent shape: [2,5] is inferred from model e while "
     "[-1,4] is inferred from model b4 (f:1:"},
    /* properties that the backend has not declared yet */
    {ENSEMBLE("8", "[4]", STEP_OF("open", "-1", "A", "X", "B", "Y")), NULL},
    {ENSEMBLE("0", "[4]", STEP_OF("half", "-1", "A", "X", "B", "Y")),
     "in ensemble e, ensemble tensor X is mapping to non-existing input A in model half (f:1:"},
    {ENSEMBLE("0", "[4]", STEP_OF("half", "-1", "I", "X", "B", "Y")), NULL},
    /* conditions */
    {ENSEMBLE("0", "[4]", SKIPS("flag", "id4")), NULL},
    {ENSEMBLE("0", "[4]", SKIPS("any_flag", "id4")), NULL},
    {ENSEMBLE("0", "[4]", SKIPS("flags", "id4")), NULL}, /* of a batch of one */
    {ENSEMBLE("0", "[4]", SKIPS("wide", "id4")),
     "in ensemble e, ensemble tensor T, the CONCH_IF of step 1, must be TYPE_BOOL with shape [1], "
     "but TYPE_BOOL with shape [3] is inferred from model wide (f:1:"},
    {ENSEMBLE("0", "[4]", SKIPS("flag", "named")),
     "in ensemble e, model named has an input CONCH_IF, a name that means the condition of a step "
     "in an input map (f:1:"},
    {ENSEMBLE("0", "[4]",
              STEP("id4", "X", "A") "step { model_name: 'id4' model_version: -1 input_map { key: "
                                    "'I' value: 'A' } input_map { key: 'CONCH_IF' value: 'X' } "
                                    "output_map { key: 'O' value: 'Y' } }"),
     "in ensemble e, ensemble tensor X, the CONCH_IF of step 1, must be TYPE_BOOL with shape [1], "
     "but TYPE_FP32 with shape [4] is inferred from model e (f:1:"},
    {ENSEMBLE("0", "[4]",
              "step { model_name: 'id4' model_version: -1 input_map { key: 'I' value: 'X' } "
              "input_map { key: 'Conch_If' value: 'X' } output_map { key: 'O' value: 'Y' } }"),
     "in ensemble e, ensemble tensor X is mapping to non-existing input Conch_If in model id4 (f:1:"},
    /* decoupled steps, which multiply responses */
    {ENSEMBLE("0", "[4]", STEP("d1", "X", "A") STEP("d2", "A", "Y")), NULL},
    {ENSEMBLE("0", "[4]", STEP("d1", "X", "A") STEP("id4", "A", "B") JOIN), NULL},
    {ENSEMBLE("0", "[4]", JOIN STEP("d1", "X", "A") STEP("d2", "X", "B")),
     "in ensemble e, step of model 'two' receives inputs originated from different decoupled "
     "models (f:1:"},
    {ENSEMBLE("0", "[4]", STEP("d1", "X", "A") STEP("d2", "A", "B") JOIN),
     "in ensemble e, step of model 'two' receives inputs originated from different decoupled "
     "models (f:1:"},
    {ENSEMBLE("0", "[4]", STEP("d1", "X", "A") STEP("id4", "X", "B") JOIN),
     "in ensemble e, step of model 'two' receives inputs originated from different decoupled "
     "models (f:1:"},
    {ENSEMBLE("0", "[4]", JOIN STEP("id4", "X", "A") STEP("d1", "X", "B")),
     "in ensemble e, step of model 'two' receives inputs originated from different decoupled "
     "models (f:1:"},
    {ENSEMBLE("0", "[4]", STEP("d1", "X", "Y") STEP("id4", "X", "Z")) SECOND_OUTPUT,
     "in ensemble e, step of model 'e' receives inputs originated from different decoupled models "
     "(f:1:"},
    {ENSEMBLE("0", "[4]", STEP("d1", "X", "Y") STEP("id4", "Y", "Z")) SECOND_OUTPUT, NULL},
};

static void an_ensemble_is_validated_against_its_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_config *c = parse("e", cases[i].text);
        struct status *st = ensemble_check(c, &lookup);
        const char *got = st ? status_message(st) : "none";
        if (!cases[i].fault != !st ||
            (st && strncmp(got, cases[i].fault, strlen(cases[i].fault)) != 0))
            fail_msg("%zu: got %s, expected %s", i, got, cases[i].fault);
        if (st)
            assert_int_equal(status_code(st), STATUS_INVALID_ARG);
        status_free(st);
        model_config_free(c);
    }
}

static void on_fault(void *arg, const struct config_fault *fault)
{
    assert_int_equal(fault->kind, CONFIG_FAULT_RULE);
    assert_int_equal(fault->line, 1);
    buf_addf(arg, "%s%s%s\n", fault->text, fault->advice ? "; " : "",
             fault->advice ? fault->advice : "");
}

static void a_listener_gets_every_step(void **state)
{
    (void)state;
    struct model_config *c =
        parse("e", ENSEMBLE("0", "[4]",
                            STEP("nope", "X", "A") STEP("broken", "A", "B") STEP("id8", "B", "C")
                                STEP_OF("two", "-1", "II", "C", "P", "Y")));
    AUTO(buf) told = BUF_INIT(1 << 16);
    struct config_listener listener = {.on_fault = on_fault, .arg = &told};
    c->listener = &listener;
    assert_null(ensemble_check(c, &lookup));
    assert_string_equal(
        buf_text(&told),
        "ensemble e contains models that are not available or ambiguous: nope; did you mean "
        "\"id4\"?\n"
        "ensemble 'e' depends on 'broken' which is not valid. Model 'broken' failed with error: it "
        "is broken\n"
        "in ensemble e, ensemble tensor C is mapping to non-existing input II in model two\n"
        "in ensemble e, input I in model two is not mapped to any ensemble tensors\n"
        "in ensemble e, input J in model two is not mapped to any ensemble tensors\n"
        "in ensemble e, ensemble tensor Y is mapped from non-existing output P in model two\n");
    assert_int_equal(listener.n_faults, 6);
    model_config_free(c);
}

static void a_cycle_is_found_from_each_of_its_models(void **state)
{
    static const struct {
        const char *name, *fault;
    } expected[] = {
        {"loop_a",
         "circular dependency between ensembles: loop_a -> ... -> loop_c -> loop_a (f:1:"},
        {"loop_b",
         "circular dependency between ensembles: loop_b -> ... -> loop_a -> loop_b (f:1:"},
        {"itself",
         "circular dependency between ensembles: itself -> ... -> itself -> itself (f:1:"},
        {"to_loop", NULL}, /* not part of the cycle that it leads to */
        {"sound", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        size_t k = 0;
        while (strcmp(library[k].name, expected[i].name) != 0)
            k++;
        struct status *st = ensemble_check_cycle(parsed[k], &lookup);
        assert_int_equal(!st, !expected[i].fault);
        if (st)
            assert_memory_equal(status_message(st), expected[i].fault, strlen(expected[i].fault));
        status_free(st);
    }
}

static void steps_are_ordered_by_their_data(void **state)
{
    (void)state;
    struct arena arena;
    const size_t *order = NULL;
    struct model_config *c =
        parse("e", ENSEMBLE("0", "[4]",
                            STEP("id4", "C", "Y") STEP("id4", "A", "C") STEP("id4", "X", "A")));
    arena_init(&arena, NULL, 0, 1 << 20, NULL, NULL);
    assert_null(ensemble_order(c, &arena, &order));
    assert_int_equal(order[0], 2);
    assert_int_equal(order[1], 1);
    assert_int_equal(order[2], 0);
    arena_reset(&arena);
    model_config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ensemble_is_validated_against_its_models),
        cmocka_unit_test(a_listener_gets_every_step),
        cmocka_unit_test(a_cycle_is_found_from_each_of_its_models),
        cmocka_unit_test(steps_are_ordered_by_their_data),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
