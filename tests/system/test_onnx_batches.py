# SPDX-License-Identifier: Apache-2.0
"""Concurrent requests are one run of an ONNX model, with the dynamic batcher and the backend onnxruntime, in Conch and in
the genuine Triton."""

import concurrent.futures

import numpy
import pytest
import tritonclient.http

import onnx_models
import repository
import server as servers
import triton

pytest.importorskip("onnx")
pytestmark = pytest.mark.skipif(servers.REFERENCE, reason="asks the genuine Triton by itself")

# A batch begins when eight rows have arrived, and no delay ends before.
EIGHT = "dynamic_batching { preferred_batch_size: [8] max_queue_delay_microseconds: 60000000 }\n"


def start(which, root):
    if which == "conch":
        return servers.Server(root)
    if triton.missing():
        pytest.skip(triton.missing())
    return triton.Triton(root)


def copy(root, example, name, more=""):
    folder = root / name
    repository.copy_example(root, example).rename(folder)
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace(f'name: "{example}"', f'name: "{name}"', 1) + more)


@pytest.fixture(scope="module", params=["conch", "triton"])
def served(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("batches")
    for example in ("add_sub", "digits"):
        copy(root, example, f"{example}_together", EIGHT)
        copy(root, example, f"{example}_alone")
    with start(request.param, root) as running:
        yield running


def tensor(name, datatype, array):
    made = tritonclient.http.InferInput(name, array.shape, datatype)
    made.set_data_from_numpy(array)
    return made


def add_sub_of(rows, seed):
    random = numpy.random.default_rng(seed)
    return [tensor(name, "INT32", random.integers(-1000, 1000, (rows, 16), numpy.int32)) for name in ("INPUT0", "INPUT1")]


def digits_of(rows, seed):
    return [tensor("image", "FP32", numpy.random.default_rng(seed).integers(0, 17, (rows, 64)).astype(numpy.float32))]


def asked(url, model, inputs, outputs=None):
    """The outputs of one request, on a connection of its own."""
    wanted = outputs and [tritonclient.http.InferRequestedOutput(name) for name in outputs]
    with tritonclient.http.InferenceServerClient(url, connection_timeout=60, network_timeout=90) as client:
        result = client.infer(model, inputs, outputs=wanted)
    return {output["name"]: result.as_numpy(output["name"]) for output in result.get_response()["outputs"]}


def together(url, model, requests):
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(lambda request: asked(url, model, *request), requests))


def counts(url, model):
    """Inferences, runs, and runs by batch size."""
    with tritonclient.http.InferenceServerClient(url) as client:
        stats = client.get_inference_statistics(model)["model_stats"][0]
    return stats["inference_count"], stats["execution_count"], {s["batch_size"]: s["compute_infer"]["count"] for s in stats["batch_stats"]}


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        assert got[name].shape == array.shape
        # A kernel may add numbers in an order that depends on the number of rows.
        assert numpy.allclose(got[name], array, rtol=1e-4, atol=1e-6), (name, got[name], array)


@pytest.mark.parametrize("example, inputs_of", [("add_sub", add_sub_of), ("digits", digits_of)])
def test_concurrent_requests_are_one_run(served, example, inputs_of):
    rounds = [[1] * 8, [3, 1, 2, 2], [1, 7], [4, 4]]
    before, alone = counts(served.url, f"{example}_together"), counts(served.url, f"{example}_alone")
    for n, sizes in enumerate(rounds, 1):
        requests = [(inputs_of(rows, 100 * n + i),) for i, rows in enumerate(sizes)]
        answers = together(served.url, f"{example}_together", requests)
        for request, got in zip(requests, answers, strict=True):
            assert_same(got, asked(served.url, f"{example}_alone", *request))
        assert counts(served.url, f"{example}_together") == (before[0] + 8 * n, before[1] + n, {8: before[1] + n})
    n_requests = sum(map(len, rounds))
    assert counts(served.url, f"{example}_alone")[:2] == (alone[0] + 8 * len(rounds), alone[1] + n_requests)


def test_each_request_gets_its_requested_outputs(served):
    before = counts(served.url, "add_sub_together")
    wanted = [["OUTPUT1"], ["OUTPUT0"], None, ["OUTPUT1", "OUTPUT0"]]
    requests = [(add_sub_of(2, i), outputs) for i, outputs in enumerate(wanted)]
    for request, got in zip(requests, together(served.url, "add_sub_together", requests), strict=True):
        assert_same(got, asked(served.url, "add_sub_alone", *request))
    after = counts(served.url, "add_sub_together")
    assert (after[0] - before[0], after[1] - before[1]) == (8, 1)


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_a_completed_configuration_forms_batches(which, tmp_path, monkeypatch):
    """Without a configuration: at most four rows, without a delay; in this test no batch is formed before eight requests wait."""
    onnx_models.identity(tmp_path / "bare", "FP32", ("b", 3))
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "8")
    requests = [([tensor("IN", "FP32", numpy.full((1, 3), i, numpy.float32))],) for i in range(8)]
    with start(which, tmp_path) as running:
        for i, got in enumerate(together(running.url, "bare", requests)):
            assert_same(got, {"OUT0": numpy.full((1, 3), i, numpy.float32)})
        assert counts(running.url, "bare") == (8, 2, {4: 2})
