/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Most operations parse the version (parse_version()) and call the server. No state; any thread.
 */
#include "frontends/ops/ops.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "core/model/model.h"
#include "core/server/server.h"
#include "frontends/ops/access.h"

/* Parses the version of a reference (reference/behaviours §2.1); the texts are the reference's. */
static struct status *parse_version(const struct ops_model_ref *ref, int64_t *ret_version)
{
    if (LIKELY(ref->version_length == 0)) {
        *ret_version = CONCH_VERSION_LATEST;
        return NULL;
    }
    const char *at = ref->version, *end = at + ref->version_length;
    bool negative = *at == '-';
    int64_t n = 0;
    if (negative)
        at++;
    bool fine = at < end;
    for (; fine && at < end; at++)
        fine = *at >= '0' && *at <= '9' && !__builtin_mul_overflow(n, 10, &n) &&
               !__builtin_add_overflow(n, *at - '0', &n);
    if (!fine)
        return status_new(STATUS_INVALID_ARG,
                          "failed to get model version from specified version string '%.*s' "
                          "(details: stol), version should be an integral value > 0",
                          (int)MIN(ref->version_length, (size_t)256), ref->version);
    if (negative)
        return status_new(
            STATUS_INVALID_ARG,
            "invalid model version specified '%.*s' , version should be an integral value > 0",
            (int)MIN(ref->version_length, (size_t)256), ref->version);
    *ret_version = n;
    return NULL;
}

struct status *ops_model_ready(struct server *s, const struct ops_model_ref *ref, bool *ret_ready)
{
    int64_t version;
    struct status *st = parse_version(ref, &version);
    if (st)
        return st;
    return server_model_is_ready(s, ref->name, ref->name_length, version, ret_ready);
}

struct status *ops_model_find(struct server *s, const struct ops_model_ref *ref,
                              struct model **ret_model)
{
    int64_t version;
    struct status *st = parse_version(ref, &version);
    if (st)
        return st;
    return server_find_model(s, ref->name, ref->name_length, version, ret_model);
}

struct status *ops_model_metadata(struct server *s, const struct ops_model_ref *ref,
                                  struct ops_model_metadata *ret)
{
    struct ops_model_metadata m = {0};
    struct status *st = ops_model_find(s, ref, &m.model);
    if (st)
        return st;
    if (ref->version_length > 0) {
        m.versions = mem_alloc(sizeof(*m.versions));
        m.versions[0] = m.model->version;
        m.n_versions = 1;
    } else {
        st = server_model_versions(s, ref->name, ref->name_length, &m.versions, &m.n_versions);
        if (st) {
            model_unref(m.model);
            return st;
        }
    }
    *ret = m;
    return NULL;
}

void ops_model_metadata_done(struct ops_model_metadata *m)
{
    model_unref(TAKE(m->model));
    mem_free(TAKE(m->versions));
}

struct status *ops_statistics(struct server *s, const struct ops_model_ref *ref,
                              struct server_statistics *ret)
{
    int64_t version;
    struct status *st = parse_version(ref, &version);
    if (st)
        return st;
    return server_statistics(s, ref->name, ref->name_length, version, ret);
}

/* Adds behind the reference's text which model may be meant; takes st. */
static struct status *propose_model(struct server *s, const struct ops_model_ref *ref,
                                    struct status *st)
{
    static const char unknown[] = "' is not found";
    size_t length = strlen(status_message(st)), n = sizeof(unknown) - 1;
    if (length < n || strcmp(status_message(st) + length - n, unknown) != 0)
        return st;
    char *meant = server_nearest_model(s, ref->name, ref->name_length);
    if (!meant)
        return st;
    struct status *whole =
        status_new(status_code(st), "%s; did you mean '%s'?", status_message(st), meant);
    mem_free(meant);
    status_free(st);
    return whole;
}

struct status *ops_model_to_infer(struct server *s, const struct ops_model_ref *ref,
                                  const struct access_view *access, struct model **ret_model)
{
    struct status *st = ops_model_find(s, ref, ret_model);
    if (st && status_code(st) == STATUS_NOT_FOUND && !access->source)
        st = propose_model(s, ref, st);
    return st;
}

struct status *ops_infer_model(struct server *s, const struct ops_model_ref *ref,
                               const struct access_view *access, const char *protocol,
                               struct model **ret_model)
{
    struct model *m;
    struct status *st = ops_model_to_infer(s, ref, access, &m);
    if (st)
        return st;
    if (m->decoupled) {
        model_unref(m);
        return status_new(STATUS_UNSUPPORTED,
                          "%s doesn't support models with decoupled transaction policy", protocol);
    }
    *ret_model = m;
    return NULL;
}

struct control *ops_control(struct server *s)
{
    struct control *control = server_control(s);
    return control ? control : server_helpers(s);
}

struct status *ops_model_to_trace(struct server *s, const struct ops_model_ref *ref)
{
    bool ready = false;
    struct status *st = ops_model_ready(s, ref, &ready);
    if (st || ready)
        return st;
    return status_new(STATUS_INVALID_ARG, "Request for unknown model : %.*s", (int)ref->name_length,
                      ref->name);
}
