/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strings - see strings.h.
 */
#include "python/child/strings.h"

#include <string.h>

#include "python/child/numpy.h"

#define LENGTH_BYTES sizeof(uint32_t)

int strings_read(const char *packed, uint64_t size_bytes, PyObject **items, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t len;

        if (size_bytes < LENGTH_BYTES)
            goto short_of;
        memcpy(&len, packed, LENGTH_BYTES);
        if (len > size_bytes - LENGTH_BYTES)
            goto short_of;
        PyObject *bytes = PyBytes_FromStringAndSize(packed + LENGTH_BYTES, len);
        if (!bytes)
            return -1;
        PyObject *old = items[i];

        items[i] = bytes;
        Py_XDECREF(old);
        packed += LENGTH_BYTES + len;
        size_bytes -= LENGTH_BYTES + len;
    }
    if (size_bytes == 0)
        return 0;
short_of:
    raise_model("The bytes of a tensor are not as many strings as its shape says.");
    return -1;
}

bool strings_are_plain(PyObject *const *items, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!items[i] || !(PyBytes_Check(items[i]) || PyUnicode_Check(items[i])))
            return false;
    }
    return true;
}

/* read_item - an element's bytes, borrowed. */
static const char *read_item(PyObject *item, size_t *ret_len)
{
    char *bytes;
    Py_ssize_t len;

    if (!item || !PyBytes_Check(item))
        return child_text(item ? item : Py_None, ret_len);
    if (PyBytes_AsStringAndSize(item, &bytes, &len))
        return NULL;
    *ret_len = (size_t)len;
    return bytes;
}

int strings_size(PyObject *const *items, uint64_t n, uint64_t *ret_size_bytes)
{
    uint64_t size = 0;
    size_t len;

    for (uint64_t i = 0; i < n; i++) {
        if (!read_item(items[i], &len))
            return -1;
        if (len > UINT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a string of more than 4 GiB cannot be sent");
            return -1;
        }
        size += LENGTH_BYTES + len;
    }
    *ret_size_bytes = size;
    return 0;
}

void strings_write(PyObject *const *items, uint64_t n, char *to, uint64_t size_bytes)
{
    for (uint64_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *bytes = read_item(items[i], &len);
        const uint32_t length = (uint32_t)len;

        if (!bytes || size_bytes < LENGTH_BYTES + len)
            return;
        memcpy(to, &length, LENGTH_BYTES);
        memcpy(to + LENGTH_BYTES, bytes, len);
        to += LENGTH_BYTES + len;
        size_bytes -= LENGTH_BYTES + len;
    }
}

static uint32_t fixed_length(const char *item, int size)
{
    while (size > 0 && item[size - 1] == 0)
        size--;
    return (uint32_t)size;
}

uint64_t strings_size_fixed(const char *items, int item, uint64_t n)
{
    uint64_t size = 0;

    for (uint64_t i = 0; i < n; i++)
        size += LENGTH_BYTES + fixed_length(items + i * (unsigned int)item, item);
    return size;
}

void strings_write_fixed(const char *items, int item, uint64_t n, char *to)
{
    for (uint64_t i = 0; i < n; i++) {
        const char *at = items + i * (unsigned int)item;
        const uint32_t length = fixed_length(at, item);

        memcpy(to, &length, LENGTH_BYTES);
        memcpy(to + LENGTH_BYTES, at, length);
        to += LENGTH_BYTES + length;
    }
}

PyObject *strings_deserialize(PyObject *module, PyObject *packed)
{
    char *bytes;
    Py_ssize_t size;
    int64_t n = 0;
    PyObject *own = PyBytes_FromObject(packed);
    PyObject *array = NULL, **items;

    if (!own || PyBytes_AsStringAndSize(own, &bytes, &size))
        goto out;
    for (Py_ssize_t at = 0; size - at >= (Py_ssize_t)LENGTH_BYTES; n++) {
        uint32_t len;

        memcpy(&len, bytes + at, LENGTH_BYTES);
        at += (Py_ssize_t)LENGTH_BYTES + (Py_ssize_t)len;
    }
    array = numpy_objects(&n, 1, &items);
    if (array && strings_read(bytes, (uint64_t)size, items, (uint64_t)n))
        Py_CLEAR(array);
out:
    Py_XDECREF(own);
    return array;
}
