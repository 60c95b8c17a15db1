/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two passes over the parts: the first joins the shapes and looks where the buffers lie, the
 * second, if it must be, copies.
 */
#include "common/gather.h"

#include <stdlib.h>
#include <string.h>

/* One request's data of the input. */
struct piece {
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    uint32_t rank, n_buffers;
    uint64_t size;
};

/* Buffers seen so far, while each begins where the last one ends. */
struct run {
    const char *first, *end; /* NULL: no bytes yet */
    bool broken;
};

TRITONSERVER_Error *gather_reserve(struct gathered *g, uint64_t size, void **ret_memory)
{
    *ret_memory = g->lend ? g->lend(g->lender, size) : NULL;
    if (*ret_memory)
        return NULL;
    if (size > g->scratch_size) {
        void *memory;

        /* 64: a cache line, and the widest vector. */
        if (size > PTRDIFF_MAX || posix_memalign(&memory, 64, size) != 0)
            return backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory for %llu bytes",
                                 (unsigned long long)size);
        free(g->scratch);
        g->scratch = memory;
        g->scratch_size = size;
    }
    *ret_memory = g->scratch;
    return NULL;
}

void gathered_done(struct gathered *g)
{
    free(g->scratch);
    *g = (struct gathered){0};
}

TRITONSERVER_Error *gather_elements(const int64_t *shape, uint32_t rank, int64_t *ret_n)
{
    int64_t n = 1;

    for (uint32_t d = 0; d < rank; d++)
        if (shape[d] < 0 || __builtin_mul_overflow(n, shape[d], &n))
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                                 "a shape has a dimension below 0, or more elements than can be "
                                 "counted");
    *ret_n = n;
    return NULL;
}

/* ---- Shapes --------------------------------------------------------------------------------- */

/* The server lets a request lack only what the configuration has as optional. */
static TRITONSERVER_Error *explain_missing(TRITONSERVER_Error *err)
{
    TRITONSERVER_Error *told;

    if (!err || TRITONSERVER_ErrorCode(err) != TRITONSERVER_ERROR_INVALID_ARG)
        return err;
    told = backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                         "%s; the model needs this input, though it is optional in the "
                         "configuration",
                         TRITONSERVER_ErrorMessage(err));
    TRITONSERVER_ErrorDelete(err);
    return told;
}

static TRITONSERVER_Error *find_piece(const struct batch_part *part, const char *name,
                                      struct piece *ret_piece, TRITONSERVER_DataType *ret_type)
{
    struct piece p;

    TRY(explain_missing(TRITONBACKEND_RequestInput(part->request, name, &p.input)));
    TRY(TRITONBACKEND_InputProperties(p.input, NULL, ret_type, &p.shape, &p.rank, &p.size,
                                      &p.n_buffers));
    if (p.rank > BATCH_MAX_RANK)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "input '%s' has %u dimensions, more than %d", name,
                             (unsigned int)p.rank, BATCH_MAX_RANK);
    *ret_piece = p;
    return NULL;
}

static TRITONSERVER_Error *join_type(struct gathered *g, const char *name,
                                     TRITONSERVER_DataType type)
{
    if (g->type == TRITONSERVER_TYPE_INVALID)
        g->type = type;
    if (type != g->type)
        return backend_error(
            TRITONSERVER_ERROR_INVALID_ARG, "input '%s' has type %s, %s is expected", name,
            TRITONSERVER_DataTypeString(type), TRITONSERVER_DataTypeString(g->type));
    return NULL;
}

/* All elements of all requests, in one dimension. */
static TRITONSERVER_Error *join_ragged(struct gathered *g, const struct piece *p)
{
    int64_t n;

    TRY(gather_elements(p->shape, p->rank, &n));
    g->rank = 1;
    if (__builtin_add_overflow(g->shape[0], n, &g->shape[0]))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "a batch has too many elements");
    return NULL;
}

/* Joins the rows of requests: only the first dimension may differ. */
static TRITONSERVER_Error *join_rows(struct gathered *g, const char *name, const struct piece *p,
                                     bool first)
{
    if (first) {
        g->rank = p->rank;
        memcpy(g->shape, p->shape, p->rank * sizeof(*p->shape));
        return NULL;
    }
    if (p->rank != g->rank || p->rank == 0 ||
        memcmp(p->shape + 1, g->shape + 1, (p->rank - 1) * sizeof(*p->shape)) != 0 ||
        __builtin_add_overflow(g->shape[0], p->shape[0], &g->shape[0]))
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "input '%s' differs in shape between the requests of a batch", name);
    return NULL;
}

/* ---- Addresses of the data ------------------------------------------------------------------- */

static TRITONSERVER_Error *extend_run(struct run *run, const struct piece *p)
{
    for (uint32_t i = 0; i < p->n_buffers && !run->broken; i++) {
        TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
        int64_t memory_id = 0;
        const void *data;
        uint64_t n;

        TRY(TRITONBACKEND_InputBuffer(p->input, i, &data, &n, &memory, &memory_id));
        if (n == 0)
            continue;
        if (!run->first)
            run->first = run->end = data;
        /* Data on a GPU are refused where they would be copied. */
        run->broken = memory == TRITONSERVER_MEMORY_GPU || data != run->end;
        run->end = (const char *)data + n;
    }
    return NULL;
}

/* Compilers rely on natural alignment when they vectorise. A float at an odd address, as in a
 * region of shared memory, can crash a model. */
static bool is_usable_run(const struct run *run, const struct gathered *g)
{
    uint32_t element = TRITONSERVER_DataTypeByteSize(g->type);

    return !run->broken && run->first && (uint64_t)(run->end - run->first) == g->size &&
           (element == 0 || (uintptr_t)run->first % element == 0);
}

static TRITONSERVER_Error *copy_pieces(struct gathered *g, const struct batch *b, const char *name)
{
    TRITONSERVER_DataType type;
    uint64_t done = 0;
    struct piece p;
    void *to;

    TRY(gather_reserve(g, g->size > 0 ? g->size : 1, &to));
    for (uint32_t i = 0; i < b->n_parts; i++) {
        if (b->parts[i].err)
            continue;
        TRY(find_piece(&b->parts[i], name, &p, &type));
        if (p.size > g->size - done)
            return backend_error(TRITONSERVER_ERROR_INTERNAL, "input '%s' has grown", name);
        TRY(backend_input_copy(p.input, p.n_buffers, (char *)to + done, p.size));
        done += p.size;
    }
    g->data = to;
    g->copied = true;
    return NULL;
}

/* ---- All steps ------------------------------------------------------------------------------- */

/* RequestInput() of a missing input is an error like others, so its inputs are counted instead. */
static TRITONSERVER_Error *has_input(const struct batch_part *part, const char *name, bool *ret_has)
{
    const char *is;
    uint32_t n;

    TRY(TRITONBACKEND_RequestInputCount(part->request, &n));
    *ret_has = false;
    for (uint32_t i = 0; i < n && !*ret_has; i++) {
        TRY(TRITONBACKEND_RequestInputName(part->request, i, &is));
        *ret_has = strcmp(is, name) == 0;
    }
    return NULL;
}

static TRITONSERVER_Error *find_optional(const struct batch *b, const char *name, bool *ret_present)
{
    uint32_t n_have = 0, n = 0;

    for (uint32_t i = 0; i < b->n_parts; i++) {
        bool has;

        if (b->parts[i].err)
            continue;
        TRY(has_input(&b->parts[i], name, &has));
        n_have += has;
        n++;
    }
    if (n_have > 0 && n_have < n)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "input '%s' is in %u of the %u requests of a batch", name,
                             (unsigned int)n_have, (unsigned int)n);
    *ret_present = n_have > 0;
    return NULL;
}

static TRITONSERVER_Error *join_pieces(struct gathered *g, const struct batch *b, const char *name,
                                       unsigned int flags, struct run *run)
{
    TRITONSERVER_DataType type;
    struct piece p;
    bool first = true;

    for (uint32_t i = 0; i < b->n_parts; i++) {
        if (b->parts[i].err)
            continue;
        TRY(find_piece(&b->parts[i], name, &p, &type));
        TRY(join_type(g, name, type));
        TRY(flags & GATHER_RAGGED ? join_ragged(g, &p) : join_rows(g, name, &p, first));
        if (__builtin_add_overflow(g->size, p.size, &g->size))
            return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "input '%s' is too large", name);
        TRY(extend_run(run, &p));
        first = false;
    }
    return NULL;
}

TRITONSERVER_Error *gather(struct gathered *g, const struct batch *b, const char *name,
                           TRITONSERVER_DataType type, unsigned int flags)
{
    struct run run = {0};

    g->present = g->copied = false;
    g->type = type;
    g->rank = 0;
    g->shape[0] = 0;
    g->data = NULL;
    g->size = 0;
    if (flags & GATHER_OPTIONAL) {
        bool present;

        TRY(find_optional(b, name, &present));
        if (!present)
            return NULL;
    }
    TRY(join_pieces(g, b, name, flags, &run));
    g->present = true;
    if (!is_usable_run(&run, g))
        return copy_pieces(g, b, name);
    g->data = run.first;
    return NULL;
}
