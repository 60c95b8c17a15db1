/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accept-Encoding and Content-Encoding. A coding that is chosen is named in the value, and one that
 * is added with a greater weight than all others is chosen.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "frontends/http/coding.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool fine)
{
    if (!fine)
        abort();
}

static bool names(const char *text, size_t size, const char *word)
{
    for (size_t i = 0; i + strlen(word) <= size; i++) {
        if (span_is((struct span){text + i, strlen(word)}, word))
            return true;
    }
    return false;
}

static size_t longest_number(const char *text, size_t size)
{
    size_t longest = 0, run = 0;
    for (size_t i = 0; i < size; i++) {
        run = text[i] >= '0' && text[i] <= '9' ? run + 1 : 0;
        longest = MAX(longest, run);
    }
    return longest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char best[] = ",deflate;q=1000000";
    if (size == 0)
        return 0;
    char *text = mem_alloc(size); /* exact, so that a read beyond its end is seen */
    memcpy(text, data, size);
    enum http_coding reply = coding_of_reply((struct span){text, size});
    enum http_coding body = coding_of_body((struct span){text, size});
    expect(reply < CODING_UNKNOWN && body <= CODING_UNKNOWN);
    expect(reply != CODING_GZIP || names(text, size, "gzip"));
    expect(reply != CODING_DEFLATE || names(text, size, "deflate"));

    char *more = mem_alloc(size + sizeof(best));
    memcpy(more, text, size);
    memcpy(more + size, best, sizeof(best) - 1);
    enum http_coding now = coding_of_reply((struct span){more, size + sizeof(best) - 1});
    expect(now == CODING_DEFLATE || longest_number(text, size) >= 7);
    mem_free(more);
    mem_free(text);
    return 0;
}
