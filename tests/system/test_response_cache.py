# SPDX-License-Identifier: Apache-2.0
"""The response cache: our library `local` and the genuine one, each in Conch and in the genuine Triton."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils

import repository
import server as servers
import triton
from conftest import Server
from server import wait_for
from test_metrics import FLAGS as METRICS, scrape
from wire import ask, given, infer

REFERENCE = servers.ROOT / ".deps/reference"
OURS = servers.BUILD / "caches"
GENUINE = next(REFERENCE.glob("venv/lib/python3*/site-packages/pytriton/tritonserver/caches"), None)
LIBRARIES = next(REFERENCE.glob("venv/lib/python3*/site-packages/nvidia_pytriton.libs"), None)
PLACES = [(cache, which) for which in ("conch", "triton") for cache in ("ours", "genuine")]
CACHED = "response_cache { enable: true }\n"
LOCAL = "--cache-config=local,size=1048576"


def write_models(root):
    for name in ("m", "step", "plain"):
        folder = repository.write_identity(root, name, [("FP32", [-1])], max_batch_size=8)
        if name == "m":
            with open(pathlib.Path(root) / name / "config.pbtxt", "a") as config:
                config.write(CACHED)
    turned = [f'{side} [ {{ name: "{name}" data_type: TYPE_FP32 dims: [ -1, 1 ] reshape: {{ shape: [ 1, -1 ] }} }} ]\n'
              for side, name in (("input", "INPUT0"), ("output", "OUTPUT0"))]
    repository.write_model(root, "reshaped", 'name: "reshaped"\nbackend: "identity"\nmax_batch_size: 8\n' + "".join(turned) + CACHED)
    steps = "".join(f'step {{ model_name: "step" model_version: -1 input_map {{ key: "INPUT0" value: "{a}" }} '
                    f'output_map {{ key: "OUTPUT0" value: "{b}" }} }}\n' for a, b in (("IN", "MID"), ("MID", "OUT")))
    repository.write_model(root, "e", 'name: "e"\nplatform: "ensemble"\nmax_batch_size: 8\n'
                           + repository.tensor("input", "IN", "FP32", [-1]) + repository.tensor("output", "OUT", "FP32", [-1])
                           + f"ensemble_scheduling {{ {steps} }}\n" + CACHED)
    return root


def directory(cache, which, folder):
    """A cache directory of that library for that server, and the environment that it needs."""
    if cache == "ours":
        return OURS.resolve(), {}
    if triton.missing():
        pytest.skip(triton.missing())
    shutil.copytree(GENUINE, folder, dirs_exist_ok=True)
    if which == "triton":
        return folder, {}
    name = next(LIBRARIES.glob("libtritonserver-*.so")).name
    subprocess.run(["patchelf", "--replace-needed", name, "libtritonserver.so", folder / "local/libtritoncache_local.so"], check=True)
    return folder, {"LD_LIBRARY_PATH": f"{servers.BUILD / 'lib'}:{LIBRARIES}", "ASAN_OPTIONS": "detect_leaks=0"}


def make(which, root, caches, *flags, env=None, **more):
    flags = [f"--cache-directory={caches}", *flags]
    if which == "conch":
        return Server(root, flags=flags, env=env, grpc=True, **more)
    if triton.missing():
        pytest.skip(triton.missing())
    made = triton.Triton(root, flags=flags, **more)
    made.env = {**made.env, **(env or {})}
    return made


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: f"{place[0]} in {place[1]}")
def cached(request, tmp_path_factory):
    cache, which = request.param
    caches, env = directory(cache, which, tmp_path_factory.mktemp("caches"))
    with make(which, write_models(tmp_path_factory.mktemp("models")), caches, LOCAL,
              *(METRICS if which == "conch" else []), env=env) as server:
        server.which, server.cache = which, cache
        yield server


def counts(server, model):
    (one,) = ask(server, "GET", f"/v2/models/{model}/stats").json()["model_stats"]
    stats = one["inference_stats"]
    return {**{name: stats[name]["count"] for name in ("success", "queue", "compute_infer", "cache_hit", "cache_miss")},
            "executions": one["execution_count"], "inferences": one["inference_count"]}


def identity(server, values, model="m", name="INPUT0"):
    answer = infer(server, model, {"inputs": [given(name, "FP32", [1, len(values)], values)], "id": f"id {values}"})
    assert answer.status == 200, answer.body
    body = answer.json()
    assert body["id"] == f"id {values}"
    assert [(out["shape"], out["data"]) for out in body["outputs"]] == [([1, len(values)], values)]


def grown(before, after):
    return {name: after[name] - before[name] for name in before}


def ask_and_count(server, values, model, name):
    """What one request adds to the counts. One of an ensemble is counted after its answer."""
    before = counts(server, model)
    identity(server, values, model, name)
    wait_for(lambda: counts(server, model)["success"] > before["success"], 60, "it is counted")
    return grown(before, counts(server, model))


def until_kept(server, values, model, name):
    """A cache that may wait keeps a response a moment after it was sent: asks until it is found. How many were executed."""
    misses = counts(server, model)["executions"]
    wait_for(lambda: ask_and_count(server, values, model, name)["cache_hit"], 60, "a hit")
    return counts(server, model)["executions"] - misses


def test_a_response_that_was_computed_is_found(cached):
    before = counts(cached, "m")
    identity(cached, [1.0, 2.0])
    if cached.which == "triton" or cached.cache == "ours":
        identity(cached, [1.0, 2.0])
        assert grown(before, counts(cached, "m")) == {
            "success": 2, "queue": 2, "compute_infer": 1, "cache_hit": 1, "cache_miss": 1, "executions": 1, "inferences": 1}
    else:
        assert until_kept(cached, [1.0, 2.0], "m", "INPUT0") <= 20
    before = counts(cached, "m")
    for _ in range(5):
        identity(cached, [1.0, 2.0])
    identity(cached, [1.0, 2.5])
    assert grown(before, counts(cached, "m")) == {
        "success": 6, "queue": 6, "compute_infer": 1, "cache_hit": 5, "cache_miss": 1, "executions": 1, "inferences": 1}


def test_a_hit_of_an_ensemble_runs_no_step(cached):
    ask_and_count(cached, [3.0], "e", "IN")
    until_kept(cached, [3.0], "e", "IN")
    steps, before = counts(cached, "step"), counts(cached, "e")
    for _ in range(4):
        ask_and_count(cached, [3.0], "e", "IN")
    assert counts(cached, "step") == steps
    after = grown(before, counts(cached, "e"))
    assert (after["success"], after["cache_hit"], after["cache_miss"], after["executions"]) == (4, 4, 0, 0)


def test_a_model_without_the_field_is_executed_each_time(cached):
    before = counts(cached, "plain")
    for _ in range(3):
        identity(cached, [1.0], "plain")
    assert grown(before, counts(cached, "plain"))["executions"] == 3


def test_a_response_whose_final_flag_comes_alone_is_kept(cached, tmp_path, models):
    """The backend sends (f) a response by a factory (n, d), and the flag after it (.)."""
    repository.write_model(models, "s", 'name: "s"\nbackend: "script"\nmax_batch_size: 8\n' + repository.tensor("input", "IN", "INT32", [1])
                           + repository.tensor("output", "OUT", "INT32", [1]) + "instance_group [ { kind: KIND_CPU } ]\n" + CACHED)
    caches, env = directory(cached.cache, cached.which, tmp_path / "caches")

    def is_found(server):
        asked = {"inputs": [given("IN", "INT32", [1, 1], [7])], "parameters": {"do": "nf.dx"}}
        hits = counts(server, "s")["cache_hit"]
        assert infer(server, "s", asked).json()["outputs"][0]["data"] == [7000]
        return counts(server, "s")["cache_hit"] > hits
    with make(cached.which, models, caches, LOCAL, f"--backend-directory={servers.BUILD / 'tests/backends'}", env=env) as server:
        wait_for(lambda: is_found(server), 60, "a hit")
        if cached.which == "triton":
            return  # it keeps the first of several, too
        before = counts(server, "s")
        for do in ("nff.dx", "nfldx"):
            for _ in range(2):
                asked = {"inputs": [given("IN", "INT32", [1, 1], [7])], "parameters": {"do": do}}
                assert infer(server, "s", asked).json() == {"error": "expected a single response, got 2"}
        assert grown(before, counts(server, "s"))["executions"] == 4


def test_metrics_have_the_cache(cached):
    identity(cached, [9.0])
    until_kept(cached, [9.0], "m", "INPUT0")
    page, stats = scrape(cached), counts(cached, "m")
    assert page.of("nv_cache_num_hits_per_model", "m") == stats["cache_hit"]
    assert page.of("nv_cache_num_misses_per_model", "m") == stats["cache_miss"]
    assert page.of("nv_cache_hit_duration_per_model", "m") > 0 and page.of("nv_cache_miss_duration_per_model", "m") > 0
    assert not any(key[0].startswith("nv_cache") and ("model", "plain") in key for key in page.values)
    wait_for(lambda: scrape(cached).value("nv_cache_num_hits") >= stats["cache_hit"], 60, "the gauges")
    page = scrape(cached)
    assert page.value("nv_cache_num_lookups") == page.value("nv_cache_num_hits") + page.value("nv_cache_num_misses")
    assert page.value("nv_cache_num_entries") > 0 and 0 < page.value("nv_cache_util") < 1
    assert all(page.value(name) >= 0 for name in ("nv_cache_num_evictions", "nv_cache_lookup_duration", "nv_cache_insertion_duration"))


# ---- Starts

STARTS = {
    "several": ([LOCAL, "--cache-config=redis,host=x"], "found multiple cache configurations, but only a single cache is currently supported"),
    "not_there": (["--cache-config=none,size=1"], "unable to find 'libtritoncache_none.so' for cache. Searched: "),
    "no_size": (["--cache-config=local,other=1"], "Failed to initialize LocalCache: config didn't contain a valid 'size' field."),
    "bad_size": (["--cache-config=local,size=abc"], "Failed to initialize LocalCache: "),
    "no_directory": ([LOCAL, "--cache-directory="], "cache directory can not be empty"),
}


@pytest.mark.parametrize("which", ["conch", "triton"])
@pytest.mark.parametrize("start", STARTS)
def test_a_start_that_fails_says_why(start, which, tmp_path):
    flags, text = STARTS[start]
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())
    caches = OURS.resolve() if which == "conch" else GENUINE
    server = make(which, write_models(tmp_path), caches, *flags)
    done = subprocess.run(server.args, env=server.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert text in done.stderr + done.stdout


def test_the_last_value_of_a_setting_counts(tmp_path):
    with make("conch", write_models(tmp_path), OURS.resolve(), "--cache-config=local,size=7", '--cache-config=local,"x=a\\b', LOCAL) as server:
        identity(server, [1.0])
        identity(server, [1.0])
        assert counts(server, "m")["cache_hit"] == 1
        assert "the cache 'local' has no setting '\\\"x'" in server.log()


def test_the_deprecated_flag_is_the_local_cache(tmp_path):
    with make("conch", write_models(tmp_path), OURS.resolve(), "--response-cache-byte-size=1048576") as server:
        identity(server, [1.0])
        identity(server, [1.0])
        assert counts(server, "m")["cache_hit"] == 1
        assert "'--response-cache-byte-size' has been deprecated!" in server.log()


# ---- Of Conch


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    with make("conch", write_models(tmp_path_factory.mktemp("models")), OURS.resolve(), LOCAL, "--model-control-mode=explicit",
              "--load-model=*") as server:
        yield server


def test_another_shape_or_output_is_another_response(ours):
    """The genuine server mixes up shapes of equal bytes (reference/behaviours §17.1)."""
    for shape in ([1, 4], [2, 2], [4, 1]):
        answer = infer(ours, "m", {"inputs": [given("INPUT0", "FP32", shape, [1, 2, 3, 4])]}).json()
        assert answer["outputs"][0]["shape"] == shape
    answer = infer(ours, "m", {"inputs": [given("INPUT0", "FP32", [1, 4], [1, 2, 3, 4])],
                               "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 1}}]}).json()
    assert answer["outputs"][0]["datatype"] == "BYTES"


def test_a_hit_has_the_shape_of_the_client(ours):
    """The backend answers [1, 1, 5]. The configuration makes [1, 5, 1] of that, once."""
    for _ in range(2):
        answer = infer(ours, "reshaped", {"inputs": [given("INPUT0", "FP32", [1, 5, 1], [1, 2, 3, 4, 5])]}).json()
        assert [(out["shape"], out["data"]) for out in answer["outputs"]] == [([1, 5, 1], [1, 2, 3, 4, 5])]
    assert counts(ours, "reshaped")["cache_hit"] == 1


def test_a_load_forgets_what_the_one_before_has_computed(ours):
    identity(ours, [5.0])
    identity(ours, [5.0])
    for what in ("unload", "load"):
        assert ask(ours, "POST", f"/v2/repository/models/m/{what}", b"{}").status == 200
    before = counts(ours, "m")
    identity(ours, [5.0])
    assert grown(before, counts(ours, "m"))["executions"] == 1


def test_both_protocols_share_the_responses(ours):
    identity(ours, [6.0])
    before = counts(ours, "m")
    with tritonclient.grpc.InferenceServerClient(ours.grpc_url) as client:
        given_input = tritonclient.grpc.InferInput("INPUT0", [1, 1], "FP32")
        given_input.set_data_from_numpy(numpy.array([[6.0]], numpy.float32))
        assert client.infer("m", [given_input]).as_numpy("OUTPUT0").tolist() == [[6.0]]
        stats = client.get_inference_statistics("m").model_stats[0].inference_stats
        assert stats.cache_hit.count == before["cache_hit"] + 1
        assert stats.compute_infer.count == stats.success.count - stats.cache_hit.count
    assert grown(before, counts(ours, "m"))["cache_hit"] == 1


def test_large_responses_are_found_in_full(ours):
    values = [float(i) for i in range(150_000)]
    for _ in range(2):
        answer = infer(ours, "m", {"inputs": [given("INPUT0", "FP32", [1, len(values)], values)]})
        assert answer.json()["outputs"][0]["data"] == values
    assert counts(ours, "m")["cache_hit"] > 0


@contextlib.contextmanager
def held(tmp_path, models, do, *flags):
    """Conch with the cache `odd` (tests/caches/odd)."""
    gate = tmp_path / "gate"
    if do == "hold":
        gate.touch()
    with make("conch", models, servers.BUILD.resolve() / "tests/caches", f"--cache-config=odd,do={do}", f"--cache-config=odd,file={gate}", *flags) as server:
        yield server, gate
        gate.unlink(missing_ok=True)


@pytest.mark.sanitize
def test_a_cache_that_does_not_answer_holds_up_no_other_model(tmp_path, models):
    import threading
    with held(tmp_path, write_models(models), "hold") as (server, gate):
        waiting = [threading.Thread(target=identity, args=(server, [float(i)])) for i in range(4)]
        for thread in waiting:
            thread.start()
        wait_for(lambda: os.path.exists(f"{gate}.reached"), 20, "the look-up")
        for _ in range(20):
            identity(server, [1.0], "plain")
        assert ask(server, "GET", "/v2/health/ready").status == 200
        gate.unlink()
        for thread in waiting:
            thread.join()
        assert counts(server, "m")["success"] == 4


@pytest.mark.sanitize
def test_a_request_that_nobody_waits_for_ends_before_the_cache_answers(tmp_path, models):
    """A client over HTTP that is gone, and a call of gRPC with a deadline."""
    body = json.dumps({"inputs": [given("INPUT0", "FP32", [1, 1], [1.0])]}).encode()
    with held(tmp_path, write_models(models), "hold", *METRICS) as (server, gate):
        def n_cancelled():
            return scrape(server).value("nv_inference_request_failure", model="m", version="1", reason="CANCELED")
        with socket.create_connection(("localhost", server.port)) as client:
            client.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            wait_for(lambda: os.path.exists(f"{gate}.reached"), 20, "the look-up")
            assert n_cancelled() == 0
        wait_for(lambda: n_cancelled() == 1, 20, "the end of the request")
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            given_input = tritonclient.grpc.InferInput("INPUT0", [1, 1], "FP32")
            given_input.set_data_from_numpy(numpy.array([[2.0]], numpy.float32))
            with pytest.raises(tritonclient.utils.InferenceServerException, match="Deadline"):
                client.infer("m", [given_input], client_timeout=0.2)
        wait_for(lambda: n_cancelled() == 2, 20, "the end of the call")
        assert os.path.exists(gate)
        assert counts(server, "m")["executions"] == 0
        gate.unlink()
        identity(server, [1.0])
        assert counts(server, "m")["success"] == 1


@pytest.mark.parametrize("do", ["garble", "lie", "fail", "full"])
def test_a_cache_that_fails_is_named_and_costs_no_answer(do, tmp_path, models):
    with held(tmp_path, write_models(models), do) as (server, _):
        for _ in range(3):
            identity(server, [1.0])
        wait_for(lambda: "cache 'odd'" in server.log() or "Failed to insert key [" in server.log(), 60, "the log")
        assert counts(server, "m")["cache_hit"] == 0
