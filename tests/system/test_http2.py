# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 over real sockets, without gRPC: tests/tools/http2_server.c answers "hello" and the request's body. Tests of exact
bytes are in tests/unit/frontends/net/test_http2*.c."""

import contextlib
import os
import shutil
import socket
import struct
import subprocess

import pytest

from server import BUILD, SANITIZER

pytestmark = pytest.mark.conch_only("the reference answers gRPC only")

# The conformance suite of HTTP/2, fetched by the go command, which verifies its downloads.
H2SPEC = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture(name="port", scope="module")
def _port():
    with subprocess.Popen([BUILD / "tests/http2_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as server:
        port = int(server.stdout.readline())
        yield port
        out, err = server.communicate(timeout=60)
        assert not SANITIZER.search(err), err
        assert out == "stopped, 0 cut off\n"
        assert server.returncode == 0


def post(port, body, *options):
    done = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "--data-binary", "@-", *options, f"http://127.0.0.1:{port}/"],
                          input=body, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("size", [0, 1, 16384, 16385, 602112, 20 << 20])
def test_bodies_are_echoed(port, size):
    body = os.urandom(size)
    assert post(port, body) == b"hello" + body


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def read_all(connection):
    """Returns the bytes that come until the server closes the connection."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            got += part
    return got


@pytest.mark.parametrize("flood, text", [
    (frame(3, 0, 1, b"\0\0\0\x08"), b"too many streams were reset"),
    (frame(4, 0, 0), b"too many SETTINGS frames"),
    (frame(6, 0, 0, b"pingpong"), b"too many PING frames"),
    (frame(0, 0, 1), b"too many empty frames"),
    (frame(8, 0, 0, b"\0\0\0\1"), b"too many WINDOW_UPDATE frames"),
    (frame(0xEE, 0, 0), b"too many frames without use"),
], ids=["RST_STREAM", "SETTINGS", "PING", "DATA", "WINDOW_UPDATE", "unknown"])
def test_floods_are_cut_off_and_others_are_served(port, flood, text):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as attacker:
        opened = frame(1, 4, 1, b"\x83\x86\x84\x41\x01t")  # POST / of t; its body does not end
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            attacker.sendall(PREFACE + frame(4, 0, 0) + opened + flood * 30000)
        got = read_all(attacker)
        # Two rules limit PINGs. The number of PINGs in one read decides which rule is broken first.
        got = got.replace(b"too_many_pings", b"too many PING frames")
        assert b"\0\0\0\x0b" + text in got  # ENHANCE_YOUR_CALM
        assert post(port, b"others") == b"helloothers"


@pytest.fixture(name="h2spec", scope="module")
def _h2spec(tmp_path_factory):
    go = shutil.which("go")
    if not go:
        pytest.skip("there is no go client to fetch h2spec with")
    folder = tmp_path_factory.mktemp("go")
    try:
        done = subprocess.run([go, "install", H2SPEC], cwd=folder, capture_output=True, text=True, check=False, timeout=180,
                              env=os.environ | {"GOBIN": str(folder), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"})
    except subprocess.TimeoutExpired:
        pytest.skip("h2spec does not come within three minutes")
    if done.returncode != 0:
        pytest.skip(f"h2spec cannot be fetched: {done.stderr}"[:300])
    return folder / "h2spec"


def test_h2spec_where_go_can_fetch_it(port, h2spec):
    """The whole suite: frames, states, HPACK. The server closes a connection behind the client's GOAWAY, as it may. When h2spec
    then sends its PING too late, it sees a reset and counts a failure: that run is repeated."""
    for _ in range(3):
        done = subprocess.run([h2spec, "-p", str(port), "-o", "20"], capture_output=True, text=True, timeout=300, check=False)
        if "connection reset by peer" not in done.stdout:
            break
    assert done.returncode == 0, done.stdout[-4000:]
    assert "145 tests, 145 passed, 0 skipped, 0 failed" in done.stdout
