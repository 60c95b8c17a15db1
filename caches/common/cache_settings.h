/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of a cache, which the server passes to CacheInitialize as an object of JSON: strings
 * from the command line, also numbers and booleans from programs that embed the server.
 */
#ifndef CONCH_CACHES_COMMON_CACHE_SETTINGS_H
#define CONCH_CACHES_COMMON_CACHE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SETTINGS_MAX = 64 };

struct setting {
    char *name, *value;
    bool is_text; /* else a number, true or false, as it was written */
};

struct settings {
    size_t n;
    struct setting list[SETTINGS_MAX];
};

/* settings_parse - false: the text is no object of strings, numbers and booleans, has more than
 * SETTINGS_MAX of them, or there is no memory. settings_done() is to be called in either case. */
bool settings_parse(struct settings *s, const char *json);
void settings_done(struct settings *s);

/* settings_find - the last one of that name; NULL: there is none. */
const struct setting *settings_find(const struct settings *s, const char *name);

/* settings_to_number - false: the text is no number from 0 to `max`. */
bool settings_to_number(const char *text, uint64_t max, uint64_t *ret_number);

#endif
