# SPDX-License-Identifier: Apache-2.0
"""The dynamic batcher over HTTP, asked by the real client and by many clients at once, in our server and in the genuine
Triton. tests/system/test_dynamic_batching.py tests which batches are made.
"""

import concurrent.futures
import signal
import time

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

import server as servers
import triton
import wire
from batches import BACKENDS, Model, config

POLICY = ("priority_levels: 2 default_priority_level: 2 default_queue_policy { max_queue_size: 1000 "
          "default_timeout_microseconds: 60000000 }")
MODELS = {
    "full": config("default_queue_policy { max_queue_size: 2 }", size=1),
    "late": config("default_queue_policy { default_timeout_microseconds: 1000000000 allow_timeout_override: true "
                   "max_queue_size: 4 }", size=1),
    "left": config("", size=1),
    "busy": config("preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 300", instances=2),
    "quick": config("", size=1),
    "quick_policy": config(POLICY, size=1),
    "ordered": config("preserve_ordering: true max_queue_delay_microseconds: 300", instances=2),
}
FULL = "[request id: <id_unknown>] Exceeds maximum queue size"
PATIENT = config("preferred_batch_size: 8 max_queue_delay_microseconds: 3600000000 default_queue_policy { max_queue_size: 3 }")


def serve(which, root, patch, **how):
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())
    patch.setattr(servers, "BACKENDS", str(BACKENDS))
    return {"conch": servers.Server, "triton": triton.Triton}[which](root, **how)


@pytest.fixture(scope="module", params=["conch", "triton"])
def served(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    models = {name: Model(root, name, text) for name, text in MODELS.items()}
    for name in ("full", "late", "left"):
        models[name].hold()
    with pytest.MonkeyPatch.context() as patch, serve(request.param, root, patch) as running:
        running.which, running.models = request.param, models
        yield running
        for model in models.values():
            model.let_go()


def infer(server, model, rows=1, **more):
    """Returns the number of the execution, or the error."""
    with tritonclient.http.InferenceServerClient(server.url, network_timeout=100, connection_timeout=100) as client:
        tensor = tritonclient.http.InferInput("IN", [rows, 1], "INT32")
        tensor.set_data_from_numpy(np.zeros([rows, 1], np.int32))
        try:
            got = client.infer(model, [tensor], **more).as_numpy("OUT")
        except InferenceServerException as error:
            return error
    assert got.shape == (rows, 1)
    assert len(set(got.flat)) == 1
    return int(got.flat[0])


def at_once(n, *what, **more):
    """Calls infer() n times at once, each on its own connection: (the threads' pool, the futures of the results)."""
    pool = concurrent.futures.ThreadPoolExecutor(n)
    return pool, [pool.submit(infer, *what, **more) for _ in range(n)]


def results(asked):
    pool, futures = asked
    got = [future.result(100) for future in futures]
    pool.shutdown()
    return got


def statistics(server, model):
    with tritonclient.http.InferenceServerClient(server.url) as client:
        return client.get_inference_statistics(model)["model_stats"][0]


def failures(server, model):
    return int(statistics(server, model)["inference_stats"]["fail"].get("count", 0))


def test_too_many_requests_are_refused(served):
    """One request is executed, two wait, four are refused. None of them counts as a failure of the model."""
    model = served.models["full"]
    first = at_once(1, served, "full")
    model.await_executions(1)
    asked = at_once(6, served, "full")
    servers.wait_for(lambda: sum(future.done() for future in asked[1]) == 4, 60, "four of six are refused")
    refused = [future.result() for future in asked[1] if future.done()]
    assert [(error.status(), error.message()) for error in refused] == [("503", FULL)] * 4
    model.let_go()
    assert sorted(got for got in results(first) + results(asked) if isinstance(got, int)) == [1, 2, 3]
    assert failures(served, "full") == 0


def test_requests_that_wait_too_long_are_refused(served):
    model = served.models["late"]
    first = at_once(1, served, "late")
    model.await_executions(1)
    asked = at_once(6, served, "late", timeout=1)
    # Ours answers all of them, although the instance is busy (reference/behaviours §27.10); the genuine one answers
    # those for which the queue has no room.
    n = 6 if served.which == "conch" else 2
    servers.wait_for(lambda: sum(future.done() for future in asked[1]) == n, 60, f"{n} of six have been refused")
    model.let_go()
    assert results(first) == [1]
    refused = results(asked)
    assert {error.status() for error in refused} == {"503"}
    late = [error.message() for error in refused].count("Request timeout expired")
    assert late >= 4
    assert [error.message() for error in refused].count(FULL) == 6 - late
    servers.wait_for(lambda: failures(served, "late") == late, 60, f"{late} failures are counted")
    assert len(model.executions()) == 1


def test_a_request_whose_client_has_left_is_not_executed(served):
    if served.which == "triton":
        pytest.skip("the genuine one notices nothing, and executes for clients that have left (reference/behaviours §19.11)")
    model = served.models["left"]
    first = at_once(1, served, "left")
    model.await_executions(1)
    body = b'{"inputs":[{"name":"IN","datatype":"INT32","shape":[1,1],"data":[0]}]}'
    with wire.Connection(served) as connection:
        connection.send(b"POST /v2/models/left/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    servers.wait_for(lambda: failures(served, "left") == 1, 60, "its request is dropped")
    model.let_go()
    assert results(first) == [1]
    assert infer(served, "left") == 2


@pytest.mark.parametrize("name", ["busy", "ordered"])
def test_many_clients_get_one_answer_each(served, name):
    """Each answer names one execution. Together the answers agree with the backend and the statistics."""
    model, chance = served.models[name], np.random.default_rng(1)
    sizes = [[int(n) for n in chance.integers(1, 4, 40)] for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda mine: [(infer(served, name, rows), rows) for rows in mine], sizes))
    rows_of = {}
    for execution, rows in (one for client in told for one in client):
        rows_of.setdefault(execution, []).append(rows)
    seen = {i + 1: sorted(int(part.split(":")[1]) for part in batch.split()) for i, batch in enumerate(model.executions())}
    assert {execution: sorted(rows) for execution, rows in rows_of.items()} == seen
    assert max(map(sum, seen.values())) <= 8
    got = statistics(served, name)
    assert got["inference_count"] == sum(map(sum, sizes))
    assert got["execution_count"] == len(seen)
    assert got["inference_stats"]["success"]["count"] == 320
    batches = {batch["batch_size"]: batch["compute_infer"]["count"] for batch in got["batch_stats"]}
    assert batches == {size: list(map(sum, seen.values())).count(size) for size in set(map(sum, seen.values()))}


def test_a_policy_costs_no_time(served):
    """The genuine one may stand still for half a second at any time once its queue has a policy (study/reference-figures.md)."""
    if served.which == "triton":
        pytest.skip("the genuine one stalls")
    took = {}
    for name in ("quick", "quick_policy"):
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _, name=name: [infer(served, name) for _ in range(40)], range(8)))
        took[name] = time.monotonic() - began
    assert took["quick_policy"] < 4 * took["quick"] + 4


def test_a_stop_answers_waiting_requests(tmp_path):
    """The requests wait an hour for others to fill their batch; the queue has room for three."""
    model = Model(tmp_path, "patient", PATIENT)
    with pytest.MonkeyPatch.context() as patch, serve("conch", tmp_path, patch) as server:
        asked = at_once(5, server, "patient")
        servers.wait_for(lambda: sum(future.done() for future in asked[1]) == 2, 60, "two of five are refused")
        assert model.batches() == []
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert sum(isinstance(got, int) for got in results(asked)) == 3
    assert len(model.executions()) == 1
