# SPDX-License-Identifier: Apache-2.0
"""Pre- and post-processing: text becomes an image, the model `digits` reads it, scores become a name."""

import numpy as np
import triton_python_backend_utils as pb_utils

NAMES = np.array([b"zero", b"one", b"two", b"three", b"four", b"five", b"six", b"seven", b"eight", b"nine"], dtype=np.object_)


def image_of(sketch):
    """64 numbers from 0 (paper) to 16 (ink)."""
    lines = sketch.decode().split("\n")
    if len(lines) > 8 or any(len(line) > 8 for line in lines):
        raise ValueError(f"a sketch has at most 8 lines of 8 characters, this one has {len(lines)} lines")
    ink = np.zeros((8, 8), np.float32)
    for y, line in enumerate(lines):
        for x, character in enumerate(line):
            ink[y, x] = 0 if character in " ." else 16
    # A pen is wider than a character: half of the ink goes to its neighbours.
    spread = np.zeros((10, 10), np.float32)
    spread[1:9, 1:9] = ink
    neighbours = (spread[:-2, 1:-1] + spread[2:, 1:-1] + spread[1:-1, :-2] + spread[1:-1, 2:]) / 8
    return np.minimum(16, ink * 0.75 + neighbours).reshape(64)


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        sketches = pb_utils.get_input_tensor_by_name(request, "sketch").as_numpy()
        try:
            images = np.stack([image_of(sketch) for sketch in sketches[:, 0]])
        except ValueError as e:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(e), pb_utils.TritonError.INVALID_ARG))
        asked = pb_utils.InferenceRequest(
            model_name="digits", requested_output_names=["scores"], inputs=[pb_utils.Tensor("image", images)])
        response = await asked.async_exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        scores = pb_utils.get_output_tensor_by_name(response, "scores").as_numpy()
        best = scores.argmax(axis=1)
        return pb_utils.InferenceResponse([
            pb_utils.Tensor("digit", NAMES[best].reshape(-1, 1)),
            pb_utils.Tensor("score", scores[np.arange(len(best)), best].reshape(-1, 1)),
        ])
