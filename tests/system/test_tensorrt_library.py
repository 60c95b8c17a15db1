# SPDX-License-Identifier: Apache-2.0
"""The backend tensorrt with TensorRT's own library, on a machine without a GPU: how far it goes, and what is said then. Behind
tests/cuda/fake_cuda.c as the driver the library's own CUDA refuses the driver, by the logger that the backend gives to it."""

import os
import pathlib

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

import repository
import server as servers
import triton

LIBRARY = (pathlib.Path(__file__).resolve().parents[2] / ".deps/tensorrt/libnvinfer.so.11").resolve()    # as the kernel names it
VERSION = "11.2.1"    # as tools/deps/pins has it
pytestmark = [pytest.mark.skipif(not LIBRARY.exists(), reason="`make test-tensorrt` installs TensorRT's library (556 MB)"),
              # It has no sanitizer, and takes gigabytes of its shadow.
              pytest.mark.skipif(servers.THREAD_SANITIZED, reason="ThreadSanitizer cannot see into TensorRT's library")]
REAL = {"CONCH_TENSORRT": str(LIBRARY)}
FAKE_DRIVER = {"LD_LIBRARY_PATH": str(servers.BUILD / "tests/cuda")}
REFUSED = ("unable to create TensorRT runtime: createInferRuntime: Error Code 6: API Usage Error (CUDA initialization failure with error: 35 "
           "In checkCudaInstallation at ")
NO_DRIVER = "TensorRT needs a GPU, and CUDA's driver cannot be used: libcuda.so.1: cannot open shared object file"
FLAGS = ["--exit-on-error=false", "--strict-readiness=false"]


@pytest.fixture
def models(tmp_path):
    """A plan that no release has written, and a model of another backend."""
    (repository.write_model(tmp_path, "plan", 'platform: "tensorrt_plan"\n') / "1/model.plan").write_bytes(b"ptrt" + bytes(4096))
    repository.write_identity(tmp_path, "other", [("FP32", [1])])
    return tmp_path


def check_other(server):
    x = np.array([7], np.float32)
    with tritonclient.http.InferenceServerClient(server.url, network_timeout=60) as client:
        assert client.is_server_live() and not client.is_model_ready("plan")
        answer = client.infer("other", [tritonclient.http.InferInput("INPUT0", [1], "FP32").set_data_from_numpy(x)])
        assert answer.as_numpy("OUTPUT0").tolist() == [7]


def test_the_version_is_told_without_a_gpu():
    code, out = servers.run_to_end("--version", env={**os.environ, **REAL})[:2]
    assert code == 0 and f"tensorrt: TensorRT {VERSION} from {LIBRARY}" in out


def test_without_a_driver_other_models_answer(models):
    with servers.Server(models, flags=FLAGS, env={**REAL, "LD_LIBRARY_PATH": ""}, ready=False) as running:
        assert NO_DRIVER in running.log()
        assert f"TensorRT {VERSION} from {LIBRARY}" in running.log()
        check_other(running)


def test_the_librarys_own_words_are_the_error(models):
    """Its pointer that is not NULL, but no object, is not followed."""
    with servers.Server(models, flags=FLAGS, env={**REAL, **FAKE_DRIVER}, ready=False) as running:
        assert f"failed to load 'plan' version 1: Internal: {REFUSED}" in running.log()
        assert "TensorRT: " not in running.log(), "what the error says is not logged, too"
        check_other(running)


def test_the_library_logs_by_our_logger(models):
    """Its own plugins are registered with it, without a GPU; each of them is a message."""
    with servers.Server(models, flags=[*FLAGS, "--log-verbose=1"], env={**REAL, "LD_LIBRARY_PATH": ""}, ready=False) as running:
        assert "TensorRT: Registered plugin creator - ::EfficientNMS_TRT version 1" in running.log()
        assert running.log().count("TensorRT: Registered plugin creator - ") > 30


def test_loads_that_fail_may_be_repeated(models):
    flags = ["--model-control-mode=explicit", "--load-model=other"]
    with servers.Server(models, flags=flags, env={**REAL, **FAKE_DRIVER}) as running:
        with tritonclient.http.InferenceServerClient(running.url, network_timeout=60) as client:
            for _ in range(20):
                with pytest.raises(InferenceServerException, match="CUDA initialization failure with error: 35"):
                    client.load_model("plan")
                client.unload_model("plan")
        check_other(running)
        with open(f"/proc/{running.pid}/maps", encoding="utf-8") as maps:
            assert str(LIBRARY) in maps.read(), "it stays in the process"


@triton.needed
def test_the_genuine_triton_tells_the_same(models):
    running = triton.Triton(models, flags=FLAGS, ready=False)
    running.env |= {**REAL, "LD_LIBRARY_PATH": ""}
    with running:
        running.wait_log("failed to load 'plan' version 1: Unavailable: " + NO_DRIVER)
        check_other(running)
