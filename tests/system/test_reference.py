# SPDX-License-Identifier: Apache-2.0
"""The genuine Triton and Conch side by side, with the same models and the same backends, ours: the same answers.

Skipped if the genuine server is not installed.
"""

import itertools
import json
import random
import re
import struct

import pytest

import repository
import triton
from refused import REFUSED, SINCE
from server import REFERENCE, Server, run_to_end
from wire import ask, given, infer

pytestmark = [
    triton.needed,
    pytest.mark.skipif(REFERENCE, reason="CONCH_BIN is the genuine Triton"),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    root = repository.write_standard(tmp_path_factory.mktemp("both"))
    repository.copy_example(root, "digits")
    repository.copy_example(root, "add_sub")
    with Server(root) as ours, triton.Triton(root) as theirs:
        yield ours, theirs


def same(ours, theirs):
    assert ours.status == theirs.status
    if ours.status >= 400 and theirs.body:
        assert ours.json()["error"].startswith(theirs.json()["error"])    # advice of ours may follow
    else:
        assert ours.body == theirs.body
    if ours.body:
        assert ours.headers["content-type"] == theirs.headers["content-type"]


def same_numbers(ours, theirs):
    """Equal except for the digits of floats: Triton's text reads as the same bits but is not always the shortest."""
    assert (ours.status, ours.json()) == (theirs.status, theirs.json())
    text = re.compile(rb"-?\d+\.\d+(e-?\d+)?")
    assert text.sub(b"0.0", ours.body) == text.sub(b"0.0", theirs.body)
    assert len(ours.body) <= len(theirs.body)


@pytest.mark.parametrize("case", [name for name in REFUSED if name not in SINCE])
def test_wrong_requests_have_the_same_errors(both, case):
    model, document, _, _ = REFUSED[case]
    ours, theirs = (infer(server, model, document) for server in both)
    assert ours.status == theirs.status
    if case != "batches differ":  # which of the two is named is not defined there
        assert ours.json()["error"].startswith(theirs.json()["error"])  # advice of ours may follow


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/models/any_fp32", "/v2/models/batch", "/v2/models/digits", "/v2/models/add_sub", "/v2/models/versions", "/v2/models/nobody", "/v2/none",
                                  # Escapes are not decoded: none of these paths is any_fp32.
                                  "/v2/models/any%5Ffp32", "/v2/models/any%5ffp32/config", "/v2/models/%61ny_fp32", "/v2/models/any_fp32%00",
                                  "/v2%2Fmodels/any_fp32", "/v2/models/x%2F..%2Fany_fp32", "/v2/models/any_fp32/versions/%31"])
def test_paths_have_the_same_answers(both, path):
    same(*(ask(server, "GET", path) for server in both))


@pytest.mark.parametrize("model", ["any_fp32", "batch", "versions", "digits", "add_sub"])
def test_configurations_are_the_same(both, model):
    """Ours may have fields that are newer than 2.51; all fields of 2.51 are the same."""

    def within(theirs, ours, path):
        if isinstance(theirs, dict):
            for key, value in theirs.items():
                assert key in ours, f"{path}.{key}"
                within(value, ours[key], f"{path}.{key}")
        elif isinstance(theirs, list):
            assert len(ours) == len(theirs), path
            for i, (a, b) in enumerate(zip(theirs, ours)):
                within(a, b, f"{path}[{i}]")
        else:
            assert theirs == ours, path

    ours, theirs = (ask(server, "GET", f"/v2/models/{model}/config").json() for server in both)
    within(theirs, ours, model)


VALUES = {
    "BOOL": [True, False],
    "UINT8": [0, 255, 256],
    "UINT16": [0, 65535, 65536],
    "UINT32": [0, 2**32 - 1, 2**32],
    "UINT64": [0, 2**63, 2**64 - 1],
    "INT8": [-128, 127, 128, -129],
    "INT16": [-32768, 32767, 32768],
    "INT32": [-(2**31), 2**31 - 1, 2**31, 2**32],
    "INT64": [-(2**63), 2**63 - 1],
    "FP32": [0, -0.0, 1, 0.1, 1e-7, 1e-5, 123456.789, 16777217, 1e10, 1e20, 1e21, 1e22, 3.4e38, 1e-38, 1e-45, 1 / 3],
    "FP64": [0, -0.0, 1, 0.1, 1e-7, 1.5e-6, 1e20, 1e21, 1.5e21, 123456789012345680, 1e300, 5e-324, 2.2250738585072014e-308, 1 / 3],
    "BYTES": ["", "plain", 'a "b" \\ /', "\b\f\n\r\t\u0001\u001f\u007f", "é 漢字 🐚"],
}


@pytest.mark.parametrize("datatype", VALUES)
def test_json_values_are_the_same(both, datatype):
    data = VALUES[datatype]
    document = {"id": "x", "inputs": [given("INPUT0", datatype, [len(data)], data)]}
    compare = same_numbers if datatype.startswith("FP") else same
    compare(*(infer(server, f"any_{datatype.lower()}", document) for server in both))


def test_special_floats_print_the_same(both):
    for datatype in ("FP32", "FP64"):
        document = b'{"inputs":[{"name":"INPUT0","datatype":"%s","shape":[4],"data":[NaN,-Infinity,Inf,1E5]}]}' % datatype.encode()
        same(*(infer(server, f"any_{datatype.lower()}", document) for server in both))


def test_random_floats_read_as_the_same(both):
    source = random.Random(5)
    bits = [source.getrandbits(32) for _ in range(3000)]
    data = b"".join(struct.pack("<I", value) for value in bits if (value >> 23) & 0xFF != 0xFF)
    count = len(data) // 4
    document = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [count], "parameters": {"binary_data_size": len(data)}}]}
    same_numbers(*(infer(server, "any_fp32", document, data) for server in both))


@pytest.mark.parametrize("binary_in, binary_out, shape", list(itertools.product([False, True], [None, False, True], [[0], [1], [5]])))
def test_binary_and_json_are_the_same(both, binary_in, binary_out, shape):
    count = shape[0]
    tail = struct.pack(f"<{count}f", *range(count))
    one = {"name": "INPUT0", "datatype": "FP32", "shape": shape}
    if binary_in:
        one["parameters"] = {"binary_data_size": len(tail)}
    else:
        one["data"] = list(range(count))
    document = {"inputs": [one]}
    if binary_out is not None:
        document["outputs"] = [{"name": "OUTPUT0", "parameters": {"binary_data": binary_out}}]
    answers = [infer(server, "any_fp32", document, tail if binary_in else b"") for server in both]
    same(*answers)
    name = "inference-header-content-length"
    assert answers[0].headers.get(name) == answers[1].headers.get(name)


def test_onnx_models_answer_the_same(both):
    image = [(i * 7) % 17 for i in range(128)]
    same_numbers(*(infer(server, "digits", {"inputs": [given("image", "FP32", [2, 64], image)]}) for server in both))
    numbers = [given(name, "INT32", [1, 16], list(range(start, start + 16))) for name, start in (("INPUT0", 5), ("INPUT1", -3))]
    same(*(infer(server, "add_sub", {"inputs": numbers}) for server in both))
    outputs = [{"name": "OUTPUT1", "parameters": {"binary_data": True}}]
    same(*(infer(server, "add_sub", {"inputs": numbers, "outputs": outputs}) for server in both))


ODD = {
    "duplicate members": b'{"inputs":[{"name":"INPUT0","name":"X","datatype":"FP32","shape":[1],"data":[1]}]}',
    "byte order mark": b'\xef\xbb\xbf{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}',
    "id with control characters": b'{"id":"a\\u0000b\\n","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}',
    "empty id": b'{"id":"","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}',
    "id null": b'{"id":null,"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}',
    "empty outputs": b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}],"outputs":[]}',
    "outputs no array": b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}],"outputs":1}',
    "output no name": b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}],"outputs":[{}]}',
    "binary_data no boolean": b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":1}}]}',
    "binary_data_output no boolean": b'{"parameters":{"binary_data_output":1},"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}',
    "priority and timeout": b'{"parameters":{"priority":1,"timeout":5000000},"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}',
    "priority no number": b'{"parameters":{"priority":"x"},"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}',
    "parameters no object": b'{"parameters":[],"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}',
    "unknown datatype": b'{"inputs":[{"name":"INPUT0","datatype":"FP8","shape":[1],"data":[1]}]}',
    "datatype in small letters": b'{"inputs":[{"name":"INPUT0","datatype":"fp32","shape":[1],"data":[1]}]}',
    "integers as floats": b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2],"data":[18446744073709551616,-9223372036854775809]}]}',
    "empty object": b"{}",
    "blank": b"   ",
    "null": b"null",
    "a comment": b'{/*x*/"inputs":[]}',
    "trailing comma": b'{"inputs":[],}',
    "lone surrogate": b'{"id":"\\ud800","inputs":[]}',
    "control character in a string": b'{"id":"a\nb","inputs":[]}',
    "leading zero": b'{"a":01}',
    "plus": b'{"a":+1}',
    "fraction without digits": b'{"a":1.}',
    "exponent without digits": b'{"a":1e}',
    "capital true": b'{"a":True}',
}


@pytest.mark.parametrize("case", ODD)
def test_odd_documents_have_the_same_answers(both, case):
    compare = same_numbers if case == "integers as floats" else same
    compare(*(infer(server, "any_fp32", ODD[case]) for server in both))


@pytest.mark.parametrize("shape", [[], [0], [1], [2**20, 2**20]])
@pytest.mark.parametrize("tail", [b"", b"abcd"])
def test_unknown_datatypes_have_the_same_errors(both, shape, tail):
    for source in ({"data": [1]}, {"data": []}, {"data": 1}, {}, {"parameters": {"binary_data_size": 4}}):
        document = {"inputs": [{"name": "INPUT0", "datatype": "FP8", "shape": shape, **source}]}
        same(*(infer(server, "any_fp32", document, tail) for server in both))


@pytest.mark.parametrize("model", ["any_bytes", "any_fp32", "any_bool", "matrix", "fixed", "batch", "pair"])
@pytest.mark.parametrize("body", [b"", b"12345678", b"x" * 12])
def test_raw_requests_have_the_same_answers(both, model, body):
    headers = {"Inference-Header-Content-Length": "0"}
    same(*(ask(server, "POST", f"/v2/models/{model}/infer", body, headers) for server in both))


def test_header_lengths_have_the_same_answers(both):
    document = json.dumps({"inputs": [given("INPUT0", "FP32", [1], [1])]}).encode()
    for value in (len(document), f" {len(document)}", f"+{len(document)}", len(document) + 1, -1, 1):
        headers = {"Inference-Header-Content-Length": value}
        same(*(ask(server, "POST", "/v2/models/any_fp32/infer", document, headers) for server in both))


def test_all_flags_are_known():
    """Each flag that the genuine server lists is in our help, too."""
    flag = re.compile(r"^\s*--([a-z][a-z0-9-]+)", re.MULTILINE)
    any_flag = re.compile(r" --([a-z][a-z0-9-]+)")    # those without effect stand in a paragraph
    _, out, err = run_to_end("none", 1, 2, 3, "--help", program=triton.program())
    theirs = set(flag.findall(out + err))
    assert len(theirs) > 60
    _, out, _ = run_to_end("--help", "all")
    assert theirs <= set(any_flag.findall(out))
