/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types - which element type of a server is which element type of OpenVINO.
 */
#ifndef BACKENDS_OPENVINO_TYPES_H
#define BACKENDS_OPENVINO_TYPES_H

#include "common/backend.h"

struct element_type {
    int ov;
    TRITONSERVER_DataType server;
    const char *config; /* as model configurations write it */
    uint32_t size;      /* bytes; 0: strings */
};

/* The element types that both sides have, up to one without a name. */
extern const struct element_type element_types[];

/* element_type_of, element_type_named - NULL: the other side has no such type. */
const struct element_type *element_type_of(int ov);
const struct element_type *element_type_named(const char *config);

#endif
