# SPDX-License-Identifier: Apache-2.0
"""Models that send any number of responses: our repeat and square backends, in both servers, by the C API."""

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

import embed
import repository
import server as servers
import triton

DECOUPLED = "model_transaction_policy { decoupled: true }\n"


def write_models(root):
    repeat = 'backend: "repeat"\n' + DECOUPLED
    repeat += repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("input", "DELAY", "UINT32", [-1])
    repeat += repository.tensor("input", "WAIT", "UINT32", [1])
    repeat += repository.tensor("output", "OUT", "INT32", [1]) + repository.tensor("output", "IDX", "UINT32", [1])
    repeat += "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    repository.write_model(root, "repeat", repeat)
    square = 'backend: "square"\n' + DECOUPLED
    square += repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "INT32", [1])
    square += "instance_group [ { count: 2 kind: KIND_CPU } ]\n"
    repository.write_model(root, "square", square)
    repository.write_model(root, "counted", square)    # for the one test that reads its statistics
    repository.write_model(root, "square_batch", square + "max_batch_size: 1\n")
    repository.write_model(root, "coupled", square.replace("decoupled: true", ""))
    return root


@pytest.fixture(scope="module", params=["conch", "triton"])
def ask(request, tmp_path_factory):
    """Runs commands of embed with one of the servers, which all tests share."""
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    root = write_models(tmp_path_factory.mktemp("models"))
    with embed.Session(root, which=request.param, folder=tmp_path_factory.mktemp("libraries")) as session:
        yield session.do


def repeat(name, values, delays, wait=0, outputs="-", command="infer"):
    n = len(values)
    return (f"{command} {name} repeat -1 {outputs} IN:INT32:{n}:{','.join(map(str, values))} "
            f"DELAY:UINT32:{len(delays)}:{','.join(map(str, delays))} WAIT:UINT32:1:{wait}")


def test_a_request_has_a_response_for_each_element(ask):
    lines = ask(repeat("r", [4, 5, -6], [0, 1, 2]))
    assert embed.of(lines, "r") == [
        "response OUT:INT32:1:4 IDX:UINT32:1:0",
        "response OUT:INT32:1:5 IDX:UINT32:1:1",
        "response OUT:INT32:1:-6 IDX:UINT32:1:2",
        "final",
    ]


def test_a_request_without_elements_has_no_response(ask):
    assert embed.of(ask(repeat("r", [], [])), "r") == ["final"]


A_DAY_MS = 86400000


def test_the_next_request_does_not_wait_for_pending_responses(ask):
    """One instance: the second request begins when the first is released, and ends while responses of the first are still
    to come."""
    lines = ask(repeat("a", [1, 2], [0, A_DAY_MS], command="start"), repeat("b", [3], [0]), "cancel a", "wait a")
    assert embed.of(lines, "b") == ["response OUT:INT32:1:3 IDX:UINT32:1:0", "final"]
    *came, last = embed.of(lines, "a")
    assert came in ([], ["response OUT:INT32:1:1 IDX:UINT32:1:0"])
    assert last.endswith(" final") and lines.index("b final") < lines.index(f"a {last}")


def test_a_held_request_keeps_the_next_one_waiting(ask):
    """… and the first request's responses do not wait for it: it is held until they have had time to arrive."""
    for wait_ms in (100, 1000, 10000):
        lines = ask(repeat("a", [1, 2], [0, 0], wait=wait_ms, command="start"), repeat("b", [3], [0]), "wait a")
        assert embed.of(lines, "a") == [f"response OUT:INT32:1:{i + 1} IDX:UINT32:1:{i}" for i in range(2)] + ["final"]
        if lines.index("a final") < lines.index("b response OUT:INT32:1:3 IDX:UINT32:1:0"):
            return
    raise AssertionError("the second request was executed before the first had been answered, however long that was held")


def test_responses_have_only_requested_outputs(ask):
    assert embed.of(ask(repeat("r", [7], [0], outputs="IDX")), "r") == ["response IDX:UINT32:1:0", "final"]


def test_square_sends_as_many_responses_as_requested(ask):
    lines = ask(
        "infer s square -1 - IN:INT32:1:3", "infer none square -1 - IN:INT32:1:0",
        "infer b square_batch -1 - IN:INT32:1,1:2", "infer many square -1 - IN:INT32:1:1000",
    )
    assert embed.of(lines, "s") == ["response OUT:INT32:1:3"] * 3 + ["final"]
    assert embed.of(lines, "none") == ["final"]
    assert embed.of(lines, "b") == ["response OUT:INT32:1,1:2"] * 2 + ["final"]
    assert embed.of(lines, "many") == ["response OUT:INT32:1:1000"] * 1000 + ["final"]


def test_many_requests_get_their_own_responses(ask):
    count = 60
    lines = ask(*(f"start s{i} square -1 - IN:INT32:1:{i}" for i in range(count)), *(f"wait s{i}" for i in range(count)))
    for i in range(count):
        assert embed.of(lines, f"s{i}") == [f"response OUT:INT32:1:{i}"] * i + ["final"]


def test_wrong_requests_get_errors(ask):
    lines = ask("infer s square -1 - IN:INT32:1:-1", repeat("r", [1, 2, 3], [0]))
    assert embed.of(lines, "s") == ["error Invalid argument: IN must not be negative, it is -1 final"]
    assert embed.of(lines, "r") == [
        "error Invalid argument: IN and DELAY must have as many elements, they have 3 and 1 final"
    ]


def test_a_cancelled_request_ends_at_once(ask):
    """A delay of a day ends at once, and the last response has the reason."""
    lines = ask(repeat("r", [1, 2], [0, A_DAY_MS], command="start"), "cancel r", "wait r")
    assert embed.of(lines, "r")[-1].startswith("error ")
    assert embed.of(lines, "r")[-1].endswith(" final")
    assert len(embed.of(lines, "r")) <= 2


def test_a_held_request_may_be_cancelled(ask):
    """The request has been answered, and its client asked to hold the instance for a day. The instance is free for the
    next request at once."""
    lines = ask(repeat("r", [1], [0], wait=A_DAY_MS, command="start"), "answered r", "cancel r", "wait r", repeat("next", [2], [0]))
    assert embed.of(lines, "r") == ["response OUT:INT32:1:1 IDX:UINT32:1:0", "final"]
    assert embed.of(lines, "next") == ["response OUT:INT32:1:2 IDX:UINT32:1:0", "final"]


def test_the_backends_refuse_models_that_are_not_decoupled(ask):
    index = json.loads(ask("index")[-1])
    reason = next(model["reason"] for model in index if model["name"] == "coupled")
    assert "model 'coupled': it answers a request any number of times, so its configuration needs " in reason


def test_decoupled_models_are_refused_over_http(tmp_path):
    write_models(tmp_path)
    with servers.Server(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false"]) as server:
        body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{server.url}/v2/models/square/infer", json.dumps(body).encode())
        assert refused.value.code == 501
        assert json.load(refused.value) == {
            "error": "HTTP end point doesn't support models with decoupled transaction policy"
        }
        with urllib.request.urlopen(f"http://{server.url}/v2/models/square/config") as config:
            assert json.load(config)["model_transaction_policy"] == {"decoupled": True}


def test_the_python_of_the_page_runs(tmp_path):
    """docs/decoupled.md: three answers, and the end."""
    shutil.copytree(write_models(tmp_path / "all") / "square", tmp_path / "models/square")
    page = (servers.ROOT / "docs/decoupled.md").read_text()
    with servers.Server(tmp_path / "models", grpc=True) as server:
        program = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1].replace("localhost:8001", server.grpc_url)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, "a [3]\n" * 3), done.stderr


def counts(statistics):
    """{what: {how it ended: number}} of one model, by the index of the response."""
    kinds = ("success", "fail", "empty_response", "cancel")
    return {index: {kind: response[kind]["count"] for kind in kinds if response[kind]["count"]}
            for index, response in statistics["model_stats"][0]["response_stats"].items()}


def test_each_response_is_counted(ask):
    lines = ask("infer a counted -1 - IN:INT32:1:2", "infer b counted -1 - IN:INT32:1:1", "infer c counted -1 - IN:INT32:1:0",
                "statistics counted")
    text = next(line for line in lines if '"model_stats"' in line)
    statistics = json.loads(text[text.index("{"):])
    assert counts(statistics) == {"0": {"success": 2, "empty_response": 1}, "1": {"success": 1, "empty_response": 1},
                                  "2": {"empty_response": 1}}
