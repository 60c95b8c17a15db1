/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The length of a text decides its slot, and a new text replaces the one in the slot. A length of
 * 0 marks a slot that is being filled; memo_keep() sets the length last, so a fill that stops
 * half-way leaves the slot empty.
 */
#include "frontends/http/memo.h"

#include <string.h>

const struct memo_slot *memo_find(const struct memo *m, const char *text, size_t length)
{
    const struct memo_slot *slot = &m->slots[length % MEMO_SLOTS];
    return slot->length == length && memcmp(slot->text, text, length) == 0 ? slot : NULL;
}

struct memo_slot *memo_begin(struct memo *m, size_t length)
{
    if (length > MEMO_TEXT)
        return NULL;
    struct memo_slot *slot = &m->slots[length % MEMO_SLOTS];
    slot->length = 0;
    return slot;
}

void memo_keep(struct memo_slot *slot, const char *text, size_t length)
{
    memcpy(slot->text, text, length);
    slot->length = length;
}
