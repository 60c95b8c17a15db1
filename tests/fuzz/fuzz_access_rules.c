/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access rules. The input is a file. What is read as rules is asked in both ways, which must agree;
 * what is refused names its line.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "frontends/ops/access_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *find_header(const void *head, const char *name, size_t n, size_t *ret_length)
{
    (void)head;
    *ret_length = 1;
    return n == 1 && name[0] == 'k' ? "1" : NULL;
}

static bool has_name(const void *peer, const char *name, size_t length)
{
    (void)peer;
    return length == 1 && name[0] == 'c';
}

static void ask(struct access_rules *r, enum ops_api api, const char *model)
{
    struct access_client client = {NULL, find_header, "c", has_name};
    size_t length = model ? strlen(model) : 0;
    struct access_rights *rights;
    bool allowed = access_allows(r, api, &client, model, length);
    struct status *st = access_find(r, api, &client, &rights);
    if (!st)
        st = access_rights_cover(rights, model, length);
    if (allowed != (st == NULL))
        abort();
    status_free(st);
    access_rights_free(rights);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const models[] = {NULL, "", "a", "ab", "abab", "the"};
    struct access_rules *r;
    struct status *st = access_rules_parse((const char *)data, size, &r);
    if (st) {
        if (strncmp(status_message(st), "line ", 5) != 0 && size <= ACCESS_MAX_BYTES)
            abort();
        status_free(st);
        return 0;
    }
    for (int api = 0; api <= OPS_API_OPEN; api++) {
        for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
            ask(r, (enum ops_api)api, models[i]);
    }
    access_rules_unref(r);
    return 0;
}
