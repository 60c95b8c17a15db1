/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lengths are read and written byte by byte, because elements have any alignment. The reader
 * compares each length with the bytes that are left before it moves. No state; any thread.
 */
#include "common/bytes.h"

#include <string.h>

enum { PREFIX = 4 };

struct bytes_reader bytes_begin(const void *data, uint64_t size)
{
    return (struct bytes_reader){.at = data, .left = size};
}

static uint32_t read_element_length(const char *at)
{
    const unsigned char *b = (const unsigned char *)at;

    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

TRITONSERVER_Error *bytes_next(struct bytes_reader *r, const char *tensor, const char **ret_data,
                               uint32_t *ret_len)
{
    uint32_t len;

    if (r->left < PREFIX)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "tensor '%s': the length of element %llu is cut off, %llu bytes are "
                             "left",
                             tensor, (unsigned long long)r->n_read, (unsigned long long)r->left);
    len = read_element_length(r->at);
    if (len > r->left - PREFIX)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "tensor '%s': element %llu says that it has %lu bytes, %llu are left",
                             tensor, (unsigned long long)r->n_read, (unsigned long)len,
                             (unsigned long long)(r->left - PREFIX));
    *ret_data = r->at + PREFIX;
    *ret_len = len;
    r->at += PREFIX + (uint64_t)len;
    r->left -= PREFIX + (uint64_t)len;
    r->n_read++;
    return NULL;
}

TRITONSERVER_Error *bytes_skip(struct bytes_reader *r, const char *tensor, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const char *data;
        uint32_t len;

        TRY(bytes_next(r, tensor, &data, &len));
    }
    return NULL;
}

TRITONSERVER_Error *bytes_check(const char *tensor, const void *data, uint64_t size, uint64_t n)
{
    struct bytes_reader r = bytes_begin(data, size);

    TRY(bytes_skip(&r, tensor, n));
    if (r.left > 0)
        return backend_error(TRITONSERVER_ERROR_INVALID_ARG,
                             "tensor '%s': %llu bytes follow its %llu elements", tensor,
                             (unsigned long long)r.left, (unsigned long long)n);
    return NULL;
}

uint64_t bytes_size(uint32_t len)
{
    return PREFIX + (uint64_t)len;
}

void *bytes_put(void *to, const void *data, uint32_t len)
{
    unsigned char *b = to;

    for (int i = 0; i < PREFIX; i++)
        b[i] = (unsigned char)(len >> 8 * i);
    if (len > 0)
        memcpy(b + PREFIX, data, len);
    return b + PREFIX + len;
}
