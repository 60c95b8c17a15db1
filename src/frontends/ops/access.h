/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of --access-rules, which is read again when it changes. A thread, "access-rules", looks
 * at it once a second. A change that is unfit is logged, and the rules from before stay. Each loop
 * has a view of the rules, so that no request takes a lock.
 */
#ifndef CONCH_FRONTENDS_OPS_ACCESS_H
#define CONCH_FRONTENDS_OPS_ACCESS_H

#include <stdint.h>

#include "base/compiler.h"
#include "frontends/ops/access_rules.h"

struct access;

/*
 * access_start - reads the file and watches it. The caller ends it with access_stop(), behind all
 * views.
 *
 * Thread: any; it reads a file.
 * @check_ns  the time between two looks at the file; 0: a second
 * Errors: STATUS_INVALID_ARG  access rules 'F': the reason
 *         STATUS_UNAVAILABLE  no thread is left
 */
NODISCARD struct status *access_start(const char *path, uint64_t check_ns, struct access **ret);
void access_stop(struct access *a); /* NULL is fine */

/* What one thread knows of the rules; of that thread alone. */
struct access_view {
    struct access *source; /* NULL: there are no rules, and everything is allowed */
    struct access_rules *rules;
    unsigned int version;
};

/* access_view_init - a view of rules that may not exist: NULL. access_view_done() ends it. */
void access_view_init(struct access_view *v, struct access *source);
void access_view_done(struct access_view *v);

/* access_view_get - the rules as they are now; valid until the next call. */
struct access_rules *access_view_get(struct access_view *v);

#endif
