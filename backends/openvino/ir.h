/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ir - the text of a graph in OpenVINO's own format, which is XML as OpenVINO writes it: an
 * attribute has a blank before it and quotation marks around its value. No state; any thread.
 */
#ifndef BACKENDS_OPENVINO_IR_H
#define BACKENDS_OPENVINO_IR_H

#include <stdbool.h>
#include <stddef.h>

#include "common/backend.h"

/* A part of the text. */
struct span {
    const char *at, *end;
};

/* Nobody writes a graph of that many bytes; weights are in another file. */
#define IR_MOST_BYTES ((long)256 << 20)

/* ir_is_file - is the file of this name in OpenVINO's own format? */
bool ir_is_file(const char *path);

/*
 * ir_read - the text of a file, with a zero after it; the caller frees it. NULL if the file cannot
 * be read, or has more bytes than most, or there is no memory, in which case ret_err is set.
 */
char *ir_read(const char *path, long most, TRITONSERVER_Error **ret_err);

/* ir_find_char - the next such character, or else the end of the text. */
const char *ir_find_char(const char *at, char wanted);

/* ir_attribute - the value of an attribute of the tag that begins here: empty if the tag has none.
 */
struct span ir_attribute(const char *tag, const char *name);

/* ir_is - is that part this text? */
bool ir_is(struct span s, const char *text);

/* ir_is_tag - does the text begin with this? name: with its '<' and what ends the tag's name */
bool ir_is_tag(const char *at, const char *name);

#endif
