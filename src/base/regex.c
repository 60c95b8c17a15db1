/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions by PCRE2. Its DFA method goes through the text once for each place where a
 * match may begin, with all ways to match side by side, so that no pattern makes it try one way
 * after the other. What it remembers of these ways has a fixed size, on the stack.
 *
 * No state; any thread.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/regex.h"

#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

enum {
    MAX_PATTERN_BYTES = 8192,
    MAX_WAYS = 8192, /* ints that pcre2_dfa_match() may use */
    MAX_DEPTH = 1000,
};

struct regex {
    pcre2_code *code;
    pcre2_match_context *limits;
};

static struct status *make_error(const char *pattern, int error, size_t at)
{
    char reason[256];
    (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof(reason));
    return status_new(STATUS_INVALID_ARG,
                      "invalid regular expression '%.256s': %s at character %zu", pattern, reason,
                      at + 1);
}

struct status *regex_new(const char *pattern, bool ignores_case, struct regex **ret)
{
    size_t length = strlen(pattern), at = 0;
    uint32_t last_reference = 0;
    int error = 0;
    if (length > MAX_PATTERN_BYTES)
        return status_new(STATUS_INVALID_ARG, "a regular expression of more than %d characters",
                          MAX_PATTERN_BYTES);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, length, ignores_case ? PCRE2_CASELESS : 0,
                                     &error, &at, NULL);
    if (!code)
        return make_error(pattern, error, at);
    (void)pcre2_pattern_info(code, PCRE2_INFO_BACKREFMAX, &last_reference);
    if (last_reference > 0) {
        pcre2_code_free(code);
        return status_new(STATUS_INVALID_ARG,
                          "invalid regular expression '%.256s': it refers back to a group",
                          pattern);
    }
    struct regex *r = mem_zalloc(sizeof(*r));
    r->code = code;
    r->limits = pcre2_match_context_create(NULL);
    if (r->limits)
        (void)pcre2_set_depth_limit(r->limits, MAX_DEPTH);
    *ret = r;
    return NULL;
}

void regex_free(struct regex *r)
{
    if (!r)
        return;
    pcre2_match_context_free(r->limits);
    pcre2_code_free(r->code);
    mem_free(r);
}

bool regex_matches(const struct regex *r, const char *text, size_t length)
{
    /* Only whether there is a match is asked, so there is room for one offset pair. */
    pcre2_match_data *found = pcre2_match_data_create(1, NULL);
    int ways[MAX_WAYS];
    if (!found)
        return false;
    int n = pcre2_dfa_match(r->code, (PCRE2_SPTR)text, length, 0, PCRE2_DFA_SHORTEST, found,
                            r->limits, ways, MAX_WAYS);
    pcre2_match_data_free(found);
    return n >= 0;
}
