# SPDX-License-Identifier: Apache-2.0
"""What HTTP has beside …/infer, on a server whose system calls fail now and then (tests/fault/faultlib.c): generate, streams of
events, regions, packed bodies, settings, SageMaker, Vertex AI, all by access rules and with traces.

Clients do not notice the faults: each question gets its answer, no event is lost, and what a region gets is right. A client that
goes in the middle of a stream leaves nothing. Only the server runs under faultlib.
"""

import concurrent.futures
import gzip
import http.client
import json
import pathlib
import re
import struct
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import regions  # noqa: E402
import repository  # noqa: E402
from faulty import SOFT, Faulty, assert_descriptors_come_back, descriptors  # noqa: E402
from server import free_port, wait_for  # noqa: E402
from wire import Connection, request_bytes  # noqa: E402

CLIENTS = 6
ROUNDS = 6
EVENTS = 40
LARGE = 150_000
RULES = "allow header X-Key=right to all\nallow anyone to health\n"
RIGHT = {"X-Key": "right"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "here", [("INT32", [-1])], CONCH_EXECUTION="inline")
    repository.write_identity(root, "there", [("INT32", [-1])], CONCH_EXECUTION="thread")
    repository.write_model(root, "many", repository.REPEAT)
    return root


@pytest.fixture(name="serve")
def _serve(models, tmp_path, monkeypatch):
    """Starts a server of all endpoints under faults of this seed."""
    monkeypatch.setenv("AIP_PREDICT_ROUTE", "/predict")
    monkeypatch.setenv("AIP_HEALTH_ROUTE", "/health")
    monkeypatch.setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "there")
    rules = tmp_path / "rules"
    rules.write_text(RULES)
    flags = [f"--access-rules={rules}", "--allow-client-shm=true", "--allow-sagemaker=true", f"--sagemaker-port={free_port()}",
             "--allow-vertex-ai=true", f"--vertex-ai-port={free_port()}", "--vertex-ai-default-model=here", "--http-thread-count=2",
             f"--trace-config=triton,file={tmp_path}/traces", "--trace-config=rate=7", "--trace-config=level=TIMESTAMPS"]
    return lambda seed: Faulty(models, seed, tmp_path / "counts", flags=flags)


def port_of(server, name):
    line = re.compile(rf"Started {name} HTTPService at \S+:(\d+)", re.I)
    wait_for(lambda: line.search(server.log()), 60, f"{name} is served")
    return int(line.search(server.log())[1])


class Asker:
    """One connection to each endpoint."""

    def __init__(self, server, number):
        self.number = number
        self.http, self.sagemaker, self.vertex_ai = (
            http.client.HTTPConnection(server.address, port, timeout=120)
            for port in (server.port, port_of(server, "sagemaker"), port_of(server, "vertex ai")))

    def ask(self, connection, method, path, body=None, status=200, **headers):
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        connection.request(method, path, data, {**RIGHT, **{name.replace("_", "-"): value for name, value in headers.items()}})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == status, (method, path, answer.status, text[:300])
        return answer, text

    def close(self):
        for connection in (self.http, self.sagemaker, self.vertex_ai):
            connection.close()


def document(values, request_id="", **parameters):
    return {"id": request_id, "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [len(values)], "data": values}], **parameters}


# ---- Questions: each raises on a wrong answer


def ask_generate(asker, mark):
    for model in ("here", "there"):
        _, text = asker.ask(asker.http, "POST", f"/v2/models/{model}/generate", {"INPUT0": [mark, 1, 2]})
        assert json.loads(text)["OUTPUT0"] == [mark, 1, 2]
    _, text = asker.ask(asker.http, "POST", "/v2/models/many/generate", {"IN": [1, 2], "DELAY": [0, 0], "WAIT": 0}, status=500)
    assert b"exactly 1 response" in text


def ask_stream(asker, mark):
    values = [mark + i for i in range(EVENTS)]
    answer, text = asker.ask(asker.http, "POST", "/v2/models/many/generate_stream", {"IN": values, "DELAY": [0] * EVENTS, "WAIT": 0})
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    events = [json.loads(event.removeprefix("data: ")) for event in text.decode().split("\n\n") if event]
    assert [event["OUT"] for event in events] == values


def ask_packed(asker, mark):
    values = [mark] * (LARGE // 10)
    answer, text = asker.ask(asker.http, "POST", "/v2/models/there/infer", gzip.compress(json.dumps(document(values)).encode(), 1),
                             Content_Encoding="gzip", Accept_Encoding="gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(text))["outputs"][0]["data"] == values


def ask_by_regions(asker, mark):
    name = f"r{asker.number}_{mark}"
    data = struct.pack("=i", mark) * LARGE
    with regions.Object(2 * len(data)) as made:
        made.write(data)
        asker.ask(asker.http, "POST", f"/v2/systemsharedmemory/region/{name}/register",
                  {"key": made.key, "offset": 0, "byte_size": 2 * len(data)})
        for model in ("here", "there"):
            made.write(bytes(len(data)), len(data))
            asker.ask(asker.http, "POST", f"/v2/models/{model}/infer", {
                "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [LARGE], "parameters": regions.part(name, len(data))}],
                "outputs": [{"name": "OUTPUT0", "parameters": regions.part(name, len(data), len(data))}]})
            assert made.read(len(data), len(data)) == data
        _, text = asker.ask(asker.http, "GET", f"/v2/systemsharedmemory/region/{name}/status")
        assert json.loads(text)[0]["byte_size"] == 2 * len(data)
        asker.ask(asker.http, "POST", f"/v2/systemsharedmemory/region/{name}/unregister")
        _, text = asker.ask(asker.http, "GET", f"/v2/systemsharedmemory/region/{name}/status", status=404)
        assert name.encode() in text


def ask_settings(asker, mark):
    _, text = asker.ask(asker.http, "POST", "/v2/logging", {"log_verbose_level": 0, "log_info": True})
    assert json.loads(text)["log_info"] is True
    _, text = asker.ask(asker.http, "POST", f"/v2/models/{('here', 'there')[mark % 2]}/trace/setting", {"trace_rate": str(5 + mark % 3)})
    assert 5 <= int(json.loads(text)["trace_rate"]) <= 7


def ask_sagemaker(asker, mark):
    asker.ask(asker.sagemaker, "GET", "/ping")
    _, text = asker.ask(asker.sagemaker, "POST", "/invocations", document([mark, 3]))
    assert json.loads(text)["outputs"][0]["data"] == [mark, 3]


def ask_vertex_ai(asker, mark):
    asker.ask(asker.vertex_ai, "GET", "/health")
    _, text = asker.ask(asker.vertex_ai, "POST", "/predict", document([mark, 4]))
    assert json.loads(text)["outputs"][0]["data"] == [mark, 4]
    _, text = asker.ask(asker.vertex_ai, "POST", "/predict", b"", X_Vertex_Ai_Triton_Redirect="v2/models/there")
    assert json.loads(text)["name"] == "there"


def ask_without_a_right(asker, mark):
    for connection, path in ((asker.http, "/v2/models/here/generate"), (asker.sagemaker, "/invocations"), (asker.vertex_ai, "/predict")):
        answer, _ = asker.ask(connection, "POST", path, document([mark]), status=403, X_Key="wrong")
        assert answer.status == 403


QUESTIONS = [ask_generate, ask_stream, ask_packed, ask_by_regions, ask_settings, ask_sagemaker, ask_vertex_ai, ask_without_a_right]


def client(server, number):
    for turn in range(ROUNDS):
        asker = Asker(server, number)
        for question in QUESTIONS:
            question(asker, number * 1000 + turn)
        asker.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_clients_do_not_notice_faults(serve, seed, tmp_path):
    with serve(seed) as server:
        client(server, CLIENTS)    # what the server makes once is made
        before = descriptors(server)
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            for done in [pool.submit(client, server, number) for number in range(CLIENTS)]:
                done.result(timeout=240)
        server.assert_alive()
        assert_descriptors_come_back(server, before)
        given = server.counts()
    assert min(given[kind] for kind in SOFT) > 0, given
    assert given["interrupted"] > 100 and given["short"] > 100, given
    traces = json.loads((tmp_path / "traces").read_text(encoding="utf-8"))
    assert any(trace.get("model_name") == "there" for trace in traces)


def test_clients_that_leave_a_stream_leave_nothing(serve):
    with serve(3) as server:
        client(server, 0)
        before = descriptors(server)
        body = json.dumps({"IN": list(range(1000)), "DELAY": [1] * 1000, "WAIT": 0}).encode()
        for turn in range(30):
            with Connection(server) as connection:
                connection.send(request_bytes("POST", "/v2/models/many/generate_stream", body, RIGHT))
                if turn % 3:
                    assert connection.head()[0] == 200
        assert_descriptors_come_back(server, before)
        client(server, 1)
