# SPDX-License-Identifier: Apache-2.0
"""The genuine Triton as a process under test, with the same face as server.Server.

CONCH_TRITON is a program that starts it: PROGRAM REPOSITORY HTTP_PORT GRPC_PORT METRICS_PORT [flags…].
Without it, tools/reference, once `make reference` has installed what that needs.
"""

import os
import pathlib

import server as servers

INSTALLED = servers.ROOT / ".deps/reference/backends/python/triton_python_backend_stub"


def program():
    """What starts it, or None: it is not installed, or our backends are built with a sanitizer, which it lacks."""
    if servers.SANITIZED:
        return None
    given = os.environ.get("CONCH_TRITON")
    if given:
        return given
    return str(servers.ROOT / "tools/reference") if INSTALLED.exists() else None


class Triton(servers.Server):
    listens_first = False

    def __init__(self, repository, flags=(), ready=True):
        super().__init__(repository, ready=ready)
        self.http_port = servers.free_port()
        ports = [str(self.http_port), str(servers.free_port()), str(servers.free_port())]
        backends = pathlib.Path(servers.BACKENDS)
        self.args = [program(), str(repository), *ports, f"--backend-directory={backends}", *flags]
