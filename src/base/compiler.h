/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few compiler helpers that all of Conch uses.
 */
#ifndef CONCH_BASE_COMPILER_H
#define CONCH_BASE_COMPILER_H

#include <stddef.h>

#define NODISCARD            __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, va) __attribute__((format(printf, fmt, va)))
#define NORETURN             __attribute__((noreturn))
#define LIKELY(x)            __builtin_expect(!!(x), 1)
#define UNLIKELY(x)          __builtin_expect(!!(x), 0)

/*
 * A thread-local word that requests read. The TLS model makes each access one instruction, without
 * a call, even in a shared library. Use it for a few words only: a program that opens the library
 * with dlopen() has little room for variables of this model.
 */
#define THREAD_WORD __thread __attribute__((tls_model("initial-exec")))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* The object of type `type` whose member `member` is at `ptr`. */
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* TAKE(p) - gives the pointer's value and sets the pointer to NULL: ownership moves on. */
#define TAKE(p)                                                                                    \
    ({                                                                                             \
        __typeof__(p) take_value_ = (p);                                                           \
        (p) = NULL;                                                                                \
        take_value_;                                                                               \
    })

#define MIN(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) min_a_ = (a);                                                                \
        __typeof__(b) min_b_ = (b);                                                                \
        min_a_ < min_b_ ? min_a_ : min_b_;                                                         \
    })
#define MAX(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) max_a_ = (a);                                                                \
        __typeof__(b) max_b_ = (b);                                                                \
        max_a_ > max_b_ ? max_a_ : max_b_;                                                         \
    })

/*
 * BUG_ON(cond) - for our own mistakes, not for errors: when cond is true, prints the place and
 * aborts, in release builds, too.
 */
#define BUG_ON(cond)                                                                               \
    do {                                                                                           \
        if (UNLIKELY(cond))                                                                        \
            bug(__FILE__, __LINE__, #cond);                                                        \
    } while (0)

/* DEBUG_BUG_ON(cond) - the same in debug builds; other builds do not evaluate cond. */
#ifdef CONCH_DEBUG
#define DEBUG_BUG_ON(cond) BUG_ON(cond)
#else
#define DEBUG_BUG_ON(cond) ((void)sizeof(cond))
#endif

NORETURN void bug(const char *file, int line, const char *condition);

/*
 * AUTO(type) x = …; - a scratch value that type_done() ends when it goes out of scope.
 */
#define AUTO(type) __attribute__((cleanup(type##_done))) struct type

#endif
