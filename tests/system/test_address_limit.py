# SPDX-License-Identifier: Apache-2.0
"""Each address may have so many connections: --http-max-connections-per-address, --grpc-max-connections-per-address."""

import socket

import pytest

import http2_frames as h2
from server import Server, wait_for
from wire import Connection

pytestmark = pytest.mark.conch_only("the genuine Triton has no such limit")

MOST = 3
WITHIN_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    flags = [f"--http-max-connections-per-address={MOST}", f"--grpc-max-connections-per-address={MOST}"]
    with Server(tmp_path_factory.mktemp("models"), flags=flags, grpc=True) as server:
        yield server


def connect_from(address, server):
    """A connection whose client has another address of this machine."""
    made = socket.socket()
    made.settimeout(WITHIN_S)
    made.bind((address, 0))
    made.connect((server.address, server.port))
    return made


def serves(connection):
    """Whether the server answers on this connection; False: it has closed it."""
    try:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        return connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
    except (ConnectionResetError, BrokenPipeError):
        return False


def is_served(address, server):
    with connect_from(address, server) as connection:
        return serves(connection)


def test_a_further_connection_is_closed_and_others_are_served(server):
    kept = [connect_from("127.0.0.2", server) for _ in range(MOST)]
    assert all(serves(each) for each in kept)
    for _ in range(2 * MOST):
        assert not is_served("127.0.0.2", server)
    assert is_served("127.0.0.3", server)
    assert all(serves(each) for each in kept)
    server.wait_log("its client 127.0.0.2 has as many connections at")
    kept.pop().close()
    wait_for(lambda: is_served("127.0.0.2", server), WITHIN_S, "a connection of the address has room")
    for each in kept:
        each.close()


def test_no_connection_stays_counted(server):
    """Connections that end in every way: without a word, answered, reset, in the middle of a request."""
    for i in range(5 * MOST):
        with connect_from("127.0.0.4", server) as connection:
            if i % 4 == 1:
                assert serves(connection)
            elif i % 4 == 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            elif i % 4 == 3:
                connection.sendall(b"POST /v2/models/x/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1")
        wait_for(lambda: is_served("127.0.0.4", server), WITHIN_S, "the connection is counted no more")


def test_a_server_stops_while_its_clients_are_connected(tmp_path):
    """One is idle, one in the middle of a request, one has its answer: the counts end with the connections."""
    with Server(tmp_path, flags=[f"--http-max-connections-per-address={MOST}", "--exit-timeout-secs=1"]) as server:
        kept = [connect_from("127.0.0.2", server) for _ in range(MOST)]
        kept[1].sendall(b"POST /v2/models/x/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1")
        assert serves(kept[2])
    for each in kept:
        each.close()


def test_grpc_counts_for_itself(server):
    with Connection(server) as http:
        assert http.request("GET", "/v2/health/live").status == 200
        kept = [h2.Connection(server.grpc_url) for _ in range(MOST)]
        assert all(each.ask() for each in kept)
        with h2.Connection(server.grpc_url) as further:
            assert further.take() is None
        for each in kept:
            assert h2.status_of(each.ask()) == 0
            each.socket.close()
