# SPDX-License-Identifier: Apache-2.0
"""The program around the server: flags that warn or are refused, the line that says what is served, signals, exit codes."""

import re
import os
import pathlib
import signal
import subprocess

import grpc
import pytest

import repository
from server import BACKENDS, BIN, ROOT, Server, run_to_end, wait_for
from wire import ask

pytestmark = pytest.mark.conch_only("it is how Conch does it")


@pytest.fixture
def root(models):
    repository.write_identity(models, "m", [("FP32", [-1])])
    return models


def test_each_place_has_the_version(root):
    """The version of CMakeLists.txt, in every place."""
    version = subprocess.run([ROOT / "tools/version"], capture_output=True, text=True, check=True).stdout.strip()
    code, out, err = run_to_end("--version")
    assert (code, err) == (0, "")
    assert out.startswith(f"conch {version} (")
    with Server(root) as server:
        assert ask(server, "GET", "/v2").json()["version"].endswith(f"+conch.{version}")


def test_version_prints_the_libraries_that_backends_find():
    code, out, err = run_to_end("--version", env={"CONCH_ONNXRUNTIME": ""})
    assert (code, err) == (0, "")
    assert re.fullmatch(r"onnxruntime: ONNX Runtime 1\.\d+\.\d+ from /\S+, providers: .*CPUExecutionProvider", out.splitlines()[1]), out
    code, out, err = run_to_end("--version", env={"CONCH_ONNXRUNTIME": "/nowhere.so"})
    assert (code, err) == (0, "")
    assert "cannot be loaded; tried /nowhere.so" in out


@pytest.mark.parametrize("before", [True, False])
def test_version_finds_libraries_by_the_flags(tmp_path, before):
    """Found as by a start with the same flags: the folder of backends, then the library's path; the backend's own setting
    wins."""
    def told(*flags):
        code, out, err = run_to_end(*(flags if before else ()), "--version", *(() if before else flags), env={"CONCH_ONNXRUNTIME": ""})
        assert (code, err) == (0, "")
        return out.splitlines()[1:]

    here = f"--backend-directory={BACKENDS}"
    assert "tried /own.so" in told(here, "--backend-config=onnxruntime,library-path=/own.so", "--backend-config=library-path=/all.so")[0]
    assert "tried /all.so" in told("--backend-config=onnxruntime2,library-path=/own.so", "--backend-config=library-path=/all.so")[0]
    assert "tried /last.so" in told("--backend-config=library-path=/all.so", "--backend-config=library-path=/last.so")[0]
    assert told(f"--backend-directory={tmp_path}") == []
    library = tmp_path / "onnxruntime/libtriton_onnxruntime.so"
    library.parent.mkdir()
    library.write_text("no library")
    assert re.fullmatch(rf"onnxruntime: cannot be loaded: {re.escape(str(library))}: .*", *told(f"--backend-directory={tmp_path}"))
    library.write_bytes((pathlib.Path(BACKENDS) / "identity/libtriton_identity.so").read_bytes())
    assert told(f"--backend-directory={tmp_path}") == [f"onnxruntime: {library}, which does not tell what it finds"]


@pytest.mark.parametrize(
    "flag, missing",
    [
        ("--metrics-config=summary_latencies=true", "quantiles"),
    ],
)
def test_missing_features_are_refused_by_name(root, flag, missing):
    code, out, err = run_to_end(f"--model-repository={root}", flag)
    assert (code, out) == (1, "")
    assert flag in err
    assert missing in err


def test_flags_that_size_or_place_a_missing_feature_warn_once(root):
    with Server(root, flags=["--pinned-memory-pool-byte-size=1", "--pinned-memory-pool-byte-size=2", "--cuda-memory-pool-byte-size=0:1"]) as server:
        pass
    log = server.log()
    assert log.count("--pinned-memory-pool-byte-size has no effect yet") == 1
    assert log.count("--cuda-memory-pool-byte-size has no effect yet") == 1


def test_deprecated_flags_work_with_a_warning(root):
    with Server(root, flags=["--strict-model-config=false"]) as server:
        pass
    assert "Warning: '--strict-model-config' has been deprecated" in server.err.text()


def test_one_line_says_what_is_served_where(root):
    with Server(root) as server:
        line = f"Serving HTTP at http://{server.address}:{server.port}/v2"
        wait_for(lambda: line in server.log(), 60, "the line is there")
        lines = [entry for entry in server.log().splitlines() if "Serving HTTP" in entry]
    assert len(lines) == 1
    assert "gRPC" not in lines[0]  # the user has switched it off


def start(*flags, env=None):
    """Starts a process without class Server, and waits for the line that says that its models are loaded: (process, log)."""
    args = [BIN, f"--backend-directory={BACKENDS}", "--http-address=127.0.0.1", "--http-port=0", "--grpc-address=127.0.0.1",
            "--grpc-port=0", "--metrics-port=0", *flags]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
    log = ""
    while "Loaded " not in log:
        line = process.stdout.readline().decode()
        assert line, log
        log += line
    return process, log


def finish(process, number):
    process.send_signal(number)
    rest = process.stdout.read().decode()
    process.stdout.close()
    return process.wait(60), rest


def test_that_line_names_grpc(root):
    process, log = start(f"--model-repository={root}")
    code, _ = finish(process, signal.SIGTERM)
    assert code == 0
    place = re.search(r"Started GRPCInferenceService at (127.0.0.1:[1-9]\d*)", log)[1]
    assert re.search(rf'Serving HTTP at http://127.0.0.1:\d+/v2, gRPC at {place}"\n', log)


def test_grpc_alone_is_served(root):
    process, log = start(f"--model-repository={root}", "--allow-http=false", "--grpc-address=::1")
    with grpc.insecure_channel(re.search(r'Serving gRPC at ([^\s"]+)', log)[1]) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert live(b"", timeout=60) == b"\x08\x01"
    assert finish(process, signal.SIGTERM)[0] == 0
    assert "HTTPService" not in log


def test_without_a_service_the_log_says_that_nothing_is_served(root):
    process, log = start(f"--model-repository={root}", "--allow-http=false", "--allow-grpc=false")
    code, rest = finish(process, signal.SIGINT)
    assert code == 0
    assert "Nothing is served" in log
    assert "Signal (2) received." in rest


def test_the_environment_names_the_repository(root):
    """As on Vertex AI, whose routes must be named, too."""
    env = {"AIP_STORAGE_URI": str(root)}
    process, log = start(env=env)
    assert finish(process, signal.SIGTERM)[0] == 0
    assert f"| {root} " in log
    code, out, err = run_to_end(env={**env, "AIP_MODE": "PREDICTION"})
    assert code == 1
    assert "failed to start Vertex AI service: Invalid argument - API_PREDICT_ROUTE is not defined" in out + err


@pytest.mark.skipif("asan" in BIN or "tsan" in BIN, reason="the sanitizer says it in its own way")
def test_a_crash_prints_its_stack(root):
    process, _ = start(f"--model-repository={root}")
    code, rest = finish(process, signal.SIGSEGV)
    assert code == -signal.SIGSEGV
    assert "Signal (11) received." in rest
    assert "conch" in rest  # a frame of the program


def test_a_closed_pipe_does_not_kill_the_program(root):
    with Server(root) as server:
        server.signal(signal.SIGPIPE)
        assert ask(server, "GET", "/v2/health/ready").status == 200
