/* SPDX-License-Identifier: Apache-2.0 */
/*
 * treelite - treelite's library, which reads forests and predicts: find it, load it, call it.
 */
#ifndef BACKENDS_FIL_TREELITE_H
#define BACKENDS_FIL_TREELITE_H

#include "common/backend.h"

/* A field of a forest, as treelite shows it: borrowed memory. Its layout is treelite's. */
struct treelite_field {
    void *data;
    char *format; /* as Python's struct module names types */
    size_t item_size, n;
};

typedef void *treelite_model;
typedef void *treelite_config;

/* The functions that are called, by treelite's names without `Treelite`. Each returns 0, or the
 * thread has an error. */
#define TREELITE_FUNCTIONS(X)                                                                      \
    X(LoadXGBoostModelFromJSONString,                                                              \
      (const char *text, size_t len, const char *config, treelite_model *ret_model))               \
    X(LoadXGBoostModelFromUBJSONString,                                                            \
      (const char *text, size_t len, const char *config, treelite_model *ret_model))               \
    X(LoadXGBoostModelLegacyBinaryFromMemoryBuffer,                                                \
      (const void *data, uint64_t len, const char *config, treelite_model *ret_model))             \
    X(LoadLightGBMModelFromString,                                                                 \
      (const char *text, const char *config, treelite_model *ret_model))                           \
    X(DeserializeModelFromBytes, (const char *data, size_t len, treelite_model *ret_model))        \
    X(FreeModel, (treelite_model model))                                                           \
    X(GetHeaderField, (treelite_model model, const char *name, struct treelite_field *ret_field))  \
    X(SetHeaderField, (treelite_model model, const char *name, struct treelite_field field))       \
    X(GetTreeField,                                                                                \
      (treelite_model model, uint64_t tree, const char *name, struct treelite_field *ret_field))   \
    X(SetTreeField,                                                                                \
      (treelite_model model, uint64_t tree, const char *name, struct treelite_field field))        \
    X(GTILParseConfig, (const char *json, treelite_config *ret_config))                            \
    X(GTILDeleteConfig, (treelite_config config))                                                  \
    X(GTILGetOutputShape, (treelite_model model, uint64_t n_rows, treelite_config config,          \
                           const uint64_t **ret_shape, uint64_t *ret_rank))                        \
    X(GTILPredict, (treelite_model model, const void *input, const char *type, uint64_t n_rows,    \
                    void *output, treelite_config config))                                         \
    X(RegisterWarningCallback, (void (*callback)(const char *text)))                               \
    X(RegisterLogCallback, (void (*callback)(const char *text)))

/* Constant once open; used by all threads. */
struct treelite {
#define TREELITE_MEMBER(name, parameters) int(*name) parameters;
    TREELITE_FUNCTIONS(TREELITE_MEMBER)
#undef TREELITE_MEMBER
    const char *(*last_error)(void);
    const char *version; /* theirs; "of unknown version" if the library does not tell */
    char *path;          /* NULL: unknown */
};

/*
 * treelite_open - find and load it.
 * @backend_dir  the folder of this backend
 * @file         path of the library if the user names one, else NULL
 * Errors: NOT_FOUND    there is no library; the text says where it was looked for, how to get it
 *         UNSUPPORTED  the library lacks a function
 */
TRITONSERVER_Error *treelite_open(const char *backend_dir, const char *file,
                                  struct treelite *ret_treelite);
void treelite_done(struct treelite *t); /* the memory only: loaded once, it stays loaded */

/*
 * treelite_error - the calling thread's last error of treelite, in one line, and behind it the last
 * line that treelite has logged since treelite_log_here(): its errors name the place in a file, and
 * the log names the reason.
 * @what  the step that failed
 */
TRITONSERVER_Error *treelite_error(const struct treelite *t, TRITONSERVER_Error_Code code,
                                   const char *what);

/* treelite_log_here - let the lines that treelite logs in this thread go to the server's log. */
void treelite_log_here(const struct treelite *t);

#endif
