# SPDX-License-Identifier: Apache-2.0
"""Models in Python, the two Python backends (ours and the genuine one), and the two servers that run them.

The genuine backend asks for its server library by a name of its own; in Conch one entry of its dynamic section is changed
to the usual name. It leaves shared memory and processes behind when it dies, and with each genuine server, which the tests kill:
sweep() removes them. Ours must leave nothing.
"""

import contextlib
import itertools
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import textwrap

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import np_to_triton_dtype

import repository
import server as servers
import triton

REFERENCE = servers.ROOT / ".deps/reference"
GENUINE = REFERENCE / "backends/python"
OURS = pathlib.Path(servers.BACKENDS).resolve() / "python"

HEAD = """import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
"""

ECHO = """
def execute(self, requests):
    responses = []
    for request in requests:
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor.as_numpy())]))
    return responses
"""

NUMBER = [("input", "IN", "INT32", [1]), ("output", "OUT", "INT32", [1])]
TEXT = [("input", "IN", "INT32", [1]), ("output", "OUT", "BYTES", [-1])]
DECOUPLED = "model_transaction_policy { decoupled: true }\n"


def model_text(body, before=""):
    """A model.py whose class has this body."""
    return textwrap.dedent(before) + HEAD + textwrap.indent(textwrap.dedent(body), "    ")


def write_python(root, name, body, *tensors, more="", before="", instances=1, versions=(1,)):
    """Writes a model whose class has this body; tensors as of repository.tensor()."""
    config = 'backend: "python"\n' + "".join(repository.tensor(*tensor) for tensor in tensors) + more
    config += f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n"
    folder = repository.write_model(root, name, config, versions)
    for version in versions:
        (folder / f"{version}/model.py").write_text(model_text(body, before))
    return folder


# ---- Places: a backend in a server

_numbers = itertools.count()


def why_not(backend, which):
    """Why this backend cannot be tested in this server, or None."""
    if which == "triton" and triton.missing():
        return triton.missing()
    if backend == "ours":
        return None if (OURS / "libtriton_python.so").exists() else "the Python backend is not built: make deps"
    if not (GENUINE / "triton_python_backend_stub").exists():
        return "the genuine Python backend is not installed: make reference"
    if servers.REFERENCE:
        return "is about our server"
    if "CONCH_WITHOUT_TRITON" in os.environ:
        return "nothing of the genuine Triton is asked (CONCH_WITHOUT_TRITON)"
    if servers.THREAD_SANITIZED:
        return "the thread sanitizer cannot see the locks of a library that it has not compiled"
    return None


def _environments_of(mark):
    """Processes that inherited this mark, or have it in their command."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes():
                if "\nState:\tZ" not in (folder / "status").read_text():
                    yield int(folder.name)


class Place:
    """A backend directory with a Python backend, ours or the genuine one, for one of the two servers."""

    def __init__(self, backend, which, folder):
        self.backend, self.which = backend, which
        self.ours, self.in_conch = backend == "ours", which == "conch"
        self.backends = folder
        self.env = {}
        if self.in_conch:
            self.env["PATH"] = f"{(REFERENCE if backend == 'genuine' else servers.ROOT / '.deps') / 'venv/bin'}:{os.environ['PATH']}"
        if backend == "genuine":
            shutil.copytree(GENUINE, folder / "python", ignore=shutil.ignore_patterns("__pycache__"))
            if self.in_conch:
                self._rename_library()
                # Its own leaks do not count.
                self.env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        else:
            (folder / "python").symlink_to(OURS)
        for name in ("identity", "repeat"):
            (folder / name).symlink_to(pathlib.Path(servers.BACKENDS).resolve() / name)

    def _rename_library(self):
        libraries = next((REFERENCE / "venv/lib").glob("python3.*/site-packages/nvidia_pytriton.libs"))
        name = next(libraries.glob("libtritonserver-*.so")).name
        subprocess.run(["patchelf", "--replace-needed", name, "libtritonserver.so", self.backends / "python/libtriton_python.so"],
                       check=True)
        self.env["LD_LIBRARY_PATH"] = f"{servers.BUILD / 'lib'}:{libraries}"

    def __str__(self):
        return f"{self.backend} in {self.which}"

    def server(self, models, flags=(), ready=True, env=None, **more):
        """A server that is not started yet. It serves HTTP and gRPC. Its processes and shared memory have its mark."""
        mark = f"conch_test_{next(_numbers)}_of_{os.getpid()}_"
        env = {**self.env, "CONCH_TEST_MARK": mark, **(env or {})}
        flags = [f"--backend-directory={self.backends}", "--exit-on-error=false",
                 f"--backend-config=python,shm-region-prefix-name={mark}", *flags]
        if self.in_conch:
            made = servers.Server(models, env=env, flags=flags, ready=ready, grpc=True, **more)
        else:
            made = triton.Triton(models, flags=flags, ready=ready)
            made.env = {**made.env, **env}
        made.mark = mark
        return made

    @contextlib.contextmanager
    def start(self, models, **more):
        """Serves these models. At the end no process and no shared memory is left."""
        running = self.server(models, **more)
        try:
            with running:
                if not running._wait_ready and self.in_conch:
                    servers.wait_for(lambda: "starts without some of its models" in running.log() or running._says_yes("ready"),
                                     120, "all that can be is loaded")
                yield running
        except BaseException:
            sweep(running)
            raise
        if not self.in_conch:    # it was killed
            if self.ours:
                servers.wait_for(lambda: left_behind(running) == ([], []), 60, "the processes have noticed the end of their server")
            else:
                sweep(running)
        elif not self.ours:    # its processes end a moment after their server
            servers.wait_for(lambda: left_behind(running) == ([], []), 60, "processes and shared memory have gone")
        assert left_behind(running) == ([], []), f"left: {left_behind(running)}"


def left_behind(server):
    """Shared memory of a server that has ended, and its processes. While it runs it is one of them."""
    return [p.name for p in pathlib.Path("/dev/shm").glob(f"{server.mark}*")], list(_environments_of(server.mark))


def sweep(server):
    """Cleans up after the genuine backend. Its processes end when they notice that their server has, or wait for ever for a
    lock in the shared memory."""
    for pid in left_behind(server)[1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    servers.wait_for(lambda: not left_behind(server)[1], 60, "processes of the backend have gone")
    for name in left_behind(server)[0]:
        pathlib.Path("/dev/shm", name).unlink(missing_ok=True)


def children(server):
    """{process: its command} of the processes that the server has started, and that have not ended."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == server.pid and fields[0] != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


# ---- Requests


def infer(server, model, tensors, protocol="http", **options):
    """The answer to tensors {name: array} over HTTP or gRPC."""
    module = getattr(tritonclient, protocol)
    with module.InferenceServerClient(server.url if protocol == "http" else server.grpc_url) as client:
        return client.infer(model, inputs_of(module, tensors), **options)


def inputs_of(module, tensors):
    inputs = []
    for name, array in tensors.items():
        inputs.append(module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    return inputs


def number(value):
    return {"IN": np.array([value], np.int32)}


def words(**named):
    """Tensors of one text each."""
    return {name: np.array([text.encode()], np.object_) for name, text in named.items()}


def text_of(answer, name="OUT"):
    return answer.as_numpy(name).reshape(-1)[0].decode()


class Streaming:
    """with Streaming(server) as stream: … – a stream of gRPC."""

    def __init__(self, server):
        self.client = tritonclient.grpc.InferenceServerClient(server.grpc_url)
        self.came = queue.Queue()

    def __enter__(self):
        self.client.start_stream(callback=lambda result, error: self.came.put((result, error)))
        return self

    def __exit__(self, *exception):
        self.client.stop_stream(cancel_requests=True)
        self.client.close()

    def send(self, model, tensors, **options):
        self.client.async_stream_infer(model, inputs_of(tritonclient.grpc, tensors), enable_empty_final_response=True, **options)

    def next(self, within_s=60):
        """(result, error)"""
        return self.came.get(timeout=within_s)

    def rest(self, within_s=60):
        """All answers until the final one: what each has in OUT, the text of an error, or None."""
        found = []
        while True:
            result, error = self.next(within_s)
            if error:
                found.append(error.message())
                return found
            has_output = bool(result.get_response().outputs)
            if has_output:
                found.append(result.as_numpy("OUT").tolist())
            final = result.get_response().parameters["triton_final_response"].bool_param
            if final:
                return found


def stream(server, model, tensors, **options):
    """All answers to one request on a stream of its own, as of Streaming.rest()."""
    with Streaming(server) as asked:
        asked.send(model, tensors, **options)
        return asked.rest()


def only_ours(why):
    """A test of our backend alone, in both servers. @why  what the genuine one does instead"""
    assert why
    return pytest.mark.parametrize("python_backend", ["ours"], indirect=True)


def only_in_conch(why):
    """A test of our server alone. @why  what the genuine one does instead"""
    assert why
    return pytest.mark.parametrize("host", ["conch"], indirect=True)


def place(backend, which, folder):
    if why_not(backend, which):
        pytest.skip(why_not(backend, which))
    return Place(backend, which, folder)
