# SPDX-License-Identifier: Apache-2.0
"""A connection that asks with the same bytes again: heads and JSON are compared instead of parsed then, the answer is today's."""

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


def binary(model="a", shape=(2,), data=DATA, accept=None, **members):
    """Every byte of a request with one binary tensor both ways."""
    head = json.dumps({**members, "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": list(shape),
                                              "parameters": {"binary_data_size": len(data)}}],
                       "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
    headers = {"Inference-Header-Content-Length": len(head)}
    if accept:
        headers["Accept"] = accept
    return request_bytes("POST", f"/v2/models/{model}/infer", head + data, headers)


def asked(connection, request):
    """The JSON of the answer and what is behind it; or its status and error."""
    connection.send(request)
    answer = connection.response()
    if answer.status != 200:
        return answer.status, answer.error
    length = int(answer.headers["inference-header-content-length"])
    return json.loads(answer.body[:length]), answer.body[length:]


def test_a_model_that_was_changed_in_between(server):
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


def test_a_model_that_was_unloaded_in_between(server):
    with Connection(server) as c:
        for _ in range(2):
            assert asked(c, binary())[1] == DATA
        assert unload(server, "a").status == 200
        for _ in range(2):
            status, error = asked(c, binary())
            assert status == 404 and "unknown model: 'a'" in error
        loaded(server, "a")
        assert asked(c, binary())[1] == DATA


def test_other_models_ids_data_and_shapes_of_the_same_length(server):
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


def test_floats_as_they_are_asked_for(server):
    text = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [0.1, 2]}]}).encode()
    wanted = {"application/json; floats=shortest": b"[0.1,2.0]", "application/json; floats=exactness": b"[0.10000000149011612,2.0]"}
    with Connection(server) as c:
        for _ in range(3):
            for accept, data in wanted.items():
                answer = c.request("POST", "/v2/models/a/infer", text, {"Accept": accept})
                assert b'"data":' + data in answer.body
