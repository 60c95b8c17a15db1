# SPDX-License-Identifier: Apache-2.0
"""What is counted of an ensemble and of the models of its steps (reference/behaviours §12.9, 16.5, 16.7–16.9, 16.12), in both
servers. The backend stage reports 1, 2 and 3 µs for each execution."""

import concurrent.futures

import pytest

import embed
import pipelines
import server as servers
import triton
from pipelines import Stage, ensemble, step
from test_metrics import FLAGS, REASONS, connects, metrics_port, scrape
from test_ensemble_requests import write_adder

X, Y = ("X",), ("Y",)


def write_models(root):
    """Models of each test's own, so that their counts begin at 0."""
    stages = {}

    def stage(name, **more):
        stages[name] = Stage(root, name, **more)

    for name in "abc":
        stage(name)
    ensemble(root, "three", X, Y, step("a", "IN=X", "OUT=M"), step("b", "IN=M", "OUT=N"), step("c", "IN=N", "OUT=Y"))
    for name in "de":
        stage(name, inputs=(("IN", [2]),), outputs=(("OUT", [2]),), batch=4)
    ensemble(root, "batches", (("X", [2]),), (("Y", [2]),), step("d", "IN=X", "OUT=M"), step("e", "IN=M", "OUT=Y"), batch=4)
    stage("twice")
    ensemble(root, "same", X, Y, step("twice", "IN=X", "OUT=M"), step("twice", "IN=M", "OUT=Y"))
    stage("first")
    stage("fails", fail=13)
    stage("last")
    ensemble(root, "breaks", X, Y, step("first", "IN=X", "OUT=M"), step("fails", "IN=M", "OUT=N"), step("last", "IN=N", "OUT=Y"))
    stage("numbered", versions=(2,), fail=13)
    ensemble(root, "third", X, Y, step("numbered", "IN=X", "OUT=Y"), versions=(3,))
    stage("asked")
    stage("unasked")
    ensemble(root, "parts", X, ("Y", "Z"), step("asked", "IN=X", "OUT=Y"), step("unasked", "IN=X", "OUT=Z"))
    stage("inmost")
    ensemble(root, "inner", X, Y, step("inmost", "IN=X", "OUT=Y"))
    ensemble(root, "outer", X, Y, step("inner", "X=X", "Y=Y"))
    write_adder(root, "adder", "direct { }", "place")
    ensemble(root, "adds", (("X", [1]),), (("Y", [1]),), step("adder", "IN=X", "OUT=Y"), batch=4)
    stage("quick")
    stage("slow")
    ensemble(root, "waits", X, Y, step("quick", "IN=X", "OUT=M"), step("slow", "IN=M", "OUT=Y"))
    stage("full", inputs=(("IN", [1]),), outputs=(("OUT", [1]),), batch=1, more="dynamic_batching { default_queue_policy { max_queue_size: 1 } }")
    ensemble(root, "queues", (("X", [1]),), (("Y", [1]),), step("full", "IN=X", "OUT=Y"), batch=1)
    return stages


@pytest.fixture(scope="module", params=pipelines.EITHER)
def running(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    stages = write_models(root)
    flags = FLAGS if request.param == "conch" else []
    with pipelines.start(request.param, root, flags=flags) as server:
        servers.wait_for(lambda: connects(metrics_port(server)), 60, "somebody listens")
        yield server, stages


@pytest.fixture
def server(running):
    yield running[0]
    running[0].assert_alive()


def ask(server, model, value=1, **more):
    return pipelines.ask(server, "http", model, {"X": [value]}, **more)


def counted(server, model):
    """(successes, failures, inferences, executions)"""
    figures = pipelines.statistics(server, model)
    return figures["success"][0], figures["fail"][0], figures["inference_count"], figures["execution_count"]


def await_counts(server, **expected):
    servers.wait_equal(lambda: {model: counted(server, model) for model in expected}, expected, "figures follow an answer")


def failures(server, model):
    return dict(zip(REASONS, scrape(server).failures(model)))


# ---- Successes


def test_an_ensemble_counts_requests_and_sums_the_times_of_its_steps(server):
    for _ in range(3):
        assert ask(server, "three").code == "OK"
    await_counts(server, three=(3, 0, 3, 3), a=(3, 0, 3, 3), b=(3, 0, 3, 3), c=(3, 0, 3, 3))
    whole = pipelines.statistics(server, "three")
    steps = [pipelines.statistics(server, model) for model in "abc"]
    assert [whole[f"compute_{what}"] for what in ("input", "infer", "output")] == [(3, 9000), (3, 18000), (3, 27000)]
    assert [step["compute_infer"] for step in steps] == [(3, 6000)] * 3
    assert whole["queue"][0] == 3
    assert whole["success"][1] >= whole["queue"][1] + max(step["success"][1] for step in steps)


def test_the_metrics_say_the_same(server):
    assert ask(server, "same").code == "OK"
    await_counts(server, same=(1, 0, 1, 1), twice=(2, 0, 2, 2))

    def page():
        metrics = scrape(server)
        return [[metrics.of(f"nv_inference_{name}", model) for name in ("request_success", "count", "exec_count")]
                for model in ("same", "twice")]

    servers.wait_for(lambda: page() == [[1, 1, 1], [2, 2, 2]], 60, "the metrics have the counts")
    metrics = scrape(server)
    assert metrics.of("nv_inference_compute_infer_duration_us", "same") == 4
    assert metrics.failures("same") == metrics.failures("twice") == [0, 0, 0, 0]


def test_a_batch_counts_its_rows(server):
    answer = pipelines.ask(server, "http", "batches", {"X": ([3, 2], [1] * 6)})
    assert answer.code == "OK"
    await_counts(server, batches=(1, 0, 3, 1), d=(1, 0, 3, 1), e=(1, 0, 3, 1))


def test_steps_that_are_left_out_count_nothing(server):
    assert ask(server, "parts", outputs=["Y"]).code == "OK"
    await_counts(server, parts=(1, 0, 1, 1), asked=(1, 0, 1, 1), unasked=(0, 0, 0, 0))


def test_each_ensemble_around_counts(server):
    assert ask(server, "outer").code == "OK"
    await_counts(server, outer=(1, 0, 1, 1), inner=(1, 0, 1, 1), inmost=(1, 0, 1, 1))
    assert pipelines.statistics(server, "outer")["compute_infer"] == (1, 2000)


# ---- Failures


def test_a_failing_step_counts_for_its_model_and_for_the_ensemble(server):
    assert ask(server, "breaks", 13).code == "INTERNAL"
    await_counts(server, fails=(0, 1, 0, 1), first=(1, 0, 1, 1), last=(0, 0, 0, 0), breaks=(0, 2, 0, 0))
    servers.wait_for(lambda: sum(failures(server, "breaks").values()) == 2, 60, "the failures are counted")
    assert failures(server, "breaks") == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 2}
    assert failures(server, "fails") == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 1, "OTHER": 0}


def test_the_metrics_of_an_ensemble_have_its_version(server):
    """In Triton they have 1, but for one of the two failures (reference/behaviours §16.9)."""
    assert (ask(server, "third").code, ask(server, "third", 13).code) == ("OK", "INTERNAL")

    def seen():
        """(successes, failures) by the label `version`."""
        page = scrape(server)
        versions = {dict(key[1:])["version"] for key in page.values if ("model", "third") in key}
        return {version: (page.of("nv_inference_request_success", "third", version),
                          page.of("nv_inference_request_failure", "third", version, reason="OTHER")) for version in versions}

    expected = {"1": (1, 1), "3": (0, 1)} if isinstance(server, triton.Triton) else {"3": (1, 2)}
    servers.wait_for(lambda: seen() == expected, 60, f"{expected} is counted")


def test_an_error_of_the_request_itself_is_not_counted(server):
    before = counted(server, "three")
    assert pipelines.ask(server, "http", "three", {"Z": [1]}).code == "INVALID_ARGUMENT"
    assert counted(server, "three") == before


def test_a_refusal_by_the_queue_of_a_step_counts_for_the_ensemble_only(server):
    answer = pipelines.ask(server, "http", "adds", {"X": ([1, 1], [1])}, sequence_id=5)
    assert answer.code == "INVALID_ARGUMENT"
    await_counts(server, adds=(0, 2, 0, 0), adder=(0, 0, 0, 0))
    servers.wait_for(lambda: failures(server, "adds")["OTHER"] == 2, 60, "the failure is counted")
    assert sum(failures(server, "adder").values()) == 0


# ---- Pending requests


def test_requests_wait_at_the_models_of_the_steps(running):
    """While one is executed, three wait for the second step: none for the ensemble, which has begun them all."""
    server, stages = running

    def pending(model):
        return scrape(server).of("nv_inference_pending_request_count", model)

    slow = stages["slow"]
    slow.shut("hold.execute")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        try:
            asked = [pool.submit(ask, server, "waits") for _ in range(4)]
            slow.await_reached("hold.execute")
            servers.wait_for(lambda: pending("slow") == 3, 60, "three requests wait")
            assert [pending(model) for model in ("waits", "quick", "slow")] == [0, 0, 3]
        finally:
            slow.open("hold.execute")
        assert {one.result().code for one in asked} == {"OK"}
    servers.wait_for(lambda: [pending(model) for model in ("waits", "quick", "slow")] == [0, 0, 0], 60, "nothing waits")


# ---- Traces, by the C API (reference/behaviours §22.9)

BEGUN = ["REQUEST_START", "QUEUE_START"]
COMPUTED = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
ENDED = ["REQUEST_END", "released"]


@pytest.fixture(scope="module", params=pipelines.EITHER)
def do(request, tmp_path_factory):
    pipelines.need(request.param)
    root = tmp_path_factory.mktemp("traced")
    write_models(root)
    with embed.Session(root, which=request.param, folder=tmp_path_factory.mktemp("libraries")) as session:
        yield session.do


def traces(lines):
    """{"parent>model": its activities in order}, without one that only Conch reports (docs/compatibility.md)."""
    found = {}
    for line in embed.of(lines, "r"):
        word, _, rest = line.partition(" ")
        if word == "trace" and "TENSOR_BACKEND_INPUT" not in rest:
            name, _, activity = rest.partition(":1 ")
            found.setdefault(name, []).append(activity)
    return found


def of_step(inputs, outputs):
    return [*BEGUN, f"TENSOR_QUEUE_INPUT {inputs}", *COMPUTED, f"TENSOR_BACKEND_OUTPUT {outputs}", *ENDED]


def of_ensemble(inputs="X", outputs="Y"):
    return [*BEGUN, f"TENSOR_QUEUE_INPUT {inputs}", f"TENSOR_BACKEND_OUTPUT {outputs}", *ENDED]


def test_each_step_has_a_trace_of_its_own(do):
    lines = do("infer r three -1 - @trace X:INT32:1:1")
    assert traces(lines) == {"three": of_ensemble(), **{f"three>{model}": of_step("IN", "OUT") for model in "abc"}}
    assert "r response Y:INT32:1:1 final" in lines


def test_the_traces_of_a_nested_ensemble_are_children_of_its_trace(do):
    lines = do("infer r outer -1 - @trace X:INT32:1:1")
    assert traces(lines) == {"outer": of_ensemble(), "outer>inner": of_ensemble(), "inner>inmost": of_step("IN", "OUT")}


def test_the_trace_of_a_failed_request_ends(do):
    lines = do("infer r breaks -1 - @trace X:INT32:1:13")
    seen = traces(lines)
    assert sorted(seen) == ["breaks", "breaks>fails", "breaks>first"]
    assert seen["breaks"] == [*BEGUN, "TENSOR_QUEUE_INPUT X", *ENDED]
    assert seen["breaks>fails"] == [*BEGUN, "TENSOR_QUEUE_INPUT IN", *COMPUTED, *ENDED]
