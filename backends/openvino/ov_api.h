/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ov_api - the part of OpenVINO's C interface that we call, by name.
 *
 * No header of theirs is needed to build this backend. A call that can fail returns a number, 0 for
 * success. Objects of theirs are opaque here; those that a call returns are freed by the caller.
 * Shapes are passed by value, and their dims are borrowed for the call; those that a call returns
 * are freed by shape_free(), partial_shape_free().
 */
#ifndef BACKENDS_OPENVINO_OV_API_H
#define BACKENDS_OPENVINO_OV_API_H

#include <stddef.h>
#include <stdint.h>

/* The first release whose numbers of element types are those of types.c. */
#define OV_LEAST_YEAR 2025

struct ov_core;
struct ov_model;
struct ov_compiled;
struct ov_request;
struct ov_tensor;
struct ov_port;   /* an input or an output, to be read */
struct ov_steps;  /* conversions that become part of a model */
struct ov_input;  /* an input in them */
struct ov_output; /* an output in them */
struct ov_input_tensor;
struct ov_output_tensor;

struct ov_version {
    const char *build, *description;
};

struct ov_shape {
    int64_t rank;
    int64_t *dims;
};

/* A number from min to max. Fixed: both are equal. Any: max is -1. */
struct ov_dimension {
    int64_t min, max;
};

/* The status of a call that was not to wait. */
#define OV_NOT_READY (-9)

static const struct ov_dimension any_size = {0, -1}; /* of a dimension, or any rank of a shape */

struct ov_partial_shape {
    struct ov_dimension rank;
    struct ov_dimension *dims; /* rank.max of them; none where the rank is not fixed */
};

struct ov_devices {
    char **names;
    size_t n;
};

/* X(result, name without ov_, parameters) */
#define OV_FUNCTIONS(X)                                                                            \
    X(int, get_openvino_version, (struct ov_version * ret_version))                                \
    X(void, version_free, (struct ov_version * version))                                           \
    X(const char *, get_last_err_msg, (void)) /* a copy, of the process's last error */            \
    X(void, free, (const char *text))                                                              \
    X(int, core_create, (struct ov_core * *ret_core))                                              \
    X(void, core_free, (struct ov_core * core))                                                    \
    X(int, core_add_extension, (const struct ov_core *core, const char *path))                     \
    X(int, core_set_property, (const struct ov_core *core, const char *device, ...))               \
    X(int, core_get_property,                                                                      \
      (const struct ov_core *core, const char *device, const char *key, char **ret_value))         \
    X(int, core_get_available_devices,                                                             \
      (const struct ov_core *core, struct ov_devices *ret_devices))                                \
    X(void, available_devices_free, (struct ov_devices * devices))                                 \
    X(int, core_read_model,                                                                        \
      (const struct ov_core *core, const char *path, const char *weights,                          \
       struct ov_model **ret_model))                                                               \
    X(int, core_compile_model,                                                                     \
      (const struct ov_core *core, const struct ov_model *model, const char *device, size_t n,     \
       struct ov_compiled **ret_compiled, ...))                                                    \
    X(void, model_free, (struct ov_model * model))                                                 \
    X(int, model_inputs_size, (const struct ov_model *model, size_t *ret_n))                       \
    X(int, model_outputs_size, (const struct ov_model *model, size_t *ret_n))                      \
    X(int, model_const_input_by_index,                                                             \
      (const struct ov_model *model, size_t index, struct ov_port **ret_port))                     \
    X(int, model_const_output_by_index,                                                            \
      (const struct ov_model *model, size_t index, struct ov_port **ret_port))                     \
    X(int, model_const_input_by_name,                                                              \
      (const struct ov_model *model, const char *name, struct ov_port **ret_port))                 \
    X(int, model_const_output_by_name,                                                             \
      (const struct ov_model *model, const char *name, struct ov_port **ret_port))                 \
    X(int, model_reshape,                                                                          \
      (const struct ov_model *model, const char **names, const struct ov_partial_shape *shapes,    \
       size_t n))                                                                                  \
    X(int, port_get_any_name, (const struct ov_port *port, char **ret_name))                       \
    X(int, port_get_partial_shape,                                                                 \
      (const struct ov_port *port, struct ov_partial_shape *ret_shape))                            \
    X(int, port_get_element_type, (const struct ov_port *port, int *ret_type))                     \
    X(void, output_const_port_free, (struct ov_port * port))                                       \
    X(void, partial_shape_free, (struct ov_partial_shape * shape))                                 \
    X(int, shape_free, (struct ov_shape * shape))                                                  \
    X(int, compiled_model_input_by_name,                                                           \
      (const struct ov_compiled *compiled, const char *name, struct ov_port **ret_port))           \
    X(int, compiled_model_output_by_name,                                                          \
      (const struct ov_compiled *compiled, const char *name, struct ov_port **ret_port))           \
    X(int, compiled_model_create_infer_request,                                                    \
      (const struct ov_compiled *compiled, struct ov_request **ret_request))                       \
    X(int, compiled_model_get_property,                                                            \
      (const struct ov_compiled *compiled, const char *key, char **ret_value))                     \
    X(void, compiled_model_free, (struct ov_compiled * compiled))                                  \
    X(int, infer_request_set_tensor_by_const_port,                                                 \
      (struct ov_request * request, const struct ov_port *port, const struct ov_tensor *tensor))   \
    X(int, infer_request_get_tensor_by_const_port,                                                 \
      (const struct ov_request *request, const struct ov_port *port,                               \
       struct ov_tensor **ret_tensor))                                                             \
    X(int, infer_request_infer, (struct ov_request * request))                                     \
    X(int, infer_request_wait_for, (struct ov_request * request, int64_t timeout_ms))              \
    X(int, infer_request_cancel, (struct ov_request * request))                                    \
    X(void, infer_request_free, (struct ov_request * request))                                     \
    X(int, tensor_create, (int type, struct ov_shape shape, struct ov_tensor **ret_tensor))        \
    X(int, tensor_create_from_host_ptr,                                                            \
      (int type, struct ov_shape shape, void *memory, struct ov_tensor **ret_tensor))              \
    X(int, tensor_create_from_string_array,                                                        \
      (const char **strings, size_t n, struct ov_shape shape, struct ov_tensor **ret_tensor))      \
    X(int, tensor_get_shape, (const struct ov_tensor *tensor, struct ov_shape *ret_shape))         \
    X(int, tensor_get_element_type, (const struct ov_tensor *tensor, int *ret_type))               \
    X(int, tensor_get_byte_size, (const struct ov_tensor *tensor, size_t *ret_size))               \
    X(int, tensor_data, (const struct ov_tensor *tensor, void **ret_data))                         \
    X(void, tensor_free, (struct ov_tensor * tensor))                                              \
    X(int, preprocess_prepostprocessor_create,                                                     \
      (const struct ov_model *model, struct ov_steps **ret_steps))                                 \
    X(int, preprocess_prepostprocessor_build,                                                      \
      (const struct ov_steps *steps, struct ov_model **ret_model))                                 \
    X(void, preprocess_prepostprocessor_free, (struct ov_steps * steps))                           \
    X(int, preprocess_prepostprocessor_get_input_info_by_name,                                     \
      (const struct ov_steps *steps, const char *name, struct ov_input **ret_input))               \
    X(int, preprocess_input_info_get_tensor_info,                                                  \
      (const struct ov_input *input, struct ov_input_tensor **ret_tensor))                         \
    X(int, preprocess_input_tensor_info_set_element_type,                                          \
      (struct ov_input_tensor * tensor, int type))                                                 \
    X(void, preprocess_input_tensor_info_free, (struct ov_input_tensor * tensor))                  \
    X(void, preprocess_input_info_free, (struct ov_input * input))                                 \
    X(int, preprocess_prepostprocessor_get_output_info_by_name,                                    \
      (const struct ov_steps *steps, const char *name, struct ov_output **ret_output))             \
    X(int, preprocess_output_info_get_tensor_info,                                                 \
      (const struct ov_output *output, struct ov_output_tensor **ret_tensor))                      \
    X(int, preprocess_output_set_element_type, (struct ov_output_tensor * tensor, int type))       \
    X(void, preprocess_output_tensor_info_free, (struct ov_output_tensor * tensor))                \
    X(void, preprocess_output_info_free, (struct ov_output * output))

/* Constant once filled. */
struct ov_api {
#define OV_MEMBER(result, name, parameters) result(*name) parameters;
    OV_FUNCTIONS(OV_MEMBER)
#undef OV_MEMBER
};

#endif
