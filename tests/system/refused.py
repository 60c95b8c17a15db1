# SPDX-License-Identifier: Apache-2.0
"""Wrong inference requests, and the error of each."""

from wire import given

ONE = given("INPUT0", "FP32", [1], [1])


def inputs(*listed, **more):
    return {"inputs": list(listed), **more}


def without(member):
    return inputs({key: value for key, value in ONE.items() if key != member})


# (model, document, status, message): the document is JSON or an object to be written as JSON.
REFUSED = {
    # Text that is no JSON, or JSON of another kind than expected, is an internal error in the reference: 500.
    "cut off": ("any_fp32", b'{"inputs":[', 500, "failed to parse the request JSON buffer: "),
    "no JSON": ("any_fp32", b"hello", 500, "failed to parse the request JSON buffer: Invalid value. at 0"),
    "two documents": ("any_fp32", b"{} {}", 500, "failed to parse the request JSON buffer: The document root must not be followed by other values. at 3"),
    "missing comma": ("any_fp32", b'{"a":1 "b":2}', 500, "failed to parse the request JSON buffer: Missing a comma or '}' after an object member. at 7"),
    "missing colon": ("any_fp32", b'{"a" 1}', 500, "failed to parse the request JSON buffer: Missing a colon after a name of object member. at 5"),
    "no member name": ("any_fp32", b"{1:2}", 500, "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
    "open string": ("any_fp32", b'{"a":"b', 500, "failed to parse the request JSON buffer: Missing a closing quotation mark in string. at "),
    "bad escape": ("any_fp32", b'{"a":"\\q"}', 500, "failed to parse the request JSON buffer: Invalid escape character in string. at "),
    "huge number": ("any_fp32", b'{"a":1e999}', 500, "failed to parse the request JSON buffer: Number too big to be stored in double. at "),
    "an array": ("any_fp32", b"[]", 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
    "no inputs": ("any_fp32", {}, 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
    "inputs no array": ("any_fp32", {"inputs": 1}, 500, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
    "input no object": ("any_fp32", {"inputs": [1]}, 400, "Input must set only one of the following fields: "),
    "no name": ("any_fp32", without("name"), 500, "Unable to parse 'name': attempt to access non-existing object member 'name'"),
    "no datatype": ("any_fp32", without("datatype"), 500, "Unable to parse 'datatype': attempt to access non-existing object member 'datatype'"),
    "no shape": ("any_fp32", without("shape"), 500, "Unable to parse 'shape': attempt to access non-existing object member 'shape'"),
    "name no string": ("any_fp32", inputs({**ONE, "name": 1}), 500, "Unable to parse 'name': attempt to access JSON non-string as string"),
    "shape no array": ("any_fp32", inputs({**ONE, "shape": 1}), 500, "Unable to parse 'shape': attempt to access JSON non-array as array"),
    "negative dimension": ("any_fp32", inputs(given("INPUT0", "FP32", [-1], [1])), 500, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    "fraction as dimension": ("any_fp32", inputs(given("INPUT0", "FP32", [1.5], [1])), 500, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    "id no string": ("any_fp32", inputs(ONE, id=7), 500, "Unable to parse 'id': attempt to access JSON non-string as string"),
    "data no array": ("any_fp32", inputs({**ONE, "data": 1}), 500, "Unable to parse 'data': attempt to access JSON non-array as array"),
    "text as number": ("any_fp32", inputs({**ONE, "data": ["1"]}), 500, "Unable to parse 'data': attempt to access JSON non-number as double"),
    "number as text": ("any_bytes", inputs(given("INPUT0", "BYTES", [1], [1])), 500, "Unable to parse JSON bytes array: attempt to access JSON non-string as string"),
    "number as truth": ("any_bool", inputs(given("INPUT0", "BOOL", [1], [1])), 500, "Unable to parse 'data': attempt to access JSON non-boolean as boolean"),
    "fraction as integer": ("any_int32", inputs(given("INPUT0", "INT32", [1], [1.5])), 500, "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
    "negative as unsigned": ("any_uint32", inputs(given("INPUT0", "UINT32", [1], [-1])), 500, "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    "too many values": ("any_fp32", inputs({**ONE, "data": [1, 2]}), 500, "Unable to parse 'data': Shape does not match true shape of 'data' field"),
    "too few values": ("any_fp32", inputs({**ONE, "shape": [3]}), 500, "Failed to parse 'data' field: shape does not match true shape"),
    # Everything else that is wrong with a request: 400.
    "no data": ("any_fp32", without("data"), 400, "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But no field is set"),
    "data twice": ("any_fp32", inputs({**ONE, "parameters": {"binary_data_size": 4}}), 400, "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But"),
    "FP16 as JSON": ("any_fp16", inputs(given("INPUT0", "FP16", [1], [1])), 400, "receiving FP16 data via JSON is not supported. Please use the binary data format for input INPUT0"),
    "BF16 as JSON": ("any_bf16", inputs(given("INPUT0", "BF16", [1], [1])), 400, "receiving BF16 data via JSON is not supported. Please use the binary data format for input INPUT0"),
    "overflowing shape": ("any_fp32", inputs({**ONE, "shape": [2**33, 2**33]}), 400, "invalid shape for input 'INPUT0': shape [8589934592,8589934592] causes total element count to exceed maximum size of 9223372036854775807"),
    "parameter is a list": ("any_fp32", inputs(ONE, parameters={"mine": [1]}), 400, "parameter 'mine' has invalid type. It should be either 'int', 'bool', or 'string'."),
    "reserved parameter": ("any_fp32", inputs(ONE, parameters={"triton_mine": 1}), 400, "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."),
    "unknown input": ("any_fp32", inputs(given("X", "FP32", [1], [1])), 400, "unexpected inference input 'X' for model 'any_fp32'"),
    "unknown output": ("any_fp32", inputs(ONE, outputs=[{"name": "X"}]), 400, "unexpected inference output 'X' for model 'any_fp32'"),
    "input twice": ("any_fp32", inputs(ONE, ONE), 400, "input 'INPUT0' already exists in request"),
    "output twice": ("any_fp32", inputs(ONE, outputs=[{"name": "OUTPUT0"}, {"name": "OUTPUT0"}]), 400, "output 'OUTPUT0' already exists in request"),
    "too few inputs": ("pair", inputs(ONE), 400, "expected 2 inputs but got 1 inputs for model 'pair'. Got input(s) ['INPUT0'], but missing required input(s) ['INPUT1']. Please provide all required input(s)."),
    "nothing in inputs": ("any_fp32", inputs(), 400, "expected 1 inputs but got 0 inputs for model 'any_fp32'. Got input(s) [], but missing required input(s) ['INPUT0']. Please provide all required input(s)."),
    "wrong datatype": ("any_fp32", inputs(given("INPUT0", "INT32", [1], [1])), 400, "inference input 'INPUT0' data-type is 'INT32', but model 'any_fp32' expects 'FP32'"),
    "wrong shape": ("fixed", inputs(given("INPUT0", "INT32", [5], [1, 2, 3, 4, 5])), 400, "unexpected shape for input 'INPUT0' for model 'fixed'. Expected [4], got [5]."),
    "wrong rank": ("fixed", inputs(given("INPUT0", "INT32", [1, 4], [1, 2, 3, 4])), 400, "unexpected shape for input 'INPUT0' for model 'fixed'. Expected [4], got [1,4]."),
    "wrong shape in a batch": ("batch", inputs(given("INPUT0", "FP32", [1, 3], [1, 2, 3])), 400, "unexpected shape for input 'INPUT0' for model 'batch'. Expected [-1,2], got [1,3]. NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape."),
    "no dimensions": ("any_fp32", inputs(given("INPUT0", "FP32", [], ["not", "looked at"])), 400, "unexpected shape for input 'INPUT0' for model 'any_fp32'. Expected [-1], got []. "),
    "batch too large": ("batch", inputs(given("INPUT0", "FP32", [5, 2], [0] * 10)), 400, "inference request batch-size must be <= 4 for 'batch'"),
    "batch of no rows": ("batch", inputs(given("INPUT0", "FP32", [0, 2], [])), 400, "input byte size mismatch for input 'INPUT0' for model 'batch'. Expected 8, got 0"),
    "no batch dimension": ("batch", inputs(given("INPUT0", "FP32", [], [0])), 400, "input 'INPUT0' has no shape but model requires batch dimension for 'batch'"),
    "batches differ": ("pair_batch", inputs(given("INPUT0", "FP32", [1, 2], [1, 2]), given("INPUT1", "INT32", [2, 1], [1, 2])), 400, "input 'INPUT"),
    "unknown model": ("nobody", inputs(ONE), 404, "Request for unknown model: 'nobody' is not found"),
}

# The release that we follow validates these. 2.51, which can run beside us, does not, or has another text.
SINCE = {"too few values", "overflowing shape", "output twice"}
