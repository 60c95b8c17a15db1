#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the ONNX file of examples/models/add_sub: two additions, nothing learned."""

import pathlib

import onnx
from onnx import TensorProto, helper

MODEL_FILE = pathlib.Path(__file__).resolve().parent.parent / "models" / "add_sub" / "1" / "model.onnx"


def tensor(name):
    return helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", 16])


graph = helper.make_graph(
    [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ],
    "add_sub",
    [tensor("INPUT0"), tensor("INPUT1")],
    [tensor("OUTPUT0"), tensor("OUTPUT1")],
)
model = helper.make_model(
    graph, producer_name="conch-examples", opset_imports=[helper.make_opsetid("", 17)]
)
model.ir_version = 8
onnx.checker.check_model(model, full_check=True)
onnx.save(model, MODEL_FILE)
print(MODEL_FILE)
