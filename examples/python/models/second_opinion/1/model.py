# SPDX-License-Identifier: Apache-2.0
"""Business logic: asks another model, decides, and asks it again, four times at once."""

import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils

MOVES = [(0, 1), (0, -1), (1, 0), (-1, 0)]


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.sure = float(config["parameters"]["sure"]["string_value"])

    async def scores(self, image):
        request = pb_utils.InferenceRequest(
            model_name="digits", requested_output_names=["scores"],
            inputs=[pb_utils.Tensor("image", np.ascontiguousarray(image.reshape(1, 64)))])
        response = await request.async_exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "scores").as_numpy()[0]

    async def opinion(self, image):
        """(the digit, how many answers it rests on)"""
        scores = await self.scores(image)
        if scores.max() >= self.sure:
            return scores.argmax(), 1
        pixels = image.reshape(8, 8)
        more = await asyncio.gather(*(self.scores(np.roll(pixels, move, (0, 1))) for move in MOVES))
        return (2 * scores + sum(more)).argmax(), 1 + len(more)

    async def execute(self, requests):
        images = [pb_utils.get_input_tensor_by_name(request, "image").as_numpy() for request in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("digit", np.array([digit], np.int32)),
                                        pb_utils.Tensor("opinions", np.array([n], np.int32))])
            for digit, n in await asyncio.gather(*map(self.opinion, images))
        ]
