/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of all requests are one matrix: where they arrived, or copied once (gather.h). treelite
 * writes its scores into the answer's memory if they are the answer; otherwise into memory of the
 * predictor, from which the answer is made.
 */
#include "fil/predict.h"

#include <stdlib.h>

#include "common/gather.h"
#include "common/scatter.h"

/* A batch of so many rows times trees is worth waking other threads for: below it they take longer
 * to wake than they save. */
#define MANY_VISITED_TREES 16384

struct predictor {
    const struct forest_model *model;
    struct gathered in, scores;
    struct scattered out;
};

TRITONSERVER_Error *predictor_open(struct frame_instance *in)
{
    struct predictor *p = calloc(1, sizeof(*p));

    if (!p)
        return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    p->model = in->model->state;
    in->state = p;
    return NULL;
}

void predictor_close(struct frame_instance *in)
{
    struct predictor *p = in->state;

    if (!p)
        return;
    gathered_done(&p->in);
    gathered_done(&p->scores);
    scattered_done(&p->out);
    free(p);
}

static TRITONSERVER_DataType tensor_type(const struct forest_model *f)
{
    return f->is_double ? TRITONSERVER_TYPE_FP64 : TRITONSERVER_TYPE_FP32;
}

static TRITONSERVER_Error *gather_rows(struct predictor *p, const struct batch *b,
                                       uint64_t *ret_rows)
{
    const struct forest_model *f = p->model;
    const struct gathered *in = &p->in;
    uint32_t rank = f->has_rows ? 2 : 1;

    TRY(gather(&p->in, b, INPUT_NAME, tensor_type(f), 0));
    /* The server checks this by the configuration, which may leave the number of features open. */
    if (in->rank != rank || in->shape[rank - 1] != f->forest.n_features)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "input '" INPUT_NAME "' has %lld features in %u dimensions, the model "
                             "has %d",
                             (long long)(in->rank > 0 ? in->shape[in->rank - 1] : 0),
                             (unsigned int)in->rank, (int)f->forest.n_features);
    *ret_rows = f->has_rows ? (uint64_t)in->shape[0] : 1;
    return NULL;
}

static TRITONSERVER_Error *predict_rows(const struct forest_model *f, const void *rows,
                                        uint64_t n_rows, void *scores)
{
    const struct treelite *t = f->t;
    const char *type = f->is_double ? "float64" : "float32";
    bool many = f->n_threads != 1 && n_rows > 1 && n_rows * f->forest.n_trees >= MANY_VISITED_TREES;

    if (t->GTILPredict(f->model, rows, type, n_rows, scores, many ? f->on_many : f->on_one) == 0)
        return NULL;
    /* This instance's threads may be bound to fewer processors than cpu_nthread says. */
    if (many && t->GTILPredict(f->model, rows, type, n_rows, scores, f->on_one) == 0)
        return NULL;
    return treelite_error(t, TRITONSERVER_ERROR_INTERNAL, "prediction");
}

/* ---- The answer ------------------------------------------------------------------------------ */

static double score_of(const struct forest_model *f, const void *scores, size_t i)
{
    return f->is_double ? ((const double *)scores)[i] : (double)((const float *)scores)[i];
}

static void put_answer(const struct forest_model *f, void *values, size_t i, double value)
{
    if (f->is_double)
        ((double *)values)[i] = value;
    else
        ((float *)values)[i] = (float)value;
}

/* The class with the highest score, the first of several; of two classes the second one, if its
 * probability is above the threshold. */
static size_t choose_class(const struct forest_model *f, const void *scores, size_t row)
{
    size_t n = f->n_scores, best = 0;

    if (n == 1)
        return score_of(f, scores, row) > (double)f->threshold;
    for (size_t i = 1; i < n; i++)
        if (score_of(f, scores, row * n + i) > score_of(f, scores, row * n + best))
            best = i;
    return best;
}

static void answer_rows(const struct forest_model *f, const void *scores, uint64_t n_rows,
                        void *values)
{
    for (size_t i = 0; i < n_rows; i++) {
        if (f->answer == ANSWER_CLASS) {
            put_answer(f, values, i, (double)choose_class(f, scores, i));
        } else {
            double p = score_of(f, scores, i);

            put_answer(f, values, 2 * i, 1.0 - p);
            put_answer(f, values, 2 * i + 1, p);
        }
    }
}

static TRITONSERVER_Error *begin_output(struct predictor *p, const struct batch *b, uint64_t n_rows)
{
    const struct forest_model *f = p->model;
    int64_t shape[2];
    uint32_t rank = 0;

    if (f->has_rows)
        shape[rank++] = (int64_t)n_rows;
    if (f->has_columns || rank == 0)
        shape[rank++] = (int64_t)f->n_values;
    /* There is one output, so every request asks for it. */
    return scatter_begin(&p->out, b, OUTPUT_NAME, BATCH_WANTED, tensor_type(f), shape, rank);
}

static TRITONSERVER_Error *reserve_scores(struct predictor *p, uint64_t n_rows, void **ret_scores)
{
    const struct forest_model *f = p->model;
    uint64_t size;

    if (f->answer == ANSWER_SCORES) {
        *ret_scores = p->out.data;
        return NULL;
    }
    if (__builtin_mul_overflow(n_rows, f->n_scores * (f->is_double ? 8 : 4), &size))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "too many rows");
    return gather_reserve(&p->scores, size, ret_scores);
}

TRITONSERVER_Error *predictor_run(struct frame_instance *in, struct batch *b)
{
    struct predictor *p = in->state;
    void *scores = NULL;
    uint64_t n_rows;

    TRY(gather_rows(p, b, &n_rows));
    TRY(begin_output(p, b, n_rows));
    TRY(reserve_scores(p, n_rows, &scores));
    batch_computes(b);
    if (n_rows > 0)
        TRY(predict_rows(p->model, p->in.data, n_rows, scores));
    batch_computed(b);
    if (p->model->answer != ANSWER_SCORES)
        answer_rows(p->model, scores, n_rows, p->out.data);
    return scatter_end(&p->out, b);
}
