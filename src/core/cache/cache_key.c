/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a key are gathered in a small buffer, which is hashed as a whole: XXH3 is quickest
 * with few calls, and its streaming interface costs half a microsecond to begin with. When the
 * buffer is full, its hash takes the place of what it holds. Tensors above HASH_ALONE_BYTES are
 * hashed where they lie, and their hash is gathered. The length of each part precedes it, so that
 * no two requests give the same bytes.
 */
#include "core/cache/cache_key.h"

#include <endian.h>
#include <string.h>
#include <sys/random.h>

#define XXH_STATIC_LINKING_ONLY /* the size of XXH3_state_t */
#include <xxhash.h>

#include "base/clock.h"
#include "core/config/config.h"
#include "core/model/model.h"
#include "core/request/request.h"

enum { GATHER_BYTES = 512, HASH_ALONE_BYTES = 128 };

struct gathered {
    size_t n;
    _Alignas(16) char bytes[GATHER_BYTES];
};

static struct cache_key hash_key_bytes(const void *bytes, size_t n)
{
    XXH128_hash_t h = XXH3_128bits(bytes, n);
    return (struct cache_key){.low = h.low64, .high = h.high64};
}

/* Makes room for that many bytes, HASH_ALONE_BYTES at most. */
static inline char *reserve_gathered(struct gathered *g, size_t n)
{
    if (UNLIKELY(g->n + n > GATHER_BYTES)) {
        struct cache_key so_far = hash_key_bytes(g->bytes, g->n);
        memcpy(g->bytes, &so_far, sizeof(so_far));
        g->n = sizeof(so_far);
    }
    char *at = g->bytes + g->n;
    g->n += n;
    return at;
}

/* n is at most HASH_ALONE_BYTES. */
static inline void gather_bytes(struct gathered *g, const void *bytes, size_t n)
{
    char *at = reserve_gathered(g, n);
    if (n > 0)
        memcpy(at, bytes, n);
}

static inline void gather_number(struct gathered *g, uint64_t number)
{
    memcpy(reserve_gathered(g, sizeof(number)), &number, sizeof(number));
}

static inline void gather_key(struct gathered *g, struct cache_key key)
{
    memcpy(reserve_gathered(g, sizeof(key)), &key, sizeof(key));
}

/* The bytes or their hash; their length is gathered already, or follows from what is. */
static void gather_content(struct gathered *g, const void *bytes, size_t n)
{
    if (n <= HASH_ALONE_BYTES)
        gather_bytes(g, bytes, n);
    else
        gather_key(g, hash_key_bytes(bytes, n));
}

static void gather_sized(struct gathered *g, const void *bytes, size_t n)
{
    gather_number(g, n);
    gather_content(g, bytes, n);
}

static void gather_text(struct gathered *g, const char *text)
{
    gather_sized(g, text, strlen(text));
}

/* The bytes of several buffers, as if they were one of that many bytes. */
static void gather_buffers(struct gathered *g, const struct input *in)
{
    char joined[HASH_ALONE_BYTES];
    size_t n = 0;
    XXH3_state_t state;
    bool is_small = in->size_bytes <= sizeof(joined);
    if (!is_small)
        XXH3_128bits_reset(&state);
    for (uint32_t i = 0; i < in->n_buffers; i++) {
        const struct tensor_buffer *b = &in->buffers[i];
        if (b->host_policy || b->size_bytes == 0)
            continue;
        if (is_small)
            memcpy(joined + n, b->base, b->size_bytes);
        else
            XXH3_128bits_update(&state, b->base, b->size_bytes);
        n += b->size_bytes;
    }
    if (is_small) {
        gather_bytes(g, joined, n);
        return;
    }
    XXH128_hash_t h = XXH3_128bits_digest(&state);
    gather_key(g, (struct cache_key){.low = h.low64, .high = h.high64});
}

/* What only the instances of one host policy read. */
static void gather_policies(struct gathered *g, const struct input *in)
{
    for (uint32_t i = 0; i < in->n_buffers; i++) {
        const struct tensor_buffer *b = &in->buffers[i];
        if (UNLIKELY(b->host_policy != NULL)) {
            gather_text(g, b->host_policy);
            gather_sized(g, b->base, b->size_bytes);
        }
    }
}

/*
 * False: it is in the memory of a GPU. The index stands for the name. The size is that of the
 * shape's elements (admit.c), unless they are strings.
 */
static bool gather_input(struct gathered *g, const struct input *in, uint32_t index)
{
    const struct tensor_buffer *first = in->buffers;
    bool has_policies = false;
    for (uint32_t i = 0; i < in->n_buffers; i++) {
        if (in->buffers[i].type == MEMORY_GPU)
            return false;
        has_policies |= in->buffers[i].host_policy != NULL;
    }
    gather_number(g, (uint64_t)index << 32 | (uint64_t)has_policies << 31 |
                         (uint64_t)in->dtype << 16 | in->n_dims);
    for (uint32_t i = 0; i < in->n_dims; i++)
        gather_number(g, (uint64_t)in->shape[i]);
    if (has_policies || in->dtype == DTYPE_BYTES)
        gather_number(g, in->size_bytes);
    if (LIKELY(in->n_buffers == 1 && !has_policies))
        gather_content(g, first->base, first->size_bytes);
    else
        gather_buffers(g, in);
    if (UNLIKELY(has_policies))
        gather_policies(g, in);
    return true;
}

/* Returns the request's input of that description; NULL: an optional one that it does not have. */
static const struct input *input_of_spec(const struct request *r, uint32_t index)
{
    const struct tensor_spec *spec = &r->model->inputs[index];
    if (LIKELY(index < r->maker.n_inputs && r->maker.inputs[index]->spec == spec))
        return r->maker.inputs[index];
    for (uint32_t i = 0; i < r->maker.n_inputs; i++) {
        if (r->maker.inputs[i]->spec == spec)
            return r->maker.inputs[i];
    }
    return NULL;
}

static void gather_parameter(struct gathered *g, const struct parameter *p)
{
    uint64_t value = p->type == PARAMETER_BOOL ? (uint64_t)p->boolean : (uint64_t)p->int64;
    gather_text(g, p->name);
    gather_number(g, p->type);
    if (p->type == PARAMETER_STRING)
        gather_text(g, p->string);
    else
        gather_number(g, value);
}

bool cache_key_of(const struct request *r, struct cache_key *ret_key)
{
    struct gathered g;
    g.n = 0;
    gather_key(&g, r->model->cached->load);
    for (uint32_t i = 0; i < r->model->n_inputs; i++) {
        const struct input *in = input_of_spec(r, i);
        if (in && !gather_input(&g, in, i))
            return false;
    }
    gather_number(&g, (uint64_t)r->maker.n_outputs << 32 | r->maker.n_parameters);
    for (uint32_t i = 0; i < r->maker.n_outputs; i++)
        gather_text(&g, r->maker.outputs[i]);
    for (uint32_t i = 0; i < r->maker.n_parameters; i++)
        gather_parameter(&g, &r->maker.parameters[i]);
    *ret_key = hash_key_bytes(g.bytes, g.n);
    return true;
}

struct cache_key cache_key_of_load(const struct model *m)
{
    struct gathered g;
    const char *id = model_config_parameter(m->config, "CONCH_CACHE_ID");
    g.n = 0;
    gather_text(&g, m->name);
    gather_number(&g, (uint64_t)m->version);
    if (id) {
        gather_text(&g, id);
        return hash_key_bytes(g.bytes, g.n);
    }
    uint64_t number[2] = {0};
    if (getrandom(number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number))
        number[0] = clock_now_ns(clock_real()) ^ (uint64_t)(uintptr_t)m;
    gather_bytes(&g, number, sizeof(number));
    return hash_key_bytes(g.bytes, g.n);
}

/* 16 bytes at once, in a register. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));

static bytes16 digits_of(bytes16 numbers)
{
    const bytes16 above_9 = (bytes16)(numbers > 9);
    return numbers + '0' + (above_9 & ('a' - '0' - 10));
}

void cache_key_print(struct cache_key key, char ret_text[CACHE_KEY_TEXT_BYTES])
{
    const uint64_t words[] = {htobe64(key.high), htobe64(key.low)};
    bytes16 bytes;
    memcpy(&bytes, words, sizeof(bytes));
    const bytes16 first = digits_of(bytes >> 4), second = digits_of(bytes & 0xf);
    const bytes16 halves[] = {
        __builtin_shufflevector(first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                                23),
        __builtin_shufflevector(first, second, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                                15, 31),
    };
    memcpy(ret_text, halves, sizeof(halves));
    ret_text[CACHE_KEY_TEXT_BYTES - 1] = '\0';
}
