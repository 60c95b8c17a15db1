# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in an ensemble (reference/behaviours §12.4): one error that names the ensemble, with the code of the step, and
nothing else is disturbed. In both servers, over HTTP and gRPC."""

import concurrent.futures

import pytest

import pipelines
import server as servers
import triton
from pipelines import Stage, ensemble, step

# By the number that the C API gives them.
CODES = {0: "UNKNOWN", 1: "INTERNAL", 2: "NOT_FOUND", 3: "INVALID_ARGUMENT", 4: "UNAVAILABLE", 5: "UNIMPLEMENTED", 6: "ALREADY_EXISTS"}
HTTP_CODES = {0: "INVALID_ARGUMENT", 6: "INVALID_ARGUMENT"}    # 400, as all that have no status of their own (reference/behaviours §1.3)


def write_models(root):
    stages = [
        Stage(root, "a"), Stage(root, "b"), Stage(root, "gated"),
        Stage(root, "sum", inputs=("A", "B")),
        Stage(root, "fails", fail=13, code=3), Stage(root, "refuses", refuse=13, code=4),
        *(Stage(root, f"fails_{code}", fail=13, code=code) for code in CODES),
        Stage(root, "fixed", inputs=(("IN", [2]),), outputs=(("OUT", [2]),)),
        Stage(root, "longer", inputs=(("IN", [2]),), outputs=(("OUT", [2]),), longer=1),
        Stage(root, "silent", responses=0),
        Stage(root, "queue", inputs=(("IN", [1]),), outputs=(("OUT", [1]),), batch=1,
              more="dynamic_batching { default_queue_policy { max_queue_size: 1 } }"),
        Stage(root, "late", inputs=(("IN", [1]),), outputs=(("OUT", [1]),), batch=1,
              more="dynamic_batching { default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 100000 } }"),
    ]
    for name in ("fails", "refuses", *(f"fails_{code}" for code in CODES)):
        ensemble(root, f"{name}_then", ("X",), ("Y",), step("a", "IN=X", "OUT=M"), step(name, "IN=M", "OUT=N"), step("b", "IN=N", "OUT=Y"))
    ensemble(root, "around", ("X",), ("Y",), step("fails_then", "X=X", "Y=M"), step("b", "IN=M", "OUT=Y"))
    ensemble(root, "beside", ("X",), ("Y",), step("fails", "IN=X", "OUT=L"), step("gated", "IN=X", "OUT=R"),
             step("sum", "A=L B=R", "OUT=Y"))
    ensemble(root, "two_fail", ("X",), ("Y", "Z"), step("fails", "IN=X", "OUT=Y"), step("fails_1", "IN=X", "OUT=Z"))
    two = (("X", [2]),), (("Y", [2]),)
    ensemble(root, "misshapen", *two, step("longer", "IN=X", "OUT=M"), step("fixed", "IN=M", "OUT=Y"))
    ensemble(root, "fixed_first", *two, step("fixed", "IN=X", "OUT=M"), step("fixed", "IN=M", "OUT=Y"))
    ensemble(root, "hushed", ("X",), ("Y",), step("silent", "IN=X", "OUT=M"), step("b", "IN=M", "OUT=Y"))
    one = (("X", [1]),), (("Y", [1]),)
    ensemble(root, "queued", *one, step("queue", "IN=X", "OUT=Y"), batch=1)
    ensemble(root, "hurried", *one, step("late", "IN=X", "OUT=Y"), batch=1)
    return {stage.name: stage for stage in stages}


def said(answer):
    assert not answer.outputs
    return answer.code, answer.error


# ---- Steps that fail


@pytest.mark.parametrize("number", CODES)
def test_the_error_of_a_step_keeps_its_code(ask, stages, number):
    code, text = said(ask(f"fails_{number}_then", {"X": [13]}, id="r"))
    assert text == f"in ensemble 'fails_{number}_then', stage: 13 is not wanted"
    assert code in (CODES[number], HTTP_CODES.get(number))
    assert stages["b"].seen() == []


@pytest.mark.parametrize("model, steps", [
    ("fails_then", " (step 1, model 'fails')"), ("around", " (step 1, model 'fails') (step 0, model 'fails_then')"),
    ("misshapen", " (step 1, model 'fixed')")])
def test_the_step_stands_behind_the_error(ask, running, model, steps):
    answer = ask(model, {"X": [13, 13] if model == "misshapen" else [13]})
    assert answer.said == answer.error + ("" if isinstance(running[0], triton.Triton) else steps)
    assert answer.error.startswith(f"in ensemble '{model}', ")


def test_an_error_of_execute_is_the_same(ask, stages):
    assert said(ask("refuses_then", {"X": [13]})) == ("UNAVAILABLE", "in ensemble 'refuses_then', stage: 13 is not wanted")
    assert (len(stages["a"].seen()), stages["b"].seen()) == (1, [])


def test_the_next_request_is_answered(ask):
    for _ in range(3):
        assert ask("fails_then", {"X": [13]}).code == "INVALID_ARGUMENT"
        assert ask("fails_then", {"X": [12, 13]})["Y"] == [12, 13]


def test_each_ensemble_names_itself(ask):
    assert said(ask("around", {"X": [13]})) == ("INVALID_ARGUMENT", "in ensemble 'around', in ensemble 'fails_then', stage: 13 is not wanted")
    assert ask("around", {"X": [1]})["Y"] == [1]


def test_one_error_is_enough(ask, running):
    if isinstance(running[0], triton.Triton):
        pytest.skip("2.51 sends a second error, and dies of it")
    code, text = said(ask("two_fail", {"X": [13]}))
    assert text == "in ensemble 'two_fail', stage: 13 is not wanted"
    assert code in ("INVALID_ARGUMENT", "INTERNAL")    # which of the two came first


def test_an_error_waits_for_the_steps_that_run(ask, stages, running):
    """The other step is still at its gate when the first one fails."""
    if isinstance(running[0], triton.Triton):
        pytest.skip("2.51 answers at once; releases after it wait")
    gated, fails = stages["gated"], stages["fails"]
    gated.shut("hold.execute")
    fails.shut("hold.execute")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            asked = pool.submit(ask, "beside", {"X": [13]})
            gated.await_reached("hold.execute")
            fails.await_reached("hold.execute")
            fails.open("hold.execute")
            assert ask("fails", {"IN": [1]})["OUT"] == [1]    # behind the step that fails
            assert not asked.done()
        finally:
            fails.open("hold.execute")
            gated.open("hold.execute")
        assert said(asked.result()) == ("INVALID_ARGUMENT", "in ensemble 'beside', stage: 13 is not wanted")
    assert (len(gated.seen()), stages["sum"].seen()) == (1, [])


def test_requests_at_the_same_time_do_not_fail_together(ask):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, "fails_then", {"X": [i % 3 + 11]}) for i in range(60)]
        for i, one in enumerate(asked):
            answer = one.result()
            assert (answer.code == "OK") == (i % 3 != 2)
            assert answer.code != "OK" or answer["Y"] == [i % 3 + 11]


# ---- Steps that the server refuses


def test_a_tensor_of_the_wrong_shape_is_refused_by_the_step_that_gets_it(ask):
    assert said(ask("misshapen", {"X": [1, 2]}, id="r")) == (
        "INVALID_ARGUMENT", "in ensemble 'misshapen', [request id: r] unexpected shape for input 'IN' for model 'fixed'. Expected [2], got [3]. ")


def test_a_full_queue_is_an_error_of_the_ensemble(ask, stages):
    queue = stages["queue"]
    queue.shut("hold.execute")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, "queued", {"X": ([1, 1], [1])}, id="q") for _ in range(8)]
        try:
            servers.wait_for(lambda: any(one.done() for one in asked), 60, "one is refused")
        finally:
            queue.open("hold.execute")
        answers = [one.result() for one in asked]
    assert {said(one) for one in answers if one.code != "OK"} == {
        ("UNAVAILABLE", "in ensemble 'queued', [request id: q] Exceeds maximum queue size")}
    assert any(one.code == "OK" for one in answers)


def test_a_timeout_in_a_queue_is_an_error_of_the_ensemble(ask, stages):
    """One request is held, which others wait behind; some of these are taken over by its instance, and the rest times out."""
    late = stages["late"]
    late.shut("hold.execute")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, "hurried", {"X": ([1, 1], [1])}, id="t") for _ in range(8)]
        try:
            servers.wait_for(lambda: any(one.done() for one in asked), 60, "one times out")
        finally:
            late.open("hold.execute")
        answers = [one.result() for one in asked]
    assert {said(one) for one in answers if one.code != "OK"} == {("UNAVAILABLE", "in ensemble 'hurried', Request timeout expired")}


def test_a_step_that_ends_without_an_answer_leaves_nothing_to_do(ask):
    assert said(ask("hushed", {"X": [1]}, id="r")) == (
        "INVALID_ARGUMENT", "in ensemble 'hushed', [request id: r] unexpected deadlock, at least one output is not set while no more "
        "ensemble steps can be made")


# ---- Requests that the ensemble refuses itself: no prefix


WRONG = {
    "unknown input": ({"Z": [1]}, None, "unexpected inference input 'Z' for model 'fails_then'"),
    "another input": ({"X": [1], "Z": [1]}, None, "[request id: r] expected 1 inputs but got 2 inputs for model 'fails_then'. "),
    "no input": ({}, None, "[request id: r] expected 1 inputs but got 0 inputs for model 'fails_then'. "),
    "shape": ({"X": ([1, 1], [1])}, None, "[request id: r] unexpected shape for input 'X' for model 'fails_then'. Expected [-1], got [1,1]. "),
    "a tensor inside": ({"X": [1]}, ["M"], "unexpected inference output 'M' for model 'fails_then'"),
}


@pytest.mark.parametrize("inputs, outputs, text", WRONG.values(), ids=WRONG)
def test_wrong_requests_are_refused_before_any_step(ask, stages, inputs, outputs, text):
    code, error = said(ask("fails_then", inputs, outputs, id="r"))
    assert (code, error[:len(text)]) == ("INVALID_ARGUMENT", text)
    assert stages["a"].seen() == []


def test_a_fixed_shape_of_the_ensemble_is_checked(ask):
    assert said(ask("fixed_first", {"X": [1, 2, 3]}, id="r")) == (
        "INVALID_ARGUMENT", "[request id: r] unexpected shape for input 'X' for model 'fixed_first'. Expected [2], got [3]. ")
