/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image of a response, as a cache returns it. Whatever the bytes, nothing outside of them is
 * read, and no more memory is taken than they have. A response that is accepted has an image of the
 * same size, which gives the same response again.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/status.h"
#include "core/cache/response_image.h"
#include "core/model/model.h"
#include "core/request/life.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static const int64_t any[] = {-1};
static struct tensor_spec outputs[] = {
    {.name = "O", .name_length = 1, .dtype = DTYPE_FP32, .n_dims = 1, .dims = any},
    {.name = "TEXT", .name_length = 4, .dtype = DTYPE_BYTES, .n_dims = 1, .dims = any},
};
static char model_name[] = "m", version_text[] = "1";
static struct model model = {
    .name = model_name,
    .version_text = version_text,
    .n_outputs = ARRAY_SIZE(outputs),
    .outputs = outputs,
};

static void destroy(struct request *r)
{
    (void)r;
}

static const struct request_ops ops = {
    .alloc_output = response_alloc_pooled,
    .free_output = response_free_pooled,
    .destroy = destroy,
};

/* Both must be equal in all that a client sees. */
static void compare(const struct response *a, const struct response *b)
{
    EXPECT(a->n_outputs == b->n_outputs && a->n_parameters == b->n_parameters);
    for (uint32_t i = 0; i < a->n_outputs; i++) {
        const struct output *x = a->outputs[i], *y = b->outputs[i];
        EXPECT(strcmp(x->name, y->name) == 0 && x->dtype == y->dtype && x->n_dims == y->n_dims);
        EXPECT(memcmp(x->shape, y->shape, x->n_dims * sizeof(*x->shape)) == 0);
        EXPECT(x->size_bytes == y->size_bytes);
        EXPECT(x->size_bytes == 0 || memcmp(x->base, y->base, x->size_bytes) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pool *pool;
    static char memory[4096];
    struct request r;
    struct response *resp, *again;
    if (!pool)
        pool = pool_new("fuzz", 1 << 20, 64 << 20);
    request_init(&r, &ops, &model, memory, sizeof(memory), pool);
    atomic_store(&r.life.senders, 10); /* the core's, which never end it here */
    struct status *st = response_image_read(data, size, &r, &resp);
    if (st) {
        status_free(st);
    } else {
        EXPECT(response_image_bytes(resp) == size);
        char *image = malloc(size);
        response_image_write(resp, image, size);
        EXPECT(!response_image_read(image, size, &r, &again));
        compare(resp, again);
        response_free(again);
        response_free(resp);
        free(image);
    }
    EXPECT(atomic_load(&r.life.senders) == 10 && atomic_load(&r.life.refs) == 1);
    arena_done(&r.arena);
    return 0;
}
