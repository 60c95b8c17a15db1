# SPDX-License-Identifier: Apache-2.0
"""ort_models.py FOLDER: the repository of ort_backend.c. Runs with .deps/venv/bin/python, which has the package onnx."""

import pathlib
import shutil
import sys

import numpy

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/lib"))

import onnx_models  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

ONE = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
THREAD = 'parameters { key: "intra_op_thread_count" value { string_value: "1" } }\n'


def config(folder, text):
    (folder / "config.pbtxt").write_text('backend: "onnxruntime"\n' + ONE + text)


def side(kind, name, dims):
    return f'{kind} [ {{ name: "{name}" data_type: TYPE_FP32 dims: [ {dims} ] }} ]\n'


def main(root):
    shutil.copytree(TOP / "examples/models/add_sub", root / "add_sub")
    with (root / "add_sub/config.pbtxt").open("a") as more:
        more.write(THREAD)
    onnx_models.identity(root / "image", "FP32", ("b", 3, 224, 224))
    config(root / "image", "max_batch_size: 8\n" + side("input", "IN", "3, 224, 224") + side("output", "OUT0", "3, 224, 224") + THREAD)
    weights = numpy.random.default_rng(1).standard_normal((512, 512)).astype(numpy.float32) / 64
    layers = ["IN", "a", "b", "OUT"]
    for i in range(10):
        folder = root / f"load{i}"
        onnx_models.write(
            folder, [onnx_models.tensor("IN", "FP32", [32, 512])], [onnx_models.tensor("OUT", "FP32", [32, 512])],
            [helper.make_node("MatMul", [x, f"w{n}"], [y]) for n, (x, y) in enumerate(zip(layers, layers[1:]))],
            [numpy_helper.from_array(weights, f"w{n}") for n in range(3)])
        config(folder, side("input", "IN", "32, 512") + side("output", "OUT", "32, 512"))


main(pathlib.Path(sys.argv[1]))
