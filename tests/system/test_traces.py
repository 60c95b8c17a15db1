# SPDX-License-Identifier: Apache-2.0
"""Traces of the C API report the same activities of a request, in the same order, in both servers."""

import pytest

import embed
import repository
import triton

ASKED = "infer r model -1 - @trace INPUT0:FP32:{}:1,2"
COMPUTED = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]


@pytest.fixture(scope="module", params=["conch", "triton"])
def ask(request, tmp_path_factory):
    """Runs commands of embed with one of the servers, which all tests share."""
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "model", [("FP32", [-1])])
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
