/* SPDX-License-Identifier: Apache-2.0 */
/* No state. Any thread. The files are only named here; net/tls_files.c reads them. */
#include "frontends/serve/service_tls.h"

#include "base/log.h"
#include "base/status.h"

static bool is_path_given(const char *path)
{
    return path && path[0];
}

static struct status *require_file(const struct service_tls *o, const char *path, const char *what,
                                   const char *flag)
{
    return is_path_given(path)
               ? NULL
               : status_new(STATUS_INVALID_ARG, "%s with TLS needs a %s: --%s-%s=PATH", o->name,
                            what, o->flag, flag);
}

static void warn_of_unused(const struct service_tls *o, bool used)
{
    if (!used && (is_path_given(o->server_cert) || is_path_given(o->server_key) ||
                  is_path_given(o->root_cert)))
        log_warn("%s is served without encryption: --%s-use-ssl is false, and certificates "
                 "alone do not turn it on",
                 o->name, o->flag);
    else if (used && !o->use_ssl_mutual && is_path_given(o->root_cert))
        log_warn("clients of %s are not asked for a certificate: --%s-use-ssl-mutual is "
                 "false, and --%s-root-cert alone does not turn it on",
                 o->name, o->flag, o->flag);
}

/* Source: reference/features §2.2. That mutual TLS implies TLS is so there, too. */
struct status *service_tls_read(const struct service_tls *o, struct tls_options *tls,
                                const struct tls_options **ret)
{
    bool used = o->use_ssl || o->use_ssl_mutual;
    struct status *st = NULL;
    warn_of_unused(o, used);
    if (used)
        st = require_file(o, o->server_cert, "server certificate", "server-cert");
    if (used && !st)
        st = require_file(o, o->server_key, "server key", "server-key");
    if (o->use_ssl_mutual && !st)
        st = require_file(o, o->root_cert, "root certificate of its clients", "root-cert");
    if (st)
        return st;
    tls->certificate = o->server_cert;
    tls->key = o->server_key;
    tls->root = o->use_ssl_mutual ? o->root_cert : NULL;
    *ret = used ? tls : NULL;
    return NULL;
}
