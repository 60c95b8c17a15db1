#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the ONNX files of the steps around `digits` in examples/models; nothing is learned here."""

import pathlib

import onnx
from onnx import TensorProto, helper

MODELS = pathlib.Path(__file__).resolve().parent.parent / "models"
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def tensor(name, kind, *dims):
    return helper.make_tensor_value_info(name, kind, ["batch", *dims])


def constant(name, kind, values, dims=None):
    return helper.make_tensor(name, kind, [len(values)] if dims is None else dims, values)


def write(name, inputs, outputs, nodes, constants=()):
    graph = helper.make_graph(nodes, name, inputs, outputs, list(constants))
    model = helper.make_model(graph, producer_name="conch-examples", opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    path = MODELS / name / "1" / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    print(path)


def prepare():
    """A photo has 255 where the paper is white; `digits` wants 16 where there is full ink, and one row of pixels."""
    write(
        "digits_prepare",
        [tensor("photo", TensorProto.UINT8, 8, 8)],
        [tensor("image", TensorProto.FLOAT, 64)],
        [
            helper.make_node("Cast", ["photo"], ["light"], to=TensorProto.FLOAT),
            helper.make_node("Sub", ["white", "light"], ["dark"]),
            helper.make_node("Mul", ["dark", "ink"], ["pixels"]),
            helper.make_node("Reshape", ["pixels", "row"], ["image"]),
        ],
        [
            constant("white", TensorProto.FLOAT, [255.0], []),
            constant("ink", TensorProto.FLOAT, [16 / 255], []),
            constant("row", TensorProto.INT64, [-1, 64]),
        ],
    )


def name():
    """The digit with the highest score, as a number and as a word."""
    write(
        "digits_name",
        [tensor("scores", TensorProto.FLOAT, 10)],
        [tensor("digit", TensorProto.INT64, 1), tensor("name", TensorProto.STRING, 1), tensor("score", TensorProto.FLOAT, 1)],
        [
            helper.make_node("ArgMax", ["scores"], ["digit"], axis=1, keepdims=1),
            helper.make_node("Gather", ["names", "digit"], ["name"], axis=0),
            helper.make_node("ReduceMax", ["scores"], ["score"], axes=[1], keepdims=1),
        ],
        [constant("names", TensorProto.STRING, [text.encode() for text in NAMES])],
    )


def total():
    """Adds the digit to the state that the server keeps for the sequence."""
    write(
        "digits_total",
        [tensor("digit", TensorProto.INT64, 1), tensor("total_before", TensorProto.INT64, 1)],
        [tensor("total", TensorProto.INT64, 1), tensor("total_after", TensorProto.INT64, 1)],
        [
            helper.make_node("Add", ["digit", "total_before"], ["total"]),
            helper.make_node("Identity", ["total"], ["total_after"]),
        ],
    )


prepare()
name()
total()
