# SPDX-License-Identifier: Apache-2.0
"""Where gRPC listens: sockets of this machine, shared ports, loops, connections."""

import os
import socket
import stat
import subprocess
import uuid

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client

import repository
from server import Server, run_to_end, wait_for

pytestmark = pytest.mark.conch_only("it is how Conch does it")

LIVE = "/inference.GRPCInferenceService/ServerLive"


def is_live(target, **options):
    with grpc.insecure_channel(target, **options) as channel:
        return channel.unary_unary(LIVE)(b"", timeout=60, wait_for_ready=True) == b"\x08\x01"


@pytest.fixture
def root(models):
    repository.write_identity(models, "echo", [("FP32", [-1])])
    return models


def test_a_file_is_served(root, tmp_path):
    """The unmodified client of Triton, with a tensor that takes many frames; the file is there from the start to the stop."""
    path = tmp_path / "grpc.sock"
    with Server(root, grpc=f"unix:{path}", flags=["--grpc-port=1"]) as server:
        assert server.grpc_url == f"unix:{path}"
        assert stat.S_ISSOCK(path.stat().st_mode)
        values = np.arange(1_000_000, dtype=np.float32)
        given = client.InferInput("INPUT0", [len(values)], "FP32")
        given.set_data_from_numpy(values)
        with client.InferenceServerClient(server.grpc_url) as triton:
            assert (triton.infer("echo", [given]).as_numpy("OUTPUT0") == values).all()
        wait_for(lambda: f", gRPC at unix:{path}\"\n" in server.log(), 60, "the log has the address without a port")
    assert not path.exists()


def test_an_abstract_name_is_served(root):
    name = f"conch-test-{uuid.uuid4()}"
    with Server(root, grpc=f"unix:@{name}"):
        assert is_live(f"unix-abstract:{name}")


def test_a_file_left_by_a_crash_is_replaced(root, tmp_path):
    path = tmp_path / "grpc.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Server(root, grpc=f"unix:{path}") as server:
        assert is_live(server.grpc_url)


def test_a_file_in_use_ends_the_start(root, tmp_path):
    path = tmp_path / "grpc.sock"
    with Server(root, grpc=f"unix:{path}") as server:
        code, _, err = run_to_end(*Server(root, grpc=f"unix:{path}").args[1:])
        assert code == 1
        assert f"failed to start GRPC service: Unavailable - Socket 'unix:{path}' already in use " in err
        assert is_live(server.grpc_url)


def test_the_umask_decides_who_may_connect(root, tmp_path):
    path = tmp_path / "grpc.sock"
    before = os.umask(0o117)
    try:
        with Server(root, grpc=f"unix:{path}"):
            assert path.stat().st_mode & 0o777 == 0o660
    finally:
        os.umask(before)


def test_http_is_served_at_a_file_too(root, tmp_path):
    path = tmp_path / "http.sock"
    server = Server(root, flags=[f"--http-address=unix:{path}", "--metrics-port=0"]).start()
    try:
        server.wait_log(f"Serving HTTP at unix:{path}")
        server.wait_log("Loaded 1 of 1 models")
        done = subprocess.run(["curl", "-sf", "--unix-socket", path, "http://localhost/v2"], capture_output=True, timeout=60, check=True)
        assert b'"name":"triton"' in done.stdout
    finally:
        server.signal(15)
        assert server.wait() == 0
    assert not path.exists()


def test_two_servers_share_a_port(root):
    """Each of many connections gets to one of the two."""
    shared = "--reuse-grpc-port=true"
    with Server(root, grpc=True, flags=[shared, "--id=first"]) as first:
        port = first.grpc_url.rsplit(":", 1)[1]
        with Server(root, grpc=True, flags=[shared, f"--grpc-port={port}", "--id=second"]) as second:
            assert second.grpc_url == first.grpc_url

            def names_of_both():
                with client.InferenceServerClient(first.grpc_url, channel_args=[("grpc.use_local_subchannel_pool", 1)]) as triton:
                    seen.add(triton.get_server_metadata().name)
                return len(seen) == 2

            seen = set()
            wait_for(names_of_both, 60, "both servers have answered")


def test_connections_beyond_the_limit_wait(root):
    with Server(root, grpc=True, flags=["--grpc-max-connections=1"]) as server:
        address = tuple(server.grpc_url.split(":"))
        with socket.create_connection(address) as only:
            server.wait_log("no more connections are accepted for now: the maximum number of connections is open")
            only.sendall(b"x")
        assert is_live(server.grpc_url)
