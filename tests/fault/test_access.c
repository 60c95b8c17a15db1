/* SPDX-License-Identifier: Apache-2.0 */
/* Access rules when memory for a client's rights is short: the call is refused, never admitted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/status.h"
#include "frontends/ops/access_rules.h"
#include "lib/fault.h"

static const char *find_key(const void *head, const char *name, size_t n, size_t *ret_length)
{
    (void)head;
    (void)name;
    (void)n;
    *ret_length = 1;
    return "1";
}

static struct status *ask(void *arg)
{
    struct access_client client = {.find_header = find_key};
    struct access_rights *rights;
    struct status *st = access_find(arg, OPS_API_INFERENCE, &client, &rights);
    if (st) {
        assert_null(rights);
        return st;
    }
    assert_non_null(rights); /* not everything */
    assert_null(access_rights_cover(rights, "a", 1));
    struct status *refusal = access_rights_cover(rights, "c", 1);
    assert_non_null(refusal);
    status_free(refusal);
    access_rights_free(rights);
    return NULL;
}

static void rights(void **state)
{
    (void)state;
    static const char text[] = "allow header key=1 to inference of a\nallow anyone to all of b\n";
    struct access_rules *r;
    assert_null(access_rules_parse(text, sizeof(text) - 1, &r));
    assert_true(fault_each_allocation(ask, r) >= 2);
    access_rules_unref(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
