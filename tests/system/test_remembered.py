# SPDX-License-Identifier: Apache-2.0
"""A connection that sends the same bytes again: heads and JSON are compared instead of parsed, and the answer is current."""

import json
import struct

import pytest

import repository
from server import Server
from test_model_control import EXPLICIT, identity_config, loaded, unload
from wire import Connection, request_bytes

ANY = [("FP32", [-1])]
DATA = struct.pack("<2f", 1.5, -2)


@pytest.fixture
def server(models):
    for name in ("a", "b"):
        repository.write_identity(models, name, ANY, versions=(1, 2))
    with Server(models, flags=[EXPLICIT]) as server:
        loaded(server, "a")
        loaded(server, "b")
        yield server


def binary(model="a", shape=(2,), data=DATA, accept=None, more_headers=(), **members):
    """Every byte of a request with one binary input and output."""
    head = json.dumps({**members, "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": list(shape),
                                              "parameters": {"binary_data_size": len(data)}}],
                       "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
    headers = {"Inference-Header-Content-Length": len(head)}
    if accept:
        headers["Accept"] = accept
    headers.update(more_headers)
    return request_bytes("POST", f"/v2/models/{model}/infer", head + data, headers)


def asked(connection, request):
    """The JSON of the answer and the bytes behind it; or its status and error."""
    connection.send(request)
    answer = connection.response()
    if answer.status != 200:
        return answer.status, answer.error
    length = int(answer.headers["inference-header-content-length"])
    return json.loads(answer.body[:length]), answer.body[length:]


def test_a_changed_model_answers_as_it_is(server):
    with Connection(server) as c:
        for _ in range(3):
            document, data = asked(c, binary())
            assert (document["model_version"], data) == ("2", DATA)
        loaded(server, "a", config=identity_config(version_policy={"specific": {"versions": [1]}}))
        document, data = asked(c, binary())
        assert (document["model_version"], data) == ("1", DATA)

        three = {"data_type": "TYPE_FP32", "dims": [3]}
        loaded(server, "a", config=json.dumps({"backend": "identity", "input": [{"name": "INPUT0", **three}],
                                               "output": [{"name": "OUTPUT0", **three}]}))
        for _ in range(2):
            status, error = asked(c, binary())
            assert status == 400 and "unexpected shape for input 'INPUT0'" in error
        loaded(server, "a", config=identity_config())
        assert asked(c, binary())[1] == DATA


def test_an_unloaded_model_is_refused(server):
    with Connection(server) as c:
        for _ in range(2):
            assert asked(c, binary())[1] == DATA
        assert unload(server, "a").status == 200
        for _ in range(2):
            status, error = asked(c, binary())
            assert status == 404 and "unknown model: 'a'" in error
        loaded(server, "a")
        assert asked(c, binary())[1] == DATA


def test_requests_of_the_same_length_are_told_apart(server):
    other = struct.pack("<2f", 7, 8)
    with Connection(server) as c:
        for _ in range(3):
            assert asked(c, binary("a"))[0]["model_name"] == "a"
            assert asked(c, binary("b"))[0]["model_name"] == "b"
            assert asked(c, binary("a", data=other))[1] == other
            assert [asked(c, binary(id=name))[0]["id"] for name in ("one", "two")] == ["one", "two"]
            assert "id" not in asked(c, binary())[0]
            status, error = asked(c, binary(shape=(3,)))
            assert status == 400 and "INPUT0" in error


def test_floats_print_in_the_requested_form(server):
    text = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [0.1, 2]}]}).encode()
    wanted = {"application/json; floats=shortest": b"[0.1,2.0]", "application/json; floats=exactness": b"[0.10000000149011612,2.0]"}
    with Connection(server) as c:
        for _ in range(3):
            for accept, data in wanted.items():
                answer = c.request("POST", "/v2/models/a/infer", text, {"Accept": accept})
                assert b'"data":' + data in answer.body


def reply_to(connection, request):
    """Status, headers and body, as they were sent."""
    connection.send(request)
    answer = connection.response()
    return answer.status, answer.headers, answer.body


def test_replies_that_differ_in_one_thing(server):
    """Versions, shapes, lengths and ids alternate on one connection, and so on one loop: each reply is that of a fresh
    connection."""
    for name in ("a", "b"):
        loaded(server, name, config=identity_config(version_policy={"all": {}}))
    twelve = struct.pack("<3f", 1, 2, 3)
    asks = [binary("a"), binary("a/versions/1"), binary("a/versions/2"), binary("b"), binary("a", shape=(3,), data=twelve),
            binary("a", id="x"), binary("b/versions/1", shape=(0,), data=b""),
            binary("a", parameters={"binary_data_output": True}), binary("c")]
    asks += [ask.replace(b'"binary_data": true', b'"binary_data":false') for ask in asks[:3]]
    fresh = []
    for ask in asks:
        with Connection(server) as c:
            fresh.append(reply_to(c, ask))
    assert len({str(reply) for reply in fresh}) == 9
    with Connection(server) as c:
        for _ in range(3):
            for ask, reply in zip(asks, fresh):
                assert [reply_to(c, ask) for _ in range(2)] == [reply, reply]
        for ask, reply in zip(asks[::-1], fresh[::-1]):
            assert reply_to(c, ask) == reply


ENSEMBLE = """platform: "ensemble"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [ { model_name: "a" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" }
                                                                 output_map { key: "OUTPUT0" value: "OUTPUT0" } } ] }
"""


def test_replies_whose_parameters_differ(server, models):
    """Each response of an ensemble says to which sequence it belongs."""
    repository.write_model(models, "whole", ENSEMBLE)
    loaded(server, "whole")
    sequences = [{}, {"sequence_id": 7}, {"sequence_id": 8}, {"sequence_id": "7"}, {"sequence_id": "a name"},
                 {"sequence_id": 7, "sequence_start": True}, {"sequence_id": 7, "sequence_end": True}, {}]
    nothing = {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
    with Connection(server) as c:
        for _ in range(2):
            for sequence in sequences:
                for _ in range(2):
                    document, data = asked(c, binary("whole", parameters=sequence))
                    assert (document["parameters"], data) == ({**nothing, **sequence}, DATA)
            document, data = asked(c, binary("a"))
            assert (document["model_name"], data, "parameters" in document) == ("a", DATA, False)


def test_names_too_long_to_be_remembered_are_parsed(server, models):
    long = "m" * 60
    repository.write_identity(models, long, ANY)
    repository.write_identity(models, "six", ANY * 6)
    loaded(server, long)
    loaded(server, "six")
    parts = [{"name": f"INPUT{i}", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": len(DATA)}} for i in range(6)]
    head = json.dumps({"inputs": parts, "parameters": {"binary_data_output": True}}).encode()
    six = request_bytes("POST", "/v2/models/six/infer", head + DATA * 6, {"Inference-Header-Content-Length": len(head)})
    with Connection(server) as c:
        for _ in range(3):
            document, data = asked(c, binary(long))
            assert (document["model_name"], data) == (long, DATA)
            document, data = asked(c, six)
            assert ([o["name"] for o in document["outputs"]], data) == ([f"OUTPUT{i}" for i in range(6)], DATA * 6)


def test_heads_that_differ_in_one_header(server):
    """A head is parsed once, and its meaning holds: each form twice, between two of the plain form."""
    text = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2],"data":[1.5,-2]}]}'
    path = "/v2/models/a/infer"
    forms = {
        "json": (request_bytes("POST", path, text), 200),
        "bad length": (request_bytes("POST", path, text, {"Inference-Header-Content-Length": "x"}), 400),
        "length out of range": (request_bytes("POST", path, text, {"Inference-Header-Content-Length": "99999999999"}), 400),
        "length beyond the body": (request_bytes("POST", path, text, {"Inference-Header-Content-Length": len(text) + 1}), 400),
        "unknown coding": (request_bytes("POST", path, text, {"Content-Encoding": "br"}), 501),
        "the coding that changes nothing": (request_bytes("POST", path, text, {"Content-Encoding": "identity"}), 200),
        "other method": (request_bytes("PUT", path, text), 405),
        "no such path": (request_bytes("POST", path + "/", text), 404),
        "no such version": (request_bytes("POST", "/v2/models/a/versions/7/infer", text), 404),
        "asked first whether to send": (request_bytes("POST", path, text, {"Expect": "100-continue"}), 200),
    }
    for name, (request, status) in forms.items():
        with Connection(server) as c:
            errors = set()
            for _ in range(3):
                assert asked(c, binary())[1] == DATA
                for _ in range(2):
                    c.send(request)
                    answer = c.response()
                    assert answer.status == status, name
                    errors.add(answer.body)
            assert len(errors) == 1, name


def test_a_remembered_head_may_close_its_connection(server):
    with Connection(server) as c:
        for _ in range(3):
            assert "connection" not in reply_to(c, binary())[1]
        status, headers, _ = reply_to(c, binary(more_headers={"Connection": "close"}))
        assert (status, headers["connection"]) == (200, "close")
