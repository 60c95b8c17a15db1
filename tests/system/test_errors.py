# SPDX-License-Identifier: Apache-2.0
"""The errors of wrong requests: codes and texts, which clients and their tests match on."""

import json
import struct

import pytest

import repository
from refused import ONE, REFUSED, SINCE, inputs
from server import REFERENCE, Server
from wire import Connection, ask, given, infer

ID = "[request id: <id_unknown>] "


def check(answer, status, text):
    """The message begins with this text, perhaps after the prefix with the request's id."""
    assert answer.status == status, answer
    message = answer.error
    assert message.removeprefix(ID).startswith(text), f"{message!r}\nis not\n{text!r}"


NEWER = pytest.mark.conch_only("2.51 does not know this check")


@pytest.mark.parametrize("case", [pytest.param(name, marks=[NEWER] * (name in SINCE)) for name in REFUSED])
def test_each_wrong_request_has_its_error(server, case):
    model, document, status, message = REFUSED[case]
    check(infer(server, model, document), status, message)


def test_the_id_is_in_the_message(server):
    answer = infer(server, "fixed", inputs(given("INPUT0", "INT32", [3], [1, 2, 3]), id="mine"))
    assert answer.error.startswith("[request id: mine] unexpected shape for input 'INPUT0' for model 'fixed'.")


def test_an_unknown_version_is_refused(server):
    answer = ask(server, "POST", "/v2/models/fixed/versions/9/infer", b"{}")
    check(answer, 404, "Request for unknown model: 'fixed' version 9 is not found")


def binary(size, shape=(1,), datatype="FP32"):
    return inputs({"name": "INPUT0", "datatype": datatype, "shape": list(shape), "parameters": {"binary_data_size": size}})


@pytest.mark.parametrize(
    "model, document, tail, message",
    [
        ("any_fp32", binary(8, [2]), 4, "unexpected size for input 'INPUT0', expecting 4 additional bytes for model 'any_fp32'"),
        ("any_fp32", binary(4, [1]), 8, "unexpected additional input data for model 'any_fp32'"),
        ("any_fp32", binary(4, [2]), 4, "input byte size mismatch for input 'INPUT0' for model 'any_fp32'. Expected 8, got 4"),
        ("any_fp32", binary(6, [1]), 6, "input byte size mismatch for input 'INPUT0' for model 'any_fp32'. Expected 4, got 6"),
    ],
)
def test_wrong_binary_sizes_are_refused(server, model, document, tail, message):
    check(infer(server, model, document, b"\0" * tail), 400, message)


@pytest.mark.parametrize(
    "count, data, message",
    [
        (1, b"\1\0", "incomplete string length indicator for inference input 'INPUT0' for model 'any_bytes', expecting 4 bytes but only 2 bytes available."),
        pytest.param(1, b"\5\0\0\0abc", "incomplete string data for inference input 'INPUT0' for model 'any_bytes', expecting string of length 5 but only 3 bytes available", marks=NEWER),
        (2, b"\1\0\0\0a", "expected 2 string elements for inference input 'INPUT0' for model 'any_bytes', got 1"),
        (1, b"\1\0\0\0a\0\0\0\0", "unexpected number of string elements 2 for inference input 'INPUT0' for model 'any_bytes', expecting 1"),
        pytest.param(1, b"\xff\xff\xff\xffabc", "incomplete string data for inference input 'INPUT0' for model 'any_bytes', expecting string of length 4294967295 but only 3 bytes available", marks=NEWER),
    ],
)
def test_malformed_strings_are_refused(server, count, data, message):
    check(infer(server, "any_bytes", binary(len(data), [count], "BYTES"), data), 400, message)


def test_half_precision_output_is_refused_as_json(server):
    document = binary(2, [1], "FP16")
    answer = infer(server, "any_fp16", document, b"\x00\x3c")
    check(answer, 400, "sending FP16 data via JSON is not supported. Please use the binary data format for output")


@pytest.mark.parametrize(
    "value, message",
    [
        pytest.param("x", "Unable to parse Inference-Header-Content-Length, got: x", marks=NEWER),
        pytest.param("99999999999", "Unable to parse Inference-Header-Content-Length, value is out of range [ -2147483648, 2147483647 ], got: 99999999999", marks=NEWER),
        ("-1", "inference header size should be in range (0, 2), got: -1"),
        ("3", "inference header size should be in range (0, 2), got: 3"),
    ],
)
def test_a_wrong_header_length_is_refused(server, value, message):
    answer = ask(server, "POST", "/v2/models/any_fp32/infer", b"{}", {"Inference-Header-Content-Length": value})
    check(answer, 400, message)


def test_an_empty_body_is_a_raw_request(server):
    answer = ask(server, "POST", "/v2/models/fixed/infer", b"")
    check(answer, 400, "input byte size mismatch for input 'raw_input' for model 'fixed'. Expected 16, got 0")


def test_a_raw_request_needs_one_input(server):
    answer = ask(server, "POST", "/v2/models/pair/infer", b"1234", {"Inference-Header-Content-Length": 0})
    check(answer, 400, "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'pair' model configuration")


def test_an_unknown_compression_is_refused(server):
    answer = ask(server, "POST", "/v2/models/any_fp32/infer", b"{}", {"Content-Encoding": "lzma"})
    check(answer, 501, "Unsupported compression type")


@pytest.mark.parametrize("shape", [[2**40], [2**62], [2**63 - 1], [2**31, 2**31]])
@pytest.mark.conch_only("it ends 2.51")
def test_a_shape_without_its_data_allocates_nothing(server, shape):
    answer = infer(server, "any_fp32", inputs(given("INPUT0", "FP32", shape, [1])))
    assert answer.status in (400, 500), answer
    assert answer.error
    answer = infer(server, "any_fp32", binary(4, shape), b"\0" * 4)
    assert answer.status == 400, answer


@NEWER
def test_deep_nesting_is_refused(server):
    """100 levels of tensor data are read. More are refused, and so is a megabyte of brackets."""

    def nested(levels):
        text = b"[" * levels + b"1" + b"]" * levels
        return b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":' + text + b"}]}"

    assert infer(server, "any_fp32", nested(50)).status == 200
    check(infer(server, "any_fp32", nested(200)), 400, "JSON nesting depth exceeds maximum allowed limit (100)")
    assert infer(server, "any_fp32", nested(300_000)).status in (400, 500)


def test_a_refused_request_does_not_end_the_connection(server):
    good = json.dumps(inputs(ONE)).encode()
    with Connection(server) as connection:
        for case, (model, document, status, _) in REFUSED.items():
            if REFERENCE and case in SINCE:
                continue
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            assert connection.request("POST", f"/v2/models/{model}/infer", body).status == status
        answer = connection.request("POST", "/v2/models/any_fp32/infer", good)
        assert answer.json()["outputs"][0]["data"] == [1.0]


def test_a_string_tensor_without_its_bytes_is_refused(server):
    """A string tensor may not claim more elements than it has bytes."""
    data = struct.pack("<I", 0) * 1000
    check(
        infer(server, "any_bytes", binary(len(data), [10**9], "BYTES"), data),
        400,
        "expected 1000000000 string elements for inference input 'INPUT0' for model 'any_bytes', got 1000",
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A server that accepts up to 2000 bytes of JSON."""
    root = tmp_path_factory.mktemp("small")
    repository.write_identity(root, "any_fp32", [("FP32", [-1])])
    repository.write_identity(root, "any_uint8", [("UINT8", [-1])])
    with Server(root, flags=["--http-max-input-size=2000"]) as server:
        yield server


@NEWER
def test_json_beyond_the_limit_is_refused(small):
    assert infer(small, "any_fp32", inputs(ONE, id="x" * 1500)).status == 200
    body = json.dumps(inputs(ONE, id="x" * 3000)).encode()
    check(
        infer(small, "any_fp32", body),
        400,
        f"request JSON size of {len(body)} bytes exceeds the maximum allowed input size of 2000 bytes. "
        "Use --http-max-input-size to increase the limit.",
    )


@NEWER
def test_a_tensor_in_json_beyond_the_limit_is_refused(small):
    document = inputs(given("INPUT0", "FP32", [600], [1] * 600))
    body = json.dumps(document, separators=(",", ":")).encode()
    assert len(body) < 2000
    check(
        infer(small, "any_fp32", body),
        400,
        "JSON input 'INPUT0' has a byte_size (2400 bytes) that exceeds the maximum allowed value of 2000 bytes. "
        "Use --http-max-input-size to increase the limit.",
    )


@NEWER
def test_a_raw_request_beyond_the_limit_is_refused(small):
    answer = ask(small, "POST", "/v2/models/any_uint8/infer", b"x" * 3000, {"Inference-Header-Content-Length": 0})
    check(answer, 400, "Raw input has a byte_size (3000 bytes) that exceeds the maximum allowed value of 2000 bytes.")


@NEWER
def test_binary_tensors_do_not_count_for_the_limit(small):
    document = {
        "inputs": [{"name": "INPUT0", "datatype": "UINT8", "shape": [5000], "parameters": {"binary_data_size": 5000}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    answer = infer(small, "any_uint8", document, b"y" * 5000)
    assert answer.status == 200
    assert answer.body.endswith(b"y" * 5000)
