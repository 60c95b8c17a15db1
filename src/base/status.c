/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One allocation per status, message included. The reference count makes sharing one error among
 * many requests cheap; it is the only field that changes after status_new().
 */
#include "base/status.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

struct status {
    enum status_code code;
    atomic_int refs; /* not of static objects, which are never freed */
    const char *message;
    char text[];
};

static struct status no_memory = {.code = STATUS_UNAVAILABLE, .message = "out of memory"};
static struct status not_found = {.code = STATUS_NOT_FOUND, .message = "not found"};

static bool is_static(const struct status *st)
{
    return st == &no_memory || st == &not_found;
}

/* How much text may be added around a message that was cut, before the whole is cut again. */
enum { MAX_AROUND_BYTES = 4 << 10 };

struct status *status_newv(enum status_code code, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int length = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (length < 0)
        length = 0;
    bool is_cut = length > STATUS_MAX_BYTES + MAX_AROUND_BYTES;
    size_t kept = is_cut ? STATUS_MAX_BYTES : (size_t)length;

    MEM_CHARGE(NULL, 0); /* it may outlive the model that it is about */
    struct status *st = mem_try_alloc(sizeof(*st) + kept + 1 + (is_cut ? UTF8_CUT_BYTES : 0));
    if (!st)
        return &no_memory;
    st->code = code;
    atomic_init(&st->refs, 1);
    st->message = st->text;
    st->text[0] = '\0';
    vsnprintf(st->text, kept + 1, fmt, ap);
    if (is_cut)
        utf8_mark_cut(st->text, kept, (size_t)length);
    return st;
}

struct status *status_new(enum status_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    struct status *st = status_newv(code, fmt, ap);
    va_end(ap);
    return st;
}

struct status *status_no_memory(void)
{
    return &no_memory;
}

struct status *status_not_found(void)
{
    return &not_found;
}

/* Puts the text, which is taken, before or behind the message of st, which is taken, too. */
static struct status *join_text(struct status *st, struct status *text, bool before)
{
    struct status *whole = &no_memory;
    if (text != &no_memory)
        whole = status_new(st->code, "%s%s", (before ? text : st)->message,
                           (before ? st : text)->message);
    status_free(text);
    if (whole == &no_memory)
        return st; /* the cause matters more than its context */
    status_free(st);
    return whole;
}

struct status *status_prefix(struct status *st, const char *fmt, ...)
{
    if (!st || st == &no_memory)
        return st;
    va_list ap;
    va_start(ap, fmt);
    struct status *prefix = status_newv(st->code, fmt, ap);
    va_end(ap);
    return join_text(st, prefix, true);
}

struct status *status_suffix(struct status *st, const char *fmt, ...)
{
    if (!st || st == &no_memory)
        return st;
    va_list ap;
    va_start(ap, fmt);
    struct status *suffix = status_newv(st->code, fmt, ap);
    va_end(ap);
    return join_text(st, suffix, false);
}

static enum status_code code_of_errno(int err)
{
    switch (err) {
    case ENOENT:
    case ENOTDIR:
        return STATUS_NOT_FOUND;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EADDRINUSE:
    case EAGAIN:
        return STATUS_UNAVAILABLE;
    case EINVAL:
        return STATUS_INVALID_ARG;
    default:
        return STATUS_INTERNAL;
    }
}

struct status *status_from_errno(int err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    struct status *text = status_newv(code_of_errno(err), fmt, ap);
    va_end(ap);
    if (text == &no_memory)
        return text;

    char reason[128];
    struct status *st =
        status_new(text->code, "%s: %s", text->message, strerror_r(err, reason, sizeof(reason)));
    status_free(text);
    return st;
}

struct status *status_ref(struct status *st)
{
    if (st && !is_static(st))
        atomic_fetch_add_explicit(&st->refs, 1, memory_order_relaxed);
    return st;
}

void status_free(struct status *st)
{
    if (!st || is_static(st))
        return;
    /* acq_rel: the last owner sees all writes of the others before their release. */
    if (atomic_fetch_sub_explicit(&st->refs, 1, memory_order_acq_rel) == 1)
        mem_free(st);
}

enum status_code status_code(const struct status *st)
{
    return st->code;
}

const char *status_message(const struct status *st)
{
    return st->message;
}

const char *status_code_name(enum status_code code)
{
    static const char *const names[] = {
#define STATUS_CODE(code, name, public, http, grpc, grpc_name) name,
#include "base/status.def"
    };
    return (size_t)code < ARRAY_SIZE(names) ? names[code] : "<invalid code>";
}

char *status_reason(const struct status *st)
{
    char *text = mem_printf("%s: %s", status_code_name(st->code), st->message);
    char *reason = utf8_printable(text);
    mem_free(text);
    return reason;
}
