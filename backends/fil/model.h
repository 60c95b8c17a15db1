/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - one loaded version of a forest, and what its configuration asks of it.
 *
 * Threads: constant once loaded. All instances predict on it at the same time.
 */
#ifndef BACKENDS_FIL_MODEL_H
#define BACKENDS_FIL_MODEL_H

#include "common/frame.h"
#include "fil/forest.h"
#include "fil/treefile.h"

#define INPUT_NAME  "input__0"
#define OUTPUT_NAME "output__0"

/* What a row is answered with. */
enum answer {
    ANSWER_SCORES, /* the forest's own values: regression, ranking, a probability for each class */
    ANSWER_CLASS,  /* the number of the class */
    ANSWER_BOTH,   /* two classes: the probabilities of both */
};

/* Set when the server initialises the backend, constant until it finalises it. */
struct fil {
    struct treelite treelite;
    int64_t default_max_batch_size;
};

struct forest_model {
    const struct treelite *t;
    const char *name;
    treelite_model model;
    struct forest forest;
    void *small_arrays;              /* of the model (pack.h) */
    treelite_config on_one, on_many; /* how to predict: on the calling thread, on several */
    int64_t n_threads;               /* of cpu_nthread: -1 all processors */

    enum tree_format format;
    enum answer answer;
    float threshold; /* of two classes: above it a row is of class 1 */
    bool is_double;  /* tensors of FP64 */

    size_t n_scores;  /* values that the forest gives for a row */
    size_t n_values;  /* values of a row in the answer */
    bool has_columns; /* the answer's last dimension is n_values; else there are rows only */
    bool has_rows;    /* tensors have a first dimension of rows */
};

/* forest_model_open - read the file, complete the configuration if that is allowed, check it: the
 * m->state of a backend whose m->backend is a struct fil. */
TRITONSERVER_Error *forest_model_open(struct frame_model *m);
void forest_model_close(struct frame_model *m);

/* What the parameters of a configuration ask for. */
struct forest_asked {
    enum tree_format format;
    bool classifier_known, is_classifier; /* known: the configuration says it */
    bool predict_proba, allow_unknown;
    float threshold;
    int64_t n_threads;
};

/*
 * forest_read_parameters - read them, and log those that have no effect.
 * @model  for errors
 * Errors: INVALID_ARG  a value that is none of its kind
 */
TRITONSERVER_Error *forest_read_parameters(const struct doc *config, const char *model,
                                           struct forest_asked *ret_asked);

/* forest_model_configure - decide what rows are answered with; complete and check the tensors. */
TRITONSERVER_Error *forest_model_configure(struct forest_model *f, struct frame_model *m,
                                           const struct forest_asked *asked,
                                           int64_t default_max_batch_size);

#endif
