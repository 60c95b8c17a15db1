# SPDX-License-Identifier: Apache-2.0
"""What a Python model imports: tensors, requests, responses, and helpers around the model's configuration.

The types are made by the extension conch_python. Outside a server's process this module has the helpers alone. NumPy is
imported when it is first needed.
"""

import json

try:
    import conch_python as _own
except ImportError:
    _own = None

    def _find(_tensors_of, _name):
        return NotImplemented
else:
    _find = _own.find_by_name
    from conch_python import (  # noqa: F401
        InferenceRequest, InferenceResponse, InferenceResponseSender, InferenceTrace, Logger, MetricFamily, PreferredMemory,
        ResponseIterator, Tensor, TritonError, TritonModelException, TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU,
        deserialize_bytes_tensor, empty, get_model_dir, is_model_ready, load_model, serialize_byte_tensor, unload_model,
    )

    class MemoryType:
        """Where a tensor may lie."""

        TRITONSERVER_MEMORY_CPU = TRITONSERVER_MEMORY_CPU
        TRITONSERVER_MEMORY_GPU = TRITONSERVER_MEMORY_GPU

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

# Names of types in configurations, the number in Triton of each, and its name in NumPy.
_TYPES = {
    "TYPE_BOOL": (1, "bool_"), "TYPE_UINT8": (2, "uint8"), "TYPE_UINT16": (3, "uint16"), "TYPE_UINT32": (4, "uint32"),
    "TYPE_UINT64": (5, "uint64"), "TYPE_INT8": (6, "int8"), "TYPE_INT16": (7, "int16"), "TYPE_INT32": (8, "int32"),
    "TYPE_INT64": (9, "int64"), "TYPE_FP16": (10, "float16"), "TYPE_FP32": (11, "float32"), "TYPE_FP64": (12, "float64"),
    "TYPE_STRING": (13, "object_"),
}


def __getattr__(name):
    if name == "TRITON_STRING_TO_NUMPY":
        import numpy    # pylint: disable=import-outside-toplevel
        types = {of_config: getattr(numpy, of_numpy) for of_config, (_, of_numpy) in _TYPES.items()}
        types["TYPE_BOOL"] = bool
        globals()[name] = types
        return types
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def triton_string_to_numpy(triton_type_string):
    """The NumPy type for a name in a configuration, as "TYPE_FP32"."""
    return __getattr__("TRITON_STRING_TO_NUMPY")[triton_type_string]


def triton_to_numpy_type(data_type):
    """The NumPy type for a number in Triton; None if there is none."""
    import numpy    # pylint: disable=import-outside-toplevel
    for number, of_numpy in _TYPES.values():
        if number == data_type:
            return getattr(numpy, of_numpy)
    return None


def numpy_to_triton_type(data_type):
    """The number in Triton for a NumPy type; None if there is none."""
    import numpy    # pylint: disable=import-outside-toplevel
    for number, of_numpy in _TYPES.values():
        if data_type == getattr(numpy, of_numpy):
            return number
    return 1 if data_type is bool else 13 if data_type == numpy.bytes_ else None


def get_input_tensor_by_name(inference_request, name):
    """The request's input of this name, or None."""
    found = _find(inference_request, name)
    if found is not NotImplemented:
        return found
    for tensor in inference_request.inputs():
        if tensor.name() == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response, name):
    """The response's output of this name, or None."""
    found = _find(inference_response, name)
    if found is not NotImplemented:
        return found
    for tensor in inference_response.output_tensors():
        if tensor.name() == name:
            return tensor
    return None


def get_input_config_by_name(model_config, name):
    """The input of this name in a configuration (a dict), or None."""
    return next((one for one in model_config.get("input", ()) if one["name"] == name), None)


def get_output_config_by_name(model_config, name):
    """The output of this name in a configuration (a dict), or None."""
    return next((one for one in model_config.get("output", ()) if one["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config):
    """Is the model of this configuration (a dict) decoupled?"""
    if "model_transaction_policy" in model_config:
        return model_config["model_transaction_policy"]["decoupled"]
    return False


class ModelConfig:
    """The configuration that auto_complete_config() completes. Each method raises ValueError for what the configuration
    of the repository says otherwise."""

    def __init__(self, model_config):
        self._model_config = json.loads(model_config)

    def as_dict(self):
        """The configuration as it is, to be read."""
        return self._model_config

    def _name(self):
        return self._model_config["name"]

    def set_max_batch_size(self, max_batch_size):
        """Sets the largest batch, which may not be below that of the configuration."""
        configured = self._model_config["max_batch_size"]
        if configured > max_batch_size:
            raise ValueError(f"configuration specified max_batch_size {configured}, but in auto-complete-config function "
                             f"for model '{self._name()}' specified max_batch_size {max_batch_size}")
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        """Makes the server form batches, unless another scheduler is configured."""
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(f"Configuration specified scheduling_choice as '{scheduler}', but auto-complete-config "
                                 f"function for model '{self._name()}' tries to set scheduling_choice as "
                                 "'dynamic_batching'")
        self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict):
        """Sets `decoupled`, which may not be configured otherwise."""
        if any(name != "decoupled" for name in transaction_policy_dict):
            raise ValueError(f"model transaction property in auto-complete-config function for model '{self._name()}' "
                             "contains property other than 'decoupled'.")
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        decoupled = transaction_policy_dict["decoupled"]
        if policy.get("decoupled", decoupled) != decoupled:
            raise ValueError(f"trying to change decoupled property in auto-complete-config for model '{self._name()}', "
                             f"which is already set to '{policy['decoupled']}'.")
        policy["decoupled"] = decoupled

    def add_input(self, input):    # noqa: A002  pylint: disable=redefined-builtin
        """Adds an input: `name`, `data_type`, `dims` and, if it likes, `optional`."""
        self._add("input", input, ("name", "data_type", "dims"), ("optional",),
                  "'name', 'data_type', 'dims' and 'optional'")

    def add_output(self, output):
        """Adds an output: `name`, `data_type` and `dims`."""
        self._add("output", output, ("name", "data_type", "dims"), (), "'name', 'data_type' and 'dims'")

    def _add(self, kind, tensor, needed, more, listed):
        where = f"in auto-complete-config function for model '{self._name()}'"
        if any(name not in needed + more for name in tensor):
            raise ValueError(f"{kind} '{tensor['name']}' {where} contains property other than {listed}.")
        for name in needed:
            if name not in tensor:
                which = f"{kind} " if name == "name" else f"{kind} '{tensor['name']}' "
                raise ValueError(f"{which}{where} is missing '{name}' property.")
        for configured in self._model_config[kind]:
            if configured["name"] == tensor["name"]:
                self._match(kind, configured, tensor)
                return
        self._model_config[kind].append(tensor)

    def _match(self, kind, configured, tensor):
        """Completes a tensor that the configuration has, too."""
        name = tensor["name"]
        if configured["data_type"] not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(f"unable to load model '{self._name()}', configuration expects datatype "
                             f"{configured['data_type']} for {kind} '{name}', model provides {tensor['data_type']}")
        for what in ("dims", "optional"):
            conflict = what in configured and what in tensor and configured[what] != tensor[what]
            if conflict and (what == "optional" or configured["dims"]):
                raise ValueError(f"model '{self._name()}', tensor '{name}': the model expects {what} {tensor[what]} but "
                                 f"the model configuration specifies {what} {configured[what]}")
        configured.update(tensor)
