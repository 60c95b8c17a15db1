# SPDX-License-Identifier: Apache-2.0
"""What the steps of an ensemble get of its request, and what its response has of theirs (reference/behaviours §12.2), in both
servers, over HTTP and gRPC; sequence models as steps (reference/behaviours §11.1)."""

import concurrent.futures
import shutil

import pytest

import pipelines
import repository
import server as servers
import triton
from pipelines import THREE, Stage, ensemble, step

SEQUENCE = servers.BUILD / "tests/backends/sequence/libtriton_sequence.so"
READY = """control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] } ]"""
STRATEGIES = {"direct": "direct { }", "oldest": "oldest { max_candidate_sequences: 4 }"}


def write_adder(root, name, strategy, keep, batch=4):
    """A model that adds up the values of a sequence (tests/plugins/sequence)."""
    text = f'backend: "sequence"\nmax_batch_size: {batch}\n' + pipelines.tensors("input", [("IN", [1])])
    text += pipelines.tensors("output", [("OUT", [1])]) + repository.tensor("output", "SEEN", "BYTES", [1])
    text += f'instance_group [ {{ count: 1 kind: KIND_CPU }} ]\nparameters {{ key: "keep" value: {{ string_value: "{keep}" }} }}\n'
    text += f"sequence_batching {{ max_sequence_idle_microseconds: 600000000 {READY} {strategy} }}\n"
    shutil.copy(SEQUENCE, repository.write_model(root, name, text))


def write_models(root):
    ranked = "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 2 value { max_queue_size: 1 } } }"
    one = {"inputs": (("IN", [1]),), "outputs": (("OUT", [1]),), "batch": 4}
    stages = [
        Stage(root, "a"), Stage(root, "b"), Stage(root, "a1", **one, add=1),
        Stage(root, "renames", sequence_id=42, sequence_start="false", sequence_end="true"),
        Stage(root, "names", sequence_id="by name"),
        Stage(root, "begins", sequence_start="true"),
        Stage(root, "ranked", batch=1, inputs=(("IN", [1]),), outputs=(("OUT", [1]),), more=ranked),
    ]
    for name, strategy in STRATEGIES.items():
        write_adder(root, name, strategy, "place" if name == "direct" else "id")
        ensemble(root, f"of_{name}", (("X", [1]),), (("Y", [1]),), step("a1", "IN=X", "OUT=M"), step(name, "IN=M", "OUT=N"),
                 step("a1", "IN=N", "OUT=Y"), batch=4)
    ensemble(root, "nested", (("X", [1]),), (("Y", [1]),), step("of_direct", "X=X", "Y=Y"), batch=4)
    ensemble(root, "both", (("X", [1]),), (("Y", [1]), ("Z", [1])), step("direct", "IN=X", "OUT=Y"), step("oldest", "IN=X", "OUT=Z"),
             batch=4)
    ensemble(root, "chain", ("X",), ("Y",), step("a", "IN=X", "OUT=M"), step("b", "IN=M", "OUT=Y"))
    for name in ("renames", "names", "begins"):
        ensemble(root, f"{name}_then", ("X",), ("Y",), step(name, "IN=X", "OUT=M"), step("b", "IN=M", "OUT=Y"))
    ensemble(root, "renames_last", ("X",), ("Y",), step("b", "IN=X", "OUT=M"), step("renames", "IN=M", "OUT=Y"))
    ensemble(root, "prefers", (("X", [1]),), (("Y", [1]),), step("ranked", "IN=X", "OUT=Y"), batch=1)
    return {stage.name: stage for stage in stages}


# ---- What a step gets


def test_each_step_gets_the_properties_of_the_request(ask, stages):
    parameters = {"colour": "red", "size": 3, "fine": True, "share": 0.5}
    answer = ask("chain", {"X": [1]}, id="r1", sequence_id=7, sequence_start=True, timeout=60000000, **parameters)
    assert (answer.id, answer.parameters) == ("r1", {"sequence_id": 7, "sequence_start": True, "sequence_end": False})
    for name in ("a", "b"):
        seen = stages[name].saw()
        assert (seen["id"], seen["correlation"], seen["flags"], seen["timeout"]) == ("r1", 7, 1, 60000000)
        assert seen["parameters"] == parameters


def test_a_sequence_may_have_a_name(ask, stages):
    answer = ask("chain", {"X": [1]}, sequence_id="seq-1", sequence_end=True)
    assert answer.parameters == {"sequence_id": "seq-1", "sequence_start": False, "sequence_end": True}
    for name in ("a", "b"):
        seen = stages[name].saw()
        assert (seen["correlation"], seen["flags"]) == ("seq-1", 2)


def test_a_bare_request_has_nothing_of_all_that(ask, stages):
    answer = ask("chain", {"X": [1]})
    assert (answer.id, answer.parameters) == ("", THREE)
    for name in ("a", "b"):
        seen = stages[name].saw()
        assert (seen["id"], seen["correlation"], seen["flags"], seen["timeout"], seen["parameters"]) == ("", 0, 0, 0, {})


def test_the_priority_reaches_the_queue_of_the_step(ask, stages):
    """While the step's model is busy, requests of the lower level are refused as soon as one waits; those of the higher
    level all wait."""
    slow = stages["ranked"]
    slow.shut("hold.execute")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        lower = [pool.submit(ask, "prefers", {"X": ([1, 1], [1])}, priority=2) for _ in range(8)]
        try:
            servers.wait_for(lambda: any(one.done() for one in lower), 60, "one is refused")
            higher = [pool.submit(ask, "prefers", {"X": ([1, 1], [1])}, priority=1) for _ in range(8)]
        finally:
            slow.open("hold.execute")
        assert {one.result().code for one in higher} == {"OK"}
        refused = [one.result() for one in lower if one.result().code != "OK"]
    assert {(one.code, one.error) for one in refused} == {
        ("UNAVAILABLE", "in ensemble 'prefers', [request id: <id_unknown>] Exceeds maximum queue size")}


# ---- What a step says about the sequence


@pytest.mark.parametrize("model, correlation, flags", [("renames_then", 42, 2), ("begins_then", 7, 1)])
def test_a_step_may_change_the_sequence_for_the_steps_behind_it(ask, stages, model, correlation, flags):
    answer = ask(model, {"X": [1]}, sequence_id=7)
    seen = stages["b"].saw()
    assert (seen["correlation"], seen["flags"]) == (correlation, flags)
    assert answer.parameters == {"sequence_id": correlation, "sequence_start": bool(flags & 1), "sequence_end": bool(flags & 2)}


def test_a_step_may_name_the_sequence(ask, stages, running):
    """docs/compatibility.md: the reference takes the address of the name for the name, and dies of it."""
    if isinstance(running[0], triton.Triton):
        pytest.skip("the reference dies of a sequence_id that is a text")
    answer = ask("names_then", {"X": [1]}, sequence_id="other")
    assert stages["b"].saw()["correlation"] == "by name"
    assert answer.parameters == {"sequence_id": "by name", "sequence_start": False, "sequence_end": False}


def test_the_last_step_changes_the_response(ask, stages):
    answer = ask("renames_last", {"X": [1]}, sequence_id=7, sequence_start=True)
    assert (stages["b"].saw()["correlation"], stages["renames"].saw()["correlation"]) == (7, 7)
    assert answer.parameters == {"sequence_id": 42, "sequence_start": False, "sequence_end": True}


# ---- Sequence models as steps


def number():
    """A correlation id that no other test has used."""
    number.last += 1
    return number.last


number.last = 100


@pytest.mark.parametrize("model", ["of_direct", "of_oldest", "nested"])
def test_a_sequence_model_may_be_a_step(ask, model):
    """Two sequences, request by request: a step of the ensemble keeps a sum for each. Each value is one more when it gets
    there, and the sum one more when it leaves."""
    sums, ids = {}, [number(), number()]
    for i, value in enumerate([5, 7, 11]):
        for one in ids:
            sums[one] = sums.get(one, 0) + value + one + 1
            answer = ask(model, {"X": ([1, 1], [value + one])}, sequence_id=one, sequence_start=i == 0, sequence_end=i == 2)
            assert answer["Y"] == [sums[one] + 1]
            assert answer.parameters == {"sequence_id": one, "sequence_start": i == 0, "sequence_end": i == 2}


def test_two_sequence_models_may_be_steps(ask):
    one = number()
    for i, value in enumerate([5, 7]):
        answer = ask("both", {"X": ([1, 1], [value])}, sequence_id=one, sequence_start=i == 0, sequence_end=i == 1)
        assert answer.outputs == {"Y": ([1, 1], [[5, 12][i]]), "Z": ([1, 1], [[5, 12][i]])}


@pytest.mark.parametrize("name", STRATEGIES)
def test_wrong_requests_of_a_sequence_are_refused(ask, name):
    model, of = f"of_{name}", f"in ensemble 'of_{name}', inference request"
    assert refusal(ask(model, {"X": ([1, 1], [1])}, sequence_id=99)) == (
        f"{of} for sequence 99 to model '{name}' must specify the START flag on the first request of the sequence")
    assert refusal(ask(model, {"X": ([1, 1], [1])}, sequence_id="who", id="i")) == (
        f"{of} for sequence who to model '{name}' must specify the START flag on the first request of the sequence")
    assert refusal(ask(model, {"X": ([1, 1], [1])}, sequence_start=True)) == (
        f"{of} to model '{name}' must specify a non-zero or non-empty correlation ID")
    assert refusal(ask(model, {"X": ([2, 1], [1, 2])}, sequence_id=5, sequence_start=True)) == (
        f"{of} to model '{name}' must specify batch-size 1 due to requirements of sequence batcher")


def test_an_error_of_a_sequence_names_all_ensembles_around(ask):
    assert refusal(ask("nested", {"X": ([1, 1], [1])}, sequence_id=98)) == (
        "in ensemble 'nested', in ensemble 'of_direct', inference request for sequence 98 to model 'direct' must specify the "
        "START flag on the first request of the sequence")


def refusal(answer):
    assert answer.code == "INVALID_ARGUMENT", answer
    return answer.error
