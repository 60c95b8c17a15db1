# SPDX-License-Identifier: Apache-2.0
"""Every exported function that returns an error is called with null pointers, and answers INVALID_ARG.

The functions and their parameters are read from the headers, so that none is forgotten.
"""

import ctypes
import multiprocessing
import os
import pathlib
import re
import subprocess

import pytest

import server as servers
from symbols import INCLUDE, dynamic

BUILD = pathlib.Path(os.environ.get("CONCH_BUILD_DIR", servers.ROOT / "build/release"))
LIBRARY = BUILD / "lib/libtritonserver.so"
INVALID_ARG = 3
WITHIN_S = 60

pytestmark = pytest.mark.skipif(servers.SANITIZED, reason="Python has not been linked with the sanitizer")


def functions():
    """{name: [whether a parameter is an object, "pointer" or "number"]}, of the functions that backends and programs call."""
    text = subprocess.run(["gcc", "-E", "-P", f"-I{INCLUDE}", "-"], capture_output=True, text=True, check=True, input=(
        '#include "triton/core/tritonserver.h"\n#include "triton/core/tritonbackend.h"\n')).stdout
    exported, _ = dynamic(LIBRARY)
    declared = re.findall(r"TRITONSERVER_Error ?\* ?(TRITON(?:SERVER|BACKEND)_\w+) ?\(((?:[^()]|\([^()]*\))*)\) ?;",
                          re.sub(r"\s+", " ", text))
    return {name: [kind(p) for p in parameters.split(",")] for name, parameters in declared if name in exported}


def kind(parameter):
    if re.search(r"\b(?:struct )?TRITON(?:BACKEND|SERVER)_[A-Z][A-Za-z]+ ?\*(?!\*)", parameter) and not re.search(
            r"TRITON(?:BACKEND|SERVER)_(?:DataType|MemoryType|ParameterType|InstanceGroupKind|ArtifactType|ExecutionPolicy) ?\*",
            parameter):
        return "object"
    return "pointer" if "*" in parameter else "number"


FUNCTIONS = functions()
# Deleting NULL succeeds, as free(NULL) does.
DELETES_NOTHING = {"TRITONBACKEND_ModelInstanceResponseStatisticsDelete"} | {
    f"TRITONSERVER_{what}Delete" for what in (
        "BufferAttributes", "InferenceRequest", "InferenceResponse", "Message", "MetricArgs", "Metrics", "ResponseAllocator",
        "Server", "ServerOptions")}
MAKES_ERRORS = {"TRITONSERVER_ErrorNew"}  # its result is an error in any case


def call(library, name, arguments):
    """Returns the error's code and text, or None for no error."""
    function = getattr(library, name)
    function.restype = ctypes.c_void_p
    room = [ctypes.create_string_buffer(256) for _ in arguments]
    values = [ctypes.c_void_p(ctypes.addressof(r)) if a == "room" else ctypes.c_void_p(None)
              for a, r in zip(arguments, room, strict=True)]
    err = function(*values)
    return (library.TRITONSERVER_ErrorCode(err), library.TRITONSERVER_ErrorMessage(err).decode()) if err else None


def answer_calls(pipe):
    """The other process: a function that kills it kills nothing else."""
    library = ctypes.CDLL(str(LIBRARY))
    library.TRITONSERVER_ErrorMessage.restype = ctypes.c_char_p
    library.TRITONSERVER_ErrorMessage.argtypes = [ctypes.c_void_p]
    library.TRITONSERVER_ErrorCode.argtypes = [ctypes.c_void_p]
    while True:
        pipe.send(call(library, *pipe.recv()))


class Caller:
    """A process that calls functions; when a call kills it, another process replaces it."""

    def __init__(self):
        self.process = None

    def answer(self, name, arguments):
        if not self.process:
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=answer_calls, args=(other,), daemon=True)
            self.process.start()
            other.close()
        self.pipe.send((name, arguments))
        try:
            assert self.pipe.poll(WITHIN_S), f"{name} has not returned within {WITHIN_S} s"
            return self.pipe.recv()
        except (EOFError, AssertionError) as what:
            self.stop()
            raise AssertionError(str(what) or f"{name} ended the process") from None

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.join()
        self.process = None


@pytest.fixture(name="answer", scope="module")
def make_caller():
    caller = Caller()
    yield caller.answer
    caller.stop()


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in DELETES_NOTHING | MAKES_ERRORS])
def test_null_for_every_parameter_is_refused(answer, name):
    code, text = answer(name, ["null"] * len(FUNCTIONS[name])) or pytest.fail("it was accepted")
    assert code == INVALID_ARG
    assert text and "\n" not in text


WITH_OBJECT = [name for name, kinds in FUNCTIONS.items() if kinds[0] == "object" and name not in DELETES_NOTHING]


@pytest.mark.parametrize("name", WITH_OBJECT)
def test_a_null_object_is_refused(answer, name):
    """The pointers for results are valid, the object is NULL."""
    kinds = FUNCTIONS[name]
    code, text = answer(name, ["null" if k != "pointer" else "room" for k in kinds]) or pytest.fail("it was accepted")
    assert code == INVALID_ARG
    assert text and "\n" not in text


@pytest.mark.parametrize("name", sorted(DELETES_NOTHING))
def test_deleting_null_succeeds(answer, name):
    assert answer(name, ["null"]) is None


def test_every_function_is_called():
    exported, _ = dynamic(LIBRARY)
    assert {name for name in FUNCTIONS if name.startswith("TRITONBACKEND_")} == {
        name for name in exported if name.startswith("TRITONBACKEND_")}
    assert len(FUNCTIONS) >= 200
    assert len(WITH_OBJECT) >= 170
