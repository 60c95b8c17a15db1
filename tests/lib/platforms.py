# SPDX-License-Identifier: Apache-2.0
"""The endpoints of SageMaker and of Vertex AI, of Conch or of the genuine Triton: each has a port of its own."""

import contextlib
import os
import pathlib
import re
import secrets
import shutil
import socket

import pytest

import server as servers
import triton
from wire import ask as ask_http

ARCHIVES = pathlib.Path("/opt/ml/models")  # where SageMaker unpacks models; the contract names the path
BOTH = ["conch", pytest.param("triton", marks=triton.needed)]


class Endpoint:
    """What the platform asks: a port of a running server."""

    def __init__(self, server, port, line):
        self.server, self.address, self.port, self._line = server, "127.0.0.1", port, line

    def await_start(self):
        self.server.wait_log(self._line)
        servers.wait_for(lambda: listens(self.port), 60, "the endpoint listens")    # the genuine one logs it before

    def ask(self, method, path, body=None, **headers):
        """Sends one request: (status, type, body) of the answer. Underscores in names of headers are hyphens."""
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        answer = ask_http(self, method, path, body, named)
        return answer.status, answer.headers.get("content-type"), answer.body

    def error(self, method, path, body=None, **headers):
        """The same, of an answer with an error: (status, its text), without where JSON is wrong, which only Conch says."""
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        answer = ask_http(self, method, path, body, named)
        return answer.status, re.sub(r" \(line \d+, column \d+\)$", "", answer.error)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def serving(kind, root, line, flags=(), env=None, ready=True):
    """A server whose log has the line that says where the endpoint is; flags may have {port} for its port."""
    port = servers.free_port()
    flags = [flag.format(port=port) for flag in flags]
    if kind == "conch":
        server = servers.Server(root, flags=flags, env=env, ready=ready)
    else:
        server = triton.Triton(root, ["--allow-grpc=false", *flags])
        server.env = {**server.env, **(env or {})}
    with server:
        endpoint = Endpoint(server, port, line)
        server.await_more = endpoint.await_start
        endpoint.await_start()
        yield endpoint


@contextlib.contextmanager
def bare(env):
    """Conch with nothing but its environment, and backends."""
    server = servers.Server()
    server.args = [servers.BIN, f"--backend-directory={servers.BACKENDS}", "--http-address=127.0.0.1", "--allow-metrics=false"]
    server.env = {**server.env, **env}
    server.start()
    try:
        yield server
    finally:
        server.__exit__(None, None, None)


def can_unpack():
    """Whether archive() can make its folder."""
    return os.access(ARCHIVES if ARCHIVES.exists() else "/opt", os.W_OK)


@contextlib.contextmanager
def archive():
    """An empty folder such as SageMaker unpacks an archive to: <root>/<hash>/model."""
    if not can_unpack():
        pytest.skip(f"{ARCHIVES}, which the contract names, cannot be written here")
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    folder = ARCHIVES / f"conch_test_{secrets.token_hex(8)}" / "model"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder.parent)
