# SPDX-License-Identifier: Apache-2.0
"""The backend tensorrt on a GPU (`make test-gpu`): TensorRT builds engines from the ONNX models of examples/, and they answer what
ONNX Runtime answers for the same files. No machine has run these tests yet (docs/tensorrt.md).

They need a GPU, its driver and a Python with NVIDIA's package `tensorrt`: `python3`, or the one that CONCH_TENSORRT_PYTHON names. The
server finds TensorRT as it does for anybody, or by CONCH_TENSORRT."""

import concurrent.futures
import ctypes
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import np_to_triton_dtype

import repository
import server as servers

HERE = pathlib.Path(__file__).resolve().parent
PLAN = 'platform: "tensorrt_plan"\n'
PYTHON = os.environ.get("CONCH_TENSORRT_PYTHON", "python3")
RNG = np.random.default_rng(26)
ASKED = {"add_sub": {name: lambda rows: RNG.integers(-100, 100, (rows, 16), np.int32) for name in ("INPUT0", "INPUT1")},
         "digits": {"image": lambda rows: RNG.integers(0, 17, (rows, 64)).astype(np.float32)}}
WAYS = {"plain": "", "graphs": "optimization { cuda { graphs: true } }\n",
        "pageable": "optimization { input_pinned_memory { enable: false } output_pinned_memory { enable: false } }\n",
        "two": "instance_group [ { kind: KIND_GPU count: 2 } ]\n"}


def count_gpus():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    n = ctypes.c_int()
    return n.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(n)) == 0 else 0


pytestmark = pytest.mark.skipif(count_gpus() == 0, reason="this machine has no GPU of NVIDIA with a driver")


def build_engine(onnx, plan):
    done = subprocess.run([PYTHON, str(HERE / "build_engine.py"), str(onnx), str(plan)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for model in ASKED:
        onnx = repository.copy_example(root, model) / "1/model.onnx"
        plan = root.with_name(f"{model}.plan")
        build_engine(onnx, plan)
        for way, config in WAYS.items():
            shutil.copy(plan, repository.write_model(root, f"{model}_{way}", PLAN + config) / "1/model.plan")
    with servers.Server(root, flags=["--log-verbose=1"]) as running:
        yield running


def infer(server, model, given):
    with tritonclient.http.InferenceServerClient(server.url, network_timeout=120) as client:
        inputs = [tritonclient.http.InferInput(name, list(x.shape), np_to_triton_dtype(x.dtype)).set_data_from_numpy(x) for name, x in given.items()]
        answer = client.infer(model, inputs)
        return {o["name"]: answer.as_numpy(o["name"]) for o in answer.get_response()["outputs"]}


def check_answers(server, model, way, rows):
    given = {name: make(rows) for name, make in ASKED[model].items()}
    expected, got = infer(server, model, given), infer(server, f"{model}_{way}", given)
    assert expected.keys() == got.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=2e-2, atol=2e-2)    # TensorRT may compute in TF32


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", ASKED)
def test_answers_are_those_of_onnx_runtime(server, model, way):
    for rows in (1, 3, 8, 1):
        check_answers(server, model, way, rows)


@pytest.mark.parametrize("model", ASKED)
def test_many_requests_at_once(server, model):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: check_answers(server, model, "two", 1 + i % 8), range(200)))


def test_graphs_are_captured(server):
    for model in ASKED:
        assert f"captured 2 CUDA graphs for {model}_graphs_" in server.log()
    assert "not all CUDA graphs are captured" not in server.log()


def test_memory_of_the_gpu_that_a_client_shares(server):
    try:
        import tritonclient.utils.cuda_shared_memory as shared
    except (ImportError, RuntimeError) as missing:
        pytest.skip(str(missing))
    x = ASKED["digits"]["image"](4)
    region = shared.create_shared_memory_region("image", x.nbytes, 0)
    try:
        shared.set_shared_memory_region(region, [x])
        with tritonclient.http.InferenceServerClient(server.url, network_timeout=120) as client:
            client.register_cuda_shared_memory("image", shared.get_raw_handle(region), 0, x.nbytes)
            given = tritonclient.http.InferInput("image", list(x.shape), "FP32")
            given.set_shared_memory("image", x.nbytes)
            answer = client.infer("digits_plain", [given])
            client.unregister_cuda_shared_memory("image")
        expected = infer(server, "digits", {"image": x})
        for output in answer.get_response()["outputs"]:
            np.testing.assert_allclose(answer.as_numpy(output["name"]), expected[output["name"]], rtol=2e-2, atol=2e-2)
    finally:
        shared.destroy_shared_memory_region(region)


def test_a_file_that_is_no_plan_is_refused_in_tensorrts_words(tmp_path):
    (repository.write_model(tmp_path, "bad", PLAN) / "1/model.plan").write_bytes(b"no plan" * 1000)
    with servers.Server(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false"], ready=False) as running:
        assert "unable to create TensorRT engine of model 'bad' from " in running.log()
