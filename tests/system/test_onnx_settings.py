# SPDX-License-Identifier: Apache-2.0
"""What a configuration and the command line set in ONNX Runtime: parameters of models, graph levels, execution
accelerators, custom operators, threads; the errors of wrong values; its log lines; the end of cancelled runs."""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import subprocess

import pytest

import embed
import onnx_models
import repository
import server as servers
from server import Server, wait_for
from wire import given, infer, leave_run

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parents[2]
PLAIN = 'backend: "onnxruntime"\n' + repository.tensor("input", "IN", "FP32", [2]) + repository.tensor("output", "OUT0", "FP32", [2])
ONE_INSTANCE = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def accelerator(side, name, parameters=""):
    return f'optimization {{ execution_accelerators {{ {side}_execution_accelerator [ {{ name: "{name}" {parameters} }} ] }} }}\n'


def write(root, name, more=""):
    folder = repository.write_model(root, name, PLAIN + more)
    onnx_models.identity(folder, "FP32", (2,))
    return folder


def double(server, name, output="OUT0"):
    answer = infer(server, name, {"inputs": [given("IN", "FP32", [2], [1, 2])], "outputs": [{"name": output}]})
    assert answer.status == 200, answer
    return answer.json()["outputs"][0]["data"]


ACCEPTED = {
    "level_basic": "optimization { graph { level: -1 } }",
    "level_all": "optimization { graph { level: 0 } }",
    "level_extended": "optimization { graph { level: 1 } }",
    "level_none": "optimization { graph { level: 2 } }",
    "threads": parameter("intra_op_thread_count", 2) + parameter("inter_op_thread_count", 1),
    "threads_own": parameter("enable_global_threadpool", 0),
    "parallel": parameter("execution_mode", 1),
    "no_arena": parameter("enable_mem_arena", 0),
    "no_pattern": parameter("enable_mem_pattern", 0),
    "shrinkage": parameter("memory.enable_memory_arena_shrinkage", "cpu:0"),
    "session": parameter("session.use_device_allocator_for_initializers", 1) + parameter("session.disable_prepacking", 1)
               + parameter("session.use_external_initializer_file_buffers_directly", 0) + parameter("ep.cuda.fpa_intb_profile_m", 1)
               + parameter("ep.context_enable", 0),
    "run": parameter("run.disable_synchronize_execution_providers", 1),
    "cuda": parameter("cudnn_conv_algo_search", 2) + parameter("gpu_mem_limit", 18446744073709551615)
            + parameter("arena_extend_strategy", 1) + parameter("do_copy_in_default_stream", 0),
}

NOT_A_NUMBER = r"Invalid argument: parameter '{}' must be a whole number from {} to {}, got '{}'"
REFUSED = {
    "level": ("optimization { graph { level: 3 } }", r"Invalid argument: field 'optimization.graph.level' must be -1 \(basic\), 0 \(all\), "
              r"1 \(extended\) or 2 \(none\), got 3"),
    "intra": (parameter("intra_op_thread_count", "many"), NOT_A_NUMBER.format("intra_op_thread_count", 0, 4096, "many")),
    "intra_high": (parameter("intra_op_thread_count", 4097), NOT_A_NUMBER.format("intra_op_thread_count", 0, 4096, 4097)),
    "inter": (parameter("inter_op_thread_count", -1), NOT_A_NUMBER.format("inter_op_thread_count", 0, 4096, -1)),
    "mode": (parameter("execution_mode", 2), NOT_A_NUMBER.format("execution_mode", 0, 1, 2)),
    "pool": (parameter("enable_global_threadpool", "x"), NOT_A_NUMBER.format("enable_global_threadpool", 0, 1, "x")),
    "arena": (parameter("enable_mem_arena", "yes"), NOT_A_NUMBER.format("enable_mem_arena", 0, 1, "yes")),
    "pattern": (parameter("enable_mem_pattern", 9), NOT_A_NUMBER.format("enable_mem_pattern", 0, 1, 9)),
    "map": (parameter("map_external_data", 2), NOT_A_NUMBER.format("map_external_data", 0, 1, 2)),
    "shrinkage": (parameter("memory.enable_memory_arena_shrinkage", "cpu"),
                  r"Invalid argument: parameter 'memory.enable_memory_arena_shrinkage' must be like 'cpu:0;gpu:0', got 'cpu'"),
    "algo": (parameter("cudnn_conv_algo_search", 3), NOT_A_NUMBER.format("cudnn_conv_algo_search", 0, 2, 3)),
    "arenas": (parameter("arena_extend_strategy", 2), NOT_A_NUMBER.format("arena_extend_strategy", 0, 1, 2)),
    "stream": (parameter("do_copy_in_default_stream", "a"), NOT_A_NUMBER.format("do_copy_in_default_stream", 0, 1, "a")),
    "limit": (parameter("gpu_mem_limit", "1GB"), r"Invalid argument: parameter 'gpu_mem_limit' must be a number of bytes, got '1GB'"),
    "openvino": (accelerator("cpu", "openvino"), r"Unsupported: execution accelerator 'openvino' needs OpenVINOExecutionProvider, which ONNX "
                 r"Runtime \S+ in '\S+' does not offer; it has .*CPUExecutionProvider"),
    "cuda": (accelerator("gpu", "cuda"), r"Unsupported: execution accelerator 'cuda' needs CUDAExecutionProvider, .*"),
    "tensorrt": (accelerator("gpu", "tensorrt", 'parameters { key: "precision_mode" value: "FP16" }'),
                 r"Unsupported: execution accelerator 'tensorrt' needs TensorrtExecutionProvider, .*"),
    "unknown": (accelerator("gpu", "magic"), r"Invalid argument: unknown Execution Accelerator 'magic' is requested"),
    "other_side": (accelerator("cpu", "cuda"), r"Invalid argument: unknown Execution Accelerator 'cuda' is requested"),
    "made": ('batch_input { target_name: "X" data_type: TYPE_FP32 source_input: "IN" }', r"Invalid argument: unable to load model 'not_made', "
             r"configuration expects 2 inputs, model provides 1"),
    **{f"file_{i}": (parameter(key, "/nowhere/x"), rf"Invalid argument: parameter '{re.escape(name)}' has ONNX Runtime read or write "
                     r"files, got '/nowhere/x'; --backend-config=onnxruntime,allow-file-settings=1 permits that")
       for i, (key, name) in enumerate([*((key, key) for key in (
           "session.node_partition_config_file", "session.collect_node_memory_stats_to_file", "session.optimized_model_filepath",
           "session.optimized_model_external_initializers_file_name", "session.moe_expert_counter_state_file",
           "session.model_external_initializers_file_folder_path", "session.resource_cuda_partitioning_settings",
           "ep.context_file_path", "ep.context_enable", "ep.context_model_external_initializers_file_name", "ep.x.y-file")),
           ("run.qnn.lora_config", "qnn.lora_config")])},
    **{f"address_{i}": (parameter(key, "140000000000000"), rf"Invalid argument: parameter '{re.escape(key.removeprefix('run.'))}' names an "
                        r"address in the server's memory, got '140000000000000'; no configuration can know one, so it cannot be set")
       for i, key in enumerate(("ep.cudaexecutionprovider.user_compute_stream", "ep.webgpuexecutionprovider.dawnProcTable",
                                "ep.OpenVINOExecutionProvider.context", "session.user_allocator_ptr", "run.user_compute_stream"))},
    "ops_missing": ('model_operations { op_library_filename: "no.so" }', r"Not found: library of custom operators 'no.so' "
                    r"\(op_library_filename\): No such file or directory"),
    "ops_outside": ('model_operations { op_library_filename: "../../outside.so" }', r"Invalid argument: library of custom operators "
                    r"'../../outside.so' \(op_library_filename\) is not in the model repository '\S+'"),
    "ops_absolute": ('model_operations { op_library_filename: "/etc/hostname" }', r"Invalid argument: library of custom operators "
                     r"'/etc/hostname' \(op_library_filename\) is not in the model repository '\S+'"),
    "ops_pipe": ('model_operations { op_library_filename: "pipe.so" }', r"Invalid argument: library of custom operators 'pipe.so' "
                 r"\(op_library_filename\) is no regular file"),
    "ops_no_library": ('model_operations { op_library_filename: "config.pbtxt" }', r"Internal: onnx runtime error \d+: .*config.pbtxt.*"),
}


def build_custom_op(folder):
    subprocess.run(["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", f"-I{TOP / 'backends'}", "-o", folder / "twice.so",
                    TOP / "tests/system/custom_op.c"], check=True)


def write_custom_op(root):
    folder = repository.write_model(root, "custom", PLAIN.replace("OUT0", "OUT") + 'model_operations { op_library_filename: "twice.so" }')
    build_custom_op(folder)
    graph = helper.make_graph([helper.make_node("Twice", ["IN"], ["OUT"], domain="conch.test")], "g",
                              [onnx_models.tensor("IN", "FP32", [2])], [onnx_models.tensor("OUT", "FP32", [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("conch.test", 1)])
    model.ir_version = 8
    onnx.save(model, folder / "1" / "model.onnx")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("settings")
    (root / "outside.so").write_bytes(b"")
    models = root / "models"
    models.mkdir()
    for name, more in ACCEPTED.items():
        write(models, name, more)
    for name, (more, _) in REFUSED.items():
        write(models, f"not_{name}", more)
    os.mkfifo(models / "not_ops_pipe" / "pipe.so")
    write_custom_op(models)
    with Server(models, flags=["--exit-on-error=false", "--strict-readiness=false"], ready=None) as running:
        running.await_rest()
        yield running


@pytest.mark.parametrize("allowed", [False, True])
def test_a_setting_that_writes_a_file_needs_permission(models, tmp_path, allowed):
    """If permitted, the library writes the file."""
    write(models, "m", parameter("session.node_partition_config_file", tmp_path / "written"))
    flags = ["--backend-config=onnxruntime,allow-file-settings=1"] if allowed else []
    with Server(models, flags=["--exit-on-error=false", "--strict-readiness=false", *flags], ready=None) as running:
        if allowed:
            running.wait_log("Loaded 1 of 1")
            double(running, "m")
        else:
            running.await_rest()
            assert "failed to load 'm' version 1: Invalid argument: parameter 'session.node_partition_config_file'" in running.log()
    assert bool(list(tmp_path.glob("*written*"))) == allowed


@pytest.mark.parametrize("name", ACCEPTED)
def test_right_values_are_accepted(server, name):
    assert double(server, name) == [1, 2]


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_values_are_refused_by_name_and_value(server, name):
    line = re.search(rf"failed to load 'not_{name}' version 1: (.*)\"\n", server.log())
    assert re.fullmatch(REFUSED[name][1] + r"( \(.*config\.pbtxt:\d+:\d+\))?", line[1]), line[1]


def test_custom_operators_are_loaded(server):
    assert double(server, "custom", "OUT") == [2, 4]


# ---- threads -------------------------------------------------------------------------------------


def n_threads(server):
    return len(server.names_of_threads())


@contextlib.contextmanager
def asked(models, *flags):
    """A server with the models, after each has had a request. The threads of the start may still be ending."""
    with Server(models, flags=flags) as running:
        for folder in sorted(models.iterdir()):
            assert double(running, folder.name) == [1, 2]
        yield running


def threads_of(models, *flags):
    with asked(models, *flags) as running:
        return n_threads(running)


def write_many(root, n, more=""):
    root.mkdir()
    for i in range(n):
        write(root, f"m{i}", ONE_INSTANCE + more)
    return root


def test_models_share_threads(tmp_path):
    """Five models more need at most five threads more, those of their instances. With pools of three each they need ten
    besides."""
    one, six = write_many(tmp_path / "one", 1), write_many(tmp_path / "six", 6)
    own = write_many(tmp_path / "own", 6, parameter("intra_op_thread_count", 3))
    with asked(one) as few, asked(six) as many:
        wait_for(lambda: n_threads(many) - n_threads(few) <= 5, 60, "at most five threads more")
        shared = n_threads(many)
    assert threads_of(own) >= shared + 10


def test_a_setting_sizes_the_shared_pool(tmp_path):
    one = write_many(tmp_path / "one", 1)
    size = "--backend-config=onnxruntime,intra_op_thread_count="
    with Server(one, flags=[size + "1"]) as few, Server(one, flags=[size + "9"]) as many:
        wait_for(lambda: n_threads(many) == n_threads(few) + 8, 60, "8 threads more")
        assert threads_of(one, "--backend-config=onnxruntime,enable-global-threadpool=0", size + "9") < n_threads(many)


@pytest.mark.parametrize("word", ["on", "OFF", "True", "0"])
def test_a_setting_is_yes_or_no_in_the_words_of_triton(models, word):
    write(models, "m")
    with Server(models, flags=[f"--backend-config=onnxruntime,allow-spinning={word}"]) as running:
        assert double(running, "m") == [1, 2]


@pytest.mark.parametrize("setting, said", [
    ("intra_op_thread_count=x", "intra_op_thread_count must be a whole number from 0 to 4096, got 'x'"),
    ("inter_op_thread_count=5000", "inter_op_thread_count must be a whole number from 0 to 4096, got '5000'"),
    ("enable-global-threadpool=maybe", "enable-global-threadpool must be 0, 1, true or false, got 'maybe'"),
    ("allow-spinning=2", "allow-spinning must be 0, 1, true or false, got '2'"),
    ("default-max-batch-size=-1", "default-max-batch-size must be a whole number from 0 to 2147483647, got '-1'"),
])
def test_wrong_settings_end_the_start(models, setting, said):
    write(models, "m")
    code, _, err = servers.run_to_end(f"--model-repository={models}", f"--backend-directory={servers.BACKENDS}", "--http-port=0",
                                      "--allow-grpc=false", "--allow-metrics=false", f"--backend-config=onnxruntime,{setting}")
    assert code == 1
    assert f"--backend-config=onnxruntime,{said}" in err


def test_an_unknown_setting_is_ignored_with_a_warning(models):
    """The server ignores it with a warning. Known settings, those for all backends included, cause no warning."""
    write(models, "m")
    flags = ["onnxruntime,intra-op-thread-count=3", "onnxruntime,inter_op_thread_count=1", "default-max-batch-size=2", "identity,mine=1"]
    with Server(models, flags=[f"--backend-config={flag}" for flag in flags]) as running:
        assert double(running, "m") == [1, 2]
        assert re.findall(r"W\d{4} .*--backend-config: (.*)\"", running.log()) == [
            "'intra-op-thread-count' is no setting of onnxruntime, so '3' has no effect on it"]


def resident_mb(server):
    text = pathlib.Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) / 1024


@pytest.mark.skipif(servers.SANITIZED, reason="a sanitizer keeps freed memory")
def test_instances_share_weights(tmp_path):
    """40 MB of weights: three instances more take less than half of that more."""
    weights = helper.make_tensor("W", TensorProto.FLOAT, [10_000_000], bytes(40_000_000), raw=True)
    seen = []
    for count in (1, 4):
        root = tmp_path / str(count)
        root.mkdir()
        folder = repository.write_model(root, "m", PLAIN.replace("OUT0", "OUT") + f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]\n")
        onnx_models.write(
            folder, [onnx_models.tensor("IN", "FP32", [2])], [onnx_models.tensor("OUT", "FP32", [2])],
            [helper.make_node("ReduceSum", ["W"], ["sum"], keepdims=0), helper.make_node("Add", ["IN", "sum"], ["OUT"])], [weights])
        with Server(root, flags=["--backend-config=onnxruntime,intra_op_thread_count=1"]) as running:
            assert double(running, "m", "OUT") == [1, 2]
            seen.append(resident_mb(running))
    assert seen[1] - seen[0] < 20


# ---- log -----------------------------------------------------------------------------------------


def test_the_log_names_the_library(server):
    assert re.search(r"ONNX Runtime 1\.\d+\.\d+ from /\S+/libonnxruntime\.so\S*, providers: .*CPUExecutionProvider", server.log())


def test_lines_of_the_library_are_in_a_verbose_log(models):
    """With a verbose log, the library's lines about a session are logged under the model's name; otherwise they are not."""
    write(models, "quiet_model")
    line = re.compile(r"^I\d{4} \S+ +\d+ \w+\.cc:\d+\] \"?ONNX Runtime, quiet_model: ", re.MULTILINE)
    for flags in ([], ["--log-verbose=1"]):
        with Server(models, flags=flags) as running:
            double(running, "quiet_model")
            found = wait_for(lambda: line.search(running.log()), 60, "a line of ONNX Runtime") if flags else line.search(running.log())
            assert bool(found) == bool(flags)


# ---- cancelled runs ------------------------------------------------------------------------------


def write_loop(root, name, more=ONE_INSTANCE):
    """OUT = 0 + 1 + 1 + …, N times, so that a request decides how long it takes."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Add", ["sum", "one"], ["next"])],
        "body",
        [onnx_models.tensor("i", "INT64", []), onnx_models.tensor("on", "BOOL", []), onnx_models.tensor("sum", "INT64", [1])],
        [onnx_models.tensor("still", "BOOL", []), onnx_models.tensor("next", "INT64", [1])],
        [helper.make_tensor("one", TensorProto.INT64, [1], [1])],
    )
    config = 'backend: "onnxruntime"\n' + repository.tensor("input", "N", "INT64", [1]) + repository.tensor("output", "OUT", "INT64", [1])
    onnx_models.write(
        repository.write_model(root, name, config + more),
        [onnx_models.tensor("N", "INT64", [1])], [onnx_models.tensor("OUT", "INT64", [1])],
        [helper.make_node("Loop", ["N", "", "zero"], ["OUT"], body=body)],
        [helper.make_tensor("zero", TensorProto.INT64, [1], [0])],
    )


FOREVER = {"inputs": [given("N", "INT64", [1], [1000000000000])]}


def test_a_client_that_leaves_ends_its_run(models):
    write_loop(models, "loop")
    with Server(models) as running:
        def count(n):
            return infer(running, "loop", {"inputs": [given("N", "INT64", [1], [n])]}).json()["outputs"][0]["data"]

        assert count(3) == [3]
        for turn in range(3):
            leave_run(running, "loop", FOREVER)
            assert count(turn) == [turn]  # by the same and only instance, whose run has ended


def test_a_cancelled_run_is_answered_as_cancelled(models):
    """By the C API, whose caller gets the answer; twice, since the same run options serve the next run."""
    write_loop(models, "loop")
    forever = "loop -1 - N:INT64:1:1000000000000"
    with embed.Session(models) as session:
        def check_short_run():
            said = session.do("infer c loop -1 - N:INT64:1:3")
            assert embed.of(said, "c")[0].startswith("response OUT:INT64:1:3"), said

        check_short_run()
        for name in "ab":
            session.start_run(name, forever)
            said = session.do(f"cancel {name}")
            assert re.fullmatch(r"error Cancelled: .*final", embed.of(said, name)[0]), said
        check_short_run()


def test_a_cancelled_run_leaves_other_runs_alone(models):
    """Two instances: the end of one client's run does not touch the run of another client."""
    write_loop(models, "loop", "instance_group [ { count: 2 kind: KIND_CPU } ]\n")
    with Server(models) as running, concurrent.futures.ThreadPoolExecutor(1) as pool:
        stays = pool.submit(infer, running, "loop", {"inputs": [given("N", "INT64", [1], [50000])]})
        leave_run(running, "loop", FOREVER)
        assert stays.result().json()["outputs"][0]["data"] == [50000]
