/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Built-in knowledge about backends, which are not loaded.
 */
#ifndef CONCH_LINT_BACKENDS_H
#define CONCH_LINT_BACKENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/config/config.h"

struct parameter_traits {
    const char *name; /* a name that ends in '.' stands for all names that begin so */
    bool is_number;
    int64_t min, max;
    const char *const *choices; /* the values that it may have, ended by NULL; NULL: any */
};

struct backend_traits {
    const char *name;
    bool completes;      /* adds the inputs or the outputs, where the configuration has none */
    bool completes_more; /* … and also what the model's own code returns */
    bool needs_file;     /* the file default_model_filename must exist */
    const struct parameter_traits *parameters; /* ended by a NULL name; NULL: nothing is known */
    bool own_parameters;                       /* models may have further parameters of their own */
    /* Execution accelerators that the backend supports, ended by NULL; NULL: nothing is known. */
    const char *const *cpu_accelerators, *const *gpu_accelerators;
};

/* backend_traits_of - NULL for a backend that is not known. */
const struct backend_traits *backend_traits_of(const char *backend);

/* server_parameters - parameters that the server reads for any backend; ended by a NULL name. */
extern const struct parameter_traits server_parameters[];

/* backend_forest_file - the file that the backend fil reads, by the configuration's model_type; ""
 * for a type that it does not have. */
const char *backend_forest_file(const Inference__ModelConfig *pb);

/* backend_nearest - the name of the known backend that was probably meant, or NULL. */
const char *backend_nearest(const char *name);

#endif
