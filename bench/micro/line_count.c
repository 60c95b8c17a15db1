/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that gcc calls at each load, store and atomic operation of code that is compiled
 * with -fsanitize=thread. This file is not compiled so. The functions also execute the atomic
 * operations.
 */
#include "micro/line_count.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static __thread struct line_table *table;

void line_count_here(struct line_table *t)
{
    table = t;
}

static struct line *line_at(struct line_table *t, uintptr_t number)
{
    size_t i = (size_t)(number * 0x9e3779b97f4a7c15u >> 50);
    for (size_t n = 0; n < LINES; n++, i = (i + 1) % LINES) {
        struct line *l = &t->lines[i];
        if (l->number == number || l->number == 0) {
            l->number = number;
            return l;
        }
    }
    fprintf(stderr, "line_count: more than %d lines\n", LINES);
    abort();
}

static void touch(const volatile void *p, size_t size, bool writes, void *by)
{
    struct line_table *t = table;
    if (!t || !t->request)
        return;
    for (uintptr_t at = (uintptr_t)p, end = at + size; at < end; at = (at | 63) + 1) {
        struct line *l = line_at(t, at / 64);
        if (!writes) {
            l->n_reads += l->last_read != t->request;
            l->last_read = t->request;
            continue;
        }
        unsigned char first = (unsigned char)(at % 64);
        unsigned char last = (unsigned char)(end - 1 < (at | 63) ? (end - 1) % 64 : 63);
        if (l->n_writes == 0 || first < l->first)
            l->first = first;
        if (last + 1 > l->end)
            l->end = (unsigned char)(last + 1);
        l->n_writes += l->last_write != t->request;
        l->last_write = t->request;
        l->writer = (uintptr_t)by;
    }
}

#define READS(p, n)  touch(p, n, false, __builtin_return_address(0))
#define WRITES(p, n) touch(p, n, true, __builtin_return_address(0))

#define PLAIN(n)                                                                                   \
    void __tsan_read##n(void *p);                                                                  \
    void __tsan_read##n(void *p)                                                                   \
    {                                                                                              \
        READS(p, n);                                                                               \
    }                                                                                              \
    void __tsan_write##n(void *p);                                                                 \
    void __tsan_write##n(void *p)                                                                  \
    {                                                                                              \
        WRITES(p, n);                                                                              \
    }                                                                                              \
    void __tsan_unaligned_read##n(void *p);                                                        \
    void __tsan_unaligned_read##n(void *p)                                                         \
    {                                                                                              \
        READS(p, n);                                                                               \
    }                                                                                              \
    void __tsan_unaligned_write##n(void *p);                                                       \
    void __tsan_unaligned_write##n(void *p)                                                        \
    {                                                                                              \
        WRITES(p, n);                                                                              \
    }

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *p, size_t n);
void __tsan_read_range(void *p, size_t n)
{
    READS(p, n);
}

void __tsan_write_range(void *p, size_t n);
void __tsan_write_range(void *p, size_t n)
{
    WRITES(p, n);
}

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(void *p);
void __tsan_func_entry(void *p)
{
    (void)p;
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}

#define FETCH(bits, type, name, builtin)                                                           \
    type __tsan_atomic##bits##_##name(volatile type *p, type v, int order);                        \
    type __tsan_atomic##bits##_##name(volatile type *p, type v, int order)                         \
    {                                                                                              \
        (void)order;                                                                               \
        WRITES(p, sizeof(type));                                                                   \
        return builtin(p, v, __ATOMIC_SEQ_CST);                                                    \
    }

#define EXCHANGE_IF(bits, type, name)                                                              \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile type *p, type *expected, type v,    \
                                                      int order, int fail);                        \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile type *p, type *expected, type v,    \
                                                      int order, int fail)                         \
    {                                                                                              \
        (void)order;                                                                               \
        (void)fail;                                                                                \
        WRITES(p, sizeof(type));                                                                   \
        return __atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }

#define ATOMIC(bits, type)                                                                         \
    type __tsan_atomic##bits##_load(const volatile type *p, int order);                            \
    type __tsan_atomic##bits##_load(const volatile type *p, int order)                             \
    {                                                                                              \
        (void)order;                                                                               \
        READS(p, sizeof(type));                                                                    \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile type *p, type v, int order);                         \
    void __tsan_atomic##bits##_store(volatile type *p, type v, int order)                          \
    {                                                                                              \
        (void)order;                                                                               \
        WRITES(p, sizeof(type));                                                                   \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    FETCH(bits, type, exchange, __atomic_exchange_n)                                               \
    FETCH(bits, type, fetch_add, __atomic_fetch_add)                                               \
    FETCH(bits, type, fetch_sub, __atomic_fetch_sub)                                               \
    FETCH(bits, type, fetch_and, __atomic_fetch_and)                                               \
    FETCH(bits, type, fetch_or, __atomic_fetch_or)                                                 \
    FETCH(bits, type, fetch_xor, __atomic_fetch_xor)                                               \
    EXCHANGE_IF(bits, type, strong)                                                                \
    EXCHANGE_IF(bits, type, weak)

ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}

int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    WRITES(m, 16); /* lock, count, owner, users */
    return __real_pthread_mutex_lock(m);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    WRITES(m, 16);
    return __real_pthread_mutex_unlock(m);
}
