# SPDX-License-Identifier: Apache-2.0
"""The slots in backends/onnxruntime/ort_api.h compared with a C header of ONNX Runtime.

None of our packages has that header; a Go module has it, which the ordinary go client fetches. If that fails the test
is skipped. Every model that the backend runs also proves the slots.
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
MODULE = "github.com/yalue/onnxruntime_go@v1.27.0"
SUM = "h1:c1YSgDNtpf0WGtxj3YeRIb8VC5LmM1J+Ve3uHdteC1U="

CHECKS = """
#include <onnxruntime_c_api.h>
#include "onnxruntime/ort_api.h"

#define AT(place, result, name, parameters) \\
    _Static_assert(offsetof(OrtApi, name) == place * sizeof(void *), #name);
ORT_FUNCTIONS(AT)
ORT_LATER_FUNCTIONS(AT)

_Static_assert(offsetof(OrtApiBase, GetApi) == offsetof(struct ort_api_base, GetApi), "GetApi");
_Static_assert(offsetof(OrtApiBase, GetVersionString) == offsetof(struct ort_api_base, GetVersionString), "version");

#define SAME(ours, theirs) _Static_assert((int)ours == (int)theirs, #ours)
SAME(ORT_FLOAT, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
SAME(ORT_UINT8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8);
SAME(ORT_INT8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8);
SAME(ORT_UINT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16);
SAME(ORT_INT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16);
SAME(ORT_INT32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32);
SAME(ORT_INT64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
SAME(ORT_STRING, ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING);
SAME(ORT_BOOL, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL);
SAME(ORT_FLOAT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16);
SAME(ORT_DOUBLE, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE);
SAME(ORT_UINT32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32);
SAME(ORT_UINT64, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64);
SAME(ORT_BFLOAT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16);
SAME(ORT_KIND_TENSOR, ONNX_TYPE_TENSOR);
SAME(ORT_KIND_OPTIONAL, ONNX_TYPE_OPTIONAL);
SAME(ORT_VERBOSE, ORT_LOGGING_LEVEL_VERBOSE);
SAME(ORT_WARNING, ORT_LOGGING_LEVEL_WARNING);
SAME(ORT_FATAL, ORT_LOGGING_LEVEL_FATAL);
SAME(ORT_INFO, ORT_LOGGING_LEVEL_INFO);
SAME(ORT_ERROR, ORT_LOGGING_LEVEL_ERROR);
SAME(ORT_ARENA_ALLOCATOR, OrtArenaAllocator);
SAME(ORT_MEMORY_DEFAULT, OrtMemTypeDefault);
SAME(ORT_MODE_SEQUENTIAL, ORT_SEQUENTIAL);
SAME(ORT_MODE_PARALLEL, ORT_PARALLEL);
SAME(ORT_GRAPH_NONE, ORT_DISABLE_ALL);
SAME(ORT_GRAPH_BASIC, ORT_ENABLE_BASIC);
SAME(ORT_GRAPH_EXTENDED, ORT_ENABLE_EXTENDED);
SAME(ORT_GRAPH_ALL, ORT_ENABLE_ALL);
"""


@pytest.fixture(scope="module")
def header_folder(tmp_path_factory):
    go = shutil.which("go")
    if not go:
        pytest.skip("there is no go client to fetch ONNX Runtime's header with")
    work = tmp_path_factory.mktemp("go")
    (work / "go.mod").write_text("module test\n")
    try:
        done = subprocess.run(
            [go, "mod", "download", "-json", MODULE], cwd=work, capture_output=True, text=True, check=False,
            env=os.environ | {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}, timeout=120,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("ONNX Runtime's header does not come within two minutes")
    if done.returncode != 0:
        pytest.skip(f"ONNX Runtime's header cannot be fetched: {done.stdout}{done.stderr}"[:300])
    got = json.loads(done.stdout)
    assert got["Sum"] == SUM
    return got["Dir"]


def test_slots_and_numbers_are_those_of_the_header(header_folder, tmp_path):
    source = tmp_path / "slots.c"
    source.write_text(CHECKS)
    done = subprocess.run(
        ["gcc", "-std=c11", "-fsyntax-only", "-isystem", header_folder, f"-I{TOP / 'backends'}", str(source)],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
