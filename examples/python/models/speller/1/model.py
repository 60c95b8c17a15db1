# SPDX-License-Identifier: Apache-2.0
"""A generator: any number of responses to a request, each sent when it is known."""

import numpy as np
import triton_python_backend_utils as pb_utils

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def words_of(number):
    if number < 0:
        yield "minus"
    for digit in str(abs(number)):
        yield WORDS[int(digit)]


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for word in words_of(int(pb_utils.get_input_tensor_by_name(request, "number").as_numpy()[0])):
                if sender.is_cancelled():
                    break
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("word", np.array([word.encode()], dtype=np.object_))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
