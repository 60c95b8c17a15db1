/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of a forest's file before treelite reads it. The first byte chooses the format.
 * Whatever the bytes, the check ends inside the file, and a refusal has a reason.
 */
#include "fil/checkpoint.c"
#include "fil/json.c"
#include "fil/legacy.c"
#include "fil/lightgbm.c"
#include "fil/treefile.c"
#include "fil/ubjson.c"
#include "fil/xgboost.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct treefile_why why = {""};
    size_t n = size > 0 ? size - 1 : 0, used = 0;
    char *copy = malloc(n + 1);

    assert(copy);
    if (n > 0)
        memcpy(copy, data + 1, n);
    copy[n] = '\0';
    if (treefile_check(size > 0 ? data[0] % 5 : TREE_LIGHTGBM, copy, n, &used, &why))
        assert(used <= n);
    else
        assert(*why.text);
    free(copy);
    return 0;
}
