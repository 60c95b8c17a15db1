# SPDX-License-Identifier: Apache-2.0
"""A backend that takes a request and does not answer it. The log reports it, and beyond the model's execution limit its
clients get an error. tests/plugins/misbehave keeps a request while a file exists."""

import concurrent.futures
import pathlib
import re

import grpc
import pytest

import health
import repository
import server as servers
from wire import ask

pytestmark = pytest.mark.skipif(servers.REFERENCE, reason="the genuine Triton has no such limit")

FLAGS = ["--allow-metrics=true", "--metrics-port=0"]


def write_model(root, name="mis", limit_ms=None, more=""):
    config = f'name: "{name}"\nbackend: "misbehave"\n'
    config += repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("output", "OUT", "INT32", [-1])
    config += 'instance_group [ { name: "mis" count: 2 kind: KIND_CPU } ]\n' + more
    if limit_ms is not None:
        config += f'parameters {{ key: "CONCH_EXECUTION_LIMIT_MS" value {{ string_value: "{limit_ms}" }} }}\n'
    repository.write_model(root, name, config)


def serve(root, *flags, **more):
    started = servers.Server(root, flags=[*FLAGS, *flags], **more)
    ours = f"--backend-directory={pathlib.Path(servers.BACKENDS).parent / 'tests' / 'backends'}"
    started.args = [ours if arg.startswith("--backend-directory=") else arg for arg in started.args]
    return started


@pytest.fixture
def root(tmp_path):
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def hold(tmp_path):
    path = tmp_path / "hold"
    path.touch()
    yield path
    path.unlink(missing_ok=True)


def infer(server, do=None, hold=None, name="mis", request_id="r1"):
    parameters = {"do": do, "hold": str(hold)} if do else {}
    inputs = [{"name": "IN", "datatype": "INT32", "shape": [2], "data": [1, 2]}]
    return ask(server, "POST", f"/v2/models/{name}/infer", {"id": request_id, "inputs": inputs, "parameters": parameters})


def ready(server, path="models/mis"):
    return ask(server, "GET", f"/v2/{path}/ready")


# In its call; or after it, by a thread that answers.
WAYS = ["stuck", "late-both"]


@pytest.mark.sanitize
@pytest.mark.parametrize("do", WAYS)
def test_beyond_the_limit_the_server_answers_the_client(do, root, hold):
    write_model(root, limit_ms=300)
    write_model(root, "other")
    with serve(root) as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
        answer = pool.submit(infer, server, do, hold).result(60)
        assert answer.status == 504
        found = re.fullmatch(r"\[request id: r1\] model 'mis', instance '(mis_[01])': no answer within the execution limit of "
                             "300 ms", answer.json()["error"])
        assert found, answer.body
        server.wait_log(f"model 'mis' version 1, instance '{found[1]}': request 'r1' is beyond the execution limit of 300 ms")

        # Only that model is not ready, with the reason; and its other instance works.
        answer = ready(server)
        assert answer.status == 400
        assert f"Model version not ready: instance '{found[1]}' is stuck" in answer.json()["error"]
        assert ready(server, "models/other").status == 200
        assert ready(server, "health").status == 200
        for _ in range(4):
            assert infer(server).status == 200
            assert infer(server, name="other").status == 200

        # Each instance for itself, and both at once.
        if do == "stuck":
            assert infer(server, do, hold, request_id="r2").status == 504
            queued = pool.submit(infer, server)
        hold.unlink()
        if do == "stuck":
            assert queued.result(60).status == 200  # it waited for an instance, and got one
        servers.wait_for(lambda: ready(server).status == 200, 60, "the backend has let go")
        for _ in range(4):
            assert infer(server).json()["outputs"][0]["data"] == [1, 2]
        server.assert_alive()


def test_a_watch_tells_of_a_stuck_instance(root, hold):
    """gRPC's health service, without a question in between."""
    write_model(root, limit_ms=300)
    with serve(root, grpc=True) as server, grpc.insecure_channel(server.grpc_url) as channel:
        watch = health.Watch(channel, "mis")
        assert watch.next() == health.SERVING
        assert infer(server, "stuck", hold).status == 504
        assert watch.next() == health.NOT_SERVING
        hold.unlink()
        assert watch.next() == health.SERVING


def test_requests_within_the_limit_are_answered(root, tmp_path):
    write_model(root, limit_ms=60000)
    with serve(root) as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(infer, server) for _ in range(200)]
        assert {future.result().status for future in asked} == {200}
        assert ready(server).status == 200


@pytest.mark.parametrize("do", WAYS)
def test_the_log_names_the_request_without_an_answer(do, root, hold):
    """After the time of the option, 10 s by default."""
    write_model(root)
    with serve(root, "--execution-warning-secs=1") as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(infer, server, do, hold, request_id="the one that hangs")
        line = r"model 'mis' version 1, instance 'mis_[01]': request 'the one that hangs' has been with the backend for [1-5] s without an answer"
        servers.wait_for(lambda: re.search(line, server.log()), 60, "it is told")
        assert ready(server).status == 200  # without a limit it may take any time
        hold.unlink()
        assert asked.result(60).status == 200


@pytest.mark.parametrize("limit", ["0", "-5", "soon", "1.5", ""])
def test_an_invalid_limit_fails_the_load(limit, root):
    write_model(root, limit_ms=limit)
    write_model(root, "other")
    with serve(root, "--exit-on-error=false", "--strict-readiness=false") as server:
        server.wait_log("parameter 'CONCH_EXECUTION_LIMIT_MS'")
        assert f"'CONCH_EXECUTION_LIMIT_MS' is '{limit}', expected a whole number of milliseconds" in server.log()
