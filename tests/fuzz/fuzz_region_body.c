/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registration of a region, and a tensor in it. The first 16 bytes are the tensor's offset and
 * size, the rest is the body. A body whose key is "/mine" registers an object of two pages:
 * whatever its numbers, a region that is made lies in the object, and a tensor that is found lies
 * in the region. The same body is read as one that registers memory of a GPU: a handle that is
 * found stands in the body as base64.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "frontends/http/region_body.h"
#include "frontends/shm/cuda_memory.h"
#include "frontends/shm/regions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OBJECT_BYTES = 2 * 4096, NUMBERS = 2 * sizeof(uint64_t) };

static char object[64]; /* its name */

static void remove_object(void)
{
    shm_unlink(object);
}

static void make_object(void)
{
    snprintf(object, sizeof(object), "/conch_fuzz_region_body_%d", (int)getpid());
    int fd = shm_open(object, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, OBJECT_BYTES))
        abort();
    close(fd);
    atexit(remove_object);
}

static void use_tensor(struct regions *t, const struct region_body *body, const uint64_t *numbers)
{
    struct region *region;
    char *base;
    struct status *st = regions_use(t, "r", 1, numbers[0], numbers[1], &region, &base);
    if (st) {
        status_free(st);
        return;
    }
    if (numbers[0] > body->size_bytes || numbers[1] > body->size_bytes - numbers[0])
        abort();
    volatile char sum = 0; /* all bytes are there */
    for (uint64_t i = 0; i < numbers[1]; i++)
        sum = (char)(sum + base[i]);
    region_unref(region);
}

static void use_region(const struct region_body *body, const uint64_t *numbers)
{
    const struct regions_options options = {
        .allowed = true, .max_regions = 1, .max_bytes = 1 << 20};
    struct regions *t = regions_new(&options, NULL);
    struct status *st = regions_register(t, "r", object, body->offset, body->size_bytes);
    if (!st) {
        if (body->offset > OBJECT_BYTES || body->size_bytes > OBJECT_BYTES - body->offset)
            abort();
        use_tensor(t, body, numbers);
    }
    status_free(st);
    regions_free(t);
}

/* Writes the base64 of the whole groups of three bytes. */
static void encode_handle(const uint8_t *handle, char *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i + 3 <= CUDA_HANDLE_BYTES; i += 3) {
        uint32_t group = (uint32_t)handle[i] << 16 | (uint32_t)handle[i + 1] << 8 | handle[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6)
            *to++ = digits[group >> shift & 63];
    }
}

/* Whether the text has those digits, in either alphabet. */
static bool has_digits(const char *text, size_t size, const char *digits, size_t n)
{
    for (size_t at = 0; at + n <= size; at++) {
        size_t i = 0;
        while (i < n && (text[at + i] == digits[i] || (text[at + i] == '-' && digits[i] == '+') ||
                         (text[at + i] == '_' && digits[i] == '/')))
            i++;
        if (i == n)
            return true;
    }
    return false;
}

static void read_cuda(const char *text, size_t size, struct arena *arena)
{
    struct cuda_region_body body;
    char digits[CUDA_HANDLE_BYTES / 3 * 4];
    struct status *st = region_body_read_cuda(text, size, arena, &body);
    if (!st) {
        encode_handle(body.handle, digits);
        if (!memchr(text, '\\', size) && !has_digits(text, size, digits, sizeof(digits)))
            abort();
    }
    status_free(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_error error;
    uint64_t numbers[2];
    if (size < NUMBERS)
        return 0;
    memcpy(numbers, data, NUMBERS);
    const char *text = (const char *)data + NUMBERS;
    size -= NUMBERS;
    if (size > 0 && !json_check(text, size, &error))
        return 0;
    if (!object[0])
        make_object();
    struct arena arena;
    struct region_body body;
    arena_init(&arena, NULL, 0, 4 * size + (1 << 16), NULL, NULL);
    struct status *st = region_body_read(text, size, &arena, &body);
    if (!st && strcmp(body.key, "/mine") == 0)
        use_region(&body, numbers);
    status_free(st);
    read_cuda(text, size, &arena);
    arena_reset(&arena);
    return 0;
}
