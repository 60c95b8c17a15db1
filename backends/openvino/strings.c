/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C string ends at its first 0 byte, an element of BYTES does not. So a tensor is made of C
 * strings of the right lengths, and the elements that have a 0 byte are then written into its
 * memory. No state; any thread.
 */
#include "openvino/strings.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

/* An element of a tensor of strings, as C++ lays it out. */
struct string_element {
    char *data;
    size_t len;
    char other[STRINGS_ELEMENT_SIZE - sizeof(char *) - sizeof(size_t)];
};

TRITONSERVER_Error *strings_check(const struct library *l)
{
    static const char *const texts[] = {"", "short", "one that is too long for a short string"};
    const char *given[] = {texts[0], texts[1], texts[2]};
    int64_t dims[] = {3};
    struct ov_tensor *tensor = NULL;
    void *data = NULL;
    bool fits;

    TRY_OV(l, "making a tensor of strings", tensor_create_from_string_array, given, 3,
           (struct ov_shape){1, dims}, &tensor);
    fits = l->api.tensor_data(tensor, &data) == 0;
    for (size_t i = 0; fits && i < 3; i++) {
        const struct string_element *e = (const struct string_element *)data + i;

        fits = e->len == strlen(texts[i]) && memcmp(e->data, texts[i], e->len + 1) == 0;
    }
    l->api.tensor_free(tensor);
    return fits ? NULL
                : backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                "OpenVINO %s in %s cannot be used: it keeps strings in another way",
                                l->version, l->path ? l->path : "?");
}

/* The elements of an input as C strings: all in one piece of memory. */
struct c_strings {
    const char **at;
    char *memory;
    size_t n;
};

static TRITONSERVER_Error *copy_elements(const char *name, const struct gathered *in,
                                         struct c_strings *s, bool *ret_zeroes)
{
    struct bytes_reader r = bytes_begin(in->data, in->size);
    char *to = s->memory;

    *ret_zeroes = false;
    for (size_t i = 0; i < s->n; i++) {
        const char *data;
        uint32_t len;

        TRY(bytes_next(&r, name, &data, &len));
        s->at[i] = to;
        for (uint32_t c = 0; c < len; c++) {
            *ret_zeroes |= data[c] == '\0';
            *to++ = data[c] ? data[c] : '?';
        }
        *to++ = '\0';
    }
    return NULL;
}

static TRITONSERVER_Error *restore_zeroes(const struct library *l, const char *name,
                                          const struct gathered *in, size_t n,
                                          struct ov_tensor *tensor)
{
    struct bytes_reader r = bytes_begin(in->data, in->size);
    void *elements = NULL;

    TRY_OV(l, "reading a tensor of strings", tensor_data, tensor, &elements);
    for (size_t i = 0; i < n; i++) {
        const struct string_element *e = (const struct string_element *)elements + i;
        const char *data;
        uint32_t len;

        TRY(bytes_next(&r, name, &data, &len));
        if (len > 0 && e->len == len)
            memcpy(e->data, data, len);
    }
    return NULL;
}

static TRITONSERVER_Error *make_string_tensor(const struct library *l, const char *name,
                                              const struct gathered *in, struct c_strings *s,
                                              struct ov_tensor **ret_tensor)
{
    struct ov_tensor *tensor = NULL;
    TRITONSERVER_Error *err = NULL;
    int64_t dims[BATCH_MAX_RANK];
    struct ov_shape shape = {in->rank, dims};
    bool zeroes;

    memcpy(dims, in->shape, in->rank * sizeof(*dims));
    TRY(copy_elements(name, in, s, &zeroes));
    TRY_OV(l, "making a tensor of strings", tensor_create_from_string_array, s->at, s->n, shape,
           &tensor);
    if (zeroes)
        err = restore_zeroes(l, name, in, s->n, tensor);
    if (err)
        l->api.tensor_free(tensor);
    else
        *ret_tensor = tensor;
    return err;
}

TRITONSERVER_Error *strings_read(const struct library *l, const char *name,
                                 const struct gathered *in, struct ov_tensor **ret_tensor)
{
    struct c_strings s = {0};
    TRITONSERVER_Error *err;
    int64_t n;

    TRY(gather_elements(in->shape, in->rank, &n));
    TRY(bytes_check(name, in->data, in->size, (uint64_t)n));
    /* Operators of strings fail on them, or leave the output of the run before. */
    if (n == 0)
        return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "input '%s': OpenVINO takes no strings without elements", name);
    s.n = (size_t)n;
    /* An element's length takes more bytes in the input than its end here. */
    s.memory = malloc(in->size + 1);
    s.at = calloc(s.n + 1, sizeof(*s.at));
    err = s.memory && s.at ? make_string_tensor(l, name, in, &s, ret_tensor)
                           : backend_error(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory");
    free(s.at);
    free(s.memory);
    return err;
}

TRITONSERVER_Error *strings_write(const struct library *l, const struct ov_tensor *tensor, size_t n,
                                  struct gathered *to, const void **ret_data, uint64_t *ret_size)
{
    const struct string_element *elements;
    void *data = NULL, *memory;
    uint64_t size = 0;

    if (n > 0)
        TRY_OV(l, "reading a tensor of strings", tensor_data, tensor, &data);
    elements = data;
    for (size_t i = 0; i < n; i++) {
        if (elements[i].len > UINT32_MAX)
            return backend_error(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "an output has a string of %zu bytes", elements[i].len);
        size += bytes_size((uint32_t)elements[i].len);
    }
    TRY(gather_reserve(to, size > 0 ? size : 1, &memory));
    *ret_data = memory;
    *ret_size = size;
    for (size_t i = 0; i < n; i++)
        memory = bytes_put(memory, elements[i].data, (uint32_t)elements[i].len);
    return NULL;
}
