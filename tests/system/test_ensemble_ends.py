# SPDX-License-Identifier: Apache-2.0
"""An ensemble's request that its client gives up, or that the server's stop finds under way: what runs ends, and no other step
begins. Bounds of decoupled steps, and steps with a condition. Only Conch does these."""

import concurrent.futures
import json

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

import embed
import pipelines
import repository
import server as servers
import wire
from pipelines import Stage, ensemble, step

pytestmark = pytest.mark.conch_only("is about what Triton 2.51 does not do")

X, Y = ("X",), ("Y",)
DECOUPLED = "model_transaction_policy { decoupled: true }\n"


def write_chain(root):
    stages = {name: Stage(root, name, add=1) for name in ("a", "b", "c")}
    ensemble(root, "chain", X, Y, step("a", "IN=X", "OUT=M"), step("b", "IN=M", "OUT=N"), step("c", "IN=N", "OUT=Y"))
    return stages


@pytest.fixture
def chain(tmp_path):
    """(server, its stages): the second step of the chain is at its gate once a request gets there."""
    stages = write_chain(tmp_path)
    with servers.Server(tmp_path, grpc=True, flags=["--http-thread-count=1"]) as server:
        stages["b"].shut("hold.execute")
        try:
            yield server, stages
        finally:
            stages["b"].open("hold.execute")


def assert_ended(server, stages):
    """The step that ran ends, and the last one never begins; the next request is answered."""
    stages["b"].open("hold.execute")
    servers.wait_for(lambda: len(stages["b"].seen()) == 1, 60, "the step has ended")
    assert pipelines.ask(server, "http", "chain", {"X": [1]})["Y"] == [4]
    assert [seen["inputs"]["IN"][1] for seen in stages["c"].seen()] == [[3]]


# ---- Clients that give up


def caller(channel):
    return channel.unary_unary(pipelines.SERVICE + "ModelInfer", pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString)


def await_news(call):
    """When a call that follows on the same connection has been answered, the server knows of the end of the one before."""
    assert pipelines.answer_of(call(pipelines.message_of("a", {"IN": ([1], [0])}), timeout=60))["OUT"] == [1]


def test_no_step_begins_after_the_deadline(chain):
    """On a slow machine it may be over before the first step has begun."""
    server, stages = chain
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = caller(channel)
        with pytest.raises(grpc.RpcError) as error:
            call(pipelines.message_of("chain", {"X": ([1], [100])}), timeout=1)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await_news(call)
    stages["b"].open("hold.execute")
    assert pipelines.ask(server, "http", "chain", {"X": [1]})["Y"] == [4]
    assert [seen["inputs"]["IN"][1] for seen in stages["c"].seen()] == [[3]]


def test_no_step_begins_after_a_cancel(chain):
    server, stages = chain
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = caller(channel)
        asked = call.future(pipelines.message_of("chain", {"X": ([1], [100])}))
        stages["b"].await_reached("hold.execute")
        assert asked.cancel()
        await_news(call)
    assert_ended(server, stages)


def test_no_step_begins_after_the_client_has_left(chain):
    server, stages = chain
    body = json.dumps({"inputs": [wire.given("X", "INT32", [1], [100])]}).encode()
    with wire.Connection(server) as connection:
        connection.send(wire.request_bytes("POST", "/v2/models/chain/infer", body))
        stages["b"].await_reached("hold.execute")
    # The one thread handles events in order: this answer comes after the client's end.
    assert wire.ask(server, "GET", "/v2/health/live").status == 200
    assert_ended(server, stages)


def test_no_step_begins_after_a_cancel_by_the_c_api(tmp_path):
    stages = write_chain(tmp_path)
    stages["b"].shut("hold.execute")
    with embed.Session(tmp_path) as session:
        session.tell("start r chain -1 - X:INT32:1:100")
        stages["b"].await_reached("hold.execute")
        session.tell("cancel r", "ready chain")
        session.await_line("ready chain yes")
        stages["b"].open("hold.execute")
        lines = session.do("wait r", "infer s chain -1 - X:INT32:1:1")
    assert embed.of(lines, "r")[0].startswith("error ") and embed.of(lines, "r")[0].endswith(" final")
    assert embed.of(lines, "s") == ["response Y:INT32:1:4 final"]
    assert [seen["inputs"]["IN"][1] for seen in stages["c"].seen()] == [[3]]


def test_a_cancel_reaches_a_step_that_waits(tmp_path):
    """One request holds the instance of the second step; another waits for it there, and ends at once."""
    stages = write_chain(tmp_path)
    stages["b"].shut("hold.execute")
    with embed.Session(tmp_path) as session:
        session.tell("start r chain -1 - X:INT32:1:100")
        stages["b"].await_reached("hold.execute")
        session.tell("start s chain -1 - X:INT32:1:200")
        servers.wait_for(lambda: stages["a"].n_seen() == 2, 60, "the second request is under way")
        session.tell("cancel s", "wait s", "ready chain")
        session.await_line("ready chain yes")
        stages["b"].open("hold.execute")
        lines = session.do("wait r")
    assert embed.of(lines, "s")[0].startswith("error ")
    assert embed.of(lines, "r") == ["response Y:INT32:1:103 final"]
    assert [seen["inputs"]["IN"][1] for seen in stages["b"].seen()] == [[101]]


def test_no_wave_begins_after_the_client_has_left(tmp_path):
    """The first of three responses has come, the producer is at its gate for the second when the client cancels its stream."""
    many, last = Stage(tmp_path, "many", more=DECOUPLED, responses=3), Stage(tmp_path, "last")
    ensemble(tmp_path, "e", X, Y, step("many", "IN=X", "OUT=M"), step("last", "IN=M", "OUT=Y"))
    many.shut("hold.response")
    with servers.Server(tmp_path, grpc=True) as server, grpc.insecure_channel(server.grpc_url) as channel:
        try:
            call = channel.stream_stream(pipelines.SERVICE + "ModelStreamInfer", pb.ModelInferRequest.SerializeToString,
                                         pb.ModelStreamInferResponse.FromString)
            answers = call(iter([pipelines.message_of("e", {"X": ([1], [100])})]))
            assert pipelines.answer_of(next(answers).infer_response)["Y"] == [100]
            many.await_reached("hold.response")
            assert answers.cancel()
            assert pipelines.answer_of(caller(channel)(pipelines.message_of("last", {"IN": ([1], [0])}), timeout=60))["OUT"] == [0]
        finally:
            many.open("hold.response")
        # The producer has one instance, which is free when it has sent the other responses.
        again = pipelines.stream(server, pipelines.message_of("e", {"X": ([1], [1])}))
        assert sorted(answer["Y"] for answer in again) == [[1], [2], [3]]
    assert sorted(seen["inputs"]["IN"][1] for seen in last.seen()) == [[0], [1], [2], [3], [100]]


# ---- The end of the server


def test_a_stop_lets_a_request_take_its_next_steps(tmp_path):
    stages = write_chain(tmp_path)
    stages["a"].shut("hold.execute")
    with servers.Server(tmp_path, flags=["--exit-timeout-secs=600"]) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            asked = pool.submit(pipelines.ask, server, "http", "chain", {"X": [1]})
            stages["a"].await_reached("hold.execute")
            server.signal(servers.signal.SIGTERM)
            server.wait_log("HTTP service connections")
        finally:
            stages["a"].open("hold.execute")
        assert asked.result()["Y"] == [4]


# ---- Steps that break rules


def test_a_step_that_answers_twice_disturbs_no_other(tmp_path):
    Stage(tmp_path, "twice", responses=2)
    last = Stage(tmp_path, "last")
    ensemble(tmp_path, "e", X, Y, step("twice", "IN=X", "OUT=M"), step("last", "IN=M", "OUT=Y"))
    with servers.Server(tmp_path) as server:
        answer = pipelines.ask(server, "http", "e", {"X": [5]})
        assert (answer.code, answer.error) == (
            "INTERNAL", "in ensemble 'e', step 0, model 'twice', has sent more than one response, but is not decoupled")
        assert len(last.seen()) <= 1
        assert pipelines.ask(server, "http", "last", {"IN": [5]})["OUT"] == [5]


# ---- max_inflight_requests


def write_flood(root, fields):
    stages = {"many": Stage(root, "many", more=DECOUPLED, responses=12), "slow": Stage(root, "slow", more="instance_group [ { count: 6 kind: KIND_CPU } ]")}
    ensemble(root, "flood", X, Y, step("many", "IN=X", "OUT=M"), step("slow", "IN=M", "OUT=Y"), fields=fields)
    return stages


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_limit_holds_back_the_producer(tmp_path, limit):
    stages = write_flood(tmp_path, f"max_inflight_requests: {limit}" if limit else "")
    slow = stages["slow"]
    slow.shut("hold.execute")
    at_once = limit or 6
    with servers.Server(tmp_path, grpc=True) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            asked = pool.submit(pipelines.stream, server, pipelines.message_of("flood", {"X": ([1], [0])}))
            slow.await_reached("hold.execute", at_once)
        finally:
            slow.open("hold.execute")
        assert sorted(answer["Y"] for answer in asked.result()) == [[i] for i in range(12)]
    most = max(seen["inside"] for seen in slow.seen())
    assert most == at_once


# ---- CONCH_IF


WHEN = 'input [ { name: "WHEN" data_type: TYPE_BOOL dims: [ 1 ] } ]\n'


@pytest.fixture(scope="module")
def conditional(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    stages = {"a": Stage(root, "a", add=1), "b": Stage(root, "b", add=10), "choosy": Stage(root, "choosy", inputs=("IN", "MORE"), optional=("MORE",)),
              "needs": Stage(root, "needs")}
    repository.write_identity(root, "decides", [("BOOL", [1])])
    ensemble(root, "either", X, ("Y", "Z"), step("a", "IN=X CONCH_IF=WHEN", "OUT=Y"), step("b", "IN=X", "OUT=Z"), more=WHEN)
    ensemble(root, "then", X, Y, step("a", "IN=X CONCH_IF=WHEN", "OUT=M"), step("choosy", "IN=X MORE=M", "OUT=Y"), more=WHEN)
    ensemble(root, "behind", X, Y, step("decides", "INPUT0=WHEN", "OUTPUT0=M"), step("a", "IN=X CONCH_IF=M", "OUT=N"),
             step("choosy", "IN=X MORE=N", "OUT=Y"), more=WHEN)
    ensemble(root, "starves", X, Y, step("a", "IN=X CONCH_IF=WHEN", "OUT=M"), step("needs", "IN=M", "OUT=Y"), more=WHEN)
    with servers.Server(root) as server:
        yield server, stages


def ask_when(conditional, model, when, value=1):
    server, stages = conditional
    for stage in stages.values():
        stage.seen()
    document = {"inputs": [wire.given("X", "INT32", [1], [value]), wire.given("WHEN", "BOOL", [1], [when])]}
    return wire.infer(server, model, document)


def outputs(answer):
    return {one["name"]: one["data"] for one in answer.json()["outputs"]}


def test_a_step_runs_if_its_condition_is_true(conditional):
    assert outputs(ask_when(conditional, "either", True)) == {"Y": [2], "Z": [11]}
    assert outputs(ask_when(conditional, "either", False)) == {"Z": [11]}
    assert conditional[1]["a"].seen() == []


@pytest.mark.parametrize("model", ["then", "behind"])
def test_what_a_skipped_step_makes_is_absent(conditional, model):
    assert outputs(ask_when(conditional, model, True)) == {"Y": [3]}
    assert outputs(ask_when(conditional, model, False)) == {"Y": [1]}
    assert sorted(conditional[1]["choosy"].saw()["inputs"]) == ["IN"]


def test_a_step_that_needs_what_a_skipped_one_makes_is_an_error(conditional):
    answer = ask_when(conditional, "starves", False)
    assert answer.status == 400
    assert answer.error.startswith("in ensemble 'starves', [request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'needs'. ")
