# SPDX-License-Identifier: Apache-2.0
"""The small programs of bench/micro, and their libraries."""

import json
import math
import os
import subprocess

from .measure import Failed, pin
from .servers import Missing

RECORD_BYTES = 16384     # of TLS, at most

# The contents of MALLOC_COUNT_FILE, in the order of enum call in malloc_count.c; free is not counted.
ALLOCATING_CALLS = 4

ABI_CONFIG = """backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "CONCH_EXECUTION" value { string_value: "inline" } }
"""


def run(lab, argv, what, pinned=True, preload=None):
    """Runs a program and returns what it prints; on the clients' core, unless it needs both."""
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False,
                          env=dict(os.environ, LD_PRELOAD=str(preload)) if preload else None,
                          preexec_fn=pin(lab.settings.client_cpu) if pinned else None)
    if done.returncode != 0:
        raise Failed(f"{what}: {done.stderr.strip()}")
    return done.stdout


def ort_library(lab):
    """ONNX Runtime's library: the one that `make deps` installed and Conch's backend finds."""
    found = sorted((lab.root / ".deps" / "onnxruntime").glob("libonnxruntime.so*"))
    if not found:
        raise Missing("no libonnxruntime.so in .deps/onnxruntime (make deps)")
    return found[-1]


def ort_loop(lab, model, inputs, outputs):
    """CPU µs of one Run of an example model in a bare loop."""
    file = lab.root / "examples" / "models" / model / "1" / "model.onnx"
    seconds = lab.settings.seconds / 2
    out = run(lab, [lab.programs / "bench_ort_loop", ort_library(lab), file, *inputs, *outputs, seconds],
               "ort_loop")
    return json.loads(out)["cpu_us_per_run"]


def compress_loop(lab, body):
    """CPU µs of libdeflate alone to unpack a body of gzip, and to pack it again."""
    file = lab.folder / "body.gz"
    file.write_bytes(body)
    said = json.loads(run(lab, [lab.programs / "bench_compress_loop", file, lab.settings.seconds / 2], "compress_loop"))
    return said["unpack_us"] + said["pack_us"]


def copy_loop(lab, files, n_bytes):
    """CPU µs of a copy alone, from one object of shared memory to another."""
    return json.loads(run(lab, [lab.programs / "bench_copy_loop", *files, n_bytes, lab.settings.seconds / 4], "copy_loop"))["copy_us"]


def aes_loop(lab, n_in, n_out):
    """CPU µs of AES-256-GCM alone, by OpenSSL, for so many bytes of a request and of its answer."""
    return json.loads(run(lab, [lab.programs / "bench_aes_loop", n_in, n_out, lab.settings.seconds / 4], "aes_loop"))["aes_us"]


def openssl_mallocs(lab, n_in, n_out):
    """Allocating calls that OpenSSL alone makes for the records of so many bytes of a request and of its answer."""
    said = json.loads(run(lab, [lab.programs / "bench_tls_loop", "--allocations"], "tls_loop"))
    return said["read"] * math.ceil(n_in / RECORD_BYTES) + said["written"] * math.ceil(n_out / RECORD_BYTES)


def count_mallocs(lab, server, request):
    """Allocating calls per request, counted while only whole requests are in flight."""
    seen = lab.bench.count(server, request, lab.malloc_file(server))
    return sum(seen["counters"][:ALLOCATING_CALLS]) / seen["requests"]


def abi(lab):
    """Nanoseconds and allocated bytes of requests through the ABI."""
    folder = lab.folder / "repositories" / "abi"
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / "m" / "1").mkdir(parents=True)
        (folder / "m" / "config.pbtxt").write_text(ABI_CONFIG)
    return json.loads(run(lab, [lab.programs / "bench_abi", folder, "m", lab.build / "backends",
                                20 * lab.settings.rounds], "bench_abi"))


def json_floats(lab):
    """One dict per text, medians over its own interleaved rounds."""
    program = lab.programs / "bench_json_floats"
    if not program.exists():
        raise Missing("bench_json_floats is not built: it needs yyjson (make deps)")
    return json.loads(run(lab, [program, lab.settings.rounds], "json_floats"))
