/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading compares each length with the bytes that are left, before anything is allocated by it.
 * Writing takes two passes: strings_size() measures, and strings_write() copies into that much
 * memory. No state; any thread.
 */
#include "onnxruntime/strings.h"

#include <endian.h>
#include <string.h>

/* The length in front of an element. */
#define PREFIX sizeof(uint32_t)

static uint32_t read_length(const char *at)
{
    uint32_t len;

    memcpy(&len, at, PREFIX);
    return le32toh(len);
}

static TRITONSERVER_Error *refuse_element(const char *name, const char *what, size_t index,
                                          size_t n)
{
    return backend_error(TRITONSERVER_ERROR_INVALID_ARG, "input '%s': %s element %zu of %zu", name,
                         what, index, n);
}

static TRITONSERVER_Error *fill_strings(const struct library *lib, const char *name, const char *at,
                                        size_t left, size_t n, struct ort_value *value)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t len;
        char *to;

        if (left < PREFIX)
            return refuse_element(name, "its data ends before the length of", i, n);
        len = read_length(at);
        at += PREFIX;
        left -= PREFIX;
        if (left < len)
            return refuse_element(name, "its data ends inside", i, n);
        TRY_ORT(lib, GetResizedStringTensorElementBuffer(value, i, len, &to));
        if (len > 0)
            memcpy(to, at, len);
        at += len;
        left -= len;
    }
    if (left > 0)
        return refuse_element(name, "it has data behind", n, n);
    return NULL;
}

TRITONSERVER_Error *strings_read(const struct library *lib, struct ort_allocator *heap,
                                 const char *name, const void *data, size_t size,
                                 const int64_t *shape, size_t rank, struct ort_value **ret_value)
{
    struct ort_value *value = NULL;
    TRITONSERVER_Error *err;
    size_t n = 1;

    /* Each element takes at least its length, so a shape that promises more is wrong. Without
     * this check a few bytes could cause an allocation of any size. */
    for (size_t d = 0; d < rank; d++)
        if (shape[d] < 0 || __builtin_mul_overflow(n, (size_t)shape[d], &n))
            return refuse_element(name, "its shape is impossible:", 0, 0);
    if (n > size / PREFIX)
        return refuse_element(name, "its data ends before the length of", size / PREFIX, n);
    TRY_ORT(lib, CreateTensorAsOrtValue(heap, shape, rank, ORT_STRING, &value));
    err = fill_strings(lib, name, data, size, n, value);
    if (err)
        lib->api.ReleaseValue(value);
    else
        *ret_value = value;
    return err;
}

TRITONSERVER_Error *strings_size(const struct library *lib, const struct ort_value *value,
                                 size_t first, size_t n, size_t *ret_size)
{
    size_t size = 0;

    for (size_t i = first; i < first + n; i++) {
        size_t len;

        TRY_ORT(lib, GetStringTensorElementLength(value, i, &len));
        if (len > UINT32_MAX)
            return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "a string of %zu bytes is longer than 4 GiB", len);
        size += PREFIX + len;
    }
    *ret_size = size;
    return NULL;
}

TRITONSERVER_Error *strings_write(const struct library *lib, const struct ort_value *value,
                                  size_t first, size_t n, void *to, size_t room)
{
    char *at = to, *end = at + room;

    for (size_t i = first; i < first + n; i++) {
        uint32_t prefix;
        size_t len;

        TRY_ORT(lib, GetStringTensorElementLength(value, i, &len));
        if ((size_t)(end - at) < PREFIX + len)
            return backend_error(TRITONSERVER_ERROR_INTERNAL, "strings have grown");
        prefix = htole32((uint32_t)len);
        memcpy(at, &prefix, PREFIX);
        if (len > 0)
            TRY_ORT(lib, GetStringTensorElement(value, len, i, at + PREFIX));
        at += PREFIX + len;
    }
    return NULL;
}
