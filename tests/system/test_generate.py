# SPDX-License-Identifier: Apache-2.0
"""…/generate and …/generate_stream: every text, asked of both servers, then streams: events as they come, errors, disconnects,
slow readers, deadlines, pipelines.

tests/plugins/script executes the script of each request, one letter a step; tests/plugins/torrent sends what it is told, as
fast as it is taken; tests/plugins/tokens has the metric of a language model.
"""

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess

import pytest

import repository
import triton
from server import BUILD, Server, wait_for
from wire import Response, ask

FLAGS = ["--model-control-mode=explicit", "--load-model=*"]
STREAM_TYPE = "text/event-stream; charset=utf-8"
MANY = "generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses"
I = "INPUT0"    # noqa: E741


def write_decoupled(root, name, backend, inputs, outputs):
    text = f'backend: "{backend}"\nmodel_transaction_policy {{ decoupled: true }}\n'
    text += repository.tensor("input", "IN", "INT32", inputs) + repository.tensor("output", "OUT", *outputs)
    folder = repository.write_model(root, name, text + "instance_group [ { count: 1 kind: KIND_CPU } ]\n")
    shutil.copy(BUILD / f"tests/backends/{backend}/libtriton_{backend}.so", folder)
    return folder


def write_models(root):
    repository.write_standard(root)
    repository.write_identity(root, "cube", [("FP32", [2, -1, 3])])
    repository.write_identity(root, "plane", [("FP32", [-1, -1])])
    for name in ("plain", "held", "other"):
        write_decoupled(root, name, "script", [1], ("INT32", [1]))
    write_decoupled(root, "torrent", "torrent", [2], ("UINT8", [-1]))
    write_decoupled(root, "tokens", "tokens", [1], ("INT32", [1]))
    return root


@pytest.fixture(name="server", scope="module")
def server_(tmp_path_factory):
    root = write_models(tmp_path_factory.mktemp("ours"))
    with Server(root, flags=FLAGS) as server:
        server.root = root
        yield server


@pytest.fixture(name="theirs", scope="module")
def theirs_(tmp_path_factory):
    if triton.missing():
        pytest.skip(triton.missing())
    with triton.Triton(write_models(tmp_path_factory.mktemp("theirs")), flags=[*FLAGS, "--allow-grpc=false"]) as server:
        yield server


# ---- The same question to both ---------------------------------------------------------------------

BODIES = [
    *[("any_fp32", body) for body in (
        {I: [1, 2, 0.1]}, {I: 1.5}, {I: [1, 2], "id": "x"}, {I: [1], "id": ""}, {I: [1], "id": 5}, {I: "x"}, {"zz": 1}, {},
        b"", b"[1]", b"1", b"null", b"{", b'{"INPUT0":[1]} x', b'{"INPUT0":[1,"x"],"id":4', b'{"INPUT0":[1,"x"],"id":4}',
        b'{"INPUT0":[1],"id":7,"parameters":3}', b'{"INPUT0":1e400}', b'{"INPUT0":[NaN, Infinity, -Infinity]}', b'{"INPUT0":[ ]}',
        b'{"INPUT0":[1,]}', b'{"INPUT0":[,1]}', b'{"INPUT0":[1 2]}', b'{"INPUT0":[1', b'{"INPUT0"', b'\xef\xbb\xbf{"INPUT0":1}',
        {I: [1], "parameters": 3}, {I: [1], "parameters": {"nested": {}}}, {I: [1], "parameters": {"a": [1]}},
        {"parameters": {I: [1, 2]}}, {"parameters": {"parameters": {I: 1}}, I: 2}, {"parameters": {I: "x"}},
        {I: [1], "a": None}, {I: [1], "a": [1]}, {I: [1], "a": {}},
        {I: [1], "a": 1.5, "b": True, "c": "s", "d": -3, "triton_x": 1, "sequence_id": 5}, {I: [1], "model_name": "x", "OUTPUT0": 3},
        {I: []}, {I: [[1, 2], [3, 4]]}, {I: [[1], [2]]}, {I: [1, [2]]}, {I: None}, {I: {}}, {I: [{}]}, {I: True},
        b'{"INPUT0":[1],"INPUT0":[2]}', b'{"INPUT0":[1],"a":1,"a":2}', b'{"INPUT0":[1],"parameters":{},"parameters":{"x":{}}}')],
    *[("any_bytes", body) for body in (
        {I: "hello"}, {I: ["a", ""]}, {I: ["a,b", "c]d", "\"[", "é\n"]}, {I: 1}, {I: [["a", "b"], ["c"]]}, {I: ""}, {I: [1]}, {I: {}}, {I: []},
        {I: [[]]}, {I: "\ud83d\ude00"}, b'{"INPUT0":"\\u0000"}')],
    ("any_bool", {I: True}), ("any_bool", {I: [True, False]}), ("any_bool", {I: 1}), ("any_int8", {I: 128}), ("any_uint8", {I: -1}),
    ("any_int32", {I: 1.5}), ("any_int64", {I: 2**63 - 1}), ("any_uint64", {I: 2**64 - 1}), ("any_uint16", {I: 65537}),
    ("any_fp64", b'{"INPUT0":NaN}'), ("any_fp64", {I: 0.1}), ("any_int32", {I: []}),
    ("any_fp16", {I: [1]}), ("any_bf16", {I: 1}), ("any_fp16", {I: []}),
    *[("fixed", {I: [1] * n}) for n in (0, 3, 4, 8)], *[("matrix", {I: [1] * n}) for n in (0, 6, 7)],
    *[("batch", {I: [1] * n}) for n in (1, 2, 4, 10)], *[("cube", {I: [1] * n}) for n in (0, 12, 13)], ("plane", {I: [1] * 12}),
    ("pair", {I: 1, "INPUT1": [1, 2]}), ("pair", {I: 1}), ("pair_batch", {I: [1, 2], "INPUT1": [1, 2]}), ("nobody", {}), ("versions", {I: [1]}),
    *[("plain", {"IN": 3, "do": do}) for do in ("nlxd", "nf.xd", "ntlxd", "n0lxd")],
]


def outcome(answer):
    return answer.status, answer.headers["content-type"], answer.body


def receive(answer):
    """A Response of one of http.client, which reads chunks."""
    body = answer.read()
    return Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body)


def generate(server, model, body, kind="generate", headers=None, method="POST"):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection(server.url, timeout=60)
    try:
        connection.request(method, f"/v2/models/{model}/{kind}", body, headers or {})
        return receive(connection.getresponse())
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
def test_both_servers_answer_the_same(server, theirs, kind):
    for model, body in BODIES:
        ours, genuine = (outcome(generate(each, model, body, kind)) for each in (server, theirs))
        assert ours[:2] == genuine[:2], (model, body)
        told = re.sub(rb" \((line \d+, column \d+|the body is empty)\)", b"", ours[2])    # only Conch says it
        assert told == genuine[2], (model, body)


@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
@pytest.mark.parametrize("headers", [{"Content-Encoding": "gzip"}, {"Content-Encoding": "br"}, {"Content-Encoding": "identity"},
                                     {"Accept-Encoding": "gzip"}, {"Inference-Header-Content-Length": "x"}], ids=lambda h: " ".join(*h.items()))
def test_both_servers_take_the_same_headers(server, theirs, kind, headers):
    ours, genuine = (outcome(generate(each, "any_fp32", {I: 1}, kind, headers)) for each in (server, theirs))
    assert ours == genuine


@pytest.mark.parametrize("do", ["nfflxd", "nff.xd", "n.xd", "nf.xd", "nfelxd", "nfExd", "nxfld"])
def test_both_servers_send_the_same_events(server, theirs, do):
    ours, genuine = (outcome(generate(each, "plain", {"IN": 3, "do": do, "id": "i"}, "generate_stream")) for each in (server, theirs))
    assert ours == genuine


def test_both_servers_know_the_method(server, theirs):
    for kind in ("generate", "generate_stream"):
        ours, genuine = (outcome(generate(each, "any_fp32", b"", kind, method="GET")) for each in (server, theirs))
        assert ours == genuine


# ---- Where Conch differs ---------------------------------------------------------------------------

@pytest.mark.parametrize("do", ["nfflxd", "nff.xd", "n.xd", "nfelxd", "neflxd", "nfExd", "nxfld"])
def test_none_or_several_responses_are_an_error(server, do):
    assert outcome(generate(server, "plain", {"IN": 3, "do": do})) == (500, "application/json", json.dumps({"error": MANY}).encode().replace(b": ", b":"))


@pytest.mark.parametrize("do", ["nExd", "ne.xd"])
def test_an_error_has_its_own_status(server, do):
    answer = generate(server, "plain", {"IN": 3, "do": do})
    assert (answer.status, answer.json()) == (501, {"error": "as the script says"})


def test_the_first_event_decides_the_status(server):
    answer = generate(server, "plain", {"IN": 3, "do": "neflxd"}, "generate_stream")
    assert (answer.status, answer.headers["content-type"]) == (501, STREAM_TYPE)
    assert [json.loads(e) for e in events_of(answer.body)] == [
        {"error": "as the script says"}, *[{"OUT": n, "model_name": "plain", "model_version": "1"} for n in (3000, 3001)]]


@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
@pytest.mark.parametrize("form, want", [
    ("json", 'JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":2560}}'),
    ("text", "TEXT named_metrics.kv_cache_utilization=0.250000, named_metrics.max_token_capacity=2560"), ("JSON", None), ("xml", None), ("", None)])
def test_clients_are_told_the_load_of_a_language_model(server, kind, form, want):
    """2.51 has no such header."""
    answer = generate(server, "any_fp32", {I: 1}, kind, {"Endpoint-Load-Metrics-Format": form})
    assert (answer.status, answer.headers.get("endpoint-load-metrics")) == (200, want)
    assert "endpoint-load-metrics" not in generate(server, "any_fp32", {I: 1}, kind).headers


# ---- Streams ---------------------------------------------------------------------------------------

def events_of(body):
    """What an EventSource gives its program: the data of each event."""
    events, data = [], []
    for line in body.decode().replace("\r\n", "\n").split("\n"):
        if not line and data:
            events.append("\n".join(data))
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        else:
            assert not line or line.startswith(":"), line
    assert not data
    return events


def request(model, body, version="1.1", headers=""):
    body = json.dumps(body).encode()
    return f"POST /v2/models/{model}/generate_stream HTTP/{version}\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def connect(server):
    return socket.create_connection((server.address, server.port), timeout=60)


def receive_until(client, mark, got=b""):
    while mark not in got:
        more = client.recv(1 << 16)
        assert more, got
        got += more
    return got


def count_requests(server, model):
    stats = ask(server, "GET", f"/v2/models/{model}/stats").json()["model_stats"][0]
    return stats["inference_stats"]["success"]["count"] + stats["inference_stats"]["fail"]["count"]


@pytest.fixture(name="hold")
def hold_(server):
    hold = server.root / "held/hold"
    hold.touch()
    yield hold
    hold.unlink(missing_ok=True)
    (server.root / "held/hold.reached").unlink(missing_ok=True)
    assert generate(server, "held", {"IN": 1, "do": "nlxd"}).status == 200    # its one instance is free again


def test_events_come_while_the_model_goes_on(server, hold):
    with connect(server) as client:
        client.sendall(request("held", {"IN": 1, "do": "nfhflxd"}))
        got = receive_until(client, b"1000")
        assert got.startswith(b"HTTP/1.1 200 OK\r\n") and b"1001" not in got
        hold.unlink()
        got = receive_until(client, b"\r\n0\r\n\r\n", got)
        assert b"1001" in got and b"1002" in got
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")    # the connection goes on
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 OK\r\n")


def test_http_1_0_ends_with_the_connection(server):
    with connect(server) as client:
        client.sendall(request("plain", {"IN": 1, "do": "nfflxd"}, version="1.0", headers="Connection: keep-alive\r\n"))
        got = b""
        while more := client.recv(1 << 16):
            got += more
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"chunked" not in head and b"Connection: close" in head
    assert [json.loads(e)["OUT"] for e in events_of(body)] == [1000, 1001, 1002]


class Stream:
    """A socket for http.client that keeps what it has read for the next answer."""

    def __init__(self, client):
        self.file = client.makefile("rb")
        self.file.close, self.end = lambda: None, self.file.close

    def makefile(self, _):
        return self.file


def test_streams_in_a_pipeline_come_in_order(server):
    got = []
    with connect(server) as client:
        client.sendall(request("plain", {"IN": 1, "do": "nftflxd"}) + request("plain", {"IN": 2, "do": "nlxd"}) + request("plain", {"IN": 3, "do": "nx.d"}))
        stream = Stream(client)
        for _ in range(3):
            answer = http.client.HTTPResponse(stream, method="POST")
            answer.begin()
            got.append([json.loads(e)["OUT"] for e in events_of(answer.read())])
        stream.end()
    assert got == [[1000, 1001, 1002], [2000], []]


def test_a_sequence_of_ten_thousand_events_is_whole(server):
    """2.51 often stops in the middle of a thousand, and the client waits for ever."""
    answer = generate(server, "torrent", {"IN": [10000, 8]}, "generate_stream")
    numbers = [int.from_bytes(bytes(json.loads(e)["OUT"][:4]), "little") for e in events_of(answer.body)]
    assert numbers == list(range(10000))


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("how", ["close", "reset", "shutdown"])
@pytest.mark.parametrize("stage", ["silent", "begun"])
def test_a_client_that_leaves_cancels(server, hold, stage, how, version):
    """The script waits until it is cancelled."""
    client = connect(server)
    client.sendall(request("held", {"IN": 1, "do": "nhc.xd" if stage == "silent" else "nfhc.xd"}, version))
    if stage == "begun":
        receive_until(client, b"1000")
    wait_for((server.root / "held/hold.reached").exists, 60, "the backend has the request")
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    if how == "shutdown":
        client.shutdown(socket.SHUT_WR)
    client.close()
    hold.unlink()    # the fixture then waits for the instance


def test_a_client_of_http_1_0_that_sends_no_more_gets_all_events(server, hold):
    """The empty line that finds out whether it reads makes no event."""
    with connect(server) as client:
        client.sendall(request("held", {"IN": 1, "do": "nfhflxd"}, version="1.0"))
        got = receive_until(client, b"1000")
        client.shutdown(socket.SHUT_WR)
        got = receive_until(client, b"\n\n\n", got)
        hold.unlink()
        while more := client.recv(1 << 16):
            got += more
    assert [json.loads(e)["OUT"] for e in events_of(got.partition(b"\r\n\r\n")[2])] == [1000, 1001, 1002]


def test_a_slow_reader_holds_back_its_backend_alone(server):
    before = count_requests(server, "torrent")
    with connect(server) as client:
        client.sendall(request("torrent", {"IN": [1 << 30, 1 << 20]}))    # a TiB, if it were all taken
        receive_until(client, b"data:")
        assert generate(server, "plain", {"IN": 1, "do": "nlxd"}).status == 200
        memory = int(next(line for line in open(f"/proc/{server.pid}/status") if line.startswith("VmRSS")).split()[1])
        assert memory < 2 << 20    # KiB
        assert count_requests(server, "torrent") == before
    wait_for(lambda: count_requests(server, "torrent") > before, 60, "the request has ended")


@pytest.fixture(name="still", scope="module")
def still_(tmp_path_factory):
    """A server that gives up a reader after a second without a byte; no rate limits it."""
    root = tmp_path_factory.mktemp("still")
    write_decoupled(root, "torrent", "torrent", [2], ("UINT8", [-1]))
    with Server(root, flags=[*FLAGS, "--http-stall-timeout-secs=1", "--http-min-rate=0"]) as server:
        yield server


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_reader_of_events_that_sleeps_is_cut_off_and_its_request_cancelled(still, version):
    """2.51 keeps the events of such a client without limit. The request would go on for a TiB."""
    before = count_requests(still, "torrent")
    with connect(still) as client:
        client.sendall(request("torrent", {"IN": [1 << 30, 1 << 20]}, version))
        receive_until(client, b"data:")
        wait_for(lambda: count_requests(still, "torrent") > before, 60, "the request has ended, though its client is there")
        with contextlib.suppress(ConnectionResetError):
            while client.recv(1 << 20):
                pass    # what the kernel has, then the end
    answer = generate(still, "torrent", {"IN": [3, 8]}, "generate_stream")    # the instance is free
    assert len(events_of(answer.body)) == 3


def test_a_deadline_is_an_event_or_a_status(server):
    answer = generate(server, "other", {"IN": 1, "do": "nc.xd"}, "generate_stream", {"Conch-Timeout-Ms": "100"})
    assert (answer.status, answer.json()) == (504, {"error": "Deadline Exceeded"})
    answer = generate(server, "other", {"IN": 1, "do": "nc.xd"}, "generate", {"Conch-Timeout-Ms": "100"})
    assert (answer.status, answer.json()) == (504, {"error": "Deadline Exceeded"})
    for timeout_ms in (200, 2000, 20000):    # so long that the first event has come
        answer = generate(server, "other", {"IN": 1, "do": "nfc.xd"}, "generate_stream", {"Conch-Timeout-Ms": str(timeout_ms)})
        if answer.status == 200:
            break
    assert [json.loads(e) for e in events_of(answer.body)] == [
        {"OUT": 1000, "model_name": "other", "model_version": "1"}, {"error": "Deadline Exceeded"}]


def test_curl_prints_events_as_they_come(server, hold):
    body = json.dumps({"IN": 1, "do": "nfhlxd"})
    with subprocess.Popen(["curl", "-sN", f"http://{server.url}/v2/models/held/generate_stream", "-d", body], stdout=subprocess.PIPE, text=True) as curl:
        assert json.loads(curl.stdout.readline().removeprefix("data: "))["OUT"] == 1000
        hold.unlink()
        rest = curl.stdout.read()
    assert curl.returncode == 0
    assert [json.loads(e)["OUT"] for e in events_of(rest.encode())] == [1001]


def test_large_tensors_and_their_limit(tmp_path):
    repository.write_identity(tmp_path, "any", [("FP32", [-1])])
    repository.write_identity(tmp_path, "pair", [("FP64", [-1]), ("BYTES", [-1])])
    with Server(tmp_path, flags=["--http-max-input-size=1000"]) as server:
        assert generate(server, "any", {I: [1] * 250}).status == 200
        assert generate(server, "any", {I: [1] * 251}).json() == {
            "error": "request size of 0 bytes with input 'INPUT0' of size 1004 bytes exceeds the maximum allowed input size of 1000. "
            "Use --http-max-input-size to increase the limit."}
        assert generate(server, "pair", {I: [1] * 100, "INPUT1": "x" * 197}).json() == {
            "error": "request size of 800 bytes with input 'INPUT1' of size 201 bytes exceeds the maximum allowed input size of 1000. "
            "Use --http-max-input-size to increase the limit."}
        assert generate(server, "any", {I: 1, "x": "y" * 1000}).status == 400
        assert generate(server, "any", {I: [1] * 250}).status == 200
