# SPDX-License-Identifier: Apache-2.0
"""Other people's programs that embed the server run with our libtritonserver.so unchanged: perf_analyzer (it also measures
over HTTP), and Maven's Java binding.

embed.c, linked with the library at build time, is the common case. These programs load the library at run time, in a
scope of their own, and expect it to be laid out as Triton's.
"""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import repository
import server as servers
from wire import ask

DEPS = servers.ROOT / ".deps"
ANALYZER = DEPS / "tritonclient/perf_analyzer"
GENUINE_LIBRARIES = DEPS / "reference/venv/lib"
JARS = DEPS / "java"
EMBED_JAVA = servers.ROOT / "tests/programs/Embed.java"

pytestmark = [
    pytest.mark.skipif(servers.SANITIZED, reason="a library with a sanitizer does not load into programs without one"),
    pytest.mark.skipif(servers.REFERENCE, reason="is about our library"),
]
needs_perf_analyzer = pytest.mark.skipif(not ANALYZER.exists(), reason="perf_analyzer is not installed: make reference")
needs_java = pytest.mark.skipif(not JARS.exists(), reason="Java and Maven's binding are not installed: make test-java")


def run(command, *, env=None, within_s=300):
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=within_s, check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout + done.stderr


# ---- A program that loads the library in its own scope

ALONE = """
import ctypes, sys

library = ctypes.CDLL(sys.argv[1])      # as dlopen() does it without RTLD_GLOBAL
for name in ("OptionsNew", "OptionsSetModelRepositoryPath", "OptionsSetBackendDirectory", "New", "Delete", "ModelIsReady"):
    getattr(library, f"TRITONSERVER_Server{name}").restype = ctypes.c_void_p
library.TRITONSERVER_ErrorMessage.restype = ctypes.c_char_p

def check(error):
    if error:
        sys.exit(library.TRITONSERVER_ErrorMessage(ctypes.c_void_p(error)).decode())

options, server, ready = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_bool()
check(library.TRITONSERVER_ServerOptionsNew(ctypes.byref(options)))
check(library.TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, sys.argv[2].encode()))
check(library.TRITONSERVER_ServerOptionsSetBackendDirectory(options, sys.argv[3].encode()))
check(library.TRITONSERVER_ServerNew(ctypes.byref(server), options))
check(library.TRITONSERVER_ServerModelIsReady(server, b"id", ctypes.c_int64(-1), ctypes.byref(ready)))
check(library.TRITONSERVER_ServerDelete(server))
print("ready" if ready.value else "not ready")
"""


def test_backends_find_a_library_loaded_in_a_scope_of_its_own(models):
    """Our backends do not name the library that has the server's functions, so that they load in any server."""
    repository.write_identity(models, "id", [("FP32", [-1])])
    said = run([sys.executable, "-c", ALONE, servers.BUILD / "lib/libtritonserver.so", models, servers.BACKENDS])
    assert said.splitlines()[-1] == "ready"


# ---- perf_analyzer


def installation(folder):
    """Makes a folder laid out as perf_analyzer expects a server: lib/ and backends/."""
    folder.mkdir()
    (folder / "lib").symlink_to(servers.BUILD / "lib")
    (folder / "backends").symlink_to(servers.BACKENDS)
    return folder


def analyze(tmp_path, *options):
    """Returns its output. It sends one request at a time, if the options say nothing else: with more, and a number of requests,
    the 2.51 hangs now and then, whatever the server.

    It also hangs when all requests that it may send are answered before it looks, so models are slow.
    """
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "libcudart.so.12").symlink_to(
        next(GENUINE_LIBRARIES.glob("python3.*/site-packages/nvidia_pytriton.libs/libcudart-*.so.12*")))
    if "--concurrency-range" not in options:
        options = ["--concurrency-range", "1", *options]
    return run([ANALYZER, *options], env={"LD_LIBRARY_PATH": str(libraries)})


def analyze_in_process(tmp_path, models, model, *options):
    return analyze(tmp_path, "-m", model, "--service-kind", "triton_c_api", "--triton-server-directory",
                   installation(tmp_path / "server"), "--model-repository", models, *options)


def assert_counts(said, requests):
    """It has sent this many, and the server reports some of them: it first asks the server when the first ones may be over."""
    client, server = said.split("  Server:")
    assert f"Request count: {requests}\n" in client, said
    for what in ("Inference", "Execution", "Successful request"):
        assert int(re.search(rf"{what} count: (\d+)\n", server)[1]) > 0, said


@needs_perf_analyzer
@pytest.mark.parametrize("rows", [1, 4])
def test_perf_analyzer_measures_in_process(tmp_path, models, rows):
    # Integers: perf_analyzer notes the outputs after it has freed them, and a float that is not a number empties its
    # file.
    repository.write_identity(models, "id", [("INT32", [16])], max_batch_size=8, execute_delay_ms=5)
    table, profile = tmp_path / "figures.csv", tmp_path / "profile.json"
    said = analyze_in_process(tmp_path, models, "id", "-b", rows, "--request-count", 200, "-f", table,
                              "--profile-export-file", profile)
    assert_counts(said, 200)
    assert float(re.search(r"Throughput: ([\d.]+) infer/sec", said)[1]) > 0
    assert not re.search("error|failed", said, re.IGNORECASE), said
    (figures,) = csv.DictReader(table.open())
    assert float(figures["Inferences/Second"]) > 0
    (experiment,) = json.loads(profile.read_text())["experiments"]
    assert len(experiment["requests"]) == 200
    assert all(len(request["response_timestamps"]) == 1 for request in experiment["requests"])


@needs_perf_analyzer
def test_perf_analyzer_measures_an_onnx_model(tmp_path, models):
    repository.copy_example(models, "add_sub")
    said = analyze_in_process(tmp_path, models, "add_sub", "--request-count", 50000)
    assert_counts(said, 50000)


@needs_perf_analyzer
@pytest.mark.parametrize("encoding", ["json", "binary"])
def test_perf_analyzer_measures_over_http(tmp_path, models, encoding):
    repository.write_identity(models, "id", [("FP32", [16])], max_batch_size=8, execute_delay_ms=5)
    with servers.Server(models) as server:
        said = analyze(tmp_path, "-m", "id", "-u", server.url, "-i", "http", "--request-count", 200,
                       "--input-tensor-format", encoding, "--output-tensor-format", encoding)
        (one,) = ask(server, "GET", "/v2/models/id/stats").json()["model_stats"]
    assert_counts(said, 200)
    assert (one["inference_count"], one["execution_count"]) == (200, 200)


GRPC_WAYS = {"sync": ("9", ["--sync"]), "async": ("1:9:8", ["--async"]), "streaming": ("9", ["--async", "--streaming"]),
             "packed": ("4", ["--async", "--grpc-compression-algorithm", "gzip"])}


def analyze_by_grpc(tmp_path, server, *options):
    """Measures in windows, each as long as 30 requests take, so that no number of requests can be answered too early. Returns
    (requests, responses per second) of each round."""
    said = analyze(tmp_path, "-u", server.grpc_url, "-i", "grpc", "--measurement-mode", "count_windows",
                   "--measurement-request-count", "30", "-s", "1000", *options)
    assert not re.search("error|failed|warning", said, re.IGNORECASE), said
    counts = [int(n) for n in re.findall(r"^ +Request count: (\d+)$", said, re.MULTILINE)]
    served = [int(n) for n in re.findall(r"^ +Successful request count: (\d+)$", said, re.MULTILINE)]
    assert len(counts) == len(served) and min(counts + served) > 0, said
    return counts, [float(n) for n in re.findall(r"Response Throughput: ([\d.]+)", said)]


@needs_perf_analyzer
@pytest.mark.parametrize("way", GRPC_WAYS)
def test_perf_analyzer_measures_over_grpc(tmp_path, models, way):
    repository.write_identity(models, "id", [("FP32", [16])], max_batch_size=8, execute_delay_ms=5)
    concurrency, options = GRPC_WAYS[way]
    with servers.Server(models, grpc=True) as server:
        counts, _ = analyze_by_grpc(tmp_path, server, "-m", "id", "--concurrency-range", concurrency, *options)
        (one,) = ask(server, "GET", "/v2/models/id/stats").json()["model_stats"]
    assert len(counts) == (2 if ":" in concurrency else 1)
    assert "fail" not in one["inference_stats"] or one["inference_stats"]["fail"]["count"] == 0
    assert one["inference_count"] >= sum(counts) - 2 * 9    # it counts some that began before its window


@needs_perf_analyzer
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_perf_analyzer_measures_with_shared_memory(tmp_path, models, protocol):
    """It registers a region for its inputs and one for each output, and unregisters all at its end."""
    repository.write_identity(models, "id", [("INT32", [16])], max_batch_size=8, execute_delay_ms=5)
    with servers.Server(models, flags=["--allow-client-shm=true"], grpc=True) as server:
        options = ["-m", "id", "--shared-memory", "system", "--output-shared-memory-size", "4096"]
        if protocol == "http":
            assert_counts(analyze(tmp_path, "-u", server.url, "-i", "http", "--request-count", 200, *options), 200)
        else:
            analyze_by_grpc(tmp_path, server, "--concurrency-range", "4", "--async", *options)
        (one,) = ask(server, "GET", "/v2/models/id/stats").json()["model_stats"]
        assert one["inference_count"] > 0 and one["inference_stats"]["fail"]["count"] == 0
        assert ask(server, "GET", "/v2/systemsharedmemory/status").json() == []


@needs_perf_analyzer
def test_perf_analyzer_measures_decoupled_responses(tmp_path, models):
    config = 'backend: "repeat"\nmodel_transaction_policy { decoupled: true }\n'
    config += repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("input", "DELAY", "UINT32", [-1])
    config += repository.tensor("input", "WAIT", "UINT32", [1])
    config += repository.tensor("output", "OUT", "INT32", [1]) + repository.tensor("output", "IDX", "UINT32", [1])
    repository.write_model(models, "repeat", config)
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"IN": {"content": [1, 2, 3], "shape": [3]},
                                          "DELAY": {"content": [0, 1, 1], "shape": [3]}, "WAIT": [5]}]}))
    with servers.Server(models, grpc=True) as server:
        counts, responses = analyze_by_grpc(tmp_path, server, "-m", "repeat", "--concurrency-range", "3", "--input-data", data,
                                            "--async", "--streaming")
    assert len(counts) == len(responses) == 1
    assert min(responses) > 0


@needs_perf_analyzer
def test_perf_analyzer_prints_the_servers_error(tmp_path, models):
    repository.write_identity(models, "id", [("FP32", [16])])
    with pytest.raises(AssertionError, match="Not found - Request for unknown model: 'nobody' is not found"):
        analyze_in_process(tmp_path, models, "nobody", "--request-count", 10)


# ---- Java


@needs_java
def test_java_starts_asks_and_stops_a_server(tmp_path, models):
    """The binding imports 293 functions and is bound lazily: a function that we lack is missed only when it is called."""
    assert shutil.which("java"), "there are Maven's packages, and no Java: make test-java"
    repository.copy_example(models, "add_sub")
    said = run(
        ["java", "-Xmx256m", f"-Dorg.bytedeco.javacpp.cachedir={tmp_path / 'cache'}", "-cp", JARS / "*", EMBED_JAVA,
         models, servers.BACKENDS, "add_sub"],
        env={"LD_LIBRARY_PATH": str(servers.BUILD / "lib")},
    )
    lines = said.splitlines()
    documents = {name: json.loads(text) for name, text in (line.split(" ", 1) for line in lines if line[-1] == "}")}
    assert documents["server"]["name"] == "triton"
    assert documents["model"]["name"] == "add_sub"
    assert [tensor["name"] for tensor in documents["model"]["outputs"]] == ["OUTPUT0", "OUTPUT1"]
    assert documents["statistics"]["model_stats"][0]["inference_stats"]["success"]["count"] == 2
    outputs = [line.split(" ")[1:] for line in lines if line.startswith("output ")]
    expected = [[name, *(str(start + i + sign) for i in range(16))]
                for start in (0, 100) for name, sign in (("OUTPUT0", 1), ("OUTPUT1", -1))]
    assert outputs == expected
    assert "refused Request for unknown model: 'nobody' is not found" in lines
    assert lines[-1] == "stopped"
