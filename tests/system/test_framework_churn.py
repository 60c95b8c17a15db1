# SPDX-License-Identifier: Apache-2.0
"""A model of each framework that is loaded, asked and unloaded again and again leaves nothing but what the framework keeps for good
(tests/tools/model_churn.c). CONCH_CHURN is how often; `make churn` does it 1000 times and shows what was measured."""

import json
import os
import subprocess

import pytest

import weighted_models
from server import BACKENDS, BUILD, SANITIZED, SANITIZER

pytestmark = [pytest.mark.conch_only("drives our core library"), pytest.mark.long]

CYCLES = int(os.environ.get("CONCH_CHURN", "80"))
# By how much the heap may grow in the second half: in all, for what glibc's threads cache, and for each cycle. Of the 1 MiB of weights,
# and of the objects of a model, none may stay.
CACHES, FOR_EACH = 16 << 10, 100
RESIDENT_KB = 4096
COMES_AND_GOES = {"openvino": 1, "tensorflow": 1}    # threads of the framework that end some time after a model


@pytest.mark.parametrize("how", [("infer",), ("hold", "infer")], ids="-".join)
@pytest.mark.parametrize("framework", weighted_models.ALL, ids=[framework.name for framework in weighted_models.ALL])
def test_an_unloaded_model_leaves_nothing(framework, how, tmp_path):
    if framework.missing():
        pytest.skip(framework.missing())
    framework.write(tmp_path, "m")
    done = subprocess.run([BUILD / "tests/model_churn", tmp_path, "m", BACKENDS, str(CYCLES), *how], capture_output=True, text=True,
                          timeout=120 + CYCLES, check=False, env={**os.environ, **framework.environment})
    assert done.returncode == 0, done.stderr
    assert not SANITIZER.search(done.stderr), done.stderr
    seen = json.loads(done.stdout)
    heap, resident = seen["heap_bytes"], seen["rss_kb"]
    print(f"{framework.name} {'-'.join(how)}: {CYCLES} cycles, heap {heap[0]} {heap[5]} {heap[-1]}, resident {resident[0]} {resident[5]} {resident[-1]} kB")
    for what in ("descriptors", "libraries"):
        assert max(seen[what]) == seen[what][0], f"{what}: {seen[what]}"
    assert max(seen["threads"]) - min(seen["threads"]) <= COMES_AND_GOES.get(framework.name, 0), seen["threads"]
    assert heap[-1] - heap[5] <= CACHES + FOR_EACH * CYCLES // 2, heap
    if not SANITIZED:    # a sanitizer keeps freed memory
        assert resident[-1] - resident[5] < RESIDENT_KB, resident
