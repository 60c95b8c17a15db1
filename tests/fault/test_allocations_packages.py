# SPDX-License-Identifier: Apache-2.0
"""The backend pytorch with a package of AOTInductor while the n-th allocation of its own code fails (allocfault.c), for every n: a load
serves or fails with a clear error, and afterwards all works as before. What libarchive and the loader allocate is not failed."""

import json
import pathlib
import sys

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import aoti_packages  # noqa: E402
import preload  # noqa: E402
import repository  # noqa: E402
import server as servers  # noqa: E402
from allocations import Allocations  # noqa: E402
from faulty import descriptors  # noqa: E402
from wire import ask  # noqa: E402

NO_MEMORY = ("out of memory", "no memory")


def infer(server, columns=16):
    """columns: the model takes 16."""
    with tritonclient.http.InferenceServerClient(server.url) as client:
        inputs = [tritonclient.http.InferInput(name, (2, columns), "FP32") for name in ("a", "b")]
        values = np.arange(2 * columns, dtype=np.float32).reshape(2, columns)
        inputs[0].set_data_from_numpy(3 * values)
        inputs[1].set_data_from_numpy(values)
        np.testing.assert_array_equal(client.infer("m", inputs).as_numpy("difference"), 2 * values)


def serve_package(tmp_path, columns, allocations, n_outputs=3):
    """The server, which has not loaded the model yet."""
    outputs = [("output", "sum", "FP32", [columns]), ("output", "difference", "FP32", [columns]), ("output", "live", "INT64", [1])]
    tensors = [("input", "a", "FP32", [columns]), ("input", "b", "FP32", [columns]), *outputs[:n_outputs]]
    folder = repository.write_model(tmp_path / "models", "m", 'platform: "torch_aoti" max_batch_size: 8\n'
                                    "instance_group [ { count: 1 kind: KIND_CPU } ]\n" + "".join(repository.tensor(*t) for t in tensors))
    aoti_packages.write_package(folder / "1" / "model.pt2", aoti_packages.code(tmp_path / "mark"))
    environment = {**preload.environment("allocfault", ALLOC_LIBRARY="/libtriton_pytorch.so", ALLOC_COUNTS=str(allocations.path)),
                   "CONCH_TORCH": str(aoti_packages.library())}
    return servers.Server(tmp_path / "models", env=environment,
                          flags=["--model-control-mode=explicit", "--backend-config=pytorch,allow-native-code=1"])


def load(server):
    return ask(server, "POST", "/v2/repository/models/m/load")


def unload(server):
    assert ask(server, "POST", "/v2/repository/models/m/unload").status == 200
    servers.wait_for(lambda: "UNAVAILABLE" in ask(server, "POST", "/v2/repository/index").body.decode(), 60, "it is unloaded")


@pytest.mark.parametrize("goes_on", [False, True], ids=["one fails", "all from one on fail"])
def test_a_load_without_memory_fails_clearly(goes_on, tmp_path):
    allocations = Allocations(tmp_path / "allocations")
    with serve_package(tmp_path, 16, allocations) as server:
        assert load(server).status == 200
        infer(server)
        unload(server)
        before, n, n_failed, met = descriptors(server), 0, 0, True
        while met:
            n += 1
            allocations.fail(n, goes_on)
            answer = load(server)
            met = allocations.count() >= n
            allocations.fail(0)
            if answer.status == 200:
                infer(server)
                unload(server)
                continue
            n_failed += 1
            assert any(text in json.loads(answer.body)["error"] for text in NO_MEMORY), (n, answer.body)
        assert n_failed > 20, "the backend's allocations are not seen"
        assert load(server).status == 200
        infer(server)
        unload(server)
        # The code stays open, once; nothing else does.
        servers.wait_for(lambda: descriptors(server) <= before, 20, f"{before} descriptors are open again")


@pytest.mark.parametrize("goes_on", [False, True], ids=["one fails", "all from one on fail"])
def test_a_first_request_without_memory_is_refused(goes_on, tmp_path):
    """Of a model that is not executed before: its sizes are not all known."""
    allocations = Allocations(tmp_path / "allocations")
    with serve_package(tmp_path, -1, allocations) as server:
        n, n_failed, met = 0, 0, True
        while met:
            n += 1
            assert load(server).status == 200
            allocations.fail(n, goes_on)
            try:
                infer(server)
            except InferenceServerException as error:
                n_failed += 1
                assert any(text in error.message() for text in NO_MEMORY), (n, error.message())
            met = allocations.count() >= n
            allocations.fail(0)
            infer(server)
            unload(server)
        assert n_failed > 0, "the backend's allocations are not seen"


@pytest.mark.parametrize("n_outputs", [2, 3])
def test_a_later_request_without_memory_for_its_error_is_refused(n_outputs, tmp_path):
    """The instance has what an earlier run returned into; an output whose rows do not lie one after the other needs memory in each
    run. Two outputs: those that the run has described before the memory lacks."""
    allocations = Allocations(tmp_path / "allocations")
    with serve_package(tmp_path, -1, allocations, n_outputs) as server:
        assert load(server).status == 200
        for columns in (16, 8):  # the model refuses 8 by itself
            infer(server)
            allocations.fail(1, goes_on=True)
            with pytest.raises(InferenceServerException, match="out of memory"):
                infer(server, columns)
            assert allocations.count() > 0
            allocations.fail(0)
        infer(server)
