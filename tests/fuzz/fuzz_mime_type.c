/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Content-Type of SageMaker and Vertex AI, whose end says how much of a body is JSON, and the
 * header of HTTP with the same number. strtoll() of the C library reads the number as well.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "frontends/http/header_length.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char binary_type[] = "application/vnd.vertex-ai-triton.binary+json;json-header-size=";

static void expect(bool fine)
{
    if (!fine)
        abort();
}

/* @text  ends in a zero byte, which is not counted */
static enum header_length parse_by_library(const char *text, int64_t *ret_length)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text)
        return HEADER_LENGTH_BAD;
    if (errno == ERANGE || n > INT32_MAX || n < INT32_MIN)
        return HEADER_LENGTH_RANGE;
    *ret_length = n;
    return HEADER_LENGTH_FINE;
}

static void expect_number(const char *text, enum header_length found, int64_t length)
{
    int64_t expected = 0;
    expect(found == parse_by_library(text, &expected));
    expect(found != HEADER_LENGTH_FINE || length == expected);
}

/* Makes an exact copy, so that a read beyond its end is seen. */
static char *copy_exactly(const char *head, size_t n_head, const char *text, size_t size)
{
    char *copy = mem_alloc(n_head + size + 1);
    memcpy(copy, head, n_head);
    memcpy(copy + n_head, text, size);
    return mem_realloc(copy, n_head + size ? n_head + size : 1);
}

static void check_type(const char *text, const char *type, size_t size)
{
    size_t n = sizeof(binary_type) - 1;
    struct span rest = {NULL, 0};
    int64_t length = 0;
    enum header_length found =
        header_length_of_type((struct span){type, size}, binary_type, &rest, &length);
    const char *at = memmem(type, size, binary_type, n);
    expect((found == HEADER_LENGTH_NONE) == !at);
    expect((found == HEADER_LENGTH_MISPLACED) == (at && at != type));
    if (found == HEADER_LENGTH_MISPLACED)
        expect(rest.at == type && rest.length == size);
    if (at && at == type) {
        expect(rest.at == type + n && rest.length == size - n);
        expect_number(text, found, length);
    }
}

/* The bytes are a number, and a whole type; behind the MIME type they are its number. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_alloc(size + 1), *number = copy_exactly("", 0, (const char *)data, size);
    memcpy(text, data, size);
    text[size] = '\0';
    int64_t length = 0;
    enum header_length found = header_length_parse((struct span){number, size}, &length);
    expect_number(text, found, length);

    size_t n = sizeof(binary_type) - 1;
    bool is_whole = size >= n && memcmp(text, binary_type, n) == 0;
    check_type(is_whole ? text + n : text, number, size);
    char *type = copy_exactly(binary_type, n, text, size);
    check_type(text, type, n + size);
    mem_free(type);
    mem_free(number);
    mem_free(text);
    return 0;
}
