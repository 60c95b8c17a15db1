/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads by clients are possible with --model-control-mode=explicit. --access-rules and the options
 * that restrict the API model-repository ask clients for a key or a certificate; an address of this
 * machine keeps others out, but not the pages that a browser of this machine opens.
 */
#include "exposure.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "options.h"

static bool is_of_this_machine(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 || strncmp(address, "127.", 4) == 0 ||
           strcmp(address, "localhost") == 0 || strcmp(address, "::1") == 0 ||
           strcmp(address, "[::1]") == 0;
}

/* Does one of the values "api,api:key=value" name the API? */
static bool restricts_loads(const struct option_value *v)
{
    static const char api[] = "model-repository";
    for (size_t i = 0; i < v->n_list; i++) {
        const char *end = v->list[i] + strcspn(v->list[i], ":");
        for (const char *p = v->list[i]; p < end; p += strcspn(p, ",:") + 1) {
            if (strcspn(p, ",:") == strlen(api) && strncmp(p, api, strlen(api)) == 0)
                return true;
        }
    }
    return false;
}

/* May a client load models without a key, whom the addresses let in? */
static bool lets_load(const struct options *o, enum option_id restricted_api)
{
    const char *rules = option_text(o, OPT_ACCESS_RULES);
    return strcmp(option_text(o, OPT_MODEL_CONTROL_MODE), "explicit") == 0 && !(rules && *rules) &&
           !restricts_loads(&o->values[restricted_api]);
}

void exposure_warning(const struct options *o, char *ret_text, size_t room)
{
    const char *http = option_text(o, OPT_HTTP_ADDRESS), *grpc = option_text(o, OPT_GRPC_ADDRESS);
    bool by_http = option_bool(o, OPT_ALLOW_HTTP) && !is_of_this_machine(http) &&
                   lets_load(o, OPT_HTTP_RESTRICTED_API);
    bool by_grpc = option_bool(o, OPT_ALLOW_GRPC) && !is_of_this_machine(grpc) &&
                   lets_load(o, OPT_GRPC_RESTRICTED_PROTOCOL);

    *ret_text = '\0';
    if (!by_http && !by_grpc)
        return;
    snprintf(ret_text, room,
             "Whoever reaches %s%s%s may load and unload models, and a model may have code in it: "
             "restrict that by --access-rules or %s, or listen at 127.0.0.1",
             by_http ? "HTTP" : "", by_http && by_grpc ? " or " : "", by_grpc ? "gRPC" : "",
             by_http ? "--http-restricted-api=model-repository:KEY=VALUE"
                     : "--grpc-restricted-protocol=model-repository:KEY=VALUE");
}

void exposure_warning_of_pages(const struct options *o, char *ret_text, size_t room)
{
    *ret_text = '\0';
    if (!option_bool(o, OPT_ALLOW_HTTP) || strcmp(option_text(o, OPT_HTTP_CORS_ORIGINS), "*") != 0)
        return;
    snprintf(ret_text, room,
             "Any page that a browser opens may ask this server%s, even at 127.0.0.1, because of "
             "--http-cors-origins=*: name the origins of your pages instead",
             lets_load(o, OPT_HTTP_RESTRICTED_API) ? ", and load and unload models" : "");
}
