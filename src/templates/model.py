"""The model @NAME@: Y = 2 X. Replace what execute() computes, and name its tensors in ../config.pbtxt."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        """Called once, before the first request: load weights here."""

    def execute(self, requests):
        """Answers requests, several at once: one response for each, in their order."""
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)]))
        return responses
