# SPDX-License-Identifier: Apache-2.0
"""Statistics and metrics of ensembles and of their composing models, as the genuine Triton has them for the same requests."""

import json

import pytest

import embed
import repository
import server as servers
import triton
from test_metrics import FLAGS, MOVING, connects, metrics_port, scrape, write_meter
from test_statistics import counts
from wire import ask

MOMENTS = ["queue", "compute_input", "compute_infer", "compute_output"]
DELAY_US = 300000    # how long a request waits in the queue of `slow`


def step(model, read, written, inner_in="INPUT0", inner_out="OUTPUT0"):
    return (f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "{inner_in}" value: "{read}" }} '
            f'output_map {{ key: "{inner_out}" value: "{written}" }} }}')


def write_ensemble(root, name, *steps, batch=8, version=1):
    config = f'platform: "ensemble"\nmax_batch_size: {batch}\n'
    config += repository.tensor("input", "X", "INT32", [-1]) + repository.tensor("output", "Y", "INT32", [-1])
    return repository.write_model(root, name, config + f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n", versions=(version,))


def write_models(root):
    repository.write_identity(root, "first", [("INT32", [-1])], max_batch_size=8)
    repository.write_identity(root, "plain", [("INT32", [-1])])
    slow = repository.write_identity(root, "slow", [("INT32", [-1])], max_batch_size=8) / "config.pbtxt"
    slow.write_text(slow.read_text() + "dynamic_batching { preferred_batch_size: [ 8 ] "
                                       f"max_queue_delay_microseconds: {DELAY_US} }}\n")
    write_meter(root, "metered")
    write_ensemble(root, "pair", step("first", "X", "T"), step("metered", "T", "Y", "IN", "OUT"))
    write_ensemble(root, "outer", step("pair", "X", "T", "X", "Y"), step("first", "T", "Y"))
    write_ensemble(root, "slowly", step("slow", "X", "Y"))
    write_ensemble(root, "unbatched", step("plain", "X", "Y"), batch=0)
    return root


def infer(server, model, shape, do=None):
    body = {"inputs": [{"name": "X", "datatype": "INT32", "shape": shape, "data": [0] * shape[0] * (shape[1] if shape[1:] else 1)}]}
    if do:
        body["parameters"] = {"do": do}
    return ask(server, "POST", f"/v2/models/{model}/infer", body).status


def ask_around(server):
    for rows in (1, 4, 1):
        assert infer(server, "pair", [rows, 2]) == 200
    assert infer(server, "pair", [1, 2], "fail") == 500
    assert infer(server, "pair", [1, 2], "error") == 500
    assert infer(server, "pair", [9, 2]) == 400    # refused before it is a request: not counted
    assert infer(server, "outer", [2, 2]) == 200
    assert infer(server, "outer", [1, 2], "fail") == 500
    assert infer(server, "slowly", [1, 2]) == 200
    assert infer(server, "unbatched", [5]) == 200


def statistics(server):
    return {one["name"]: one for one in ask(server, "GET", "/v2/models/stats").json()["model_stats"]}


def await_counts(server):
    """Both servers count a request of an ensemble after its answer has left."""
    ended = {"pair": (4, 6), "outer": (1, 2), "slowly": (1, 0), "unbatched": (1, 0)}
    servers.wait_equal(lambda: {name: tuple(one["inference_stats"][how]["count"] for how in ("success", "fail"))
                                for name, one in statistics(server).items() if name in ended}, ended, "all requests are counted")


def all_counts(server):
    return {name: counts(one) for name, one in statistics(server).items()}


def start(which, root):
    if which == "conch":
        return servers.Server(root, flags=FLAGS)
    if triton.missing():
        pytest.skip(triton.missing())
    return triton.Triton(root)


@pytest.fixture(scope="module", params=["conch", "triton"])
def asked(request, tmp_path_factory):
    root = write_models(tmp_path_factory.mktemp("models"))
    with start(request.param, root) as server:
        servers.wait_for(lambda port=metrics_port(server): connects(port), 60, "somebody listens")
        ask_around(server)
        await_counts(server)
        server.which = request.param
        yield server


def test_an_ensemble_counts_its_requests_and_the_models_of_its_steps_count_them_too(asked):
    found = statistics(asked)
    # (inferences, executions, successes, failures): a failure of an ensemble counts twice
    assert {name: (one["inference_count"], one["execution_count"], *(one["inference_stats"][how]["count"] for how in ("success", "fail")))
            for name, one in found.items()} == {
        "first": (13, 8, 8, 0), "metered": (8, 4, 4, 3), "pair": (8, 4, 4, 6), "outer": (2, 1, 1, 2), "plain": (1, 1, 1, 0),
        "slow": (1, 1, 1, 0), "slowly": (1, 1, 1, 0), "unbatched": (1, 1, 1, 0)}
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in found["pair"]["batch_stats"]] == [(1, 2), (2, 1), (4, 1)]
    assert found["pair"]["response_stats"] == {} and found["pair"]["last_inference"] > 0
    assert [found["pair"]["inference_stats"][moment]["count"] for moment in MOMENTS] == [4] * 4


def test_the_computing_of_the_steps_is_summed_up_and_their_queues_are_not(asked):
    found = {name: one["inference_stats"] for name, one in statistics(asked).items()}
    assert found["slowly"]["success"]["ns"] >= found["slow"]["queue"]["ns"] >= DELAY_US * 1000
    assert found["slowly"]["queue"]["ns"] < DELAY_US * 1000 / 10
    for moment in MOMENTS[1:]:
        assert found["slowly"][moment]["ns"] == found["slow"][moment]["ns"]
        assert found["unbatched"][moment]["ns"] == found["plain"][moment]["ns"]
    infer_ns = {name: one["compute_infer"]["ns"] for name, one in found.items()}
    # `first` also has the failed requests, and that of `outer` itself
    assert infer_ns["metered"] < infer_ns["pair"] <= infer_ns["first"] + infer_ns["metered"]
    assert 0 < infer_ns["outer"] <= infer_ns["first"] + infer_ns["metered"]


def test_metrics_have_the_same_counts(asked):
    page, found = scrape(asked), statistics(asked)
    for name, one in found.items():
        moments = one["inference_stats"]
        assert page.of("nv_inference_request_success", name) == moments["success"]["count"]
        assert page.of("nv_inference_count", name) == one["inference_count"]
        assert page.of("nv_inference_exec_count", name) == one["execution_count"]
        assert sum(page.failures(name)) == moments["fail"]["count"]
        assert page.of("nv_inference_pending_request_count", name) == 0
    assert page.failures("pair") == [0, 0, 0, 6] and page.failures("outer") == [0, 0, 0, 2]
    assert page.failures("metered") == [0, 0, 3, 0]


@triton.needed
def test_all_counts_are_those_of_triton(tmp_path):
    write_models(tmp_path)
    seen, lines = {}, {}
    for which in ("conch", "triton"):
        with start(which, tmp_path) as server:
            servers.wait_for(lambda port=metrics_port(server): connects(port), 60, "somebody listens")
            ask_around(server)
            await_counts(server)
            seen[which] = all_counts(server)
            lines[which] = {key: value for key, value in scrape(server).values.items() if not any(word in key[0] for word in MOVING)}
    assert seen["conch"] == seen["triton"]
    assert lines["conch"] == lines["triton"]


@pytest.mark.conch_only("Triton has the label version=\"1\" on nearly all metrics of an ensemble")
def test_metrics_of_an_ensemble_name_its_version(models):
    repository.write_identity(models, "plain", [("INT32", [-1])])
    write_ensemble(models, "third", step("plain", "X", "Y"), batch=0, version=3)
    with servers.Server(models, flags=FLAGS) as server:
        assert infer(server, "third", [5]) == 200
        servers.wait_for(lambda: scrape(server).of("nv_inference_request_success", "third", "3") == 1, 60, "it is counted")


# ---- Cancelled requests, by the C API


def of_model(session, name):
    (text,) = (line for line in session.do(f"statistics {name}") if '"model_stats"' in line)
    (one,) = json.loads(text[text.index("{"):])["model_stats"]
    return tuple(one["inference_stats"][how]["count"] for how in ("success", "fail"))


@pytest.mark.conch_only("Triton begins the next step all the same, and may execute it")
def test_a_cancelled_ensemble_fails_and_its_step_at_the_backend_succeeds(models):
    gated = repository.Gated(models, "gated").shut("hold.execute")
    repository.write_identity(models, "plain", [("INT32", [-1])])
    write_ensemble(models, "e", step("gated", "X", "T", "IN", "OUT"), step("plain", "T", "Y"), batch=0)
    with embed.Session(models) as session:
        session.tell("start r e -1 - X:INT32:1:7")
        gated.await_reached("hold.execute")
        session.tell("cancel r", "ready plain")
        session.await_line("ready plain yes")    # the cancel has been called
        gated.open("hold.execute")
        (line,) = embed.of(session.do(), "r")
        assert line.startswith("error Cancelled: in ensemble 'e', ") and line.endswith(" final")
        assert (of_model(session, "gated"), of_model(session, "plain")) == ((1, 0), (0, 0))
        servers.wait_for(lambda: of_model(session, "e") == (0, 2), 60, "it is counted")


@pytest.mark.conch_only("Triton does not cancel a step that waits")
def test_a_step_that_waits_when_its_ensemble_is_cancelled_counts_as_cancelled(models):
    gated = repository.Gated(models, "gated").shut("hold.execute")
    write_ensemble(models, "e", step("gated", "X", "Y", "IN", "OUT"), batch=0)
    with embed.Session(models) as session:
        session.tell("start first gated -1 - IN:INT32:1:7")
        gated.await_reached("hold.execute")
        session.tell("start r e -1 - X:INT32:1:7", "cancel r", "answered r", "ready gated")
        session.await_line("ready gated yes")
        gated.open("hold.execute")
        lines = session.do()
        assert embed.of(lines, "first") == ["response OUT:INT32:1:7 final"]
        assert embed.of(lines, "r")[0].startswith("error Cancelled: in ensemble 'e', ")
        assert of_model(session, "gated") == (1, 1)
        servers.wait_for(lambda: of_model(session, "e") == (0, 2), 60, "it is counted")
