/* SPDX-License-Identifier: Apache-2.0 */
/* The log's settings by their names. base/log.c keeps the settings. No state; any thread. */
#include "frontends/ops/log_settings.h"

#include <string.h>

#include "base/status.h"

static const char *const format_names[] = {
    [LOG_FORMAT_DEFAULT] = "default",
    [LOG_FORMAT_ISO8601] = "ISO8601",
    [LOG_FORMAT_JSON] = "json",
};

void ops_log_settings(struct ops_log_settings *ret)
{
    log_get_file(ret->file, sizeof(ret->file));
    log_get_settings(&ret->levels);
}

int ops_log_verbose_level(uint32_t number)
{
    return number <= INT32_MAX ? (int)number : 0;
}

const char *ops_log_format_name(enum log_format format)
{
    return format_names[format];
}

bool ops_log_format_of(const char *name, enum log_format *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(format_names); i++) {
        if (strcmp(format_names[i], name) == 0) {
            *ret = (enum log_format)i;
            return true;
        }
    }
    return false;
}

struct status *ops_change_log_settings(const struct ops_log_change *change)
{
    struct log_settings was;
    struct ops_log_settings now;
    struct status *st;
    do {
        ops_log_settings(&now);
        was = now.levels;
        st = change->read(change->asked, &now.levels);
        if (!st)
            st = change->answer(change->arg, &now);
    } while (!st && !log_replace_settings(&was, &now.levels));
    return st;
}

struct status *ops_refuse_log_file(void)
{
    return status_new(STATUS_UNSUPPORTED,
                      "log file location can not be updated through network protocol");
}
