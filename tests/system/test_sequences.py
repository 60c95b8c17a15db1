# SPDX-License-Identifier: Apache-2.0
"""Sequences as clients and backends see them (tests/plugins/sequence reports all that it gets): the same answers, error
texts and batches in our server and in the genuine Triton, by the C API, where requests arrive in a known order, and by
HTTP.

The genuine one does not stop while a sequence goes on, so each test ends the sequences that it has begun.
"""

import contextlib
import json
import pathlib
import re
import struct

import numpy
import pytest
import tritonclient.http as http
from onnx import helper
from tritonclient.utils import InferenceServerException

import embed
import onnx_models
import repository
import server as servers
import triton

BACKENDS = str(pathlib.Path(servers.BACKENDS).parent / "tests" / "backends")
LONG = "max_sequence_idle_microseconds: 60000000 "
CONTROLS = """control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
  { name: "END" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ -1, 3 ] } ] },
  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] },
  { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_%s } ] } ] """
NUMBERS = CONTROLS % "UINT64"
STATE = 'state [ { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ %s ] %s } ] '
ZEROS = 'initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } '
FROM_FILE = 'initial_state: { name: "i" data_type: TYPE_INT32 dims: [ 2 ] data_file: "two" }'


def config(batching, sequences, instances=1, **parameters):
    io = (repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "INT32", [1]) +
          repository.tensor("output", "SEEN", "BYTES", [1]))
    text = f'backend: "sequence"\nmax_batch_size: {batching}\n{io}'
    text += f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\nsequence_batching {{ {sequences} }}\n"
    for key, value in parameters.items():
        text += f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
    return text


def request(name, model, value, *settings, how="infer", shape="1,1", outputs="-"):
    return f"{how} {name} {model} -1 {outputs} IN:INT32:{shape}:{value} " + " ".join(f"@{text}" for text in settings)


def start(*words, **more):
    """A request that is not waited for: it is queued when the next one is sent."""
    return request(*words, how="start", **more)


def seen(lines, name):
    """(sum, [what the backend had in each position of the batch]), or how else the request ended. Types and shapes are
    left out: test_control_tensors_reach_the_backend tests them."""
    said = " ".join(embed.of(lines, name))
    found = re.fullmatch(r"response OUT:INT32:[0-9,]+:(-?\d+) SEEN:BYTES:[0-9,]+:(.*) final", said)
    if not found:
        return said.removesuffix(" final")
    return int(found[1]), re.sub(r":[A-Z0-9]+\[[0-9,]+\]", "", found[2]).split(" | ")


def place(corrid, value, flags=0, si=None):
    """What the backend has of a request, with all controls."""
    state = "" if si is None else f" SI={si}"
    return (f"CORRID={corrid} END={3 if flags & 2 else -1} IN={value} READY=1{state} START={flags & 1} flags={flags}")


EMPTY = "CORRID=0 END=-1 IN=? READY=0 START=0 flags=0"
EMPTY_WITH_STATE = "CORRID=0 END=-1 IN=? READY=0 SI=? START=0 flags=0"


@contextlib.contextmanager
def session(which, folder, models, **how):
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())
    root = folder / "models"
    for name, text in models.items():
        repository.write_model(root, name, text)
    (folder / "libraries").mkdir()
    with embed.Session(root, which=which, folder=folder / "libraries", backends=BACKENDS, **how) as running:
        yield running


MODELS = {
    "direct": config(4, LONG + NUMBERS),
    "flat": config(0, LONG + CONTROLS % "INT32"),
    "text": config(2, LONG + CONTROLS % "STRING"),
    "plain": config(1, LONG, instances=2),    # without READY a padding cannot be recognised
    "oldest": config(4, LONG + NUMBERS + "oldest { max_candidate_sequences: 4 }", keep="id"),
    "quick": config(0, "max_sequence_idle_microseconds: 100000 " + NUMBERS),
    "state": config(2, LONG + NUMBERS + STATE % (1, ZEROS), keep="state"),
    "in_place": config(1, LONG + NUMBERS + STATE % (1, ZEROS + "use_same_buffer_for_input_output: true"), keep="state"),
    "begun": config(0, LONG + NUMBERS + STATE % (2, FROM_FILE), keep="state", grow=1),
    "misuse": config(0, LONG + STATE % (1, ""), misuse=1),
    "stateless": config(0, LONG, misuse=1),
    "again": config(4, LONG + NUMBERS + "iterative_sequence: true", again=2),
}


@pytest.fixture(scope="module", params=["conch", "triton"])
def ask(request, tmp_path_factory):
    """Runs commands of embed with one of the servers, which all tests share."""
    folder = tmp_path_factory.mktemp("sequences")
    begun = folder / "models/begun"
    repository.write_model(folder / "models", "begun", MODELS["begun"])
    (begun / "initial_state").mkdir()
    (begun / "initial_state/two").write_bytes(struct.pack("<2i", 30, -4))
    others = {name: text for name, text in MODELS.items() if name != "begun"}
    with session(request.param, folder, others) as running:
        ask = running.do
        yield lambda *commands: ask(*commands)


def test_control_tensors_reach_the_backend(ask):
    lines = ask(request("a", "direct", 1, "id:5", "start"), request("b", "direct", 2, "id:5"),
                request("c", "direct", 3, "id:5", "end"), request("d", "direct", 4, "id:6", "start", "end"))
    assert [seen(lines, name) for name in "abcd"] == [
        (1, [place(5, 1, 1)]), (3, [place(5, 2)]), (6, [place(5, 3, 2)]), (4, [place(6, 4, 3)])]
    assert "CORRID:UINT64[1,1]=5 END:FP32[1,1]=-1 IN:INT32[1,1]=1 READY:BOOL[1,1]=1 START:INT32[1,1]=1" in lines[0]


def test_ids_are_numbers_cut_to_their_type_or_strings(ask):
    lines = ask(request("a", "flat", 1, f"id:{2**32 + 7}", "start", "end", shape=1),
                request("b", "text", 1, "name:hello", "start", "end"))
    assert "CORRID:INT32[1]=7 END:FP32[1]=3 IN:INT32[1]=1 READY:BOOL[1]=1 START:INT32[1]=1" in lines[0]
    assert "CORRID:BYTES[1,1]='hello'" in lines[1]


def test_wrong_requests_are_refused(ask):
    start = "must specify the START flag on the first request of the sequence"
    unnamed = "must specify a non-zero or non-empty correlation ID"
    lines = ask(request("a", "direct", 1, "id:5"), request("b", "plain", 1, "name:x", "end"),
                request("c", "direct", 1, "start"), request("d", "plain", 1, "name:", "start"),
                request("e", "direct", "1,2", "id:5", "start", shape="2,1"))
    assert [seen(lines, name) for name in "abcde"] == [
        f"refused Invalid argument: inference request for sequence 5 to model 'direct' {start}",
        f"refused Invalid argument: inference request for sequence x to model 'plain' {start}",
        f"refused Invalid argument: inference request to model 'direct' {unnamed}",
        f"refused Invalid argument: inference request to model 'plain' {unnamed}",
        "refused Invalid argument: inference request to model 'direct' must specify batch-size 1 due to requirements of "
        "sequence batcher"]


def test_numbers_and_strings_are_different_ids(ask):
    lines = ask(request("a", "plain", 1, "id:9", "start"), request("b", "plain", 5, "name:9"),
                request("c", "plain", 5, "name:9", "start", "end"), request("d", "plain", 2, "id:9", "end"))
    assert seen(lines, "b").endswith("must specify the START flag on the first request of the sequence")
    assert [seen(lines, name)[0] for name in "acd"] == [1, 5, 3]


def test_a_sequence_keeps_its_slot(ask):
    """A slot without a request in a batch is padded, up to the last slot that has one."""
    lines = ask(request("a", "direct", 1, "id:1", "start"), request("b", "direct", 2, "id:2", "start"),
                request("c", "direct", 3, "id:3", "start"), request("d", "direct", 4, "id:2", "end"),
                request("e", "direct", 5, "id:4", "start", "end"), request("f", "direct", 6, "id:1", "end"),
                request("g", "direct", 7, "id:3", "end"))
    assert [seen(lines, name) for name in "abcdefg"] == [
        (1, [place(1, 1, 1)]), (2, [EMPTY, place(2, 2, 1)]), (3, [EMPTY, EMPTY, place(3, 3, 1)]),
        (6, [EMPTY, place(2, 4, 2)]), (5, [EMPTY, place(4, 5, 3)]), (7, [place(1, 6, 2)]),
        (10, [EMPTY, EMPTY, place(3, 7, 2)])]


def test_a_second_start_keeps_the_slot(ask):
    lines = ask(request("a", "direct", 1, "id:1", "start"), request("b", "direct", 2, "id:1", "start"),
                request("c", "direct", 3, "id:1", "end"))
    assert [seen(lines, name) for name in "abc"] == [
        (1, [place(1, 1, 1)]), (2, [place(1, 2, 1)]), (5, [place(1, 3, 2)])]


def test_the_oldest_strategy_batches_one_request_per_sequence(ask):
    lines = ask(request("a", "oldest", 1, "id:1", "start"), request("b", "oldest", 2, "id:2", "start"),
                request("c", "oldest", 3, "id:1", "end"), request("d", "oldest", 4, "id:2", "end"))
    assert [seen(lines, name) for name in "abcd"] == [
        (1, [place(1, 1, 1)]), (2, [place(2, 2, 1)]), (4, [place(1, 3, 2)]), (6, [place(2, 4, 2)])]


def test_a_silent_sequence_loses_its_slot(ask):
    """There is one slot; the second sequence begins when the first one has been silent for long enough."""
    lines = ask(request("a", "quick", 1, "id:1", "start", shape=1),
                request("b", "quick", 2, "id:2", "start", "end", shape=1),
                request("c", "quick", 3, "id:1", "end", shape=1))
    assert (seen(lines, "a")[0], seen(lines, "b")[0]) == (1, 2)
    assert seen(lines, "c").endswith("must specify the START flag on the first request of the sequence")


def test_requests_wait_for_a_slot_until_their_limit(ask):
    lines = ask(request("a", "flat", 1, "id:1", "start", shape=1),
                start("b", "flat", 2, "id:2", "start", "timeout:60000000", shape=1),
                request("c", "flat", 3, "id:2", "timeout:20000", shape=1),
                request("d", "flat", 4, "id:2", shape=1), request("e", "flat", 5, "id:1", "end", shape=1))
    over = "error Unavailable: timeout of the corresponding sequence has been expired"
    assert [seen(lines, "b"), seen(lines, "c")] == [over, over]
    assert seen(lines, "d").endswith("must specify the START flag on the first request of the sequence")
    assert seen(lines, "e")[0] == 6


def test_a_cancelled_sequence_does_not_begin(ask):
    lines = ask(request("a", "flat", 1, "id:1", "start", shape=1), start("b", "flat", 2, "id:2", "start", shape=1),
                start("c", "flat", 3, "id:2", shape=1), start("d", "flat", 4, "id:3", "start", "end", shape=1), "cancel c",
                request("e", "flat", 5, "id:1", "end", shape=1), "wait d", request("f", "flat", 6, "id:2", shape=1))
    assert [seen(lines, name).split(":")[1:] for name in "bc"] == [[" "], [" "]]
    assert all("error" in seen(lines, name) for name in "bc")
    assert (seen(lines, "d")[0], seen(lines, "e")[0]) == (4, 6)
    assert seen(lines, "f").endswith("must specify the START flag on the first request of the sequence")


def test_an_implicit_state_belongs_to_its_sequence(ask):
    """A state begins with START, and belongs to the sequence alone. The state of a padding has the shape of the others."""
    lines = ask(request("a", "state", 1, "id:1", "start"), request("b", "state", 20, "id:2", "start"),
                request("c", "state", 2, "id:1"), request("d", "state", 30, "id:2", "end"),
                request("e", "state", 3, "id:1", "start"), request("f", "state", 4, "id:1", "end"),
                request("g", "state", 5, "id:1", "start", "end"))
    sums = [seen(lines, name) for name in "abcdefg"]
    assert sums == [
        (1, [place(1, 1, 1, 0)]), (20, [EMPTY_WITH_STATE, place(2, 20, 1, 0)]), (3, [place(1, 2, 0, 1)]),
        (50, [EMPTY_WITH_STATE, place(2, 30, 2, 20)]), (3, [place(1, 3, 1, 0)]), (7, [place(1, 4, 2, 3)]),
        (5, [place(1, 5, 3, 0)])]


def test_one_buffer_may_be_input_and_output_state(ask):
    lines = ask(request("a", "in_place", 1, "id:1", "start"), request("b", "in_place", 2, "id:1"),
                request("c", "in_place", 3, "id:1", "end"))
    assert [seen(lines, name)[0] for name in "abc"] == [1, 3, 6]


def test_a_state_may_begin_with_a_file_and_grow(ask):
    lines = ask(request("a", "begun", 1, "id:1", "start", shape=1), request("b", "begun", 2, "id:1", shape=1),
                request("c", "begun", 3, "id:1", "end", shape=1), request("d", "begun", 9, "id:1", "start", "end", shape=1))
    assert [seen(lines, name) for name in "abcd"] == [
        (27, [place(1, 1, 1, "30,-4")]), (29, [place(1, 2, 0, "30,-4,1")]), (32, [place(1, 3, 2, "30,-4,1,2")]),
        (35, [place(1, 9, 3, "30,-4")])]
    assert "SI:INT32[4]=" in lines[2]


def test_outputs_of_states_are_hidden(ask):
    lines = ask(request("a", "state", 1, "id:1", "start", outputs="OUT,SO"))
    assert "unexpected inference output 'SO' for model 'state'" in seen(lines, "a") and "'SO' INT32" not in seen(lines, "a")


def test_wrong_names_of_states_are_refused(ask):
    lines = ask(request("a", "misuse", 1, "id:1", "start", "end", shape=1),
                request("b", "stateless", 1, "id:1", "start", "end", shape=1))
    assert ("undefined: state 'undefined_state' is not a valid state name.; "
            "input's name: state 'SI' is not a valid state name.; ") in lines[0]
    assert ("undefined: unable to add state 'undefined_state'. State configuration is missing for model 'stateless'.; "
            "input's name: unable to add state 'SI'. State configuration is missing for model 'stateless'.; ") in lines[1]


def test_an_iterative_backend_reschedules_requests(ask):
    """The backend executes each request three times; a request without a sequence gets one."""
    lines = ask(request("a", "again", 1), request("b", "again", 2, "end"), request("c", "again", 3, "id:77", "start"),
                request("d", "again", 4, "id:77"))
    sums = [seen(lines, name) for name in "abc"]
    assert [got[0] for got in sums] == [3, 3, 3]
    assert [got[1][-1] for got in sums] == [place(1, 1), place(2, 2), place(77, 3)]
    assert seen(lines, "d").endswith("must specify the START flag on the first request of the sequence")


# ---- Batches of several: the reference's hooks delay them until all requests wait

SLOTS = {"slots": config(2, LONG + NUMBERS, instances=2)}


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_the_backlog_fills_the_slots_of_two_instances(which, tmp_path):
    commands = [start(f"a{k}", "slots", k, f"id:{k}", "start") for k in (1, 2, 3, 4)]
    commands += [start(f"b{k}", "slots", k, f"id:{k}", "start", "end") for k in (5, 6)]
    commands += [start(f"c{k}", "slots", 10 * k, f"id:{k}", "end") for k in (1, 2, 3, 4)]
    with session(which, tmp_path, SLOTS, env={"TRITONSERVER_DELAY_SCHEDULER": "8"}) as running:
        lines = running.do(*commands)
    got = {name: seen(lines, name) for name in ("a1", "a2", "a3", "a4", "b5", "b6", "c1", "c2", "c3", "c4")}
    assert {name: got[name][0] for name in got} == {
        "a1": 1, "a2": 2, "a3": 3, "a4": 4, "b5": 5, "b6": 6, "c1": 11, "c2": 22, "c3": 33, "c4": 44}
    batches = {tuple(got[name][1]) for name in got}
    # Each instance has every second sequence; the sequences of the backlog get slots of the instance that is free
    # first.
    first = sorted(batch for batch in batches if "START=1 flags=1" in batch[0])
    assert first in ([(place(1, 1, 1), place(3, 3, 1)), (place(2, 2, 1), place(4, 4, 1))],
                     [(place(1, 1, 1), place(2, 2, 1)), (place(3, 3, 1), place(4, 4, 1))])
    assert all(len(batch) == 2 for batch in batches if "START=1 flags=3" not in batch[0])


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_the_backlog_follows_in_its_order(which, tmp_path):
    """The last of these requests, in the backlog, releases all."""
    env = {"TRITONSERVER_DELAY_SCHEDULER": "4", "TRITONSERVER_BACKLOG_DELAY_SCHEDULER": "3"}
    with session(which, tmp_path, {"m": config(2, LONG + NUMBERS)}, env=env) as running:
        lines = running.do(
            start("a", "m", 1, "id:1", "start"), start("b", "m", 2, "id:2", "start"), start("c", "m", 3, "id:2"),
            start("d", "m", 4, "id:1", "end"), start("e", "m", 5, "id:5", "start"), start("f", "m", 6, "id:6", "start", "end"),
            start("g", "m", 7, "id:5", "end"), "wait a", start("h", "m", 8, "id:2", "end"))
    assert [seen(lines, name)[0] for name in "abcdefgh"] == [1, 2, 5, 5, 5, 6, 12, 13]
    assert seen(lines, "a")[1] == seen(lines, "b")[1] == [place(1, 1, 1), place(2, 2, 1)]
    assert seen(lines, "c")[1] == seen(lines, "d")[1] == [place(1, 4, 2), place(2, 3)]
    assert [seen(lines, name)[1][0] for name in "eg"] == [place(5, 5, 1), place(5, 7, 2)]


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_candidates_make_one_batch(which, tmp_path):
    models = {"m": config(8, LONG + NUMBERS + "oldest { max_candidate_sequences: 4 }", keep="id")}
    with session(which, tmp_path, models, env={"TRITONSERVER_DELAY_SCHEDULER": "3"}) as running:
        lines = running.do(start("a", "m", 1, "id:1", "start"), start("b", "m", 10, "id:1", "end"),
                           start("c", "m", 2, "id:2", "start"), start("d", "m", 3, "id:3", "start"))
        running.do(start("e", "m", 0, "id:2", "end"), start("f", "m", 0, "id:3", "end"))
    batch = [place(1, 1, 1), place(2, 2, 1), place(3, 3, 1)]
    assert [seen(lines, name) for name in "acd"] == [(1, batch), (2, batch), (3, batch)]
    assert seen(lines, "b") == (11, [place(1, 10, 2)])


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_paddings_are_not_counted(which, tmp_path):
    with session(which, tmp_path, {"m": config(4, LONG + NUMBERS)}) as running:
        running.do(request("a", "m", 1, "id:1", "start"), request("b", "m", 2, "id:2", "start"),
                   request("c", "m", 3, "id:2", "end"), request("d", "m", 4, "id:1", "end"))
        stats = json.loads(running.do("statistics m")[0])["model_stats"][0]
    assert (stats["inference_count"], stats["execution_count"]) == (4, 4)
    assert (stats["inference_stats"]["success"]["count"], stats["inference_stats"]["fail"]["count"]) == (4, 0)
    assert [(size["batch_size"], size["compute_infer"]["count"]) for size in stats["batch_stats"]] == [(1, 2), (2, 2)]


# ---- ONNX models: more in test_onnx_states

def write_list(root, *outputs):
    """The model's next SI is its SI followed by IN."""
    io = repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "INT32", [-1])
    folder = repository.write_model(root, "list", f'backend: "onnxruntime"\n{io}sequence_batching {{ {LONG}{STATE % (-1, ZEROS)} }}\n'
                                    "instance_group [ { count: 1 kind: KIND_CPU } ]\n")
    onnx_models.write(folder, [onnx_models.tensor("IN", "INT32", [1]), onnx_models.tensor("SI", "INT32", ["n"])],
                      [onnx_models.tensor(name, "INT32", ["m"]) for name in outputs],
                      [helper.make_node("Concat", ["SI", "IN"], [name], axis=0) for name in outputs])


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_a_state_of_an_onnx_model_grows(which, tmp_path):
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())
    write_list(tmp_path / "models", "OUT", "SO")
    (tmp_path / "libraries").mkdir()
    with embed.Session(tmp_path / "models", which=which, folder=tmp_path / "libraries") as running:
        lines = running.do(request("a", "list", 7, "id:1", "start", shape=1), request("b", "list", 8, "id:1", shape=1),
                           request("c", "list", 9, "id:1", "end", shape=1), request("d", "list", 5, "id:1", "start", "end", shape=1))
    assert lines == ["a response OUT:INT32:2:0,7 final", "b response OUT:INT32:3:0,7,8 final",
                     "c response OUT:INT32:4:0,7,8,9 final", "d response OUT:INT32:2:0,5 final"]


def test_a_state_missing_in_an_onnx_model_fails_the_load(tmp_path):
    write_list(tmp_path, "OUT")
    with servers.Server(tmp_path, flags=["--exit-on-error=false"], ready=False) as running:
        assert re.search("list.*'SO'", running.log())


# ---- By HTTP, as tritonclient has it

@pytest.mark.parametrize("which", ["conch", "triton"])
def test_tritonclient_sends_sequences(which, tmp_path, monkeypatch):
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())
    monkeypatch.setattr(servers, "BACKENDS", BACKENDS)
    repository.write_model(tmp_path, "m", config(4, LONG + NUMBERS))
    repository.write_model(tmp_path, "t", config(4, LONG))
    with {"conch": servers.Server, "triton": triton.Triton}[which](tmp_path) as running:
        with contextlib.closing(http.InferenceServerClient(running.url)) as client:

            def infer(model, value, sequence, **flags):
                tensor = http.InferInput("IN", [1, 1], "INT32")
                tensor.set_data_from_numpy(numpy.array([[value]], "int32"))
                return client.infer(model, [tensor], sequence_id=sequence, **flags).as_numpy("OUT").item()

            assert [infer("m", 1, 42, sequence_start=True), infer("m", 2, 42), infer("m", 3, 42, sequence_end=True)] == [1, 3, 6]
            assert [infer("t", 1, "name", sequence_start=True), infer("t", 2, "name", sequence_end=True)] == [1, 3]
            text = "inference request for sequence 42 to model 'm' must specify the START flag"
            with pytest.raises(InferenceServerException, match=text) as error:
                infer("m", 3, 42)
            assert error.value.status() == "400"


# ---- Conch only

@pytest.fixture
def conch(monkeypatch):
    monkeypatch.setattr(servers, "BACKENDS", BACKENDS)
    return servers.Server


def test_the_kind_of_an_id_must_fit_the_control(tmp_path):
    """Releases of the reference after 2.51 refuse that, too; 2.51 gives the backend whatever its memory has."""
    with session("conch", tmp_path, {"m": MODELS["flat"], "t": MODELS["text"]}) as running:
        lines = running.do(request("a", "m", 1, "name:x", "start", shape=1), request("b", "t", 1, "id:1", "start"))
    text = "sequence batching control 'CORRID' data-type is '{}', but model '{}' expects '{}'"
    assert seen(lines, "a").endswith(text.format("BYTES", "m", "INT32"))
    assert seen(lines, "b").endswith(text.format("UINT64", "t", "BYTES"))


def test_a_reloaded_model_knows_no_sequence(tmp_path):
    models = {"m": config(0, LONG + NUMBERS + STATE % (1, ""), keep="state")}
    with session("conch", tmp_path, models, options=("explicit", "m")) as running:
        one, two, three = (request(name, "m", 1, "id:1", *flags, shape=1)
                           for name, flags in (("a", ["start"]), ("b", []), ("c", ["start", "end"])))
        lines = running.do(one, start("d", "m", 2, "id:2", "start", shape=1), "unload m", "load m", two, three)
    assert (seen(lines, "a")[0], seen(lines, "d")[0], seen(lines, "c")[0]) == (1, 2, 1)
    assert seen(lines, "b").endswith("must specify the START flag on the first request of the sequence")


def test_a_warm_up_may_have_control_tensors(tmp_path, conch):
    warm = ('model_warmup [ { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_INT32 dims: [1] '
            'zero_data: true } } inputs { key: "START" value { data_type: TYPE_INT32 dims: [1] zero_data: true } } } ]\n')
    repository.write_model(tmp_path, "m", config(4, LONG + NUMBERS) + warm)
    with conch(tmp_path) as running:
        assert "does not declare" not in running.log()


def test_a_device_blocking_sequence_model_is_logged(tmp_path, conch):
    text = ('backend: "witness"\n' + repository.tensor("input", "IN", "INT32", [1]) +
            repository.tensor("output", "OUT", "BYTES", [1]) + f"sequence_batching {{ {LONG} }}\n")
    repository.write_model(tmp_path, "m", text)
    with conch(tmp_path, flags=["--backend-config=witness,device-blocking=1"]) as running:
        running.wait_log("model 'm': its backend wants one instance at a time to execute")


@pytest.mark.parametrize("content, why", [
    (b"1234567", "initial_state setting expects 8 bytes, but the data provided from two only has 7 bytes."),
    (None, "initial_state of state input 'SI': .*initial_state/two"),
])
def test_an_unreadable_initial_state_fails_the_load(tmp_path, conch, content, why):
    folder = repository.write_model(tmp_path, "begun", MODELS["begun"])
    if content:
        (folder / "initial_state").mkdir()
        (folder / "initial_state/two").write_bytes(content)
    with conch(tmp_path, flags=["--exit-on-error=false"], ready=False) as running:
        assert re.search(why, running.log())


def test_fields_that_need_a_gpu_are_refused_by_name(tmp_path, conch):
    repository.write_model(tmp_path, "m", config(4, STATE % (1, "use_growable_memory: true")))
    with conch(tmp_path, flags=["--exit-on-error=false"], ready=False) as running:
        assert "field 'sequence_batching.state.use_growable_memory' is not supported yet by Conch" in running.log()
