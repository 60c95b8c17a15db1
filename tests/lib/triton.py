# SPDX-License-Identifier: Apache-2.0
"""The genuine Triton as a process under test, with the interface of server.Server.

CONCH_TRITON is a program that starts it: PROGRAM REPOSITORY HTTP_PORT GRPC_PORT METRICS_PORT [flags…]. Without it,
tools/reference is used, once `make reference` has installed what that needs. CONCH_WITHOUT_TRITON=1 skips the tests
that compare with it, in test runs about something other than Conch's behaviour.
"""

import contextlib
import os
import pathlib
import subprocess
import warnings

import pytest

import server as servers

INSTALLED = servers.ROOT / ".deps/reference/backends/python/triton_python_backend_stub"


def missing():
    """Why it cannot be asked, or None."""
    if servers.SANITIZED:
        return "the genuine Triton cannot load backends that are built with a sanitizer"
    if os.environ.get("CONCH_WITHOUT_TRITON"):
        return "comparisons with the genuine Triton are left out (CONCH_WITHOUT_TRITON)"
    if not os.environ.get("CONCH_TRITON") and not INSTALLED.exists():
        return "the genuine Triton is not installed: make reference"
    return None


def program():
    """The program that starts it."""
    return os.environ.get("CONCH_TRITON") or str(servers.ROOT / "tools/reference")


needed = pytest.mark.skipif(bool(missing()), reason=missing() or "it is there")


_running = []    # those whose `with` has begun and not ended
_failed = []     # those that had ended by themselves when an error left their `with`


def start_ended_again():
    """Starts every one again that has ended by itself: how many there were, also of those whose `with` an error left."""
    n_failed = len(_failed)
    _failed.clear()
    return n_failed + sum(server.start_again_if_ended() for server in list(_running))


class Triton(servers.Server):
    """At the end it is killed: its own stop takes a second, and now and then it crashes in it. A test of its stop sets
    graceful=True. It has races in which it ends: a warning tells it, since it is not what is tested. tests/conftest.py
    then starts it again, unless the test itself does, and repeats the test. await_more() is called once it has been
    started again."""

    listens_first = False
    await_more = staticmethod(lambda: None)

    def __init__(self, repository, flags=(), ready=True, graceful=False):
        super().__init__(repository, ready=ready)
        self.name = "the genuine Triton"
        self.graceful = graceful
        self._serves_grpc = "--allow-grpc=false" not in flags
        self.http_port = servers.free_port()
        grpc_port = servers.free_port()
        ports = [str(self.http_port), str(grpc_port), str(servers.free_port())]
        backends = pathlib.Path(servers.BACKENDS)
        self.args = [program(), str(repository), *ports, f"--backend-directory={backends}", *flags]

    def __enter__(self):
        super().__enter__()
        _running.append(self)
        return self

    def __exit__(self, kind, value, trace):
        _running.remove(self)
        if self.graceful:
            super().__exit__(kind, value, trace)
            return
        if isinstance(value, OSError):    # its sockets close a little before it has ended
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
        if self.warn_if_ended() and value:
            _failed.append(self)
        self.kill()

    def kill(self):
        self._told_to_end = True
        super().kill()

    def warn_if_ended(self):
        """Whether it has ended by itself."""
        code = self.process.poll()
        if code is None or self._told_to_end:
            return False
        warnings.warn(self.story(f"ended with {code}"))
        return True

    def start_again_if_ended(self):
        """Whether it had ended by itself. Its models are those of the start."""
        if not self.warn_if_ended():
            return False
        self.start()
        self._await_start()
        self.await_more()
        return True
