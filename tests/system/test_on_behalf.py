# SPDX-License-Identifier: Apache-2.0
"""A model that calls another one for the request that it executes (conch_request_set_parent()). The model `d` of
tests/plugins/delegate calls `g` of tests/plugins/gate, or an ensemble of it, which executes when the test lets it
(tests/unit/api/test_stop.c has calls during a stop). The model
`alone` calls as d does, but its calls have no parent: it shows what they have of it."""

import json
import socket
from concurrent import futures

import pytest

import repository
from server import BUILD, Server, wait_for
from wire import ask, given, infer, request_bytes

pytestmark = pytest.mark.conch_only("conch_request_set_parent() is ours")

IN = {"inputs": [given("IN", "INT32", [2], [3, 4])]}
TENSORS = repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("output", "OUT", "INT32", [-1])
STEP = 'input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" }'


class Stage:
    """The models, and a server once it is started."""

    def __init__(self, root):
        self.root = root
        self.gate = repository.Gated(root, "g")
        repository.write_model(root, "e", f'platform: "ensemble"\n{TENSORS}'
                               f'ensemble_scheduling {{ step [ {{ model_name: "g" model_version: -1 {STEP} }} ] }}\n')
        for name, to, more in ("d", "g", ""), ("d_e", "e", ""), ("alone", "g", 'parameters { key: "alone" value { string_value: "x" } }\n'):
            repository.write_model(root, name, f'backend: "delegate"\n{TENSORS}instance_group [ {{ count: 1 kind: KIND_CPU }} ]\n'
                                   f'parameters {{ key: "to" value {{ string_value: "{to}" }} }}\n{more}')

    def serve(self, *flags):
        return Server(self.root, flags=[f"--backend-directory={BUILD}/tests/backends", *flags])

    def await_made(self, name):
        wait_for((self.root / name / "hold.call.made").exists, 60, f"{name} has called")

    def counts(self, server):
        """Of g: executed requests, failed ones."""
        stats = ask(server, "GET", "/v2/models/g/stats").json()["model_stats"][0]["inference_stats"]
        return stats["success"]["count"], stats["fail"]["count"]


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


@pytest.fixture
def pool():
    with futures.ThreadPoolExecutor() as made:
        yield made


def test_a_model_calls_another_one(stage):
    with stage.serve() as server:
        for name in "d", "d_e", "alone":
            for _ in range(3):
                assert infer(server, name, IN).json()["outputs"][0]["data"] == [3, 4]
        assert stage.counts(server) == (9, 0)


@pytest.mark.sanitize
@pytest.mark.parametrize("name", ["d", "d_e"])
def test_a_cancelled_request_takes_its_call_out_of_the_queue(stage, pool, name):
    """The one instance of g is busy, and a client goes while the call for it waits."""
    stage.gate.shut("hold.execute")
    with stage.serve() as server:
        busy = pool.submit(infer, server, "g", IN)
        stage.gate.await_reached("hold.execute")
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(request_bytes("POST", f"/v2/models/{name}/infer", json.dumps(IN).encode()))
            stage.await_made(name)
        wait_for(lambda: stage.counts(server) == (0, 1), 60, "the call has left the queue, while the instance is busy")
        stage.gate.open("hold.execute")
        assert busy.result(60).status == 200
        assert stage.counts(server) == (1, 1)


def test_a_call_is_not_executed_after_the_deadline(stage, pool):
    stage.gate.shut("hold.execute")
    with stage.serve() as server:
        busy = pool.submit(infer, server, "g", IN)
        stage.gate.await_reached("hold.execute")
        answer = ask(server, "POST", "/v2/models/d/infer", IN, headers={"Conch-Timeout-Ms": "100"})
        assert answer.status in (499, 504), answer
        wait_for(lambda: stage.counts(server) == (0, 1), 60, "the call has left the queue")
        stage.gate.open("hold.execute")
        assert busy.result(60).status == 200


def test_a_call_has_a_child_of_the_trace(stage, tmp_path):
    file = tmp_path / "traces.json"
    with stage.serve("--trace-config=rate=1", "--trace-config=level=TIMESTAMPS", f"--trace-config=triton,file={file}") as server:
        assert infer(server, "d", IN).status == 200
        assert infer(server, "alone", IN).status == 200
    records = [record for record in json.loads(file.read_text()) if "model_name" in record]
    ids = {record["model_name"]: record["id"] for record in records}
    assert [(record["model_name"], record.get("parent_id")) for record in sorted(records, key=lambda r: r["id"])] == [
        ("d", None), ("g", ids["d"]), ("alone", None)]
