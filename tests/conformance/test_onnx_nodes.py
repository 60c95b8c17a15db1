# SPDX-License-Identifier: Apache-2.0
"""ONNX's own tests of its operators, nearly two thousand small models with inputs and outputs, which the PyPI package onnx
makes. Each that ONNX Runtime itself passes, called from Python, must pass through the server over HTTP.

One server has all models, completed from their files; its answers are compared with what ONNX expects. Cases that
cannot be asked are counted by their reason: values that are no tensors, element types that the protocol has no word
for, models that ONNX Runtime does not load or computes otherwise.
"""

import collections
import concurrent.futures
import ctypes
import json
import os
import re
import warnings

import numpy
import pytest

import server as servers
from server import Server
from wire import Connection

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402

pytestmark = pytest.mark.skipif("CONCH_WITHOUT_TRITON" in os.environ,
                                reason="what ONNX Runtime computes does not depend on our compiler (CONCH_WITHOUT_TRITON)")

WORKERS = 4
AT_LEAST = 1000
WIRE = {
    TensorProto.BOOL: "BOOL", TensorProto.UINT8: "UINT8", TensorProto.UINT16: "UINT16", TensorProto.UINT32: "UINT32",
    TensorProto.UINT64: "UINT64", TensorProto.INT8: "INT8", TensorProto.INT16: "INT16", TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64", TensorProto.FLOAT16: "FP16", TensorProto.FLOAT: "FP32", TensorProto.DOUBLE: "FP64",
    TensorProto.STRING: "BYTES", TensorProto.BFLOAT16: "BF16",
}


# ---- The cases ------------------------------------------------------------------------------------


def tensor_type(value):
    """The tensor type of a graph's input or output, also that of an optional tensor, or None."""
    kind = value.type
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    return kind.tensor_type if kind.HasField("tensor_type") else None


def unasked(case):
    """The reason why a case cannot be asked over the protocol; None if it can."""
    values = [*case.model.graph.input, *case.model.graph.output]
    kinds = [tensor_type(value) for value in values]
    if any(kind is None for kind in kinds):
        return "no tensors but sequences or optional sequences"
    strange = {TensorProto.DataType.Name(kind.elem_type) for kind in kinds if kind.elem_type not in WIRE}
    if strange:
        return f"element type {', '.join(sorted(strange))}"
    return None


def arrays(values):
    """Inputs or outputs of a case as arrays; an omitted optional input is None."""
    return [onnx.numpy_helper.to_array(value) if isinstance(value, TensorProto) else None if value is None else numpy.asarray(value)
            for value in values]


def close(case, got, expected):
    """None, or what is wrong with these outputs."""
    for place, (one, other) in enumerate(zip(got, expected, strict=True)):
        one, other = numpy.asarray(one), numpy.asarray(other)
        if one.dtype != other.dtype:
            return f"output {place} is {one.dtype}, not {other.dtype}"
        if one.shape != other.shape:
            return f"output {place} has shape {one.shape}, not {other.shape}"
        try:
            if other.dtype.kind in "OUSb":
                numpy.testing.assert_array_equal(one.astype(object), other.astype(object))
            else:
                numpy.testing.assert_allclose(one.astype(numpy.float64), other.astype(numpy.float64), rtol=case.rtol, atol=case.atol)
        except AssertionError as why:
            return f"output {place}: " + " ".join(str(why).split())[:200]
    return None


def to_ort(array):
    if array.dtype.name != "bfloat16":
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(numpy.int16), TensorProto.BFLOAT16)


def from_ort(value, like):
    """Its Python has no arrays of bfloat16, but gives the address of the bytes."""
    if value.element_type() != TensorProto.BFLOAT16:
        return value.numpy()
    size = 2 * int(numpy.prod(value.shape()))
    return numpy.frombuffer(ctypes.string_at(value.data_ptr(), size), like.dtype).reshape(value.shape())


def run_alone(case):
    """ONNX Runtime itself: None if it gives the expected result, else the reason."""
    inputs, expected = map(arrays, case.data_sets[0])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    given = {value.name: array for value, array in zip(case.model.graph.input, inputs) if array is not None}
    try:
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        if any(array.dtype.name == "bfloat16" for array in [*given.values(), *expected]):
            values = session.run_with_ort_values(names, {name: to_ort(array) for name, array in given.items()})
            got = [from_ort(value, like) for value, like in zip(values, expected)]
        else:
            got = session.run(names, given)
    except Exception as why:  # noqa: BLE001 (of ONNX Runtime, whose kinds of errors are many)
        kind = re.search(r" : ([A-Z_]{3,}) : ", str(why))
        return f"ONNX Runtime does not run it: {kind[1] if kind else str(why)[:60]}"
    return "ONNX Runtime computes something else" if close(case, got, expected) else None


def all_cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return collect_testcases(None)


# ---- Through the server ---------------------------------------------------------------------------


def encoded(array):
    if array.dtype.kind in "OUS":
        elements = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel()]
        return b"".join(len(item).to_bytes(4, "little") + item for item in elements)
    return numpy.ascontiguousarray(array).tobytes()


def decoded(data, like):
    if like.dtype.kind not in "OUS":
        return numpy.frombuffer(data, like.dtype)
    items = []
    while data:
        size = int.from_bytes(data[:4], "little")
        items.append(data[4:4 + size].decode())
        data = data[4 + size:]
    return numpy.array(items, object)


def request(case):
    """(document, binary data) of a case."""
    listed, data = [], b""
    for value, array in zip(case.model.graph.input, arrays(case.data_sets[0][0])):
        if array is None:
            continue
        raw = encoded(array)
        listed.append({"name": value.name, "datatype": WIRE[tensor_type(value).elem_type],
                       "shape": list(array.shape) or [1], "parameters": {"binary_data_size": len(raw)}})
        data += raw
    outputs = [{"name": value.name, "parameters": {"binary_data": True}} for value in case.model.graph.output]
    return json.dumps({"inputs": listed, "outputs": outputs}).encode(), data


def ask(connection, case):
    """None, or what is wrong with the server's answer."""
    document, data = request(case)
    answer = connection.request("POST", f"/v2/models/{case.name}/infer", document + data,
                                {"Inference-Header-Content-Length": len(document)})
    if answer.status != 200:
        return f"{answer.status} {answer.body[:300]!r}"
    length = int(answer.headers.get("inference-header-content-length", len(answer.body)))  # without it there are no bytes
    told = {output["name"]: output for output in json.loads(answer.body[:length])["outputs"]}
    rest, got, expected = answer.body[length:], {}, arrays(case.data_sets[0][1])
    names = [value.name for value in case.model.graph.output]
    like = dict(zip(names, expected))
    for output in told.values():
        size = output["parameters"]["binary_data_size"]
        array = decoded(rest[:size], like[output["name"]])
        rest = rest[size:]
        shape = like[output["name"]].shape
        if output["shape"] != (list(shape) or [1]):
            return f"output '{output['name']}' has shape {output['shape']}, not {list(shape)}"
        got[output["name"]] = array.reshape(shape)
    return close(case, [got[name] for name in names], expected)


def ask_all(server, cases):
    """Name -> what is wrong."""
    def work(share):
        wrong = {}
        with Connection(server, timeout_s=60) as connection:
            for case in share:
                wrong[case.name] = ask(connection, case)
        return wrong

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        shares = pool.map(work, [cases[i::WORKERS] for i in range(WORKERS)])
    return {name: why for share in shares for name, why in share.items() if why}


def write_all(root, cases):
    for case in cases:
        folder = root / case.name / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(case.model.SerializeToString())


def test_every_node_model_that_onnxruntime_passes(tmp_path, capsys):
    onnxruntime.set_default_logger_severity(4)
    reasons, asked = collections.Counter(), []
    for case in all_cases():
        why = unasked(case) or run_alone(case)
        if why:
            reasons[why] += 1
        else:
            asked.append(case)
    write_all(tmp_path, asked)
    with Server(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false", "--log-warning=false"], ready=None) as server:
        servers.wait_for(lambda: "Loaded " in server.log() or b"the server starts without" in server.err.bytes(), 120, "all models are tried")
        wrong = ask_all(server, asked)
        server.assert_alive()
    with capsys.disabled():
        print(f"\n{len(asked)} models of ONNX's node tests pass in ONNX Runtime, {len(asked) - len(wrong)} of them through the server; not asked:")
        for why, n in reasons.most_common():
            print(f"  {n:4} {why}")
    assert not wrong, f"{len(wrong)} of {len(asked)}:\n" + "\n".join(f"{name}: {why}" for name, why in sorted(wrong.items()))
    assert len(asked) >= AT_LEAST
