# SPDX-License-Identifier: Apache-2.0
"""Models that OpenVINO's Python package writes when the tests begin, a SavedModel and an ONNX model of the same graph, and
what OpenVINO itself answers."""

import struct

import numpy as np
import onnx
import openvino as ov
from onnx import TensorProto, helper
from openvino import opset15 as ops

import repository
import saved_models


def parameter(name, dims, datatype=np.float32):
    node = ops.parameter(dims, datatype, name=name)
    node.output(0).set_names({name})
    return node


def named(node, name, output=0):
    node.output(output).set_names({name})
    return node.output(output)


def add_sub(dims, datatype=np.float32):
    a, b = parameter("A", dims, datatype), parameter("B", dims, datatype)
    return ov.Model([named(ops.add(a, b), "SUM"), named(ops.subtract(a, b), "DIFF")], [a, b], "add_sub")


def convolutions(rng):
    """Two convolutions, pooling, and scores of ten classes."""
    image = parameter("image", [-1, 1, 8, 8])
    x = image
    for n_in, n_out in ((1, 8), (8, 16)):
        weights = ops.constant(rng.standard_normal((n_out, n_in, 3, 3)).astype(np.float32) / 3)
        x = ops.relu(ops.convolution(x, weights, [1, 1], [1, 1], [1, 1], [1, 1]))
    x = ops.reduce_mean(x, ops.constant(np.array([2, 3])), False)
    x = ops.matmul(x, ops.constant(rng.standard_normal((16, 10)).astype(np.float32)), False, False)
    return ov.Model([named(ops.softmax(x, 1), "scores"), named(ops.topk(x, ops.constant(np.int64(1)), 1, "max", "value"), "best", 1)],
                    [image], "convolutions")


def dynamic():
    """Any number of rows and columns; how many columns, too, of which the answer does not tell before."""
    x = parameter("x", [-1, -1])
    return ov.Model([named(ops.reduce_sum(x, ops.constant(np.array([1])), True), "sums"), named(ops.transpose(x, ops.constant(np.array([1, 0]))), "turned"),
                     named(ops.non_zero(x), "places")], [x], "dynamic")


def strings():
    text = parameter("text", [-1], ov.Type.string)
    parts = ops.string_tensor_unpack(text)
    packed = ops.string_tensor_pack(parts.output(0), parts.output(1), parts.output(2))
    lengths = ops.subtract(parts.output(1), parts.output(0))
    return ov.Model([named(packed, "same"), named(lengths, "lengths")], [text], "strings")


def of_many_inputs(n):
    """y is the sum of x0, x1, …"""
    inputs = [parameter(f"x{i}", [1, 2]) for i in range(n)]
    total = inputs[0]
    for x in inputs[1:]:
        total = ops.add(total, x)
    return ov.Model([named(total, "y")], inputs, "of_many_inputs")


def scalar():
    x = parameter("x", [])
    return ov.Model([named(ops.add(x, ops.constant(np.float32(1))), "y")], [x], "scalar")


def fixed_inside():
    """A model whose graph holds its own number of rows."""
    x = parameter("x", [4, 6])
    y = ops.reshape(x, ops.constant(np.array([4, 2, 3])), False)
    return ov.Model([named(ops.reduce_sum(y, ops.constant(np.array([2])), False), "y")], [x], "fixed_inside")


def accumulate():
    """y and the next state: the sum so far. START and READY add to the answer only."""
    x, last, start, ready = (parameter(name, [-1, 1]) for name in ("x", "last", "START", "READY"))
    total = ops.add(x, last)
    return ov.Model([named(ops.add(ops.add(total, start), ready), "y"), named(total, "next")], [x, last, start, ready], "accumulate")


def remember():
    """The answer is the text before."""
    ends = []
    texts = [parameter(name, [-1, 1], ov.Type.string) for name in ("text", "last")]
    for text, name in zip(texts, ("next", "before")):
        parts = ops.string_tensor_unpack(text)
        ends.append(named(ops.string_tensor_pack(parts.output(0), parts.output(1), parts.output(2)), name))
    return ov.Model(ends, texts, "remember")


def ragged():
    """The sums of lists of any lengths: x has all their elements, ends tells where each list ends."""
    x, ends = parameter("x", [-1]), parameter("ends", [-1], np.int32)
    sums = ops.cum_sum(x, ops.constant(np.int64(0)))
    so_far = ops.gather(sums, ops.subtract(ends, ops.constant(np.int32(1))), ops.constant(np.int64(0)))
    y = ops.reshape(so_far, ops.constant(np.array([-1, 1])), False)
    return ov.Model([named(y, "so_far")], [x, ends], "ragged")


def with_layouts(model, layout="N..."):
    for node in (*model.get_parameters(), *model.get_results()):
        node.layout = ov.Layout(layout)
    return model


def write(root, name, model, config="", file="model.xml", **parameters):
    """The model as one of this name, in OpenVINO's own format."""
    folder = repository.write_model(root, name, config_of(config, file, **parameters))
    ov.save_model(model, folder / "1" / file, compress_to_fp16=False)
    return folder / "1" / file


def config_of(config, file="model.xml", **parameters):
    text = 'backend: "openvino"\n' + config
    if file != "model.xml":
        text += f'default_model_filename: "{file}"\n'
    for key, value in parameters.items():
        text += f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
    return text


def write_onnx(root, name, config=""):
    """add_sub of [-1, 16] as an ONNX model."""
    tensors = [helper.make_tensor_value_info(t, TensorProto.FLOAT, ["n", 16]) for t in ("A", "B", "SUM", "DIFF")]
    graph = helper.make_graph([helper.make_node("Add", ["A", "B"], ["SUM"]), helper.make_node("Sub", ["A", "B"], ["DIFF"])], "g",
                              tensors[:2], tensors[2:])
    folder = repository.write_model(root, name, config_of(config, "model.onnx"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "1" / "model.onnx")


# ---- A SavedModel


def saved_network(weights):
    """The network of examples/digits/train.py with its weights: image -> scores."""
    floats = saved_models.of_type(np.float32)
    graph = saved_models.placeholder("in", np.float32, [-1, 64])
    graph += b"".join(saved_models.constant(name, array.astype(np.float32)) for name, array in weights.items())
    for name, op, *inputs in (("ink", "RealDiv", "in", "pixel_max"), ("product1", "MatMul", "ink", "w1"), ("sum1", "BiasAdd", "product1", "b1"),
                              ("hidden", "Relu", "sum1"), ("product2", "MatMul", "hidden", "w2"), ("sum2", "BiasAdd", "product2", "b2"),
                              ("out", "Softmax", "sum2")):
        graph += saved_models.node(name, op, inputs, T=floats)
    signature = saved_models.signature({"image": ("in:0", np.float32, [-1, 64])}, {"scores": ("out:0", np.float32, [-1, 10])})
    return saved_models.saved_model(saved_models.meta_graph(graph, {"serving_default": signature}))


def write_saved_model(root, name, config=""):
    folder = repository.write_model(root, name, config_of(config, "model.saved_model")) / "1" / "model.saved_model"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(saved_models.add_sub([-1, 16]))


# ---- OpenVINO's own answers


def answers(model, config=None, **inputs):
    compiled = ov.compile_model(model.clone(), "CPU", config or {})
    result = compiled(inputs)
    return {port.get_any_name(): result[port] for port in compiled.outputs}


def bfloat16(values):
    """The upper halves of floats, as BF16 travels."""
    return b"".join(struct.pack("<f", v)[2:] for v in values)
