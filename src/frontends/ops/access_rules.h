/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of --access-rules=FILE (docs/access.md): which client may use which part of the
 * protocols, for which models. A rule is a line:
 *
 *     allow anyone                 to health
 *     allow header x-team=secret   to inference,metadata of digits,resnet-*
 *     allow certificate alice      to all
 *
 * What no rule allows is refused. A frontend knows the part of each of its operations
 * (base/apis.def) and the model that a request names:
 *
 *     HTTP, where the path has the model:   access_allows(rules, api, &client, name, length)
 *     gRPC, where a later message has it:   access_find(rules, api, &client, &rights), then
 *                                           access_rights_cover(rights, name, length)
 *
 * Rules are constant once they are made, so any thread may ask.
 */
#ifndef CONCH_FRONTENDS_OPS_ACCESS_RULES_H
#define CONCH_FRONTENDS_OPS_ACCESS_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "frontends/ops/restrictions.h"

struct access_rights;
struct access_rules;

enum { ACCESS_MAX_RULES = 4096, ACCESS_MAX_BYTES = 1 << 20 }; /* of a file */

/*
 * access_rules_parse - makes rules of a text. The caller ends the reference with
 * access_rules_unref().
 *
 * Errors: STATUS_INVALID_ARG  line N: what is wrong there; never with the value of a header
 */
NODISCARD struct status *access_rules_parse(const char *text, size_t length,
                                            struct access_rules **ret);
struct access_rules *access_rules_ref(struct access_rules *r);
void access_rules_unref(struct access_rules *r); /* NULL is fine */

/* access_rules_count - how many rules there are. */
size_t access_rules_count(const struct access_rules *r);

/* What a request shows of its client; borrowed. */
struct access_client {
    const void *head;
    /*
     * The value of the header with that name, which is in lower case; NULL: the head has none, or
     * several, of which a proxy may have meant another one.
     */
    const char *(*find_header)(const void *head, const char *name, size_t name_length,
                               size_t *ret_length);
    const void *peer; /* whose certificate TLS has verified; NULL: it has shown none */
    bool (*has_name)(const void *peer, const char *name, size_t length);
};

/*
 * access_allows - whether a rule allows a request. Takes as long for a wrong value of a header as
 * for the right one.
 *
 * @api    OPS_API_OPEN is always allowed
 * @model  NULL: the request names none
 */
bool access_allows(const struct access_rules *r, enum ops_api api,
                   const struct access_client *client, const char *model, size_t length);

/*
 * access_find - what a client may do in that part of the protocol.
 *
 * @ret_rights  the caller ends them with access_rights_free(); NULL: everything
 * Errors: STATUS_UNAVAILABLE  This protocol is restricted: …; no memory
 */
NODISCARD struct status *access_find(struct access_rules *r, enum ops_api api,
                                     const struct access_client *client,
                                     struct access_rights **ret_rights);

/*
 * access_rights_cover - whether the rights are for that model, too.
 *
 * @rights  NULL: everything is allowed
 * @model   NULL: the request names none
 * Errors: STATUS_UNAVAILABLE  This protocol is restricted: …
 */
NODISCARD struct status *access_rights_cover(const struct access_rights *rights, const char *model,
                                             size_t length);
void access_rights_free(struct access_rights *rights); /* NULL is fine */

/* access_text - the error text behind "This API is " or "This protocol is ". */
#define ACCESS_TEXT "restricted, and no access rule allows the request"

#endif
