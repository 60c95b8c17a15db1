/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the reader of the JSON form: the position in the message, and the errors.
 */
#ifndef CONCH_BASE_PBJSON_PRIV_H
#define CONCH_BASE_PBJSON_PRIV_H

#include "base/json.h"
#include "base/pbjson.h"

/* The position of the reader in the message, as errors show it: "input[2].dims[0]". */
struct pbjson_step {
    const struct pbjson_step *outer;       /* NULL for the whole message */
    const char *name;                      /* NULL: an element of the outer step's array */
    const ProtobufCFieldDescriptor *field; /* of the value; of a map's value: that of the entry */
    size_t index;
};

struct pbjson_reader {
    struct json json;
    struct arena *arena;
    const char *text;
    int depth;
};

/*
 * pbjson_fail - makes the error "<line>:<column>: <path>: <text>" for a fault at `at`.
 */
NODISCARD struct status *pbjson_fail(const struct pbjson_reader *r, const char *at,
                                     const struct pbjson_step *step, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/*
 * pbjson_fail_value - the error for a value at `at` that does not suit the field of the step:
 * protobuf's text, then "(<line>:<column>: <our text>)".
 */
NODISCARD struct status *pbjson_fail_value(const struct pbjson_reader *r, const char *at,
                                           const struct pbjson_step *step, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* pbjson_fail_name - the same for a name that no field of the message at `outer` has. */
NODISCARD struct status *pbjson_fail_name(const struct pbjson_reader *r, const char *at,
                                          const struct pbjson_step *outer, const char *name,
                                          const char *meant);

/* A name or value from the text, shortened to what an error shows. */
struct pbjson_shown {
    char text[61];
};
struct pbjson_shown pbjson_shown(struct json_str s);

#endif
