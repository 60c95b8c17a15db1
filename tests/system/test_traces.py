# SPDX-License-Identifier: Apache-2.0
"""Traces of the C API report the same activities of a request, in the same order, in both servers."""

import pytest

import embed
import repository
import triton
from test_ensemble_statistics import step, write_ensemble
from test_metrics import write_meter

ASKED = "infer r model -1 - @trace INPUT0:FP32:{}:1,2"
ENSEMBLE = """platform: "ensemble"
ensemble_scheduling { step [
  { model_name: "model" model_version: -1 input_map { key: "INPUT0" value: "X" } output_map { key: "OUTPUT0" value: "T" } },
  { model_name: "last" model_version: -1 input_map { key: "INPUT0" value: "T" } output_map { key: "OUTPUT0" value: "Y" } } ] }
"""
COMPUTED = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]


@pytest.fixture(scope="module", params=["conch", "triton"])
def ask(request, tmp_path_factory):
    """Runs commands of embed with one of the servers, which all tests share."""
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "model", [("FP32", [-1])])
    repository.write_identity(root, "last", [("FP32", [-1])], versions=(2,))
    repository.write_model(root, "ensemble", ENSEMBLE + "".join(
        repository.tensor(side, name, "FP32", [-1]) for side, name in (("input", "X"), ("output", "Y"))))
    write_meter(root, "metered")
    write_ensemble(root, "failing", step("metered", "X", "T", "IN", "OUT"), step("metered", "T", "Y", "IN", "OUT"))
    with embed.Session(root, which=request.param, folder=tmp_path_factory.mktemp("libraries")) as session:
        yield session.do


def said(lines):
    """What embed says about the request r, without an activity that only Conch reports (docs/compatibility.md)."""
    return [line for line in embed.of(lines, "r") if "TENSOR_BACKEND_INPUT" not in line]


def test_a_trace_reports_the_life_of_its_request(ask):
    assert said(ask(ASKED.format(2))) == [
        f"trace model:1 {activity}" for activity in
        ["REQUEST_START", "QUEUE_START", "TENSOR_QUEUE_INPUT INPUT0", *COMPUTED, "TENSOR_BACKEND_OUTPUT OUTPUT0"]] + [
        "response OUTPUT0:FP32:2:1,2 final", "trace model:1 REQUEST_END", "trace model:1 released"]


def test_a_request_that_does_not_fit_its_model_leaves_its_trace_to_the_program(ask):
    (line,) = said(ask(ASKED.format(3)))
    assert line.startswith("refused Invalid argument: [request id: r] ")


def test_the_steps_of_an_ensemble_have_traces_below_its_own(ask):
    lines = said(ask("infer r ensemble -1 - @trace X:FP32:2:1,2"))
    of_one = {}
    for line in lines:
        if line.startswith("trace "):
            _, who, what = line.split(" ", 2)
            of_one.setdefault(who, []).append(what)
    step = ["REQUEST_START", "QUEUE_START", "TENSOR_QUEUE_INPUT INPUT0", *COMPUTED, "TENSOR_BACKEND_OUTPUT OUTPUT0", "REQUEST_END",
            "released"]
    assert of_one == {
        "ensemble:1": ["REQUEST_START", "QUEUE_START", "TENSOR_QUEUE_INPUT X", "TENSOR_BACKEND_OUTPUT Y", "REQUEST_END", "released"],
        "ensemble>model:1": step, "ensemble>last:2": step}
    # Steps begin after the ensemble, in the order of their data, and end before it.
    assert lines.index("trace ensemble:1 TENSOR_QUEUE_INPUT X") < lines.index("trace ensemble>model:1 REQUEST_START")
    assert lines.index("trace ensemble>model:1 COMPUTE_END") < lines.index("trace ensemble>last:2 REQUEST_START")
    assert lines.index("trace ensemble>last:2 released") < lines.index("trace ensemble:1 REQUEST_END")
    assert "response Y:FP32:2:1,2 final" in lines


def test_the_step_that_fails_is_the_last_one_with_a_trace(ask):
    lines = said(ask("infer r failing -1 - @trace @do:fail X:INT32:1,1:7"))
    assert "error Internal: in ensemble 'failing', told to fail final" in [embed.without_step(line) for line in lines]
    assert lines[-2:] == ["trace failing:1 REQUEST_END", "trace failing:1 released"]
    traced = [line.split(" ", 2) for line in lines if line.startswith("trace ")]
    assert {who for _, who, _ in traced} == {"failing:1", "failing>metered:1"}
    assert [what for _, who, what in traced if who == "failing>metered:1"] == [
        "REQUEST_START", "QUEUE_START", "TENSOR_QUEUE_INPUT IN", *COMPUTED, "REQUEST_END", "released"]
