# SPDX-License-Identifier: Apache-2.0
"""Streams of events behind nginx and HAProxy, and read by a client of server-sent events."""

import http.client
import json

import pytest
import sseclient

import repository
from proxies import Haproxy, Nginx, installed
from server import Server, wait_for
from test_generate import FLAGS, connect, generate, receive_until, request, write_decoupled
from wire import ask, given

pytestmark = pytest.mark.conch_only("its faults behind a proxy are not looked for")


class StreamNginx(Nginx):
    """By default it speaks HTTP/1.0 to us and keeps what comes."""

    live = ["/now", "/kept"]    # passes events on at once
    whole = [""]
    site = """
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://conch; }}
        location /now/ {{ proxy_pass http://conch/; proxy_buffering off; }}
        location /kept/ {{ proxy_pass http://conch/; proxy_buffering off; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
"""


class StreamHaproxy(Haproxy):
    live = [""]
    whole = []
    site = """
frontend clients
    bind 127.0.0.1:{port}
    default_backend conch
backend conch
    server conch 127.0.0.1:{upstream}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "any_fp32", [("FP32", [-1])])
    write_decoupled(root, "held", "script", [1], ("INT32", [1]))
    write_decoupled(root, "torrent", "torrent", [2], ("UINT8", [-1]))
    with Server(root, flags=FLAGS) as server:
        server.root = root
        yield server


@pytest.fixture(scope="module", params=[installed(StreamNginx), installed(StreamHaproxy)])
def proxy(request, server, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("proxy"), server.port) as proxy:
        yield proxy


@pytest.fixture(name="hold")
def hold_(server):
    hold = server.root / "held/hold"
    hold.touch()
    yield hold
    hold.unlink(missing_ok=True)
    (server.root / "held/hold.reached").unlink(missing_ok=True)
    assert generate(server, "held", {"IN": 1, "do": "nlxd"}).status == 200    # its one instance is free again


def begin(asked, prefix, model, body):
    connection = http.client.HTTPConnection(asked.address, asked.port, timeout=60)
    connection.request("POST", f"{prefix}/v2/models/{model}/generate_stream", json.dumps(body), {"Accept": "text/event-stream"})
    return connection


def pieces_of(answer):
    while piece := answer.read1(1 << 16):
        yield piece


def events_of(connection):
    """The events of the answer, as a client of server-sent events gives them."""
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/event-stream")
    for event in sseclient.SSEClient(pieces_of(answer)).events():
        yield json.loads(event.data)


def test_a_client_of_events_reads_them_as_they_come(server, hold):
    connection = begin(server, "", "held", {"IN": 1, "do": "nfhflxd"})
    events = events_of(connection)
    assert next(events) == {"OUT": 1000, "model_name": "held", "model_version": "1"}
    hold.unlink()
    assert [event["OUT"] for event in events] == [1001, 1002]
    connection.close()


def test_a_proxy_passes_events_on_as_they_come(server, proxy, hold):
    for prefix in proxy.live:
        hold.touch()
        connection = begin(proxy, prefix, "held", {"IN": 1, "do": "nfhflxd"})
        events = events_of(connection)
        assert next(events)["OUT"] == 1000
        hold.unlink()
        assert [event["OUT"] for event in events] == [1001, 1002]
        connection.close()


def test_long_streams_pass_whole(proxy):
    for prefix in proxy.live + proxy.whole:
        connection = begin(proxy, prefix, "torrent", {"IN": [3000, 100]})
        numbers = [int.from_bytes(bytes(event["OUT"][:4]), "little") for event in events_of(connection)]
        assert numbers == list(range(3000))
        connection.close()


@pytest.fixture(scope="module")
def nginx(server, tmp_path_factory):
    with StreamNginx(tmp_path_factory.mktemp("nginx"), server.port) as proxy:
        yield proxy


@pytest.mark.skipif(StreamNginx.find() is None, reason="nginx is not installed (make deps)")
@pytest.mark.parametrize("stage", ["silent", "begun"])
def test_a_client_that_leaves_nginx_cancels(server, nginx, hold, stage):
    """The script waits until it is cancelled."""
    for prefix in nginx.live + nginx.whole:
        hold.touch()
        with connect(nginx) as client:
            client.sendall(request("held", {"IN": 1, "do": "nhc.xd" if stage == "silent" else "nfhc.xd"}).replace(b"/v2", prefix.encode() + b"/v2", 1))
            if stage == "begun" and prefix in nginx.live:
                receive_until(client, b"1000")
            wait_for((server.root / "held/hold.reached").exists, 60, "the backend has the request")
        hold.unlink()
        (server.root / "held/hold.reached").unlink()
        assert generate(server, "held", {"IN": 1, "do": "nlxd"}).status == 200


def test_an_inference_passes(proxy):
    for prefix in proxy.live + proxy.whole:
        answer = ask(proxy, "POST", f"{prefix}/v2/models/any_fp32/infer", json.dumps({"inputs": [given("INPUT0", "FP32", [2], [1, 2])]}).encode())
        assert answer.status == 200 and answer.json()["outputs"][0]["data"] == [1, 2]
