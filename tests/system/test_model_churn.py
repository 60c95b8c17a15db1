# SPDX-License-Identifier: Apache-2.0
"""A model that is loaded and unloaded again and again leaves no memory, threads or descriptors behind:
tests/tools/model_churn.c."""

import json
import pathlib
import re
import subprocess

import pytest

import repository
from server import BACKENDS, BUILD, SANITIZED, SANITIZER, Server

pytestmark = pytest.mark.conch_only("drives our core library")

# By how much the heap may grow in the second half, in bytes: in all, and per cycle. Sanitizers count exactly. glibc
# counts the caches of its threads as used, so the number varies with how many threads there are at once: each load has
# threads that call the backend, and on a busy machine one of them is still there at the next load. ONNX Runtime keeps
# some 50 bytes of every model that it has ever loaded; a session leaked in each cycle would be 16 MB.
OURS = (0, 0) if SANITIZED else (65536, 16)
ONNX_RUNTIMES = (1 << 20, 150)


def churn(model, cycles, *how):
    done = subprocess.run([BUILD / "tests/model_churn", repository.EXAMPLES, model, BACKENDS, str(cycles), *how],
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert not SANITIZER.search(done.stderr), done.stderr
    return json.loads(done.stdout)


# Alone: the backend's library is loaded and unloaded with the model. By name, as clients ask for it, with the files of
# the repository or with files of the request.
HOWS = [(), ("hold",), ("infer",), ("hold", "infer"), ("infer", "parallel"), ("hold", "infer", "parallel"), ("infer", "named")]


@pytest.mark.parametrize("how", HOWS, ids=lambda how: "-".join(how) or "alone")
@pytest.mark.parametrize("model, cycles, growth", [("identity", 1000, OURS), ("digits", 160, ONNX_RUNTIMES)])
def test_an_unloaded_model_leaves_nothing(model, cycles, growth, how):
    seen = churn(model, cycles, *how)
    assert seen["cycles"] == cycles
    for what in ("threads", "descriptors", "libraries"):
        assert max(seen[what]) == seen[what][0], f"{what}: {seen[what]}"
    # The first half still fills caches: the allocator's, ONNX Runtime's.
    middle, end = seen["heap_bytes"][5], seen["heap_bytes"][-1]
    vary = growth[0] * (8 if "parallel" in how and growth is ONNX_RUNTIMES and not SANITIZED else 1)
    assert end - middle <= vary + growth[1] * cycles // 2, seen["heap_bytes"]
    if not SANITIZED:  # a sanitizer keeps freed memory
        # glibc gives threads arenas of their own, and keeps what they held at the most.
        assert seen["rss_kb"][-1] - seen["rss_kb"][5] < (4096 if "parallel" in how else 1024), seen["rss_kb"]
    # The peak of tensors is exact to 64 KiB for each processor, which a single request does not reach.
    assert "infer" in how or seen["peak_bytes"]["tensors"] == 0
    assert 1000 < seen["peak_bytes"]["configuration"] < 20_000
    assert 300 < seen["peak_bytes"]["instances"] < 20_000


def test_an_unloaded_ensemble_leaves_nothing():
    """The models of its steps stay loaded; a request of each cycle passes through them."""
    test_an_unloaded_model_leaves_nothing("read_digit", 400, ONNX_RUNTIMES, ("infer", "named"))


@pytest.mark.parametrize("how", [("files",), ("infer", "files")], ids="-".join)
def test_files_of_a_request_leave_nothing(tmp_path, monkeypatch, how):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    test_an_unloaded_model_leaves_nothing("identity", 1000, OURS, how)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(SANITIZED, reason="the sanitizer reports the leak that is made here on purpose")
def test_a_backend_that_leaks_is_named(models):
    config = repository.tensor("input", "A", "FP32", [1]) + repository.tensor("output", "B", "FP32", [1])
    group = "instance_group [ { count: 2 kind: KIND_CPU } ]\n"
    repository.write_model(models, "forgetful", 'backend: "keeper"\n' + config + group, versions=[7])
    repository.write_model(models, "tidy", 'backend: "identity"\n' + config + group)
    server = Server(models)
    server.args = [f"--backend-directory={models.parent / 'backends'}" if arg.startswith("--backend-directory=") else arg
                   for arg in server.args]
    (models.parent / "backends").mkdir()
    (models.parent / "backends/keeper").symlink_to(BUILD / "tests/backends/keeper")
    (models.parent / "backends/identity").symlink_to(pathlib.Path(BACKENDS) / "identity")
    with server:
        pass
    said = re.findall(r"(model '\w+' version \d+) has ended, and (\d+) bytes of its ([\w ]+) are not back", server.log())
    assert len(said) == 1, server.log()
    assert said[0][0] == "model 'forgetful' version 7"
    assert int(said[0][1]) > 3 * 500, "three times the configuration as JSON"
    assert said[0][2] == "backend objects"
