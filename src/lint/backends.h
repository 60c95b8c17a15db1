/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known about backends without loading them.
 */
#ifndef CONCH_LINT_BACKENDS_H
#define CONCH_LINT_BACKENDS_H

#include <stdbool.h>
#include <stdint.h>

struct parameter_traits {
    const char *name; /* one that ends in '.' stands for all that begin so */
    bool is_number;
    int64_t min, max;
};

struct backend_traits {
    const char *name;
    bool completes;      /* adds the inputs or the outputs, when there are none of them */
    bool completes_more; /* … and whatever the model's own code says */
    bool needs_file;     /* default_model_filename must be there */
    const struct parameter_traits *parameters; /* ended by a NULL name; NULL: nothing is known */
    bool own_parameters;                       /* models have parameters of their own, too */
    /* Execution accelerators that it knows, ended by NULL; NULL: nothing is known. */
    const char *const *cpu_accelerators, *const *gpu_accelerators;
};

/* backend_traits_of - NULL for a backend that nothing is known of. */
const struct backend_traits *backend_traits_of(const char *backend);

/* server_parameters - those that the server reads, whatever the backend; ended by a NULL name. */
extern const struct parameter_traits server_parameters[];

/* backend_nearest - the known backend that was probably meant, or NULL. */
const char *backend_nearest(const char *name);

#endif
