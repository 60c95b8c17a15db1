/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of the log that clients may read and change while the server runs
 * (reference/behaviours §23). The log belongs to the process: with several servers in it, all have
 * the same settings.
 */
#ifndef CONCH_FRONTENDS_OPS_LOG_SETTINGS_H
#define CONCH_FRONTENDS_OPS_LOG_SETTINGS_H

#include <limits.h>
#include <stdint.h>

#include "base/log.h"

struct ops_log_settings {
    char file[PATH_MAX]; /* "" without a file */
    struct log_settings levels;
};

/* ops_log_settings - the present settings. Thread: any. */
void ops_log_settings(struct ops_log_settings *ret);

/* ops_log_verbose_level - the level that a client's number means: above INT32_MAX none, as in the
 * reference. */
int ops_log_verbose_level(uint32_t number);

/* ops_log_format_name - "default", "ISO8601" or "json"; static. */
const char *ops_log_format_name(enum log_format format);

/* ops_log_format_of - finds the format of that name. False: there is none. */
bool ops_log_format_of(const char *name, enum log_format *ret);

/* A change. Both functions may be called again, when another thread has changed the settings
 * meanwhile. */
struct ops_log_change {
    /* Puts what the request names into the settings. */
    struct status *(*read)(const void *asked, struct log_settings *ret);
    const void *asked;
    /* Makes the answer, which has the settings as they are going to be. */
    struct status *(*answer)(void *arg, const struct ops_log_settings *settings);
    void *arg;
};

/*
 * ops_change_log_settings - changes those settings that a request names, once its answer is made;
 * none if one of them is wrong, or there is no memory for the answer.
 *
 * Thread: any. Errors: those of `read` and `answer`
 */
NODISCARD struct status *ops_change_log_settings(const struct ops_log_change *change);

/* ops_refuse_log_file - makes the error for a client that sets the log file: STATUS_UNSUPPORTED. */
NODISCARD struct status *ops_refuse_log_file(void);

#endif
