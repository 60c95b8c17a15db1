# SPDX-License-Identifier: Apache-2.0
"""The exact text and bytes of inference answers, which clients in other languages parse by hand."""

import json
import struct
import subprocess

import pytest

from wire import ask, given, infer


def fp32(*values):
    return struct.pack(f"<{len(values)}f", *values)


def binary(name, datatype, shape, size):
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def split(answer):
    """(the JSON of a binary answer, the bytes after it)"""
    head = int(answer.headers["inference-header-content-length"])
    return answer.body[:head], answer.body[head:]


def test_a_json_answer_has_exactly_this_text(server):
    answer = infer(server, "any_fp32", {"id": "7", "inputs": [given("INPUT0", "FP32", [4], [1, 0.1, -1e10, 3e-9])]})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert "inference-header-content-length" not in answer.headers
    assert answer.body == (
        b'{"id":"7","model_name":"any_fp32","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32",'
        b'"shape":[4],"data":[1.0,0.10000000149011612,-10000000000.0,3.000000026176508e-9]}]}'
    )


@pytest.mark.parametrize(
    "datatype, data, text",
    [
        ("BOOL", [True, False], "[true,false]"),
        ("UINT64", [2**64 - 1, 0], "[18446744073709551615,0]"),
        ("INT64", [-(2**63), 2**63 - 1], "[-9223372036854775808,9223372036854775807]"),
        ("INT8", [-128, 127], "[-128,127]"),
        ("FP64", [0.1, 1e300, 5e-324], "[0.1,1e300,5e-324]"),
        ("FP64", [1, -0.0, 123456789.125], "[1.0,-0.0,123456789.125]"),
        ("BYTES", ["a\"b\\c", "\n\t", "é"], '["a\\"b\\\\c","\\n\\t","é"]'),
    ],
)
def test_values_of_each_type_print_as_json(server, datatype, data, text):
    answer = infer(server, f"any_{datatype.lower()}", {"inputs": [given("INPUT0", datatype, [len(data)], data)]})
    assert answer.status == 200, answer
    assert f'"data":{text}}}]}}' in answer.body.decode()


def test_nan_and_infinity_print_as_in_the_reference(server):
    document = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[3],"data":[NaN,Infinity,-Infinity]}]}'
    answer = infer(server, "any_fp32", document)
    assert answer.status == 200, answer
    assert b'"data":[NaN,Infinity,-Infinity]' in answer.body


def test_nested_data_is_flattened(server):
    answer = infer(server, "matrix", {"inputs": [given("INPUT0", "FP32", [2, 3], [[1, 2, 3], [4, 5, 6]])]})
    assert answer.json()["outputs"][0]["data"] == [1, 2, 3, 4, 5, 6]
    assert answer.json()["outputs"][0]["shape"] == [2, 3]


def test_values_wrap_into_the_type(server):
    answer = infer(server, "any_int8", {"inputs": [given("INPUT0", "INT8", [2], [128, -129])]})
    assert answer.json()["outputs"][0]["data"] == [-128, 127]


def test_unicode_escapes_are_decoded(server):
    document = b'{"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[2],"data":["\\u00e9\\ud83d\\udc1a","\\/\\b"]}]}'
    assert infer(server, "any_bytes", document).json()["outputs"][0]["data"] == ["é🐚", "/\b"]


def test_space_and_unknown_members_are_ignored(server):
    document = b' {\r\n "extra" : {"a":[1,{}]}, "inputs" :\t[ {"data":[ 1 ] ,"shape":[1],"datatype":"FP32","name":"INPUT0","x":null} ] } '
    assert infer(server, "any_fp32", document).json()["outputs"][0]["data"] == [1.0]


def test_a_binary_answer_has_exactly_these_bytes(server):
    tail = fp32(1, 2.5)
    document = {
        "inputs": [binary("INPUT0", "FP32", [2], 8)],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    answer = infer(server, "any_fp32", document, tail)
    assert answer.headers["content-type"] == "application/octet-stream"
    head, body = split(answer)
    assert head == (
        b'{"model_name":"any_fp32","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[2],'
        b'"parameters":{"binary_data_size":8}}]}'
    )
    assert body == tail


def test_all_outputs_may_be_binary(server):
    document = {
        "parameters": {"binary_data_output": True},
        "inputs": [given("INPUT0", "FP32", [1], [4]), given("INPUT1", "INT32", [2], [5, 6])],
    }
    answer = infer(server, "pair", document)
    head, body = split(answer)
    outputs = json.loads(head)["outputs"]
    data = {"OUTPUT0": fp32(4), "OUTPUT1": struct.pack("<2i", 5, 6)}
    assert body == b"".join(data[output["name"]] for output in outputs)
    assert [o["parameters"] for o in outputs] == [{"binary_data_size": len(data[o["name"]])} for o in outputs]


def test_a_named_output_chooses_its_own_form(server):
    document = {
        "parameters": {"binary_data_output": True},
        "inputs": [given("INPUT0", "FP32", [1], [4]), given("INPUT1", "INT32", [2], [5, 6])],
        "outputs": [{"name": "OUTPUT0"}, {"name": "OUTPUT1", "parameters": {"binary_data": True}}],
    }
    head, body = split(infer(server, "pair", document))
    outputs = {output["name"]: output for output in json.loads(head)["outputs"]}
    assert outputs["OUTPUT0"]["data"] == [4.0]
    assert outputs["OUTPUT1"]["parameters"] == {"binary_data_size": 8}
    assert body == struct.pack("<2i", 5, 6)


def test_an_empty_binary_output_makes_no_binary_answer(server):
    document = {
        "inputs": [binary("INPUT0", "FP32", [0], 0)],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    answer = infer(server, "any_fp32", document)
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["outputs"] == [
        {"name": "OUTPUT0", "datatype": "FP32", "shape": [0], "parameters": {"binary_data_size": 0}}
    ]


def test_a_raw_request_gets_its_bytes_back(server):
    """Header length 0: the body is the one input, and its shape follows from its size."""
    tail = fp32(1, 2, 3)
    answer = ask(server, "POST", "/v2/models/any_fp32/infer", tail, {"Inference-Header-Content-Length": 0})
    assert answer.status == 200, answer
    head, body = split(answer)
    assert json.loads(head)["outputs"][0]["shape"] == [3]
    assert body == tail


def test_custom_parameters_are_accepted(server):
    document = {
        "parameters": {"mine": "text", "count": 3, "yes": True, "half": 0.5},
        "inputs": [given("INPUT0", "FP32", [1], [1])],
    }
    assert infer(server, "any_fp32", document).status == 200


@pytest.mark.parametrize("name", ["inference-header-content-length", "INFERENCE-HEADER-CONTENT-LENGTH"])
def test_header_names_have_no_case(server, name):
    document = json.dumps({"inputs": [binary("INPUT0", "FP32", [1], 4)]}).encode()
    answer = ask(server, "POST", "/v2/models/any_fp32/infer", document + fp32(9), {name: len(document)})
    assert answer.json()["outputs"][0]["data"] == [9.0]


def test_curl_asks_in_json(server):
    done = subprocess.run(
        [
            *("curl", "-sS", "--max-time", "10", f"http://{server.url}/v2/models/any_fp32/infer"),
            *("-d", '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[3],"data":[1,2.5,-3]}]}'),
        ],
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["outputs"][0]["data"] == [1.0, 2.5, -3.0]


def test_curl_sends_a_large_file(server, tmp_path):
    """Before curl sends a megabyte it asks with Expect: 100-continue."""
    tail = bytes(range(256)) * 8192
    document = json.dumps(
        {
            "inputs": [binary("INPUT0", "UINT8", [len(tail)], len(tail))],
            "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
        }
    ).encode()
    (tmp_path / "request").write_bytes(document + tail)
    subprocess.run(
        [
            *("curl", "-sS", "--fail", "--max-time", "20", f"http://{server.url}/v2/models/any_uint8/infer"),
            *("-H", "Expect: 100-continue", "-H", f"Inference-Header-Content-Length: {len(document)}"),
            *("--data-binary", f"@{tmp_path}/request", "-o", f"{tmp_path}/answer"),
        ],
        check=True,
    )
    assert (tmp_path / "answer").read_bytes().endswith(tail)
