# SPDX-License-Identifier: Apache-2.0
"""The answers of functions of the backend interface about objects, requests, their inputs and responses
(tests/plugins/caller), and what a
backend may send (tests/plugins/script), in both servers. tests/unit/api/test_requests.c tests what a program that embeds the server can
set besides in a request."""

import json
import urllib.error
import urllib.request

import pytest

import repository
import server as servers
import triton

CONFIG = 'backend: "caller"\n' + repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("output", "OUT", "BYTES", [1])
SCRIPTED = 'backend: "script"\n' + repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "INT32", [1])
PARAMETERS = {"sequence_id": 42, "sequence_start": True, "timeout": 7000000, "text": "a text", "number": -5, "yes": True, "real": 0.25}


@pytest.fixture(scope="module", params=["conch", "triton"])
def server(request, tmp_path_factory):
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    root = tmp_path_factory.mktemp("models")
    repository.write_model(root, "m", CONFIG + "instance_group [ { count: 1 kind: KIND_CPU } ]\n")
    repository.write_model(root, "scripted", SCRIPTED)
    flags = [f"--backend-directory={servers.BUILD / 'tests/backends'}"]
    with {"conch": servers.Server, "triton": triton.Triton}[request.param](root, flags=flags) as running:
        running.which = request.param
        yield running


def ask(server, path, body=None, model="m"):
    request = urllib.request.Request(f"http://{server.url}/v2/models/{model}{path}", json.dumps(body).encode() if body else None)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read()) from error


@pytest.fixture(scope="module")
def answer(server):
    return ask(server, "/infer", {"id": "r1", "parameters": PARAMETERS,
                                  "inputs": [{"name": "IN", "datatype": "INT32", "shape": [3], "data": [7, 8, 9]}]})


def test_each_call_has_its_answer(server, answer):
    lines = answer["outputs"][0]["data"][0].splitlines()
    parameters = [line for line in lines if line.startswith("parameter ")]  # in any order
    assert sorted(parameters) == ["parameter number: int -5", "parameter real: double 0.25", "parameter text: string a text",
                                  "parameter yes: bool 1"]
    assert [line for line in lines if line not in parameters] == [
        "backend: caller, policy 0", "its server says that it is: ready",
        "request: r1, flags 1, timeout 7000000, of 42, not traced",
        *(line for policy in ("all", "mine", "nobody's") for line in (
            f"IN for {policy}: INT32, 1 dimensions, first 3, 12 bytes in 1", f"buffer 0 for {policy}: 12 bytes, CPU 0, begins with 7")),
        "input: CPU 0, 12 bytes, no handle", "query: CPU 0",
        "output 0: OUT, BYTES, 1 dimensions, first 1", "output OUT: BYTES, 1 dimensions, first 1",
        "output NOPE: " + ("Output name NOPEnot found." if server.which == "triton" else "output name NOPE does not exist in the response")]


def test_a_response_has_its_parameters(answer):
    given = answer["parameters"]
    assert {name: given[name] for name in ("string", "int", "bool", "double")} == {
        "string": 'a "text"', "int": -(1 << 63), "bool": True, "double": 0.5}
    size = 4 + len(answer["outputs"][0]["data"][0])
    assert given["output"] == f"memory: CPU 0, {size} bytes, no handle"


def test_reported_memory_is_in_the_statistics(server, answer):
    used = ask(server, "/stats")["model_stats"][0]["memory_usage"]
    if server.which == "triton":
        assert used == [{"type": "CPU", "id": place, "byte_size": 512} for place in (0, 1)]
    else:
        assert [(usage["type"], usage["id"]) for usage in used] == [("CPU", 0)] and used[0]["byte_size"] > 1024


@pytest.mark.parametrize("script", ["rn.xd", "rnx.d", "rnxt.d", "nlxd", "nxld"])
def test_the_final_flag_may_follow_the_only_response(server, script):
    """Alone, before or after the release, and from another thread: a client over HTTP sees one answer (reference/behaviours §19.2, §19.4)."""
    for value in (7, 8):
        answer = ask(server, "/infer", {"parameters": {"do": script}, "inputs": [
            {"name": "IN", "datatype": "INT32", "shape": [1], "data": [value]}]}, model="scripted")
        assert [(output["name"], output["data"]) for output in answer["outputs"]] == [("OUT", [1000 * value])]
