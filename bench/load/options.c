/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stdlib.h>

void load_options_init(struct load_options *o)
{
    *o = (struct load_options){
        .host = "127.0.0.1",
        .connections = 1,
        .warmup_s = 0.3,
        .seconds = 2,
        .verify_len = 4096,
        .cpus = 3,
    };
}

bool load_options_set(struct load_options *o, int option)
{
    switch (option) {
    case 'h':
        o->host = optarg;
        return true;
    case 'p':
        o->port = load_options_number(optarg);
        return true;
    case 'c':
        o->connections = load_options_number(optarg);
        return true;
    case 'w':
        o->warmup_s = strtod(optarg, NULL);
        return true;
    case 's':
        o->seconds = strtod(optarg, NULL);
        return true;
    case 'v':
        o->verify_len = strtoull(optarg, NULL, 10);
        return true;
    case 'f':
        o->first_path = optarg;
        return true;
    case 'n':
        o->counters_path = optarg;
        return true;
    case 'P':
        o->server = (pid_t)strtol(optarg, NULL, 10);
        return true;
    case 'C':
        o->cpus = strtoull(optarg, NULL, 0);
        return true;
    default:
        return false;
    }
}

bool load_options_are_valid(const struct load_options *o)
{
    return o->port > 0 && o->port < 65536 && o->connections > 0;
}

unsigned int load_options_number(const char *text)
{
    return (unsigned int)strtoul(text, NULL, 10);
}
