/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of infer_parse(): infer_parse.c has the body as a whole, infer_input.c the
 * inputs, infer_output.c the requested outputs.
 */
#ifndef CONCH_FRONTENDS_HTTP_INFER_PRIV_H
#define CONCH_FRONTENDS_HTTP_INFER_PRIV_H

#include "base/json.h"
#include "frontends/http/infer.h"

/* What the text says of a tensor; the names are in the text, if they have no escapes. */
struct seen_tensor {
    struct json_str name;
    bool is_in_region;
    struct region_part part;
};

struct parse {
    struct exchange *x;
    struct http_call *call;
    struct request *r;
    size_t max_bytes;
    const char *tail; /* binary data that no input has taken yet */
    size_t tail_bytes;

    /* For memo.h: whether all tensors so far are binary or in regions, and the first of them. */
    bool plain;
    uint32_t n_seen_inputs, n_seen_outputs;
    struct seen_tensor seen_inputs[MEMO_TENSORS], seen_outputs[MEMO_TENSORS];
};

/*
 * parse_inputs, parse_outputs - parse the value of that member at j. On success j is behind the
 * value.
 */
NODISCARD struct status *parse_inputs(struct parse *p, struct json *j);
NODISCARD struct status *parse_outputs(struct parse *p, struct json *j);

/*
 * Errors of the JSON library are internal errors, as in the reference (reference/behaviours §3.5).
 * json_status() begins with `what`, field_status() with "Unable to parse 'field'". missing_status()
 * says that the member is missing. For a syntax error infer_parse() replaces the message by
 * RapidJSON's.
 */
NODISCARD struct status *json_status(enum json_failure failure, const char *what);
NODISCARD struct status *field_status(enum json_failure failure, const char *field);
NODISCARD struct status *missing_status(const char *field);
/* too_large_status - the error for a `what` above --http-max-input-size. */
NODISCARD struct status *too_large_status(struct parse *p, const char *what, size_t n_bytes);

/*
 * pass_over - goes back to `value`, which has a wrong type, and skips it, so that parsing goes on.
 * Returns the failure that j had before.
 */
enum json_failure pass_over(struct json *j, struct json value);

/* The parameters of a tensor about shared memory, as far as they could be read. */
struct region_text {
    bool has_any, has_name, has_offset, has_size;
    enum json_failure name_failure, offset_failure, size_failure;
    struct region_part part;
};

/*
 * read_region_parameter - reads the value of the parameter `key`, if it is about shared memory and
 * the first of its name. False: it is not, and j is before the value as it was.
 * check_region_text - the error of a value that could not be read, in the reference's order.
 */
bool read_region_parameter(struct region_text *t, struct json *j, struct json_str key);
NODISCARD struct status *check_region_text(const struct region_text *t);

/* add_data - appends bytes to the data of an input; they are not copied. */
NODISCARD struct status *add_data(struct parse *p, struct input *in, const void *base,
                                  size_t n_bytes);
/* add_requested_output - sets the form of the output that was added last. `part` is the shared
 * memory in which it is to lie; NULL: none. */
NODISCARD struct status *add_requested_output(struct parse *p, struct output_form form,
                                              const struct region_part *part);

/* infer_read_values - reads an array of numbers or booleans, flat or nested, of at most max values.
 */
bool infer_read_values(struct json *j, enum dtype dtype, void *out, size_t max, size_t *ret_n);

/* add_custom_parameter - reads the value at j into a parameter of the request. */
NODISCARD struct status *add_custom_parameter(struct parse *p, struct json *j, struct json_str key);

/*
 * What the client should have sent, behind the reference's text (infer_advice.c). They take st and
 * return the longer error.
 *
 * infer_advise_datatype - the datatype that was probably meant.
 * infer_advise_values   - how many values of which type the input has, and how many were given.
 * infer_advise_inputs   - the form of a request to the model.
 */
NODISCARD struct status *infer_advise_datatype(struct status *st, struct json_str given);
NODISCARD struct status *infer_advise_values(struct status *st, const struct input *in,
                                             int64_t n_elements, struct json data);
NODISCARD struct status *infer_advise_inputs(struct status *st, const struct model *m);

#endif
