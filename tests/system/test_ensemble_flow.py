# SPDX-License-Identifier: Apache-2.0
"""How data flows through an ensemble (reference/behaviours §12.1, 12.3, 12.5, 12.13), in both servers, over HTTP and gRPC. The
models of the steps tell what they were given (tests/plugins/stage)."""

import random

import pytest

import pipelines
import repository
import triton
import wire
from pipelines import THREE, Stage, ensemble, step

X, Y = ("X",), ("Y",)
ADD = "IN=%s OUT=%s"


def write_models(root):
    stages = [
        *(Stage(root, f"add{n}", add=n, more=more) for n, more in ((1, ""), (10, "instance_group [ { count: 2 kind: KIND_CPU } ]"), (100, ""))),
        Stage(root, "unused", add=7),
        Stage(root, "sum", inputs=("A", "B")),
        Stage(root, "fork", outputs=("L", "R")),
        Stage(root, "half", outputs=("L", "R"), leave_out="R"),
        Stage(root, "nothing", outputs=("L",), leave_out="L"),
        Stage(root, "choosy", inputs=("IN", "MORE"), optional=("MORE",)),
        Stage(root, "easy", inputs=("MORE",), optional=("MORE",), add=5),
        Stage(root, "longer", longer=2),
        Stage(root, "four", inputs=(("IN", [2]),), outputs=(("OUT", [2]),), batch=4),
        Stage(root, "two", inputs=(("IN", [2]),), outputs=(("OUT", [2]),)),
        Stage(root, "rows", inputs=(("IN", [-1, 2]),), outputs=(("OUT", [-1, 2]),)),
        Stage(root, "square", inputs=(("IN", [4]),), outputs=(("OUT", [2, 2]),), more="").folder,
    ]
    square = root / "square/config.pbtxt"
    square.write_text(square.read_text().replace("dims: [ 4 ]", "dims: [ 4 ] reshape: { shape: [ 2, 2 ] }"))

    chain = [step("add1", "IN=X", "OUT=M"), step("add10", "IN=M", "OUT=N"), step("add100", "IN=N", "OUT=Y")]
    ensemble(root, "chain", X, Y, *chain)
    ensemble(root, "mixed_up", X, Y, *reversed(chain))
    ensemble(root, "again", X, Y, *(step("add1", f"IN={a}", f"OUT={b}") for a, b in ("XM", "MN", "NY")))
    ensemble(root, "long", X, Y, *(step("add1", f"IN={'X' if i == 0 else f't{i}'}", f"OUT={'Y' if i == 49 else f't{i + 1}'}")
                                   for i in range(50)))
    ensemble(root, "diamond", X, Y, step("fork", "IN=X", "L=L R=R"), step("add1", "IN=L", "OUT=A"),
             step("add10", "IN=R", "OUT=B"), step("sum", "A=A B=B", "OUT=Y"))
    ensemble(root, "fan_out", X, ("A", "B", "C"), step("add1", "IN=X", "OUT=A"), step("add10", "IN=X", "OUT=B"),
             step("add100", "IN=X", "OUT=C"))
    ensemble(root, "twice", X, Y, step("sum", "A=X B=X", "OUT=Y"))
    ensemble(root, "joined", ("X", "Z"), Y, step("sum", "A=X B=Z", "OUT=Y"))
    ensemble(root, "seen", X, ("M", "Y"), step("add1", "IN=X", "OUT=M"), step("add10", "IN=M", "OUT=Y"))
    ensemble(root, "branches", X, ("Y", "Z"), step("add1", "IN=X", "OUT=Y"), step("add10", "IN=X", "OUT=M"),
             step("unused", "IN=M", "OUT=Z"))
    ensemble(root, "left", X, Y, step("fork", "IN=X", "L=Y"))
    ensemble(root, "may_lack", ("X", "MORE"), Y, step("choosy", "IN=X MORE=MORE", "OUT=Y"), optional=("MORE",))
    ensemble(root, "all_optional", ("MORE",), Y, step("easy", "MORE=MORE", "OUT=Y"), optional=("MORE",))
    ensemble(root, "must_have", ("X", "MORE"), Y, step("sum", "A=X B=MORE", "OUT=Y"), optional=("MORE",))
    ensemble(root, "halved", X, ("L", "R"), step("half", "IN=X", "L=L R=R"))
    ensemble(root, "halved_then", X, Y, step("half", "IN=X", "L=L R=R"), step("choosy", "IN=L MORE=R", "OUT=Y"))
    ensemble(root, "from_nothing", X, ("L", "Y"), step("nothing", "IN=X", "L=L"), step("easy", "MORE=L", "OUT=Y"))
    ensemble(root, "only_nothing", X, ("L",), step("nothing", "IN=X", "L=L"))
    ensemble(root, "grown", X, Y, step("longer", "IN=X", "OUT=M"), step("longer", "IN=M", "OUT=Y"))
    two, rows = (("X", [2]),), (("X", [-1, 2]),)
    to_two, to_rows = (("Y", [2]),), (("Y", [-1, 2]),)
    ensemble(root, "batching", two, to_two, step("four", "IN=X", "OUT=M"), step("four", "IN=M", "OUT=Y"), batch=4)
    ensemble(root, "smaller", two, to_two, step("four", "IN=X", "OUT=Y"), batch=2)
    ensemble(root, "rows_in_batch", two, to_two, step("four", "IN=X", "OUT=M"), step("rows", "IN=M", "OUT=Y"), batch=4)
    ensemble(root, "two_in_batch", two, to_two, step("four", "IN=X", "OUT=M"), step("two", "IN=M", "OUT=Y"), batch=4)
    ensemble(root, "batch_in_rows", rows, to_rows, step("rows", "IN=X", "OUT=M"), step("four", "IN=M", "OUT=Y"))
    ensemble(root, "batch_in_two", two, to_two, step("two", "IN=X", "OUT=M"), step("four", "IN=M", "OUT=Y"))
    ensemble(root, "reshaped", (("X", [4]),), (("Y", [2, 2]),), step("square", "IN=X", "OUT=Y"))
    ensemble(root, "inner", X, Y, step("chain", "X=X", "Y=M"), step("fan_out", "X=M", "B=Y"))
    ensemble(root, "outer", X, ("Y", "Z"), step("inner", "X=X", "Y=M"), step("diamond", "X=M", "Y=Y"), step("chain", "X=M", "Y=Z"))
    for datatype in ("BYTES", "FP32"):
        repository.write_identity(root, f"same_{datatype.lower()}", [(datatype, [-1])])
        text = f'platform: "ensemble"\n{repository.tensor("input", "X", datatype, [-1])}{repository.tensor("output", "Y", datatype, [-1])}'
        steps = ", ".join(step(f"same_{datatype.lower()}", f"INPUT0={a}", f"OUTPUT0={b}") for a, b in ("XM", "MN", "NY"))
        repository.write_model(root, f"all_{datatype.lower()}", f"{text}ensemble_scheduling {{ step [ {steps} ] }}\n")
    return {stage.name: stage for stage in stages if isinstance(stage, Stage)}


# ---- Steps run when their inputs are there (reference/behaviours §12.1)


@pytest.mark.parametrize("model", ["chain", "mixed_up"])
def test_a_chain_runs_its_steps_in_the_order_of_the_data(ask, stages, model):
    answer = ask(model, {"X": [1, 2, 3]}, id="a")
    assert (answer.outputs, answer.id, answer.model, answer.version) == ({"Y": ([3], [112, 113, 114])}, "a", model, "1")
    assert answer.parameters == THREE
    assert [stages[name].saw()["inputs"]["IN"] for name in ("add1", "add10", "add100")] == [
        [[3], [1, 2, 3]], [[3], [2, 3, 4]], [[3], [12, 13, 14]]]


def test_a_model_may_be_several_steps(ask, stages):
    assert ask("again", {"X": [5]})["Y"] == [8]
    assert [seen["inputs"]["IN"][1] for seen in stages["add1"].seen()] == [[5], [6], [7]]


def test_fifty_steps_follow_each_other(ask, stages):
    assert ask("long", {"X": [0, 1]})["Y"] == [50, 51]
    assert len(stages["add1"].seen()) == 50


def test_a_step_waits_for_all_its_inputs(ask, stages):
    assert ask("diamond", {"X": [1, 2]})["Y"] == [1013, 1015]
    assert stages["sum"].saw()["inputs"] == {"A": [[2], [2, 3]], "B": [[2], [1011, 1012]]}


def test_a_tensor_may_have_many_readers(ask):
    answer = ask("fan_out", {"X": [1]})
    assert answer.outputs == {"A": ([1], [2]), "B": ([1], [11]), "C": ([1], [101])}


def test_a_step_may_read_a_tensor_twice(ask, stages):
    assert ask("twice", {"X": [21]})["Y"] == [42]
    assert stages["sum"].saw()["inputs"] == {"A": [[1], [21]], "B": [[1], [21]]}


def test_a_step_may_read_several_inputs_of_the_ensemble(ask):
    assert ask("joined", {"X": [1, 2], "Z": [30, 40]})["Y"] == [31, 42]
    assert ask("joined", {"Z": [30, 40], "X": [1, 2]})["Y"] == [31, 42]


def test_an_output_may_be_read_by_a_step(ask):
    assert ask("seen", {"X": [1]}).outputs == {"M": ([1], [2]), "Y": ([1], [12])}


def test_tensors_without_elements_travel_too(ask, stages):
    assert ask("chain", {"X": []}).outputs == {"Y": ([0], [])}
    assert stages["add100"].saw()["inputs"] == {"IN": [[0], []]}


def test_the_size_of_a_tensor_may_change_on_the_way(ask):
    assert ask("grown", {"X": [1]}).outputs == {"Y": ([5], [1] * 5)}


def test_many_requests_do_not_mix(ask, running):
    """In turn: what one leaves behind would be seen by the next."""
    chance = random.Random(7)
    for _ in range(40):
        data = [chance.randrange(1000) for _ in range(chance.randrange(1, 50))]
        assert ask("diamond", {"X": data})["Y"] == [2 * value + 1011 for value in data]


@pytest.mark.parametrize("datatype, data", [("BYTES", ["", "a", "é 漢字", "x" * 3000]), ("FP32", [0.5, -1.25, 32768.0])])
def test_all_types_travel(running, datatype, data):
    document = {"inputs": [wire.given("X", datatype, [len(data)], data)]}
    answer = wire.infer(running[0], f"all_{datatype.lower()}", document).json()
    assert answer["outputs"] == [{"name": "Y", "datatype": datatype, "shape": [len(data)], "data": data}]


# ---- What nobody needs is left out (reference/behaviours §12.1)


def test_steps_that_no_requested_output_needs_are_left_out(ask, stages):
    assert ask("branches", {"X": [1]}, ["Y"]).outputs == {"Y": ([1], [2])}
    assert (len(stages["add1"].seen()), stages["add10"].seen(), stages["unused"].seen()) == (1, [], [])
    assert ask("branches", {"X": [1]}, ["Z"]).outputs == {"Z": ([1], [18])}
    assert (stages["add1"].seen(), len(stages["add10"].seen()), len(stages["unused"].seen())) == ([], 1, 1)
    assert ask("branches", {"X": [1]}, ["Z", "Y"]).outputs == {"Y": ([1], [2]), "Z": ([1], [18])}


def test_an_output_that_a_step_reads_may_be_requested_alone_or_not_at_all(ask, stages, running):
    """docs/compatibility.md: the reference leaves out the step that makes it in both cases, and finds that nothing can go on."""
    middle, last = ask("seen", {"X": [1]}, ["M"]), ask("seen", {"X": [1]}, ["Y"])
    if isinstance(running[0], triton.Triton):
        for answer in (middle, last):
            assert (answer.code, answer.error) == (
                "INVALID_ARGUMENT", "in ensemble 'seen', [request id: <id_unknown>] unexpected deadlock, at least one output is not "
                "set while no more ensemble steps can be made")
    else:
        assert (middle.outputs, last.outputs) == ({"M": ([1], [2])}, {"Y": ([1], [12])})
        assert [seen["inputs"]["IN"][1] for seen in stages["add10"].seen()] == [[2]]


def test_a_step_is_asked_for_the_outputs_that_are_mapped(ask, stages):
    assert ask("left", {"X": [1]})["Y"] == [1]
    assert stages["fork"].saw()["outputs"] == ["L"]


def test_one_of_two_outputs_of_a_step_may_be_requested(ask, stages):
    assert ask("fan_out", {"X": [1]}, ["B"]).outputs == {"B": ([1], [11])}
    assert stages["add1"].seen() == stages["add100"].seen() == []


# ---- What is absent (reference/behaviours §12.5)


def test_an_absent_optional_input_is_absent_for_its_step(ask, stages):
    assert ask("may_lack", {"X": [1], "MORE": [4]})["Y"] == [5]
    assert ask("may_lack", {"X": [1]})["Y"] == [1]
    assert [sorted(seen["inputs"]) for seen in stages["choosy"].seen()] == [["IN", "MORE"], ["IN"]]


def test_all_inputs_may_be_optional(ask, stages):
    assert ask("all_optional", {"MORE": [1]})["Y"] == [6]
    assert ask("all_optional", {})["Y"] == [5]


def test_an_absent_input_that_a_step_needs_is_an_error(ask):
    answer = ask("must_have", {"X": [1]}, id="r")
    assert (answer.code, answer.error) == ("INVALID_ARGUMENT", (
        "in ensemble 'must_have', [request id: r] expected 2 inputs but got 1 inputs for model 'sum'. Got input(s) ['A'], but "
        "missing required input(s) ['B']. Please provide all required input(s)."))


def test_an_output_that_was_not_made_is_omitted(ask):
    assert ask("halved", {"X": [1]}).outputs == {"L": ([1], [1])}


def test_an_output_that_was_not_made_is_an_absent_input(ask, stages):
    assert ask("halved_then", {"X": [1]})["Y"] == [1]
    assert sorted(stages["choosy"].saw()["inputs"]) == ["IN"]


def test_a_step_without_any_input_runs(ask, stages):
    assert ask("from_nothing", {"X": [1]}).outputs == {"Y": ([1], [5])}
    assert stages["easy"].saw()["inputs"] == {}


def test_a_response_may_have_no_output(ask):
    answer = ask("only_nothing", {"X": [1]})
    assert (answer.code, answer.outputs) == ("OK", {})


# ---- Batches (reference/behaviours §12.3)


def test_batches_pass_through(ask, stages):
    answer = ask("batching", {"X": ([3, 2], [1, 2, 3, 4, 5, 6])})
    assert answer.outputs == {"Y": ([3, 2], [1, 2, 3, 4, 5, 6])}
    assert [seen["inputs"]["IN"][0] for seen in stages["four"].seen()] == [[3, 2], [3, 2]]


def test_a_batch_is_bounded_by_the_ensemble(ask):
    answer = ask("smaller", {"X": ([3, 2], [0] * 6)})
    assert (answer.code, answer.error) == ("INVALID_ARGUMENT", "[request id: <id_unknown>] inference request batch-size must be <= 2 for 'smaller'")


def test_a_model_without_batches_takes_a_whole_batch(ask, stages):
    answer = ask("rows_in_batch", {"X": ([3, 2], [1, 2, 3, 4, 5, 6])})
    assert answer.outputs == {"Y": ([3, 2], [1, 2, 3, 4, 5, 6])}
    assert stages["rows"].saw()["inputs"]["IN"][0] == [3, 2]


def test_a_batch_of_one_loses_its_dimension_for_a_model_without_batches(ask, stages):
    answer = ask("two_in_batch", {"X": ([1, 2], [1, 2])})
    assert answer.outputs == {"Y": ([1, 2], [1, 2])}
    assert stages["two"].saw()["inputs"]["IN"][0] == [2]


def test_a_larger_batch_does_not_fit_a_model_without_batches(ask):
    answer = ask("two_in_batch", {"X": ([2, 2], [1, 2, 3, 4])})
    assert answer.code == "INVALID_ARGUMENT"
    assert answer.error == "in ensemble 'two_in_batch', [request id: <id_unknown>] unexpected shape for input 'IN' for model 'two'. Expected [2], got [2,2]. "


def test_rows_are_a_batch_for_a_model_with_batches(ask, stages):
    answer = ask("batch_in_rows", {"X": ([3, 2], [1, 2, 3, 4, 5, 6])})
    assert answer.outputs == {"Y": ([3, 2], [1, 2, 3, 4, 5, 6])}
    assert stages["four"].saw()["inputs"]["IN"][0] == [3, 2]


def test_rows_of_more_than_a_batch_are_refused(ask):
    answer = ask("batch_in_rows", {"X": ([5, 2], [0] * 10)})
    assert answer.code == "INVALID_ARGUMENT"
    assert answer.error == "in ensemble 'batch_in_rows', [request id: <id_unknown>] inference request batch-size must be <= 4 for 'four'"


def test_a_tensor_without_batch_becomes_a_batch_of_one(ask, stages):
    answer = ask("batch_in_two", {"X": ([2], [1, 2])})
    assert answer.outputs == {"Y": ([2], [1, 2])}
    assert stages["four"].saw()["inputs"]["IN"][0] == [1, 2]


def test_a_reshape_of_a_step_is_applied(ask, stages):
    assert ask("reshaped", {"X": ([4], [1, 2, 3, 4])}).outputs == {"Y": ([2, 2], [1, 2, 3, 4])}


# ---- Ensembles of ensembles


def test_an_ensemble_may_be_a_step(ask, stages):
    assert ask("inner", {"X": [1]})["Y"] == [122]
    assert stages["add1"].saw()["inputs"]["IN"][1] == [1]
    assert ask("outer", {"X": [1]}).outputs == {"Y": ([1], [1255]), "Z": ([1], [233])}
    assert ask("outer", {"X": [1]}, ["Z"]).outputs == {"Z": ([1], [233])}
