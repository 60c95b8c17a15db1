# SPDX-License-Identifier: Apache-2.0
"""ONNX models made at test time, each for one aspect of the onnxruntime backend.

Each function writes <folder>/1/model.onnx. dims are numbers, names (a size of that name) or None (any size).
"""

import array
import pathlib

import onnx
from onnx import TensorProto, helper

# Wire name -> ONNX element type
ELEMENTS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}


def tensor(name, datatype, dims):
    return helper.make_tensor_value_info(name, ELEMENTS.get(datatype, datatype), dims)


def write(folder, inputs, outputs, nodes, initializers=()):
    """One model of these tensors and nodes, of a version that ONNX Runtime 1.16 reads."""
    graph = helper.make_graph(nodes, "test", inputs, outputs, list(initializers))
    model = helper.make_model(graph, producer_name="conch-tests", opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    path = pathlib.Path(folder) / "1" / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def identity(folder, datatype, dims=("n",), outputs=1):
    """IN is copied to OUT0, OUT1, …"""
    names = [f"OUT{i}" for i in range(outputs)]
    return write(
        folder,
        [tensor("IN", datatype, dims)],
        [tensor(name, datatype, dims) for name in names],
        [helper.make_node("Identity", ["IN"], [name]) for name in names],
    )


def scalar(folder):
    """OUT = IN + IN, tensors without dimensions."""
    return write(
        folder,
        [tensor("IN", "FP32", [])],
        [tensor("OUT", "FP32", [])],
        [helper.make_node("Add", ["IN", "IN"], ["OUT"])],
    )


def row_sums(folder):
    """OUT[batch] = sum of IN[batch, 3] over each row: with a batch, a tensor whose items have no dimensions."""
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    return write(
        folder,
        [tensor("IN", "FP32", ["b", 3])],
        [tensor("OUT", "FP32", ["b"])],
        [helper.make_node("ReduceSum", ["IN", "axes"], ["OUT"], keepdims=0)],
        [axes],
    )


def nonzero(folder):
    """OUT[1, k] = where IN[n] is not 0: a shape that is unknown before the model has run."""
    return write(
        folder,
        [tensor("IN", "INT32", ["n"])],
        [tensor("OUT", "INT64", [1, None])],
        [helper.make_node("NonZero", ["IN"], ["OUT"])],
    )


def doubled(folder):
    """OUT = IN twice, one behind the other, but declared to be as long as IN."""
    return write(
        folder,
        [tensor("IN", "FP32", ["n"])],
        [tensor("OUT", "FP32", ["n"])],
        [helper.make_node("Concat", ["IN", "IN"], ["OUT"], axis=0)],
    )


def table(folder):
    """OUT[batch, 1] = (10, 20, 30)[INDEX[batch, 1]]; any other index is an error of the model."""
    values = helper.make_tensor("values", TensorProto.FLOAT, [3], [10, 20, 30])
    return write(
        folder,
        [tensor("INDEX", "INT64", ["b", 1])],
        [tensor("OUT", "FP32", ["b", 1])],
        [helper.make_node("Gather", ["values", "INDEX"], ["OUT"])],
        [values],
    )


def external_rows(folder, constant=False):
    """ROW[1, 16] = W[PLACE[1]], where W is 2.5 MB in 1/w.bin: row i is 16 * i, 16 * i + 1, ... In memory it would stay a mapping of that file.

    constant: W is an attribute of a node, and no initializer.
    """
    values = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=[40000, 16], data_location=TensorProto.EXTERNAL)
    values.external_data.add(key="location", value="w.bin")
    nodes = [helper.make_node("Gather", ["W", "PLACE"], ["ROW"])]
    if constant:
        nodes.insert(0, helper.make_node("Constant", [], ["W"], value=values))
    path = pathlib.Path(folder) / "1" / "w.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(array.array("f", range(40000 * 16)).tobytes())
    write(folder, [tensor("PLACE", "INT64", [1])], [tensor("ROW", "FP32", [1, 16])], nodes, [] if constant else [values])
    return path


def join(folder):
    """OUT[batch, 2] of strings: A[batch, 1] and B[batch, 1] side by side."""
    return write(
        folder,
        [tensor("A", "BYTES", ["b", 1]), tensor("B", "BYTES", ["b", 1])],
        [tensor("OUT", "BYTES", ["b", 2])],
        [helper.make_node("Concat", ["A", "B"], ["OUT"], axis=1)],
    )


def ragged(folder):
    """OUT = IN twice over, a list of all elements of a batch; PARTS[r, 1] = COUNT[r], a batch input."""
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    return write(
        folder,
        [tensor("IN", "FP32", ["n"]), tensor("COUNT", "FP32", ["r"])],
        [tensor("OUT", "FP32", ["n"]), tensor("PARTS", "FP32", ["r", 1])],
        [helper.make_node("Add", ["IN", "IN"], ["OUT"]), helper.make_node("Unsqueeze", ["COUNT", "axes"], ["PARTS"])],
        [axes],
    )


def sequence(folder):
    """OUT is a sequence of tensors, which no inference protocol has."""
    out = helper.make_tensor_sequence_value_info("OUT", TensorProto.FLOAT, None)
    return write(
        folder,
        [tensor("IN", "FP32", ["n"])],
        [out],
        [helper.make_node("SequenceConstruct", ["IN"], ["OUT"])],
    )


def named(folder, in_name, in_dims, out_name, out_dims):
    """Any two shapes: every element of the output is the sum of the input; named sizes are 1 in the output."""
    in_dims, out_dims = (dims if isinstance(dims, (list, tuple)) else [dims] for dims in (in_dims, out_dims))
    shape = helper.make_tensor("shape", TensorProto.INT64, [len(out_dims)], [d if isinstance(d, int) else 1 for d in out_dims])
    return write(
        folder,
        [tensor(in_name, "FP32", in_dims)],
        [tensor(out_name, "FP32", out_dims)],
        [helper.make_node("ReduceSum", [in_name], ["sum"], keepdims=0), helper.make_node("Expand", ["sum", "shape"], [out_name])],
        [shape],
    )


def accumulate(folder):
    """A sequence model with implicit state: OUTPUT = OUTPUT_STATE = INPUT + INPUT_STATE, with START and READY."""
    names = ["INPUT", "START", "READY", "INPUT_STATE"]
    return write(
        folder,
        [tensor(name, "FP32", ["b", 1]) for name in names],
        [tensor("OUTPUT", "FP32", ["b", 1]), tensor("OUTPUT_STATE", "FP32", ["b", 1])],
        [
            helper.make_node("Add", ["INPUT", "INPUT_STATE"], ["sum"]),
            helper.make_node("Add", ["START", "READY"], ["controls"]),
            helper.make_node("Add", ["sum", "controls"], ["OUTPUT"]),
            helper.make_node("Identity", ["sum"], ["OUTPUT_STATE"]),
        ],
    )


def remember(folder, dims):
    """A sequence model with implicit state: OUT is the text of the request before; THIS, the state, that of this one."""
    return write(
        folder,
        [tensor(name, "BYTES", dims) for name in ("IN", "LAST")],
        [tensor(name, "BYTES", dims) for name in ("OUT", "THIS")],
        [helper.make_node("Identity", ["LAST"], ["OUT"]), helper.make_node("Identity", ["IN"], ["THIS"])],
    )
