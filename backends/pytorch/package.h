/* SPDX-License-Identifier: Apache-2.0 */
/*
 * package - a file model.pt2: a ZIP archive that PyTorch's AOTInductor writes, with the compiled
 * code of a model. What it is and whom it is for is checked here, before an instruction of it runs.
 *
 * Threads: no state is kept; any thread.
 */
#ifndef BACKENDS_PYTORCH_PACKAGE_H
#define BACKENDS_PYTORCH_PACKAGE_H

#include "common/backend.h"

/* What a package may be compiled for. */
struct processor {
    char machine[65]; /* as uname() says: x86_64 */
    char *features;   /* words that /proc/cpuinfo has for them, each between blanks; owned */
};

/*
 * processor_read - what this machine is.
 * Errors: UNAVAILABLE  no memory, or no /proc/cpuinfo
 */
TRITONSERVER_Error *processor_read(struct processor *ret_processor);
void processor_done(struct processor *p);

/* A package whose code may run here. */
struct package {
    int code;      /* a sealed file in memory with the model's shared library */
    uint64_t size; /* its bytes */
};

/*
 * package_open - read a package, and check it.
 * Errors: INVALID_ARG  it is no package, is damaged, or lacks the model's code
 *         UNSUPPORTED  it is not for this processor, or has a part that is not supported
 *         UNAVAILABLE  no memory, no libarchive
 */
TRITONSERVER_Error *package_open(const char *path, const struct processor *p,
                                 struct package *ret_package);
void package_close(struct package *p);

/*
 * code_check - is this a shared library for a processor, whole as far as its headers tell? A
 * library of GPUs among those that it needs is refused. libtorch.so, which would bring CUDA's
 * libraries with it, and of which no code needs anything, is replaced by libtorch_cpu.so.
 * @bytes    changed
 * @machine  as uname() says
 * Errors: INVALID_ARG, UNSUPPORTED
 */
TRITONSERVER_Error *code_check(unsigned char *bytes, size_t n, const char *machine);

#endif
