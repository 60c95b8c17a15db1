/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a protocol that need a header: --http-restricted-api and --grpc-restricted-protocol. A
 * frontend knows the part of each of its operations, and asks before it does anything else with a
 * request:
 *
 *     const struct restriction *r = restrictions_find(&restrictions, OPS_API_HEALTH);
 *     if (r && !restriction_admits(r, value, length)) …            refuse the request
 *
 * Constant after the start, so any thread may ask.
 */
#ifndef CONCH_FRONTENDS_OPS_RESTRICTIONS_H
#define CONCH_FRONTENDS_OPS_RESTRICTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct status;

enum ops_api {
#define OPS_API(name, text) OPS_API_##name,
#include "base/apis.def"
    OPS_N_APIS,
    OPS_API_OPEN = OPS_N_APIS, /* what no option can restrict */
};

/* A header that a client must send. */
struct restriction {
    char *name;      /* as the option has it, for errors; NULL: no restriction */
    char *wire_name; /* in lower case */
    size_t name_length;
    char *value;
};

struct restrictions {
    struct restriction of[OPS_N_APIS];
};

/*
 * restrictions_add - adds the value of an option, <api>[,<api>…]:<key>=<value>. The restrictions
 * begin as zeros; the caller ends them with restrictions_done(), also after an error.
 *
 * @what    "api" or "protocol": the word of the protocol in errors
 * @prefix  of the header's name, before the key
 * Errors:  STATUS_INVALID_ARG  the text has another form; unknown restricted …; restricted … can
 *                              not be specified in multiple config groups
 */
NODISCARD struct status *restrictions_add(struct restrictions *r, const char *what,
                                          const char *prefix, const char *text);
void restrictions_done(struct restrictions *r);

/* restrictions_find - the header that this part needs; NULL: none. */
static inline const struct restriction *restrictions_find(const struct restrictions *r,
                                                          enum ops_api api)
{
    return api < OPS_N_APIS && r->of[api].name ? &r->of[api] : NULL;
}

/* restrictions_find_api - the part of that name; OPS_API_OPEN: there is none. */
enum ops_api restrictions_find_api(const char *name, size_t length);

/*
 * secret_equals - whether a client's value is the secret. Takes as long for a wrong value as for
 * the right one.
 *
 * @value  NULL: the client has sent none
 */
bool secret_equals(const char *secret, size_t secret_length, const char *value, size_t length);

/*
 * restriction_admits - whether a client with that value of the header is admitted. Takes as long
 * for a wrong value as for the right one.
 *
 * @value  NULL: the client has not sent the header
 */
bool restriction_admits(const struct restriction *r, const char *value, size_t length);

#endif
