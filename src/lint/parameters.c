/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a configuration for the backend: parameters that the backend does not read, values
 * that it refuses, and fields that it cannot act upon.
 */
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "core/sched/execution.h"
#include "lint/backends.h"
#include "lint/model_check.h"

typedef Inference__ModelConfig__ParametersEntry parameter;

static bool is_family(const struct parameter_traits *t)
{
    return t->name[strlen(t->name) - 1] == '.';
}

static const struct parameter_traits *find_traits(const struct parameter_traits *table,
                                                  const char *name)
{
    for (const struct parameter_traits *t = table; t && t->name; t++) {
        if (strcmp(t->name, name) == 0 ||
            (is_family(t) && strncmp(t->name, name, strlen(t->name)) == 0))
            return t;
    }
    return NULL;
}

static void find_nearest(const struct parameter_traits *table, const char *name, const char **best,
                         size_t *least)
{
    for (const struct parameter_traits *t = table; t && t->name; t++) {
        if (!is_family(t) && str_nearer(name, t->name, least))
            *best = t->name;
    }
}

/* A value that is none of a parameter's choices. */
static void check_choice(struct model_check *l, const struct parameter_traits *t,
                         const parameter *p)
{
    struct buf list;
    buf_init(&list, 500);
    for (const char *const *c = t->choices; *c; c++) {
        if (strcmp(*c, p->value->string_value) == 0) {
            buf_done(&list);
            return;
        }
        buf_addf(&list, "%s%s", c == t->choices ? "" : c[1] ? ", " : " or ", *c);
    }
    lint_add(l->found, LINT_BAD_PARAMETER, lint_at(l, p, "value", 0), NULL,
             "parameter '%s' must be %s, got '%s'", p->key, buf_text(&list),
             p->value->string_value);
    buf_done(&list);
}

static void check_parameter_value(struct model_check *l, const struct parameter_traits *t,
                                  const parameter *p)
{
    const char *value = p->value->string_value;
    struct lint_position position = lint_at(l, p, "value", 0);
    int64_t number;
    if (t->is_number &&
        (!str_to_int64(value, strlen(value), &number) || number < t->min || number > t->max))
        lint_add(l->found, LINT_BAD_PARAMETER, position, NULL,
                 "parameter '%s' must be a whole number from %" PRId64 " to %" PRId64 ", got '%s'",
                 p->key, t->min, t->max, value);
    if (t->choices)
        check_choice(l, t, p);
    if (t == &server_parameters[0]) { /* CONCH_EXECUTION */
        struct execution e;
        struct status *st = execution_init(&e, clock_real(), value, false);
        if (st)
            lint_add(l->found, LINT_BAD_PARAMETER, position, NULL, "%s", status_message(st));
        status_free(st);
    }
}

/* A parameter that the backend does not read is a mistake only if its models cannot read it,
 * either. */
static void check_unknown_parameter(struct model_check *l, const parameter *p)
{
    const struct backend_traits *b = l->backend;
    const char *best = NULL;
    size_t least = SIZE_MAX;
    bool ours = strncmp(p->key, "CONCH_", strlen("CONCH_")) == 0;
    find_nearest(server_parameters, p->key, &best, &least);
    find_nearest(b ? b->parameters : NULL, p->key, &best, &least);
    bool closed = b && b->parameters && !b->own_parameters;
    if (!ours && !closed && !best)
        return;
    char *advice = best ? mem_printf("did you mean \"%s\"?", best) : NULL;
    lint_add(l->found, LINT_PARAMETER, lint_at(l, p, "key", 0), advice,
             ours ? "the server does not know the parameter '%s'%s"
                  : "parameter '%s' has no effect: backend '%s' does not know it",
             p->key, ours ? "" : l->pb->backend);
    mem_free(advice);
}

typedef Inference__ModelOptimizationPolicy__ExecutionAccelerators__Accelerator accelerator;

/* Whether the library that a backend finds has a known one, only the server can see. */
static void check_accelerators(struct model_check *l, accelerator *const *list, size_t n,
                               const char *const *known)
{
    for (size_t i = 0; i < n && known; i++) {
        const char *const *k = known;
        while (*k && strcmp(*k, list[i]->name) != 0)
            k++;
        if (!*k)
            lint_add(l->found, LINT_UNSUPPORTED, lint_at(l, list[i], "name", 0), NULL,
                     "unknown Execution Accelerator '%s' is requested", list[i]->name);
    }
}

static void check_all_accelerators(struct model_check *l)
{
    const Inference__ModelOptimizationPolicy__ExecutionAccelerators *a =
        l->pb->optimization ? l->pb->optimization->execution_accelerators : NULL;
    if (!l->backend || !a)
        return;
    check_accelerators(l, a->gpu_execution_accelerator, a->n_gpu_execution_accelerator,
                       l->backend->gpu_accelerators);
    check_accelerators(l, a->cpu_execution_accelerator, a->n_cpu_execution_accelerator,
                       l->backend->cpu_accelerators);
}

void lint_check_parameters(struct model_check *l)
{
    check_all_accelerators(l);
    for (size_t i = 0; i < l->pb->n_parameters; i++) {
        const parameter *p = l->pb->parameters[i];
        const struct parameter_traits *t = find_traits(server_parameters, p->key);
        if (!t && l->backend)
            t = find_traits(l->backend->parameters, p->key);
        if (t)
            check_parameter_value(l, t, p);
        else
            check_unknown_parameter(l, p);
    }
}
