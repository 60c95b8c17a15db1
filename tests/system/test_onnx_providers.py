# SPDX-License-Identifier: Apache-2.0
"""Execution accelerators of a configuration, with an ONNX Runtime that claims to have them (ort_stub.c): which options
reach which provider, in which order, and the error when a provider refuses. No GPU is used. Also all other parameters
and settings that reach ONNX Runtime."""

import os
import pathlib
import re
import subprocess

import pytest

import onnx_models
import preload
import repository
from server import Server
from wire import given, infer

pytest.importorskip("onnx")

TOP = pathlib.Path(__file__).resolve().parents[2]
CPUS = 3    # that the server sees
ALL = "TensorrtExecutionProvider,CUDAExecutionProvider,OpenVINOExecutionProvider,CPUExecutionProvider"
TENSORS = repository.tensor("input", "IN", "FP32", [2]) + repository.tensor("output", "OUT0", "FP32", [2])


def accelerators(**sides):
    """accelerators(gpu=[(name, {parameter: value}), …], cpu=…)"""

    def one(name, parameters):
        return f'{{ name: "{name}" ' + " ".join(f'parameters {{ key: "{k}" value: "{v}" }}' for k, v in parameters.items()) + " }"

    lists = " ".join(f"{side}_execution_accelerator [ {', '.join(one(*a) for a in given)} ]" for side, given in sides.items())
    return f"optimization {{ execution_accelerators {{ {lists} }} }}\n"


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def real_library():
    """The library that our server finds by itself."""
    named = os.environ.get("CONCH_ONNXRUNTIME")
    found = [named] if named else sorted((TOP / ".deps/onnxruntime").glob("libonnxruntime.so*"))
    if not found:
        pytest.skip("no ONNX Runtime in .deps/onnxruntime (make deps)")
    return str(found[-1])


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    library = tmp_path_factory.mktemp("stub") / "libonnxruntime.so"
    subprocess.run(["cc", "-std=gnu11", "-O1", "-Wall", "-shared", "-fPIC", f"-I{TOP / 'backends'}", "-o", library,
                    TOP / "tests/system/ort_stub.c", "-ldl"], check=True)
    return library


@pytest.fixture
def start(stub, models, tmp_path):
    """Starts a server with one model of that configuration; returns it and the calls that the stub got."""

    def begin(config, offers=ALL, fails=None, group="KIND_CPU", flags=(), tells=False):
        log = tmp_path / "asked"
        log.write_text("")
        group = f"instance_group [ {{ count: 1 kind: {group} }} ]\n"
        onnx_models.identity(repository.write_model(models, "m", 'backend: "onnxruntime"\n' + TENSORS + group + config), "FP32", (2,))
        told = {"ORT_STUB_REAL": real_library(), "ORT_STUB_OFFERS": offers, "ORT_STUB_LOG": str(log), "ORT_STUB_FAILS": fails or ""}
        if tells:
            told["ORT_STUB_TELLS"] = "1"
        return log, Server(models, flags=["--exit-on-error=false", "--strict-readiness=false",
                                          f"--backend-config=onnxruntime,library-path={stub}", *flags],
                           env={**told, **preload.environment("processors", PROCESSORS=str(CPUS))}, ready=None)

    return begin


def read(log):
    """Each line as its words, and the options as a dict."""
    lines = []
    for line in log.read_text().splitlines():
        words = line.split()
        lines.append((" ".join(w for w in words if "=" not in w), dict(w.split("=", 1) for w in words if "=" in w)))
    return lines


def through(word, options):
    """The calls of a provider that has an object for its options."""
    return [(f"{word} create", {}), (f"{word} update", options), (f"append {word}", options), (f"{word} release", {})]


SESSION = [("session", {})]
OLD_CUDA = (parameter("cudnn_conv_algo_search", 1) + parameter("gpu_mem_limit", 18446744073709551615)
            + parameter("arena_extend_strategy", 1) + parameter("do_copy_in_default_stream", 0))
SERVED = {
    "none": ("", SESSION),
    "cuda": (accelerators(gpu=[("cuda", {})]), through("cuda", {}) + SESSION),
    "cuda_options": (accelerators(gpu=[("cuda", {"device_id": 1, "cudnn_conv_use_max_workspace": 0})]),
                     through("cuda", {"device_id": "1", "cudnn_conv_use_max_workspace": "0"}) + SESSION),
    "cuda_by_parameters_of_the_model": (
        accelerators(gpu=[("cuda", {})]) + OLD_CUDA,
        through("cuda", {"cudnn_conv_algo_search": "HEURISTIC", "gpu_mem_limit": "18446744073709551615",
                         "arena_extend_strategy": "kSameAsRequested", "do_copy_in_default_stream": "0"}) + SESSION),
    "cuda_s_own_options_count": (
        accelerators(gpu=[("cuda", {"gpu_mem_limit": 5, "cudnn_conv_algo_search": "DEFAULT"})]) + OLD_CUDA,
        through("cuda", {"cudnn_conv_algo_search": "DEFAULT", "gpu_mem_limit": "5",
                         "arena_extend_strategy": "kSameAsRequested", "do_copy_in_default_stream": "0"}) + SESSION),
    "tensorrt_half": (accelerators(gpu=[("tensorrt", {"precision_mode": "FP16", "max_workspace_size_bytes": 1073741824})]),
                      through("tensorrt", {"trt_fp16_enable": "1", "trt_max_workspace_size": "1073741824"}) + SESSION),
    "tensorrt_bytes": (accelerators(gpu=[("tensorrt", {"precision_mode": "INT8", "int8_calibration_table_name": "t",
                                                       "int8_use_native_calibration_table": 1})]),
                       through("tensorrt", {"trt_int8_enable": "1", "trt_int8_calibration_table_name": "t",
                                            "trt_int8_use_native_calibration_table": "1"}) + SESSION),
    "tensorrt_single": (accelerators(gpu=[("tensorrt", {"precision_mode": "FP32", "trt_dla_enable": 1})]),
                        through("tensorrt", {"trt_dla_enable": "1"}) + SESSION),
    "no_files": (accelerators(gpu=[("tensorrt", {"trt_engine_cache_enable": 0, "trt_dump_subgraphs": "false"})]),
                 through("tensorrt", {"trt_engine_cache_enable": "0", "trt_dump_subgraphs": "false"}) + SESSION),
    "no_addresses": (accelerators(gpu=[("cuda", {"user_compute_stream": 0, "has_user_compute_stream": 0, "gpu_external_alloc": 0})]),
                     through("cuda", {"user_compute_stream": "0", "has_user_compute_stream": "0", "gpu_external_alloc": "0"}) + SESSION),
    "cuda_s_parameters_are_not_tensorrt_s": (accelerators(gpu=[("tensorrt", {})]) + OLD_CUDA, through("tensorrt", {}) + SESSION),
    "openvino": (accelerators(cpu=[("openvino", {"device_type": "CPU", "num_of_threads": 2})]),
                 [("append OpenVINO", {"device_type": "CPU", "num_of_threads": "2"})] + SESSION),
    "several_in_their_order": (accelerators(cpu=[("openvino", {})], gpu=[("tensorrt", {}), ("cuda", {"device_id": 0})]),
                               through("tensorrt", {}) + through("cuda", {"device_id": "0"}) + [("append OpenVINO", {})] + SESSION),
}


@pytest.mark.parametrize("name", SERVED)
def test_options_reach_their_provider(start, name):
    config, asked = SERVED[name]
    log, server = start(config)
    with server as running:
        running.wait_log("Loaded ")
        answer = infer(running, "m", {"inputs": [given("IN", "FP32", [2], [1, 2])]})
        assert answer.status == 200 and answer.json()["outputs"][0]["data"] == [1, 2], answer
        assert "providers: TensorrtExecutionProvider, CUDAExecutionProvider, OpenVINOExecutionProvider, CPUExecutionProvider" in running.log()
    assert read(log) == asked


def test_settings_of_files_reach_their_provider_when_that_is_permitted(start):
    options = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": "/nowhere"}
    log, server = start(accelerators(gpu=[("tensorrt", options)]), flags=["--backend-config=onnxruntime,allow-file-settings=true"])
    with server as running:
        running.wait_log("Loaded ")
    assert read(log) == through("tensorrt", options) + SESSION


def test_an_instance_chooses_its_device(start):
    log, server = start(accelerators(gpu=[("cuda", {})]), group="KIND_MODEL")
    with server as running:
        running.wait_log("Loaded ")
        assert infer(running, "m", {"inputs": [given("IN", "FP32", [2], [1, 2])]}).status == 200
    assert read(log) == through("cuda", {}) + SESSION


TOLD = r"Internal: onnx runtime error 1: the stub was told to refuse this call"
FILES = (r"Invalid argument: accelerator parameter '{}' has ONNX Runtime read or write files, got '{}'; "
         r"--backend-config=onnxruntime,allow-file-settings=1 permits that")
REFUSED = {
    "cuda_update": (accelerators(gpu=[("cuda", {"refuse_update": 1})]), TOLD, "cuda create, cuda update, cuda release"),
    "cuda_append": (accelerators(gpu=[("cuda", {"refuse_append": 1})]), TOLD, "cuda create, cuda update, append cuda, cuda release"),
    "tensorrt_update": (accelerators(gpu=[("tensorrt", {"refuse_update": 1})]), TOLD, "tensorrt create, tensorrt update, tensorrt release"),
    "tensorrt_append": (accelerators(gpu=[("tensorrt", {"refuse_append": 1})]), TOLD,
                        "tensorrt create, tensorrt update, append tensorrt, tensorrt release"),
    "openvino": (accelerators(cpu=[("openvino", {"refuse_append": 1})]), TOLD, "append OpenVINO"),
    "second": (accelerators(gpu=[("tensorrt", {}), ("cuda", {"refuse_append": 1})]), TOLD,
               "tensorrt create, tensorrt update, append tensorrt, tensorrt release, cuda create, cuda update, append cuda, cuda release"),
    "precision": (accelerators(gpu=[("tensorrt", {"precision_mode": "FP8"})]),
                  r"Invalid argument: parameter 'precision_mode' of execution accelerator 'tensorrt' must be FP32, FP16 or INT8, got 'FP8'", ""),
    "files": (accelerators(gpu=[("tensorrt", {"trt_engine_cache_enable": 1})]), FILES.format("trt_engine_cache_enable", "1"), ""),
    "a_folder": (accelerators(cpu=[("openvino", {"cache_dir": "/tmp/x"})]), FILES.format("cache_dir", "/tmp/x"), ""),
    "a_library": (accelerators(gpu=[("tensorrt", {"trt_extra_plugin_lib_paths": "/tmp/x.so"})]),
                  FILES.format("trt_extra_plugin_lib_paths", "/tmp/x.so"), ""),
    "side": (accelerators(cpu=[("tensorrt", {})]), r"Invalid argument: unknown Execution Accelerator 'tensorrt' is requested", ""),
}


def refused(start, config, **more):
    """The error of the load, and the calls that the stub got."""
    log, server = start(config, **more)
    with server as running:
        running.await_rest()
        found = re.search(r"failed to load 'm' version 1: (.*)\"\n", running.log())
        assert found, running.log()
    return found[1], ", ".join(what for what, _ in read(log))


@pytest.mark.parametrize("name", REFUSED)
def test_a_provider_that_refuses_fails_the_load(start, name):
    config, error, asked = REFUSED[name]
    said, was_asked = refused(start, config)
    assert re.fullmatch(error, said), said
    assert was_asked == asked


@pytest.mark.parametrize("flags", [(), ("--backend-config=onnxruntime,allow-file-settings=1",)])
@pytest.mark.parametrize("side, provider, setting", [
    ("gpu", "cuda", "user_compute_stream"), ("gpu", "cuda", "has_user_compute_stream"), ("gpu", "cuda", "gpu_external_alloc"),
    ("gpu", "cuda", "gpu_external_free"), ("gpu", "cuda", "gpu_external_empty_cache"), ("gpu", "tensorrt", "user_compute_stream"),
    ("gpu", "tensorrt", "trt_onnx_bytestream"), ("gpu", "tensorrt", "user_aux_stream_array"), ("cpu", "openvino", "context")])
def test_an_address_reaches_no_provider(start, side, provider, setting, flags):
    said, asked = refused(start, accelerators(**{side: [(provider, {setting: "0x7f0000000000"})]}), flags=flags)
    assert said == (f"Invalid argument: accelerator parameter '{setting}' names an address in the server's memory, got '0x7f0000000000'; "
                    "no configuration can know one, so it cannot be set")
    assert asked == ""


@pytest.mark.parametrize("name", ["cuda", "tensorrt"])
def test_a_provider_whose_options_cannot_be_made_fails_the_load(start, name):
    said, asked = refused(start, accelerators(gpu=[(name, {})]), fails=name)
    assert said == f"Internal: onnx runtime error 1: no {name} here"
    assert asked == ""


@pytest.mark.parametrize("name, needs", [("cuda", "CUDAExecutionProvider"), ("tensorrt", "TensorrtExecutionProvider")])
def test_a_provider_of_a_similar_name_is_not_mistaken(start, stub, name, needs):
    offers = f"My{needs},{needs}2,CPUExecutionProvider"
    said, asked = refused(start, accelerators(gpu=[(name, {})]), offers=offers)
    assert re.fullmatch(rf"Unsupported: execution accelerator '{name}' needs {needs}, which ONNX Runtime 1\.\S+ in '{re.escape(str(stub))}' "
                        rf"does not offer; it has {offers.replace(',', ', ')}", said), said
    assert asked == ""


def test_instances_on_gpus_are_refused_before_any_session(start):
    log, server = start(accelerators(gpu=[("cuda", {})]), group="KIND_GPU")
    with server as running:
        running.await_rest()
        assert "has kind KIND_GPU but server does not support GPUs" in running.log()
    assert read(log) == []


# ---- All other options -----------------------------------------------------------------------------

POOL = {"SetGlobalIntraOpNumThreads": CPUS, "SetGlobalInterOpNumThreads": 1, "SetGlobalSpinControl": 0}
BY_ITSELF = POOL | {"DisablePerSessionThreads": None, "SetIntraOpNumThreads": CPUS, "SetInterOpNumThreads": CPUS,
                    "SetSessionExecutionMode": 0, "SetSessionGraphOptimizationLevel": 99}


def level(number):
    return f"optimization {{ graph {{ level: {number} }} }}\n"


def setting(text):
    return [f"--backend-config=onnxruntime,{text}"]


# The configuration, flags, and the calls that differ from those without them; "-": not called.
OWN = {"DisablePerSessionThreads": "-"}
SLEEPS = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
TOLD_OF = {
    "nothing": ("", [], {}),
    "level_basic": (level(-1), [], {"SetSessionGraphOptimizationLevel": 1}),
    "level_all": (level(0), [], {"SetSessionGraphOptimizationLevel": 99}),
    "level_extended": (level(1), [], {"SetSessionGraphOptimizationLevel": 2}),
    "level_none": (level(2), [], {"SetSessionGraphOptimizationLevel": 0}),
    "intra": (parameter("intra_op_thread_count", CPUS), [], OWN),
    "intra_more": (parameter("intra_op_thread_count", CPUS + 1), [], OWN | {"SetIntraOpNumThreads": CPUS + 1, "AddSessionConfigEntry": SLEEPS}),
    "intra_spins": (parameter("intra_op_thread_count", CPUS + 1) + parameter("session.intra_op.allow_spinning", 1), [],
                    OWN | {"SetIntraOpNumThreads": CPUS + 1, "AddSessionConfigEntry": SLEEPS | {"session.intra_op.allow_spinning": "1"}}),
    "inter": (parameter("inter_op_thread_count", CPUS + 1), [], OWN | {"SetInterOpNumThreads": CPUS + 1}),
    "parallel": (parameter("execution_mode", 1), [], OWN | {"SetSessionExecutionMode": 1}),
    "parallel_more": (parameter("execution_mode", 1) + parameter("inter_op_thread_count", CPUS + 1), [],
                      OWN | {"SetSessionExecutionMode": 1, "SetInterOpNumThreads": CPUS + 1, "AddSessionConfigEntry": SLEEPS}),
    "parallel_in_a_pool": (parameter("execution_mode", 1), setting("inter_op_thread_count=2"),
                           {"SetSessionExecutionMode": 1, "SetGlobalInterOpNumThreads": 2}),
    "own_threads": (parameter("enable_global_threadpool", 0), [], OWN),
    "no_arena": (parameter("enable_mem_arena", 0), [], {"DisableCpuMemArena": None}),
    "arena": (parameter("enable_mem_arena", 1), [], {}),
    "no_pattern": (parameter("enable_mem_pattern", 0), [], {"DisableMemPattern": None}),
    "pattern": (parameter("enable_mem_pattern", 1), [], {}),
    "shrinkage": (parameter("memory.enable_memory_arena_shrinkage", "cpu:0"), [],
                  {"AddRunConfigEntry": {"memory.enable_memory_arena_shrinkage": "cpu:0"}}),
    "session": (parameter("session.use_device_allocator_for_initializers", 1) + parameter("optimization.minimal_build_optimizations", "")
                + parameter("ep.share_ep_contexts", 0) + parameter("mlas.enable_gemm_fastmath_arm64_bfloat16", 0), [],
                {"AddSessionConfigEntry": {"session.use_device_allocator_for_initializers": "1", "optimization.minimal_build_optimizations": "",
                                           "ep.share_ep_contexts": "0", "mlas.enable_gemm_fastmath_arm64_bfloat16": "0"}}),
    "run": (parameter("run.disable_synchronize_execution_providers", 1) + parameter("running", 1), [],
            {"AddRunConfigEntry": {"disable_synchronize_execution_providers": "1"}}),
    "pool": ("", setting("intra_op_thread_count=5") + setting("allow-spinning=1"),
             {"SetGlobalIntraOpNumThreads": 5, "SetGlobalSpinControl": 1}),
    "no_pool": ("", setting("enable-global-threadpool=false"), OWN | dict.fromkeys(POOL, "-")),
}


def gathered(lines):
    """{function: its arguments}; the arguments of functions that pass names are joined."""
    told = {}
    for what, options in lines:
        if what.startswith("Add"):
            told.setdefault(what, {}).update(options)
        elif what != "session":
            assert what not in told, lines
            told[what] = int(options["to"]) if options else None
    return told


@pytest.mark.parametrize("name", TOLD_OF)
def test_each_setting_reaches_the_library(start, name):
    """A session's own number of threads is set even where it uses the shared ones, without effect."""
    config, flags, otherwise = TOLD_OF[name]
    log, server = start(config, flags=flags, tells=True)
    with server as running:
        running.wait_log("Loaded ")
        assert infer(running, "m", {"inputs": [given("IN", "FP32", [2], [1, 2])]}).status == 200
    assert gathered(read(log)) == {what: to for what, to in (BY_ITSELF | otherwise).items() if to != "-"}


@pytest.mark.parametrize("version, maps", [("1.17.3", True), ("1.18.0", False)])
def test_external_data_with_releases_that_can_take_it_from_memory_or_not(stub, tmp_path, version, maps):
    onnx_models.external_rows(repository.write_model(tmp_path / "models", "m", 'backend: "onnxruntime"\n'))
    told = {"ORT_STUB_REAL": real_library(), "ORT_STUB_OFFERS": ALL, "ORT_STUB_LOG": str(tmp_path / "asked"), "ORT_STUB_VERSION": version}
    with Server(tmp_path / "models", flags=[f"--backend-config=onnxruntime,library-path={stub}"], env=told) as server:
        answer = infer(server, "m", {"inputs": [given("PLACE", "INT64", [1], [2])]})
        assert answer.json()["outputs"][0]["data"] == list(range(32, 48))
        assert ("w.bin" in pathlib.Path(f"/proc/{server.pid}/maps").read_text()) == maps
