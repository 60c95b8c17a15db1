# SPDX-License-Identifier: Apache-2.0
"""Behind a proxy, as many servers run: kept and shared connections, bodies both ways, clients that leave, a restart."""

import contextlib
import json
import os
import pathlib

import pytest

import repository
from proxies import WITHIN_S, Haproxy, Nginx, installed
from server import Server, free_port, wait_for
from wire import Connection, ask, given, request_bytes

pytestmark = pytest.mark.conch_only("its faults behind a proxy are not looked for")

MIB = 1 << 20
PATH = "/v2/models/bytes/infer"


class HttpNginx(Nginx):
    """Requests to /streamed/ are passed on in pieces; other bodies are passed on when the proxy has all of it, or a buffer
    full."""

    without_server = 502    # the status of its answer without a server
    site = """
    proxy_http_version 1.1; proxy_set_header Connection "";
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://conch; }}
        location /streamed/ {{ proxy_pass http://conch/; proxy_request_buffering off; proxy_buffering off; }}
    }}
"""


class HttpHaproxy(Haproxy):
    """The same."""

    without_server = 503
    site = """
frontend clients
    bind 127.0.0.1:{port}
    use_backend streamed if {{ path_beg /streamed/ }}
    default_backend buffered
backend streamed
    http-request replace-path /streamed(/.*) \\1
    server conch 127.0.0.1:{upstream}
backend buffered
    option http-buffer-request
    server conch 127.0.0.1:{upstream}
"""


@pytest.fixture(scope="module", params=[installed(HttpNginx), installed(HttpHaproxy)])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "bytes", [("UINT8", [-1])])
    return root


@pytest.fixture(scope="module")
def server(models):
    with Server(models) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(kind, server, tmp_path_factory):
    with kind(tmp_path_factory.mktemp(kind.program), server.port) as proxy:
        yield proxy


def small(number):
    return json.dumps({"id": str(number), "inputs": [given("INPUT0", "UINT8", [1], [number % 256])]}).encode()


def assert_answers(server, number):
    answer = ask(server, "POST", PATH, small(number))
    assert answer.status == 200 and answer.json()["outputs"][0]["data"] == [number % 256]


def head_of(n, path=PATH, **headers):
    text = b'{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}]' % (n, n)
    text += b',"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}'
    headers = {"Inference-Header-Content-Length": len(text), **headers}
    if "Transfer-Encoding" not in headers:
        headers["Content-Length"] = len(text) + n
    return request_bytes("POST", path, headers=headers), text


def sockets_of(server):
    n = 0
    for fd in pathlib.Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            n += os.readlink(fd).startswith("socket:")
    return n


def test_connections_are_kept_and_shared(server, proxy):
    """200 clients, each with its own connection to the proxy, use a few connections to us."""
    before = sockets_of(server)
    for number in range(200):
        assert_answers(proxy, number)
    assert sockets_of(server) <= before + 4
    with Connection(proxy) as connection:
        for number in range(50):
            answer = connection.request("POST", PATH, small(number))
            assert answer.json()["id"] == str(number)


@pytest.mark.parametrize("prefix", ["", "/streamed"], ids=["buffered", "streamed"])
def test_large_bodies_pass_both_ways(proxy, prefix):
    data = os.urandom(MIB) * 40
    head, text = head_of(len(data), prefix + PATH)
    with Connection(proxy) as connection:
        for _ in range(2):
            connection.send(head + text + data)
            answer = connection.response()
            assert answer.status == 200 and answer.body.endswith(data)


@pytest.mark.parametrize("prefix", ["", "/streamed"], ids=["buffered", "streamed"])
def test_chunked_bodies_pass(proxy, prefix):
    data = os.urandom(MIB) * 3
    head, text = head_of(len(data), prefix + PATH, **{"Transfer-Encoding": "chunked"})
    with Connection(proxy) as connection:
        connection.send(head)
        for at in range(0, len(text + data), 70_001):
            piece = (text + data)[at : at + 70_001]
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.send(b"0\r\n\r\n")
        status, headers = connection.head()
        assert status == 200
        assert read_body(connection, headers).endswith(data)
        assert connection.request("GET", "/v2/health/ready").status == 200


def read_body(connection, headers):
    return connection._exactly(int(headers["content-length"]))


@pytest.mark.parametrize("prefix", ["", "/streamed"], ids=["buffered", "streamed"])
def test_expect_100_continue_passes(proxy, prefix):
    head, text = head_of(2 * MIB, prefix + PATH, Expect="100-continue")
    with Connection(proxy) as connection:
        connection.send(head)
        assert connection.head()[0] == 100
        connection.send(text + bytes(2 * MIB))
        answer = connection.response()
        assert answer.status == 200 and answer.body.endswith(bytes(2 * MIB))


def test_clients_that_leave_disturb_no_other(server, proxy):
    """In the middle of a body, and of the reply."""
    head, text = head_of(40 * MIB, "/streamed" + PATH)
    for n_sent in (0, 1, 5 * MIB, 40 * MIB):
        with Connection(proxy) as connection:
            connection.send(head + text + bytes(n_sent))
            if n_sent == 40 * MIB:
                assert connection.head()[0] == 200
    for number in range(20):
        assert_answers(proxy, number)
    wait_for(lambda: sockets_of(server) < 20, WITHIN_S, "nobody's connection is left")


def test_clients_are_served_again_after_a_restart(kind, models, tmp_path):
    """The proxy's kept connections end with the server. Clients meanwhile get an error; later clients are served."""
    with contextlib.ExitStack() as stack:
        with Server(models) as first:
            proxy = stack.enter_context(kind(tmp_path, first.port))
            for number in range(10):
                assert_answers(proxy, number)
        assert ask(proxy, "GET", "/v2/health/ready").status == kind.without_server
        with Server(models, port=first.port):
            for number in range(10):
                assert_answers(proxy, number)


class CheckingHaproxy(HttpHaproxy):
    """Asks for readiness, by HTTP/1.0 and without a host, and passes no request to a server that is not ready."""

    config = HttpHaproxy.config.replace("mode http\n", "mode http\n    option httpchk GET /v2/health/ready\n")
    site = HttpHaproxy.site.replace("{upstream}\n", "{upstream} check inter 100ms\n")


@pytest.mark.skipif(Haproxy.find() is None, reason="haproxy is not installed (make deps)")
def test_the_proxy_follows_readiness(models, tmp_path):
    port = free_port()
    with CheckingHaproxy(tmp_path, port) as proxy:
        def answers(status):
            return lambda: ask(proxy, "GET", "/v2/health/live").status == status

        for _ in range(2):
            wait_for(answers(503), WITHIN_S, "the server is known to be away")
            with Server(models, port=port):
                wait_for(answers(200), WITHIN_S, "the server is known to be ready")
                assert_answers(proxy, 1)
