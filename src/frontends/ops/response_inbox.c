/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack without a lock, reversed when the loop takes it. One rule wakes the loop and keeps the
 * inbox alive: only the thread that puts an entry on an empty stack posts the message; the loop's
 * own thread takes the entries at once instead. So a message is under way exactly while the stack
 * has entries, and the entries stay until it is delivered. A thread that finds entries does not
 * touch the inbox once its own entry is linked. Therefore the loop may free the inbox when it has
 * taken the final entry.
 *
 * Thread: response_inbox_put() any, all else the loop's.
 */
#include "frontends/ops/response_inbox.h"

#include "core/request/response.h"

/* Takes all entries, and has them handled. The inbox may be freed by then. */
static void deliver_entries(struct response_inbox *in)
{
    /* Acquire: the responses, from the release in response_inbox_put(). Release: the message, which
     * the next thread to find the inbox empty posts again. */
    struct list *entry = atomic_exchange_explicit(&in->newest, NULL, memory_order_acq_rel);
    while (entry) {
        struct list *older = entry->prev;
        list_push_front(&in->taken, entry);
        entry = older;
    }
    in->delivering = true;
    in->on_responses(in);
}

static void deliver_responses(struct message *m)
{
    deliver_entries(CONTAINER_OF(m, struct response_inbox, wake));
}

void response_inbox_init(struct response_inbox *in, struct loop *loop,
                         void (*on_responses)(struct response_inbox *in))
{
    *in = (struct response_inbox){.loop = loop, .on_responses = on_responses};
    in->wake.deliver = deliver_responses;
    atomic_init(&in->newest, NULL);
    list_init(&in->taken);
}

void response_inbox_put(struct response_inbox *in, struct response *resp, uint32_t flags)
{
    struct list *entry = resp ? &resp->link : &in->bare_final;
    if (resp)
        resp->flags = flags;
    else
        in->bare_final_flags = flags;
    struct list *before = atomic_load_explicit(&in->newest, memory_order_relaxed);
    do {
        entry->prev = before;
        /* Both pair with the exchange in deliver_entries(). */
    } while (!atomic_compare_exchange_weak_explicit(&in->newest, &before, entry,
                                                    memory_order_acq_rel, memory_order_relaxed));
    if (before)
        return; /* a message is under way; the inbox may be gone already */
    if (loop_is_on_thread(in->loop) && !in->delivering)
        deliver_entries(in);
    else
        loop_post(in->loop, &in->wake);
}

bool response_inbox_next(struct response_inbox *in, struct response **ret_resp, uint32_t *ret_flags)
{
    struct list *entry = list_pop(&in->taken);
    if (!entry) {
        in->delivering = false;
        return false;
    }
    bool is_bare = entry == &in->bare_final;
    struct response *resp = is_bare ? NULL : LIST_ENTRY(entry, struct response, link);
    *ret_resp = resp;
    *ret_flags = is_bare ? in->bare_final_flags : resp->flags;
    return true;
}
