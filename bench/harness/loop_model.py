# SPDX-License-Identifier: Apache-2.0
"""loop_model.py FOLDER: an ONNX model that counts to N (INT64 [1]) by a Loop. Runs with .deps/venv/bin/python, which has the package onnx."""

import pathlib
import sys

import onnx
from onnx import TensorProto, helper


def main(folder):
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Add", ["count", "one"], ["next"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("count", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []), helper.make_tensor_value_info("next", TensorProto.INT64, [1])],
        [helper.make_tensor("one", TensorProto.INT64, [1], [1])])
    graph = helper.make_graph(
        [helper.make_node("Squeeze", ["N"], ["n"]), helper.make_node("Loop", ["n", "true", "zero"], ["OUT"], body=body)], "loop",
        [helper.make_tensor_value_info("N", TensorProto.INT64, [1])], [helper.make_tensor_value_info("OUT", TensorProto.INT64, [1])],
        [helper.make_tensor("true", TensorProto.BOOL, [], [True]), helper.make_tensor("zero", TensorProto.INT64, [1], [0])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (folder / "1").mkdir(parents=True)
    onnx.save(model, folder / "1" / "model.onnx")
    (folder / "config.pbtxt").write_text(
        'backend: "onnxruntime"\ninput [ { name: "N" data_type: TYPE_INT64 dims: [ 1 ] } ]\n'
        'output [ { name: "OUT" data_type: TYPE_INT64 dims: [ 1 ] } ]\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n')


main(pathlib.Path(sys.argv[1]))
