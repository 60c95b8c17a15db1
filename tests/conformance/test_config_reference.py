# SPDX-License-Identifier: Apache-2.0
"""The same configurations read by us and by the genuine Triton 2.51: the same JSON, the same errors.

Needs `make reference`; CONCH_REFERENCE_RUN names another program that starts it.
"""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

from mapper import BUILD, TOP

RUN = os.environ.get("CONCH_REFERENCE_RUN", str(TOP / "tools/reference"))
pytestmark = pytest.mark.skipif(
    "CONCH_REFERENCE_RUN" not in os.environ and not (TOP / ".deps/reference/venv").exists(),
    reason="the genuine Triton is not installed: make reference",
)

# Our texts that differ, and why.
OTHERWISE = {
    "slot utilization not a number": "the reference compares with NaN and lets it pass",
    "batch input of an unknown kind": "the reference shows an empty name, we the number",
    "a step that cannot start": "of several unused tensors the reference names any",
    "a circle": "as above",
}
NEWER = "model_metrics"    # in our target, not in 2.51

GOOD = {
    "bare": "",
    "tensors": """max_batch_size: 8
        input { name: "I" data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ -1, 2, 2 ] } optional: true }
        input { name: "J" data_type: TYPE_UINT8 format: FORMAT_NHWC dims: [ 3, 4, 5 ] allow_ragged_batch: true }
        input { name: "S" data_type: TYPE_BF16 dims: [ 1 ] reshape { } }
        output { name: "O" data_type: TYPE_STRING dims: 3 label_filename: "labels.txt" }""",
    "dynamic": """max_batch_size: 8
        dynamic_batching { preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 100 priority_levels: 2
        default_priority_level: 1 default_queue_policy { max_queue_size: 7 }
        priority_queue_policy { key: 2 value { timeout_action: DELAY default_timeout_microseconds: 9007199254740993 } } }""",
    "preferred": "max_batch_size: 4 dynamic_batching { }",
    "direct": """max_batch_size: 8
        input { name: "si" data_type: TYPE_FP32 dims: 4 }
        sequence_batching { direct { minimum_slot_utilization: 0.3333333 max_queue_delay_microseconds: 5 }
        control_input { name: "c" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ -0.0, 1.5 ] } }
        control_input { name: "d" control { fp32_false_true: [ 1e-7, 3.3333333 ] } }
        control_input { name: "e" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
        state { input_name: "si" output_name: "so" data_type: TYPE_FP32 dims: 4
        initial_state { name: "q" data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } }""",
    "oldest": """max_batch_size: 8
        sequence_batching { oldest { max_candidate_sequences: 4 } iterative_sequence: true }""",
    "groups": """instance_group [ { count: 2 secondary_devices { device_id: -12345 } }, { name: "g" kind: KIND_MODEL gpus: [ ]
        host_policy: "h" rate_limiter { resources { name: "R" global: true count: 3 } priority: 4 } }, { passive: true } ]""",
    "parameters": r"""parameters { key: "b" value { string_value: "é\"\\ <>&/\t\001\177" } }
        metric_tags { key: "t" value: "v" } cc_model_filenames { key: "7.5" value: "x" }""",
    "tuning": """optimization { graph { level: -1 } priority: PRIORITY_MIN gather_kernel_buffer_threshold: 9 eager_batching: true
        cuda { graphs: true graph_spec { batch_size: 3 input { key: "q" value { dim: [ 4, -1 ] } }
        graph_lower_bound { batch_size: 1 input { key: "z" value { dim: 1 } } } } }
        input_pinned_memory { enable: false }
        execution_accelerators { cpu_execution_accelerator { name: "openvino" parameters { key: "k" value: "v" } } } }""",
    "warm": """max_batch_size: 2 input { name: "I" data_type: TYPE_FP32 dims: 3 }
        model_warmup { name: "w" batch_size: 0 inputs { key: "I" value { data_type: TYPE_FP32 dims: 3 random_data: true } } count: 2 }""",
    "batched": """max_batch_size: 2 input { name: "I" data_type: TYPE_FP32 dims: 3 } output { name: "O" data_type: TYPE_FP32 dims: 3 }
        batch_input { kind: BATCH_ITEM_SHAPE target_name: "x" data_type: TYPE_INT32 source_input: "I" }
        batch_output { target_name: "O" source_input: "I" }""",
    "rest": """version_policy { specific { versions: [ 1, 3 ] } } model_transaction_policy { decoupled: true }
        response_cache { enable: false } model_operations { op_library_filename: [ "a", "b" ] }""",
    "all_versions": "version_policy: { all { } }",
}

MODEL = """class TritonPythonModel:
    def execute(self, requests):
        return []
"""


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [str(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Reference:
    def __init__(self, repository, log, *flags):
        self.ports = free_ports(3)
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                [RUN, repository, *self.ports, "--exit-on-error=false", "--allow-metrics=false", *flags],
                stdout=out, stderr=subprocess.STDOUT)

    def __enter__(self):
        until = time.monotonic() + 60
        while True:
            try:
                self.get("health/live")
                return self
            except OSError:
                assert self.process.poll() is None and time.monotonic() < until
                time.sleep(0.05)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def get(self, path, data=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[0]}/v2/{path}", data=data)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read()


def ours(name, path, *entries, **settings):
    return subprocess.run([BUILD / "tests/configtool", name, path, *entries], capture_output=True, check=False,
                          env=os.environ | settings)


def test_same_json(tmp_path):
    repository = tmp_path / "models"
    for name, text in GOOD.items():
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(MODEL)
        (folder.parent / "labels.txt").write_text("a\nb\nc\n")
        (folder.parent / "config.pbtxt").write_text(f'backend: "python"\n{text}\n', encoding="utf-8")
    # Rate limiting is off, and no policy "h" is set: both are named all the same.
    with Reference(repository, tmp_path / "log") as reference:
        for name in GOOD:
            theirs = json.loads(reference.get(f"models/{name}/config"))
            result = ours(name, repository / name / "config.pbtxt", "model.py", CONFIGTOOL_ALL="1")
            assert result.returncode == 0, result.stderr
            mine = json.loads(result.stdout)
            assert list(mine) == list(theirs), name
            assert mine == theirs, name


def blocks():
    """wrong.txt but for what only we refuse and what is told only while a model loads ("made: ")."""
    content = (TOP / "tests/unit/core/config/wrong.txt").read_text(encoding="utf-8")
    for number, block in enumerate(content.split("\n== ")[1:]):
        title, rest = block.split("\n", 1)
        text, answer = rest.split("-- ", 1)
        if title.startswith(("not yet", "made: ")) or NEWER in text or "NUL byte" in answer or "UTF-8" in answer:
            continue
        yield f"c{number:03}", title, text.replace("@strict\n", ""), answer.split("\n", 1)[0]


def test_same_errors(tmp_path):
    repository = tmp_path / "models"
    for name, _, text, _ in blocks():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(text, encoding="utf-8")
    log = tmp_path / "log"
    with Reference(repository, log, "--disable-auto-complete-config"):
        pass
    said = {}
    for line in log.read_text(errors="replace").splitlines():
        match = re.search(r'("Poll failed for model directory .*")$', line)
        if match:
            name, error = re.match(r"Poll failed for model directory '(c\d+)': (.*)", json.loads(match[1])).groups()
            said[name] = error.replace(name, "m")

    differ = {}
    for name, title, _, answer in blocks():
        mine = answer.split(": ", 1)[1]
        theirs = said.get(name, "accepted")
        if mine.startswith("instance group m_") or mine.startswith("instance group g of"):
            continue    # told while the model loads, and the reference has no such backend
        if theirs.startswith("failed to read text proto"):
            same = mine.startswith("failed to read text proto from ")    # the diagnosis: test_config_mapper.py
        else:
            same = mine.startswith(theirs + " (config.pbtxt") or mine == theirs
        if not same:
            differ[title] = f"ours: {mine}\ntheirs: {theirs}"
    assert {title: text for title, text in differ.items() if title not in OTHERWISE} == {}
    assert len(said) > 120
