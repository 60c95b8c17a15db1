# SPDX-License-Identifier: Apache-2.0
"""A model that is loaded and unloaded again and again leaves nothing behind: tests/tools/model_churn.c."""

import json
import subprocess

import pytest

import repository
from server import BACKENDS, BUILD, SANITIZED, SANITIZER

pytestmark = pytest.mark.conch_only("drives our core library")

# The growth of the heap that is allowed per cycle once it is warm, in bytes. Sanitizers count exactly. glibc counts
# what its caches hold as in use, which differs a little from thread to thread; ONNX Runtime keeps some 50 bytes of
# every model it has ever loaded (docs/internals: Memory of a model).
OURS = 0 if SANITIZED else 16
ONNX_RUNTIMES = 150


def churn(model, cycles, *how):
    done = subprocess.run([BUILD / "tests/model_churn", repository.EXAMPLES, model, BACKENDS, str(cycles), *how],
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert not SANITIZER.search(done.stderr), done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("how", [(), ("hold",), ("infer",), ("hold", "infer")], ids=lambda how: "-".join(how) or "alone")
@pytest.mark.parametrize("model, cycles, per_cycle", [("identity", 1000, OURS), ("digits", 150, ONNX_RUNTIMES)])
def test_nothing_stays(model, cycles, per_cycle, how):
    seen = churn(model, cycles, *how)
    assert seen["cycles"] == cycles
    for what in ("threads", "descriptors", "libraries"):
        assert len(set(seen[what])) == 1, f"{what}: {seen[what]}"
    # The first half still warms caches up: the allocator's, ONNX Runtime's.
    middle, end = seen["heap_bytes"][5], seen["heap_bytes"][-1]
    assert end - middle <= per_cycle * cycles / 2 + (0 if SANITIZED and model == "identity" else 8192), seen["heap_bytes"]
    if not SANITIZED:  # a sanitizer keeps freed memory
        assert seen["rss_kb"][-1] - seen["rss_kb"][1] < 1024, seen["rss_kb"]
    assert (seen["peak_bytes"]["tensors"] > 0) == ("infer" in how)
    assert 1000 < seen["peak_bytes"]["configuration"] < 20_000
    assert 300 < seen["peak_bytes"]["instances"] < 20_000
