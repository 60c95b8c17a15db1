# SPDX-License-Identifier: Apache-2.0
"""openvino_models.py FOLDER: writes the model that bench/micro/openvino_backend.c asks: add_sub, FP32 [1,16]."""

import pathlib
import sys

import numpy as np
import openvino as ov
from openvino import opset15 as ops

folder = pathlib.Path(sys.argv[1]) / "add_sub"
(folder / "1").mkdir(parents=True)
inputs = [ops.parameter([1, 16], np.float32, name=name) for name in "AB"]
for node in inputs:
    node.output(0).set_names({node.get_friendly_name()})
outputs = {"SUM": ops.add(*inputs), "DIFF": ops.subtract(*inputs)}
for name, node in outputs.items():
    node.output(0).set_names({name})
ov.save_model(ov.Model([*outputs.values()], inputs, "add_sub"), folder / "1/model.xml", compress_to_fp16=False)
(folder / "config.pbtxt").write_text('backend: "openvino"\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n'
                                     'parameters { key: "INFERENCE_NUM_THREADS" value: { string_value: "1" } }\n')
