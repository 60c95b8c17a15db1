/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A document in JSON, as the plugin ABI hands documents over. This is TRITONSERVER_Message.
 */
#ifndef CONCH_CORE_BACKEND_JSON_MESSAGE_H
#define CONCH_CORE_BACKEND_JSON_MESSAGE_H

#include <stddef.h>

struct json_message {
    char *json;
    size_t size_bytes;
};

#endif
