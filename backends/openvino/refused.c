/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether it is the shapes is found out by the model that was read: it gets the shapes of the run,
 * which OpenVINO then follows through the graph, and after that its own shapes again. If OpenVINO
 * refuses shapes, it gives the model its own itself.
 *
 * The table has a fixed size; the oldest entry makes room for a new one. A model without entries
 * pays for one atomic load in a run.
 *
 * Locks: m->compiled.mu, under which the model that was read is used; then mu.
 */
#include "openvino/refused.h"

#include <stdlib.h>
#include <string.h>

#include "openvino/model.h"

void refused_init(struct refused *f)
{
    pthread_mutex_init(&f->mu, NULL);
    f->has_mu = true;
}

static void free_refusal(struct refusal *r)
{
    free(r->shapes);
    free(r->text);
    *r = (struct refusal){0};
}

void refused_done(struct refused *f)
{
    for (size_t i = 0; i < REFUSED_MOST; i++)
        free_refusal(&f->all[i]);
    if (f->has_mu)
        pthread_mutex_destroy(&f->mu);
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static size_t count_shape_numbers(const struct model *m, const struct gathered *in)
{
    size_t len = 0;

    for (size_t i = 0; i < m->inputs.n; i++)
        len += 1 + in[i].rank;
    return len;
}

/* Are the numbers in `shapes` those of the inputs? With write: they are from then on. */
static bool compare_shapes(const struct model *m, const struct gathered *in, int64_t *shapes,
                           bool write)
{
    for (size_t i = 0; i < m->inputs.n; i++) {
        if (write)
            *shapes = (int64_t)in[i].rank;
        if (*shapes++ != (int64_t)in[i].rank)
            return false;
        if (write)
            memcpy(shapes, in[i].shape, in[i].rank * sizeof(*shapes));
        if (memcmp(shapes, in[i].shape, in[i].rank * sizeof(*shapes)) != 0)
            return false;
        shapes += in[i].rank;
    }
    return true;
}

static const struct refusal *find_refusal_locked(const struct model *m, const struct gathered *in)
{
    const struct refused *f = &m->refused;
    size_t len = count_shape_numbers(m, in);

    for (size_t i = 0; i < atomic_load(&f->n); i++)
        if (f->all[i].len == len && compare_shapes(m, in, f->all[i].shapes, false))
            return &f->all[i];
    return NULL;
}

TRITONSERVER_Error *refused_check(struct model *m, const struct gathered *in)
{
    struct refused *f = &m->refused;
    const struct refusal *r;
    TRITONSERVER_Error *err;

    if (atomic_load_explicit(&f->n, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&f->mu);
    r = find_refusal_locked(m, in);
    err = r ? backend_error(TRITONSERVER_ERROR_INTERNAL, "%s", r->text) : NULL;
    pthread_mutex_unlock(&f->mu);
    return err;
}

/* ---- Learn ----------------------------------------------------------------------------------- */

/* Gives the model that was read the shapes of a run, or its own. */
static bool reshape_read_model(const struct model *m, const struct gathered *in,
                               struct ov_partial_shape *shapes, struct ov_dimension *dims,
                               const char **names)
{
    for (size_t i = 0; i < m->inputs.n; i++) {
        const struct tensor *t = &m->inputs.tensors[i];
        size_t rank = in ? in[i].rank : t->rank;

        names[i] = t->name;
        shapes[i].rank =
            !in && t->any_rank ? any_size : (struct ov_dimension){(int64_t)rank, (int64_t)rank};
        shapes[i].dims = dims;
        for (size_t d = 0; d < rank; d++)
            *dims++ = in ? (struct ov_dimension){in[i].shape[d], in[i].shape[d]} : t->limits[d];
    }
    return m->rt->lib.api.model_reshape(m->read, names, shapes, m->inputs.n) == 0;
}

/* Does OpenVINO refuse the shapes, with any values? */
static bool try_shapes_locked(const struct model *m, const struct gathered *in)
{
    size_t n = m->inputs.n;
    struct ov_partial_shape *shapes = calloc(n, sizeof(*shapes));
    struct ov_dimension *dims = calloc(n * MAX_RANK, sizeof(*dims));
    const char **names = calloc(n, sizeof(*names));
    bool refuses = false;

    if (shapes && dims && names) {
        refuses = !reshape_read_model(m, in, shapes, dims, names);
        if (!refuses && !reshape_read_model(m, NULL, shapes, dims, names))
            BACKEND_LOG(ERROR, "model '%s': OpenVINO does not give it its shapes back", m->name);
    }
    free(names);
    free(dims);
    free(shapes);
    return refuses;
}

/* Without memory they are not remembered. */
static void remember(struct model *m, const struct gathered *in, const char *text)
{
    size_t len = count_shape_numbers(m, in);
    struct refusal r = {calloc(len, sizeof(*r.shapes)), len, strdup(text)};
    struct refused *f = &m->refused;

    if (!r.shapes || !r.text) {
        free_refusal(&r);
        return;
    }
    (void)compare_shapes(m, in, r.shapes, true);
    pthread_mutex_lock(&f->mu);
    free_refusal(&f->all[f->next]);
    f->all[f->next] = r;
    f->next = (f->next + 1) % REFUSED_MOST;
    if (atomic_load(&f->n) < REFUSED_MOST)
        atomic_fetch_add(&f->n, 1);
    pthread_mutex_unlock(&f->mu);
}

void refused_learn(struct model *m, const struct gathered *in, TRITONSERVER_Error *err)
{
    bool refuses;

    if (m->inputs.n == 0)
        return;
    pthread_mutex_lock(&m->compiled.mu);
    refuses = try_shapes_locked(m, in);
    pthread_mutex_unlock(&m->compiled.mu);
    if (refuses)
        remember(m, in, TRITONSERVER_ErrorMessage(err));
}
