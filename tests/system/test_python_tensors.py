# SPDX-License-Identifier: Apache-2.0
"""Tensors of models in Python: each type, shapes without elements, strings, arrays that are not contiguous, DLPack."""

import json

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from python_models import ECHO, TEXT, infer, only_ours, text_of, words, write_python

TYPES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"]

# What an array is made of in each case, and what a client sees.
ARRAYS = """
def execute(self, requests):
    responses = []
    for request in requests:
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode()
        base = np.arange(12, dtype=np.int32).reshape(3, 4)
        array = {"transposed": base.T, "strided": base[:, ::2], "reversed": base[::-1], "scalar rows": base[:, :1],
                 "fortran": np.asfortranarray(base), "empty": base[:0], "big endian": base.astype(">i4"),
                 "read only": np.frombuffer(b"\\x01\\x00\\x00\\x00", np.int32).reshape(1, 1)}[what]
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
    return responses
"""

# What pb_utils tells about a tensor, and what it refuses.
TELLS = """
def refusal(self, make):
    try:
        make()
        return "none"
    except Exception as e:
        return type(e).__name__

def execute(self, requests):
    responses = []
    for request in requests:
        (tensor,) = request.inputs()
        array = tensor.as_numpy()
        told = {"name": tensor.name(), "cpu": tensor.is_cpu(), "shape": list(tensor.shape()),
                # 2.51 cannot give this to Python.
                "dtype": int(tensor.triton_dtype()) if hasattr(pb_utils, "empty") else 11,
                "writeable": bool(array.flags.writeable), "aligned": array.ctypes.data % 64,
                "same": tensor.as_numpy() is array,
                "no such": pb_utils.get_input_tensor_by_name(request, "nobody") is None,
                "not an array": self.refusal(lambda: pb_utils.Tensor("T", [1, 2])),
                "complex": self.refusal(lambda: pb_utils.Tensor("T", np.zeros(2, np.complex64)))}
        text = np.array([json.dumps(told).encode()], dtype=np.object_)
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]))
    return responses
"""

# A producer and a consumer of DLPack: NumPy's own arrays are both.
DLPACK = """
def execute(self, requests):
    responses = []
    for request in requests:
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        array = np.from_dlpack(tensor)
        device = tuple(map(int, tensor.__dlpack_device__()))
        assert device == (1, 0), device
        outputs = [pb_utils.Tensor.from_dlpack("OUT", np.ascontiguousarray(array * 2)),
                   pb_utils.Tensor.from_dlpack("CAPSULE", (array + 1).__dlpack__()),
                   pb_utils.Tensor.from_dlpack("AGAIN", tensor.to_dlpack())]
        responses.append(pb_utils.InferenceResponse(outputs))
    return responses
"""

STRIDED_DLPACK = """
def execute(self, requests):
    base = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = []
    for request in requests:
        try:
            tensor = pb_utils.Tensor.from_dlpack("OUT", base.T)
            out.append(pb_utils.InferenceResponse([tensor]))
        except Exception as e:
            out.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("refused: " + str(e))))
    return out
"""

# pb_utils.empty(): memory of the response itself.
EMPTY = """
def execute(self, requests):
    responses = []
    for request in requests:
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        tensor = pb_utils.empty("OUT", values.dtype, values.shape)
        array = tensor.as_numpy()
        np.multiply(values, 3, out=array)
        responses.append(pb_utils.InferenceResponse([tensor]))
    return responses
"""

HUGE = """
def execute(self, requests):
    responses = []
    for request in requests:
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode()
        if what == "broadcast":
            array = np.broadcast_to(np.zeros(1, np.int32), (1 << 20, 1 << 20))
            tensor = pb_utils.Tensor("OUT", array)
        elif what == "empty":
            tensor = pb_utils.empty("OUT", np.int32, (1 << 20, 1 << 20))
        elif what == "overflow":
            tensor = pb_utils.empty("OUT", np.int32, (1 << 40, 1 << 40))
        else:
            tensor = pb_utils.Tensor("OUT", np.ones((1, 1), np.int32))
        responses.append(pb_utils.InferenceResponse([tensor]))
    return responses
"""

STRINGS = """
def execute(self, requests):
    responses = []
    for request in requests:
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode()
        array = {"str": np.array(["grün", ""], dtype=np.object_), "mixed": np.array([b"a", "b", 7], dtype=np.object_),
                 "fixed": np.array([b"ab", b"c"], dtype="S2"), "none": np.array([], dtype=np.object_)}[what]
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
    return responses
"""

WHAT = ("input", "WHAT", "BYTES", [1])


def write_models(root):
    for datatype in [*TYPES, "BYTES"]:
        write_python(root, f"echo_{datatype.lower()}", ECHO, ("input", "IN", datatype, [-1, -1]),
                     ("output", "OUT", datatype, [-1, -1]))
    write_python(root, "arrays", ARRAYS, WHAT, ("output", "OUT", "INT32", [-1, -1]))
    write_python(root, "tells", TELLS, ("input", "IN", "FP32", [-1]), ("output", "OUT", "BYTES", [-1]))
    write_python(root, "dlpack", DLPACK, ("input", "IN", "FP32", [-1, -1]),
                 *(("output", name, "FP32", [-1, -1]) for name in ("OUT", "CAPSULE", "AGAIN")))
    write_python(root, "strided_dlpack", STRIDED_DLPACK, TEXT[0], ("output", "OUT", "FP32", [-1, -1]))
    write_python(root, "empty", EMPTY, ("input", "IN", "FP32", [-1]), ("output", "OUT", "FP32", [-1]))
    write_python(root, "huge", HUGE, WHAT, ("output", "OUT", "INT32", [-1, -1]))
    write_python(root, "strings", STRINGS, WHAT, ("output", "OUT", "BYTES", [-1]))
    return root


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 70000)], ids=str)
@pytest.mark.parametrize("datatype", TYPES)
def test_tensors_of_each_type_pass(python_server, datatype, shape):
    kind = np.dtype(triton_to_np_dtype(datatype))
    array = np.random.default_rng(3).integers(0, 256, (*shape, kind.itemsize), np.uint8)
    array = (array & 1).view(kind)[..., 0] if kind == bool else array.view(kind)[..., 0]
    got = infer(python_server, f"echo_{datatype.lower()}", {"IN": array}).as_numpy("OUT")
    assert got.dtype == kind
    assert got.shape == shape
    assert got.tobytes() == array.tobytes()


def test_strings_pass(python_server):
    array = np.array([[b"", b"a"], [b"\x00\xff", "ü€".encode() * 1000]], dtype=object)
    assert np.array_equal(infer(python_server, "echo_bytes", {"IN": array}).as_numpy("OUT"), array)


def test_a_hundred_thousand_strings_pass(python_server):
    array = np.array([b"x" * (i % 37) for i in range(100000)], dtype=object).reshape(1000, 100)
    assert np.array_equal(infer(python_server, "echo_bytes", {"IN": array}).as_numpy("OUT"), array)


@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_tensors_without_elements_pass(python_server, place, datatype):
    array = np.zeros((0, 3), triton_to_np_dtype(datatype))
    got = infer(python_server, f"echo_{datatype.lower()}", {"IN": array}, protocol="grpc").as_numpy("OUT")
    assert got.size == 0
    if place.ours:
        assert got.shape == (0, 3)


@pytest.mark.parametrize("what, expected", {
    "transposed": np.arange(12).reshape(3, 4).T, "strided": np.arange(12).reshape(3, 4)[:, ::2],
    "reversed": np.arange(12).reshape(3, 4)[::-1], "scalar rows": [[0], [4], [8]], "fortran": np.arange(12).reshape(3, 4),
    "empty": np.zeros((0, 4)), "read only": [[1]]}.items(), ids=lambda value: value if isinstance(value, str) else "")
def test_arrays_that_are_not_contiguous_are_sent(python_server, what, expected):
    got = infer(python_server, "arrays", words(WHAT=what)).as_numpy("OUT")
    assert np.array_equal(got, np.asarray(expected))


def test_a_tensor_tells_about_itself(python_server, place):
    array = np.arange(5, dtype=np.float32)
    told = json.loads(text_of(infer(python_server, "tells", {"IN": array})))
    assert {k: told[k] for k in ("name", "cpu", "dtype", "shape", "no such")} == {
        "name": "IN", "cpu": True, "dtype": 11, "shape": [5], "no such": True}
    assert told["not an array"] != "none"
    assert told["complex"] != "none" or not place.ours
    if place.ours:
        assert told["aligned"] == 0


@only_ours("it dies of NumPy's DLPack")
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (200, 300)], ids=str)
def test_tensors_pass_by_dlpack(python_server, shape):
    array = np.random.default_rng(5).random(shape, np.float32)
    got = infer(python_server, "dlpack", {"IN": array})
    assert np.array_equal(got.as_numpy("OUT"), array * 2)
    assert np.array_equal(got.as_numpy("CAPSULE"), array + 1)
    assert np.array_equal(got.as_numpy("AGAIN"), array)


def test_dlpack_tensors_that_are_not_contiguous_are_refused_or_sent_right(python_server):
    try:
        got = infer(python_server, "strided_dlpack", {"IN": np.zeros(1, np.int32)}).as_numpy("OUT")
    except InferenceServerException as e:
        assert "contiguous" in e.message()
    else:
        assert np.array_equal(got, np.arange(6, dtype=np.float32).reshape(2, 3).T)


@only_ours("pb_utils.empty() is ours")
@pytest.mark.parametrize("n", [0, 1, 7, 100000])
def test_a_model_fills_memory_of_the_response(python_server, n):
    array = np.arange(n, dtype=np.float32)
    for _ in range(3):    # the memory is used again
        assert np.array_equal(infer(python_server, "empty", {"IN": array}, protocol="grpc").as_numpy("OUT"), 3 * array)


@only_ours("it may end")
@pytest.mark.parametrize("what", ["broadcast", "empty", "overflow"])
def test_tensors_of_terabytes_are_refused(python_server, what):
    with pytest.raises(InferenceServerException):
        infer(python_server, "huge", words(WHAT=what))
    assert infer(python_server, "huge", words(WHAT="fine")).as_numpy("OUT").tolist() == [[1]]


@pytest.mark.parametrize("what, expected", [("str", ["grün".encode(), b""]), ("mixed", [b"a", b"b", b"7"]), ("fixed", [b"ab", b"c"])])
def test_objects_become_strings(python_server, what, expected):
    assert infer(python_server, "strings", words(WHAT=what)).as_numpy("OUT").tolist() == expected
