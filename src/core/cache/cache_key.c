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

/* n is at most HASH_ALONE_BYTES. */
static void gather_bytes(struct gathered *g, const void *bytes, size_t n)
{
    if (UNLIKELY(g->n + n > GATHER_BYTES)) {
        struct cache_key so_far = hash_key_bytes(g->bytes, g->n);
        memcpy(g->bytes, &so_far, sizeof(so_far));
        g->n = sizeof(so_far);
    }
    if (n > 0)
        memcpy(g->bytes + g->n, bytes, n);
    g->n += n;
}

static void gather_number(struct gathered *g, uint64_t number)
{
    gather_bytes(g, &number, sizeof(number));
}

static void gather_key(struct gathered *g, struct cache_key key)
{
    gather_bytes(g, &key, sizeof(key));
}

/* The length, and the bytes or their hash. */
static void gather_sized(struct gathered *g, const void *bytes, size_t n)
{
    gather_number(g, n);
    if (n <= HASH_ALONE_BYTES)
        gather_bytes(g, bytes, n);
    else
        gather_key(g, hash_key_bytes(bytes, n));
}

static void gather_text(struct gathered *g, const char *text)
{
    gather_sized(g, text, strlen(text));
}

/* The bytes of several buffers, as if they were one. */
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
    gather_number(g, n);
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

/* False: it is in the memory of a GPU. */
static bool gather_input(struct gathered *g, const struct input *in, uint32_t index)
{
    for (uint32_t i = 0; i < in->n_buffers; i++) {
        if (in->buffers[i].type == MEMORY_GPU)
            return false;
    }
    /* The index stands for the name. */
    gather_number(g, (uint64_t)index << 32 | (uint64_t)in->dtype << 16 | in->n_dims);
    for (uint32_t i = 0; i < in->n_dims; i++)
        gather_number(g, (uint64_t)in->shape[i]);
    if (LIKELY(in->n_buffers == 1 && !in->buffers[0].host_policy))
        gather_sized(g, in->buffers[0].base, in->buffers[0].size_bytes);
    else
        gather_buffers(g, in);
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

/* Writes the eight digits of a number, all at once: one in each byte of a word. */
static void print_digits(uint32_t number, char *to)
{
    uint64_t x = number;
    x = ((x & 0xffff) << 32) | x >> 16; /* the first digit into the lowest byte … */
    x = ((x & 0x000000ff000000ff) << 16) | ((x >> 8) & 0x000000ff000000ff);
    x = ((x & 0x000f000f000f000f) << 8) | ((x >> 4) & 0x000f000f000f000f);
    uint64_t above_9 = ((x + 0x0606060606060606) >> 4) & 0x0101010101010101;
    x += 0x3030303030303030 + above_9 * ('a' - '0' - 10);
    x = htole64(x);
    memcpy(to, &x, sizeof(x));
}

void cache_key_print(struct cache_key key, char ret_text[CACHE_KEY_TEXT_BYTES])
{
    print_digits((uint32_t)(key.high >> 32), ret_text);
    print_digits((uint32_t)key.high, ret_text + 8);
    print_digits((uint32_t)(key.low >> 32), ret_text + 16);
    print_digits((uint32_t)key.low, ret_text + 24);
    ret_text[CACHE_KEY_TEXT_BYTES - 1] = '\0';
}
