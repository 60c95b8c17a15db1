/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A doubly linked list whose links live in the objects. A struct list is both the head of a list
 * and the link in an object. A link that is in no list points to itself, so that removing it again
 * is harmless.
 */
#ifndef CONCH_BASE_LIST_H
#define CONCH_BASE_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct list {
    struct list *prev, *next;
};

#define LIST_INIT(name)                                                                            \
    {                                                                                              \
        &(name), &(name)                                                                           \
    }

static inline void list_init(struct list *l)
{
    l->prev = l->next = l;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

/* list_push - appends link at the end. */
static inline void list_push(struct list *head, struct list *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void list_push_front(struct list *head, struct list *link)
{
    list_push(head->next, link);
}

static inline void list_remove(struct list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

/* list_pop - removes and returns the first link, or NULL. */
static inline struct list *list_pop(struct list *head)
{
    struct list *first = head->next;
    if (first == head)
        return NULL;
    list_remove(first);
    return first;
}

/* list_move_all - appends all of `from` to `to`; `from` is empty afterwards. */
static inline void list_move_all(struct list *to, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#define LIST_ENTRY(link, type, member) CONTAINER_OF(link, type, member)

/* LIST_FOR_EACH(link, head) - link walks the list, which must not change meanwhile. */
#define LIST_FOR_EACH(link, head)                                                                  \
    for (struct list *link = (head)->next; link != (head); link = link->next)

/* LIST_FOR_EACH_SAFE(link, head) - the same; link itself may be removed. */
#define LIST_FOR_EACH_SAFE(link, head)                                                             \
    for (struct list *link = (head)->next, *link##_next = link->next; link != (head);              \
         link = link##_next, link##_next = link->next)

#endif
