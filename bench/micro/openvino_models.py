# SPDX-License-Identifier: Apache-2.0
"""openvino_models.py FOLDER: writes the models that bench/micro/openvino_backend.c asks, all FP32."""

import pathlib
import sys

import numpy as np
import openvino as ov
from openvino import opset15 as ops

ROOT = pathlib.Path(sys.argv[1])


def parameter(name, dims):
    node = ops.parameter(dims, np.float32, name=name)
    node.output(0).set_names({name})
    return node


def write(name, inputs, outputs, head="", instances=1):
    """outputs: {name: node}"""
    folder = ROOT / name
    (folder / "1").mkdir(parents=True)
    for output, node in outputs.items():
        node.output(0).set_names({output})
    ov.save_model(ov.Model([*outputs.values()], inputs, name), folder / "1/model.xml", compress_to_fp16=False)
    (folder / "config.pbtxt").write_text(f'backend: "openvino"\n{head}instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n'
                                         f'parameters {{ key: "INFERENCE_NUM_THREADS" value: {{ string_value: "{instances}" }} }}\n')


a, b = parameter("A", [1, 16]), parameter("B", [1, 16])
write("add_sub", [a, b], {"SUM": ops.add(a, b), "DIFF": ops.subtract(a, b)})
image = parameter("IN", [-1, 3 * 224 * 224])
write("image", [image], {"OUT": ops.relu(image)}, "max_batch_size: 8\n")
x = y = parameter("IN", [32, 512])
weights = np.random.default_rng(1).standard_normal((512, 512)).astype(np.float32) / 64
for _ in range(3):
    y = ops.matmul(y, ops.constant(weights), False, False)
write("pair", [x], {"OUT": y}, instances=2)
