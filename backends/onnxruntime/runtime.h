/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime - ONNX Runtime at work for all models of the backend: its environment, the threads that
 * models share, its log lines in ours, and the settings of the backend.
 */
#ifndef BACKENDS_ONNXRUNTIME_RUNTIME_H
#define BACKENDS_ONNXRUNTIME_RUNTIME_H

#include <sched.h>

#include "common/watch.h"
#include "onnxruntime/crew.h"
#include "onnxruntime/library.h"

/* Constant once open, except what watch.h says; used by all threads. */
struct runtime {
    struct library lib;
    struct ort_env *env;
    struct crew *crew;          /* the threads of its pools; NULL: it has none */
    struct ort_memory *cpu;     /* describes a buffer of ours in host memory */
    struct ort_allocator *heap; /* their default allocator */
    struct watch *watch;        /* of requests that are cancelled while a model runs */

    bool computes_alone;            /* 0 threads within an operator: only the thread that runs it */
    bool begun;                     /* the library was asked for an environment */
    bool allows_files;              /* models may name files for the library to read and write */
    bool shares_threads;            /* the environment has pools of threads for all models */
    cpu_set_t cpus;                 /* of those threads; what the process may use */
    int64_t inter_op_threads;       /* of the pool for execution_mode 1; 0: none was asked for */
    int64_t default_max_batch_size; /* for models that can batch and do not say how far */
};

/*
 * runtime_open - load the library and make its environment.
 * @backend_dir  the folder of this backend
 * @settings     as backend_settings() gives them
 * Errors: those of library_open(); INVALID_ARG  a setting's value is wrong
 */
TRITONSERVER_Error *runtime_open(const char *backend_dir, const struct doc *settings,
                                 struct runtime **ret_runtime);
void runtime_close(struct runtime *rt);

/* runtime_count_threads - of a pool whose threads are on these CPUs: one for each, or as many as
 * the server's quota of CPU time keeps busy, where these are fewer. */
int runtime_count_threads(const cpu_set_t *cpus);

/* runtime_log_level - the least severe lines that the server's log wants at this moment. */
enum ort_severity runtime_log_level(void);

#endif
