/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches for the JSON of inference requests and replies.
 *
 * Requests. A client that sends binary tensors repeats the same JSON in front of them, request
 * after request: the same names, types, shapes and sizes. The result of parsing is kept under the
 * text, so that a comparison replaces the parsing (4.4 of 15.4 thousand instructions of a small
 * request). Only JSON without values of its own qualifies: every tensor binary or in a region of
 * shared memory, no id, no parameters but binary_data_output. The result then depends on nothing
 * but the text. Regions are looked up by their names, and checked, at each request.
 *
 * Replies. The JSON of a reply whose outputs are all binary, or in regions, describes the outputs
 * and has none of their values. Printing it takes 0.9 of 6.7 thousand instructions, and as much
 * again for the parameters that each response of an ensemble has. The text is kept, together with
 * everything that it depends on, which is compared. Parameters are a few numbers and truth values.
 *
 * Thread: the loop's; each loop has a memo of its own.
 */
#ifndef CONCH_FRONTENDS_HTTP_MEMO_H
#define CONCH_FRONTENDS_HTTP_MEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/model/tensor.h"
#include "core/request/request.h"

enum {
    MEMO_SLOTS = 16,
    MEMO_REPLIES = 4,
    MEMO_TEXT = 512,
    MEMO_REPLY_TEXT = 384,
    MEMO_TENSORS = 4,
    MEMO_DIMS = 6,
    MEMO_NAME = 48, /* with its zero byte */
    MEMO_VERSION = 24,
    MEMO_PARAMETERS = 3, /* of the response of an ensemble */
    MEMO_PARAMETER_NAME = 24,
};

struct http_call;
struct model;
struct response;

/* A part of a region of shared memory, as the text names it. */
struct memo_region {
    uint16_t name, name_length; /* offsets in the text */
    bool is_set;                /* false: none */
    uint64_t offset, size_bytes;
};

struct memo_input {
    uint16_t name, name_length; /* offsets in the text */
    uint16_t n_dims;
    enum dtype dtype;
    size_t binary_bytes;       /* behind the text */
    struct memo_region region; /* or there */
    int64_t dims[MEMO_DIMS];
};

/* How a named output is wanted. */
struct output_form {
    bool binary;
    uint32_t n_classes; /* as its best classes; 0: as it is */
};

struct memo_output {
    uint16_t name, name_length; /* offsets in the text */
    struct output_form form;
    struct memo_region region; /* where it is to lie, unless in the reply */
};

struct memo_slot {
    size_t length; /* of the text; 0 = empty */
    uint32_t n_inputs, n_outputs;
    bool binary_default;
    size_t tail_bytes; /* of all inputs together */
    struct memo_input inputs[MEMO_TENSORS];
    struct memo_output outputs[MEMO_TENSORS];
    char text[MEMO_TEXT];
};

struct memo_printed {
    char name[MEMO_NAME];
    enum dtype dtype;
    bool is_in_region;
    uint32_t n_dims;
    size_t size_bytes;
    int64_t dims[MEMO_DIMS];
};

struct memo_parameter {
    char name[MEMO_PARAMETER_NAME];
    enum parameter_type type; /* PARAMETER_INT or PARAMETER_BOOL */
    int64_t value;
};

/* A reply to a request without an id. */
struct memo_reply {
    size_t length; /* of the text; 0 = empty */
    char model[MEMO_NAME], version[MEMO_VERSION];
    uint32_t n_outputs, n_parameters;
    struct memo_printed outputs[MEMO_TENSORS];
    struct memo_parameter parameters[MEMO_PARAMETERS];
    char text[MEMO_REPLY_TEXT];
};

struct memo {
    struct memo_slot slots[MEMO_SLOTS]; /* indexed by the text's length */
    struct memo_reply
        replies[MEMO_REPLIES]; /* indexed by the model's address, which is not a proof */
};

/* memo_find - the result of parsing this text, or NULL. */
const struct memo_slot *memo_find(const struct memo *m, const char *text, size_t length);

/*
 * memo_begin - a slot to fill in for a text of that length, or NULL when the text is too long. The
 * slot counts as empty until memo_keep().
 */
struct memo_slot *memo_begin(struct memo *m, size_t length);
void memo_keep(struct memo_slot *slot, const char *text, size_t length);

/*
 * memo_find_reply - the text that was printed for an equal response, or NULL. To be called only
 * when all outputs are requested as binary, or lie in regions, and the request has no id.
 */
const struct memo_reply *memo_find_reply(const struct memo *m, const struct model *model,
                                         const struct response *resp);

/*
 * memo_keep_reply - keeps the text of such a response, if text and outputs are within the limits.
 */
void memo_keep_reply(struct memo *m, const struct model *model, const struct response *resp,
                     const char *text, size_t length);

#endif
