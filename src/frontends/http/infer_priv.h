/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of infer_parse() share: infer_parse.c has the whole, infer_input.c and
 * infer_output.c have what their names say.
 */
#ifndef CONCH_FRONTENDS_HTTP_INFER_PRIV_H
#define CONCH_FRONTENDS_HTTP_INFER_PRIV_H

#include "base/json.h"
#include "frontends/http/infer.h"

struct parse {
    struct exchange *x;
    struct http_call *call;
    struct request *r;
    size_t max_bytes;
    const char *tail; /* binary data not taken yet */
    size_t tail_bytes;

    /* For memo.h: nothing but binary tensors was met, and how the text names them. */
    bool plain;
    uint32_t n_seen_inputs, n_seen_outputs;
    struct json_str seen_inputs[MEMO_TENSORS], seen_outputs[MEMO_TENSORS];
};

/* parse_inputs, parse_outputs - the value of that member at j; j is behind it on success. */
NODISCARD struct status *parse_inputs(struct parse *p, struct json *j);
NODISCARD struct status *parse_outputs(struct parse *p, struct json *j);

/*
 * Errors of the JSON library are internal errors, as the reference has them (reference/behaviours
 * §3.5): json_status begins with the words given, field_status with "Unable to parse 'field'";
 * missing_status says that there is no such member. A syntax error is only noted: infer_parse()
 * finds its words.
 */
NODISCARD struct status *json_status(enum json_failure failure, const char *what);
NODISCARD struct status *field_status(enum json_failure failure, const char *field);
NODISCARD struct status *missing_status(const char *field);
/* too_large_status - `what` has more bytes than --http-max-input-size allows. */
NODISCARD struct status *too_large_status(struct parse *p, const char *what, size_t n_bytes);

/* pass_over - a failure of a type is for later: the walk goes on behind the value. */
enum json_failure pass_over(struct json *j, struct json value);

/* add_data - the next bytes of an input. */
NODISCARD struct status *add_data(struct parse *p, struct input *in, const void *base,
                                  size_t n_bytes);
/* add_requested_output - how the output that was added last is to come. */
NODISCARD struct status *add_requested_output(struct parse *p, bool binary);

#endif
