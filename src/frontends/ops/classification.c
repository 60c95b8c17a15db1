/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k best of n elements are found by a heap of k, whose root is the worst of them: an element
 * that is no better than the root costs one comparison. Elements have an order by a key, an
 * unsigned number, and of equal ones the first is better. NaN is worse than all numbers. So the
 * result does not depend on the way it is found, unlike the reference's (reference/behaviours
 * §26.16).
 *
 * Threads: no state.
 */
#include "frontends/ops/classification.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/pool.h"
#include "base/status.h"
#include "core/model/labels.h"
#include "core/model/model.h"
#include "core/request/response.h"

enum {
    MAX_ELEMENTS = 1000000, /* of one entry of a batch, as in the reference */
    FEW_CLASSES = 64,
    USUAL_TEXT_BYTES = 32,
};

struct status *classification_add(struct classification *c, struct request *r, uint32_t index,
                                  uint64_t n_classes)
{
    struct classified_output *outputs =
        arena_grow(&r->arena, c->outputs, c->n_outputs, &c->capacity, sizeof(*outputs));
    if (!outputs)
        return status_no_memory();
    c->outputs = outputs;
    outputs[c->n_outputs++] = (struct classified_output){
        .name = r->maker.outputs[index],
        .n_classes = (uint32_t)MIN(n_classes, (uint64_t)UINT32_MAX),
    };
    return NULL;
}

/* ---- The best ------------------------------------------------------------------------------- */

struct ranked {
    uint64_t key;
    uint32_t index;
};

struct ranking {
    struct ranked *heap; /* the worst first, each no better than its two children */
    uint32_t n;          /* the most that it has */
};

static bool is_worse(struct ranked a, struct ranked b)
{
    return a.key < b.key || (a.key == b.key && a.index > b.index);
}

static void restore_heap(struct ranked *heap, uint32_t n, uint32_t at)
{
    struct ranked moved = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && is_worse(heap[child + 1], heap[child]))
            child++;
        if (!is_worse(heap[child], moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void make_heap(struct ranking *r)
{
    for (uint32_t i = r->n / 2; i-- > 0;)
        restore_heap(r->heap, r->n, i);
}

/* Sorts the heap, the best first. */
static void sort_ranking(struct ranking *r)
{
    for (uint32_t n = r->n; n-- > 1;) {
        struct ranked worst = r->heap[0];
        r->heap[0] = r->heap[n];
        r->heap[n] = worst;
        restore_heap(r->heap, n, 0);
    }
}

static uint64_t key_of_unsigned(uint64_t value)
{
    return value;
}

static uint64_t key_of_signed(int64_t value)
{
    return (uint64_t)value ^ (1ULL << 63);
}

static uint64_t key_of_double(double value)
{
    uint64_t bits;
    if (isnan(value))
        return 0;
    value += 0.0; /* -0 is equal to 0 */
    memcpy(&bits, &value, sizeof(bits));
    return bits >> 63 ? ~bits : bits | 1ULL << 63;
}

/*
 * rank_<type> - finds the ranking->n best of n elements, at least as many. The comparison of the
 * values themselves decides most; NaN is left to the keys.
 */
#define RANK(name, type, key_of)                                                                   \
    static void rank_##name(struct ranking *r, const void *base, uint32_t n)                       \
    {                                                                                              \
        const type *values = base;                                                                 \
        uint32_t i = 0;                                                                            \
        for (; i < r->n; i++)                                                                      \
            r->heap[i] = (struct ranked){key_of(values[i]), i};                                    \
        make_heap(r);                                                                              \
        type worst = r->n > 0 ? values[r->heap[0].index] : 0;                                      \
        for (; i < n && r->n > 0; i++) {                                                           \
            if (LIKELY(values[i] <= worst))                                                        \
                continue;                                                                          \
            struct ranked one = {key_of(values[i]), i};                                            \
            if (!is_worse(r->heap[0], one))                                                        \
                continue;                                                                          \
            r->heap[0] = one;                                                                      \
            restore_heap(r->heap, r->n, 0);                                                        \
            worst = values[r->heap[0].index];                                                      \
        }                                                                                          \
    }

RANK(u8, uint8_t, key_of_unsigned)
RANK(u16, uint16_t, key_of_unsigned)
RANK(u32, uint32_t, key_of_unsigned)
RANK(u64, uint64_t, key_of_unsigned)
RANK(i8, int8_t, key_of_signed)
RANK(i16, int16_t, key_of_signed)
RANK(i32, int32_t, key_of_signed)
RANK(i64, int64_t, key_of_signed)
RANK(f32, float, key_of_double)
RANK(f64, double, key_of_double)

/* ---- Texts ---------------------------------------------------------------------------------- */

static void add_unsigned(struct buf *out, uint64_t value)
{
    char text[20], *at = text + sizeof(text);
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    buf_add(out, at, (size_t)(text + sizeof(text) - at));
}

static void add_signed(struct buf *out, int64_t value)
{
    if (value < 0)
        buf_addc(out, '-');
    add_unsigned(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/*
 * Scales a number to whole millionths, rounded to even as printf does. False: it has too many
 * digits for that, or it is not finite. A number is m * 2^-shift with m below 2^53.
 */
static bool find_millionths(double value, uint64_t *ret)
{
    enum { MILLION = 1000000, MANTISSA_BITS = 53, MOST = 1 << 30 };
    int exponent;
    if (!(value < MOST))
        return false;
    uint64_t m = (uint64_t)ldexp(frexp(value, &exponent), MANTISSA_BITS);
    int shift = MANTISSA_BITS - exponent;
    if (shift > MANTISSA_BITS + 64) {
        *ret = 0;
        return true;
    }
    unsigned __int128 scaled = (unsigned __int128)m * MILLION;
    unsigned __int128 rest = scaled & (((unsigned __int128)1 << shift) - 1);
    unsigned __int128 half = (unsigned __int128)1 << (shift - 1);
    uint64_t n = (uint64_t)(scaled >> shift);
    *ret = n + (rest > half || (rest == half && n % 2 == 1));
    return true;
}

/* Adds a number with six decimals, as std::to_string() and "%f" do, which take ten times as long.
 */
static void add_decimal(struct buf *out, double value)
{
    enum { MILLION = 1000000, DECIMALS = 6 };
    char decimals[1 + DECIMALS] = ".";
    uint64_t millionths;
    if (!find_millionths(fabs(value), &millionths)) {
        buf_addf(out, "%f", value);
        return;
    }
    if (signbit(value))
        buf_addc(out, '-');
    add_unsigned(out, millionths / MILLION);
    uint64_t rest = millionths % MILLION;
    for (int i = DECIMALS; i > 0; i--) {
        decimals[i] = (char)('0' + rest % 10);
        rest /= 10;
    }
    buf_add(out, decimals, sizeof(decimals));
}

#define ADD(name, type, add)                                                                       \
    static void add_##name(struct buf *out, const void *base, uint32_t index)                      \
    {                                                                                              \
        add(out, ((const type *)base)[index]);                                                     \
    }

ADD(u8, uint8_t, add_unsigned)
ADD(u16, uint16_t, add_unsigned)
ADD(u32, uint32_t, add_unsigned)
ADD(u64, uint64_t, add_unsigned)
ADD(i8, int8_t, add_signed)
ADD(i16, int16_t, add_signed)
ADD(i32, int32_t, add_signed)
ADD(i64, int64_t, add_signed)
ADD(f32, float, add_decimal)
ADD(f64, double, add_decimal)

/* The datatypes that have an order. */
static const struct kind {
    void (*rank)(struct ranking *r, const void *base, uint32_t n);
    void (*add)(struct buf *out, const void *base, uint32_t index);
} kinds[N_DTYPES] = {
    [DTYPE_UINT8] = {rank_u8, add_u8},    [DTYPE_UINT16] = {rank_u16, add_u16},
    [DTYPE_UINT32] = {rank_u32, add_u32}, [DTYPE_UINT64] = {rank_u64, add_u64},
    [DTYPE_INT8] = {rank_i8, add_i8},     [DTYPE_INT16] = {rank_i16, add_i16},
    [DTYPE_INT32] = {rank_i32, add_i32},  [DTYPE_INT64] = {rank_i64, add_i64},
    [DTYPE_FP32] = {rank_f32, add_f32},   [DTYPE_FP64] = {rank_f64, add_f64},
};

/* ---- Outputs -------------------------------------------------------------------------------- */

/* An output on its way. */
struct task {
    struct output *out;
    const struct kind *kind;
    const struct labels *labels; /* NULL: there are none */
    uint32_t n_entries;          /* of the batch, at least 1 */
    bool is_batch;               /* the shape begins with n_entries */
    uint32_t n_elements;         /* of an entry */
    struct ranking ranking;
    struct buf text;
};

/* Multiplies the dimensions from `first` on; false: too large, or one is negative. */
static bool multiply_dims(const struct output *out, uint32_t first, uint64_t *ret)
{
    uint64_t n = 1;
    for (uint32_t i = first; i < out->n_dims; i++) {
        if (out->shape[i] < 0 || __builtin_mul_overflow(n, (uint64_t)out->shape[i], &n))
            return false;
    }
    *ret = n;
    return true;
}

static struct status *refuse_datatype(const struct output *out)
{
    return status_new(STATUS_INVALID_ARG,
                      "class result not available for output due to unsupported type '%s'",
                      dtype_name(out->dtype));
}

/* Checks the output, and finds its entries and elements. */
static struct status *measure_output(struct task *t)
{
    const struct output *out = t->out;
    uint64_t n_elements = 0, n_bytes;
    int64_t batch =
        t->out->response->request->model->batching && out->n_dims > 0 ? out->shape[0] : 0;
    t->is_batch = batch > 0;
    bool fine = multiply_dims(out, t->is_batch, &n_elements) && batch <= INT32_MAX;
    if (dtype_size(out->dtype) == 0)
        return refuse_datatype(out);
    if (fine && n_elements > MAX_ELEMENTS)
        return status_new(STATUS_INVALID_ARG, "classification output tensor too large");
    if (!kinds[out->dtype].rank)
        return refuse_datatype(out);
    t->n_entries = t->is_batch ? (uint32_t)batch : 1;
    t->n_elements = (uint32_t)n_elements;
    n_bytes = n_elements * t->n_entries * dtype_size(out->dtype);
    if (!fine || n_bytes != out->size_bytes)
        return status_new(STATUS_INTERNAL,
                          "output '%s': its %zu bytes do not fit its shape and its datatype %s",
                          out->name, out->size_bytes, dtype_name(out->dtype));
    t->kind = &kinds[out->dtype];
    return NULL;
}

/* Adds one text with its length in front. */
static void add_class(struct task *t, const void *base, uint32_t index)
{
    struct buf *text = &t->text;
    const char *label = labels_find(t->labels, index);
    uint32_t length = 0;
    size_t begin = text->size;
    buf_add(text, &length, sizeof(length));
    t->kind->add(text, base, index);
    buf_addc(text, ':');
    add_unsigned(text, index);
    if (label) {
        buf_addc(text, ':');
        buf_adds(text, label);
    }
    if (text->failed)
        return;
    length = (uint32_t)(text->size - begin - sizeof(length));
    memcpy(text->data + begin, &length, sizeof(length));
}

static struct status *write_classes(struct task *t)
{
    size_t entry_bytes = t->n_elements * dtype_size(t->out->dtype);
    const char *base = t->out->base;
    for (uint32_t i = 0; i < t->n_entries && !t->text.failed; i++, base += entry_bytes) {
        t->kind->rank(&t->ranking, base, t->n_elements);
        sort_ranking(&t->ranking);
        for (uint32_t k = 0; k < t->ranking.n && !t->text.failed; k++)
            add_class(t, base, t->ranking.heap[k].index);
    }
    return buf_status(&t->text);
}

/* Gives the output the texts in the place of its numbers. */
static struct status *set_classes(struct task *t)
{
    struct output *out = t->out, fresh = *out;
    struct request *r = out->response->request;
    int64_t *shape = arena_alloc(&out->response->arena, 2 * sizeof(*shape));
    if (!shape)
        return status_no_memory();
    fresh.base = NULL;
    struct status *st = r->ops->alloc_output(r, &fresh, t->text.size);
    if (st)
        return st;
    if (t->text.size > 0)
        memcpy(fresh.base, t->text.data, t->text.size);
    if (out->allocated)
        r->ops->free_output(r, out);
    fresh.allocated = true;
    fresh.size_bytes = t->text.size;
    fresh.dtype = DTYPE_BYTES;
    fresh.shape = shape;
    fresh.n_dims = 0;
    if (t->is_batch)
        shape[fresh.n_dims++] = t->n_entries;
    shape[fresh.n_dims++] = t->ranking.n;
    *out = fresh;
    return NULL;
}

static struct status *classify(struct output *out, uint32_t n_classes)
{
    struct request *r = out->response->request;
    const struct tensor_spec *spec = model_find_output(r->model, out->name);
    struct task t = {.out = out, .labels = spec ? spec->labels : NULL};
    struct ranked few[FEW_CLASSES], *many = NULL;
    struct status *st = measure_output(&t);
    if (st)
        return st;
    t.ranking = (struct ranking){few, MIN(n_classes, t.n_elements)};
    if (t.ranking.n > FEW_CLASSES) {
        t.ranking.heap = many = pool_alloc(r->pool, t.ranking.n * sizeof(*many), r->model->owner);
        if (!many)
            return status_no_memory();
    }
    buf_init_pooled(&t.text, INT32_MAX, r->pool);
    buf_reserve(&t.text, (size_t)USUAL_TEXT_BYTES * MIN(t.ranking.n, (uint32_t)FEW_CLASSES));
    st = write_classes(&t);
    if (!st)
        st = set_classes(&t);
    buf_done(&t.text);
    pool_release(many);
    return st;
}

void classification_replace_outputs(const struct classification *c, struct response *resp)
{
    for (uint32_t i = 0; i < resp->n_outputs && !resp->error; i++) {
        for (uint32_t k = 0; k < c->n_outputs; k++) {
            if (strcmp(c->outputs[k].name, resp->outputs[i]->name) != 0)
                continue;
            resp->error = classify(resp->outputs[i], c->outputs[k].n_classes);
            break;
        }
    }
}
