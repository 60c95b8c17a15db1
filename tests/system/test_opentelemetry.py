# SPDX-License-Identifier: Apache-2.0
"""Traces that go to a collector of OpenTelemetry: the spans of the genuine Triton and ours, both encodings, and collectors that are slow, dead or lie."""

import json
import queue
import threading

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

import certificates
import python_models
import repository
import triton
from otlp_collector import FINE, Collector
from server import REFERENCE, Server, free_port, wait_for
from test_generate import generate, write_decoupled
from test_metrics import scrape, write_meter
from test_trace_files import ENSEMBLE, ask_grpc, ask_http, ask_stream, fp32
from test_trace_settings import G, M, settings_by_grpc
from wire import ask, given, infer

pytestmark = pytest.mark.skipif(REFERENCE, reason="CONCH_BIN is the genuine Triton")
WITHIN_S = 60
BATCHED = "dynamic_batching { preferred_batch_size: [ 3 ] max_queue_delay_microseconds: 60000000 }\n"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
METRICS = ["--allow-metrics=true", "--metrics-port=0"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    repository.write_identity(folder, "any_fp32", [("FP32", [-1])])
    repository.write_identity(folder, "batched", [("FP32", [-1])], max_batch_size=3)
    with (folder / "batched/config.pbtxt").open("a") as config:
        config.write(BATCHED)
    repository.write_model(folder, "chain", ENSEMBLE)
    return folder


def tree(spans, more=("queue", "batch")):
    """The spans of each trace by their start: name, name of the span above, Triton's attributes without ids, events."""
    by_id = {span.id: span for span in spans}
    found = []
    for span in spans:
        if span.name in more:
            continue
        above = by_id[span.parent].name if span.parent in by_id else span.parent
        known = {name: value for name, value in span.attributes.items() if name.startswith("triton.") and not name.endswith("_id")}
        known["triton.request_id"] = span.attributes.get("triton.request_id")
        found.append((span.name, above, span.state, sorted(known.items(), key=str), [name for name, _, _ in span.events]))
    return sorted(found, key=str)


def n_traces(n):
    """That so many traces are complete: all spans of a trace come in one request."""
    return lambda spans: sum(span.name == "InferRequest" for span in spans) >= n


def ask_as_one(server, model="any_fp32", body=None, **headers):
    body = json.dumps(body or {"inputs": [given("INPUT0", "FP32", [2], [1, 2])]}).encode()
    answer = ask(server, "POST", f"/v2/models/{model}/infer", body, headers=headers)
    assert answer.status == 200, answer


def work(server):
    assert infer(server, "any_fp32", {"inputs": []}).status == 400    # has no span
    ask_http(server, id="h")
    ask_http(server, "chain", "X")
    ask_grpc(server)
    ask_stream(server)
    generate(server, "any_fp32", {"INPUT0": [1, 2]})
    ask_as_one(server, traceparent=PARENT + "01", tracestate="a=1, b=2")


def both_servers(root, *args, **more):
    """The two servers in turn, each with a collector of its own."""
    for kind in (Server, triton.Triton)[:1 if triton.missing() else 2]:
        with Collector() as collector, kind(root, flags=collector.flags(*args, **more), **({"grpc": True} if kind is Server else {})) as server:
            yield server, collector


@triton.needed
def test_the_spans_are_those_of_triton(root):
    seen = []
    for server, collector in both_servers(root, "opentelemetry,resource=service.name=mine", "opentelemetry,resource=site=a=b"):
        work(server)
        spans = collector.wait(n_traces(6))
        assert len({span.trace_id for span in spans}) == 6
        assert {(span.resource["service.name"], span.resource["site"]) for span in spans} == {("mine", "a=b")}
        assert {span.scope[0] for span in spans} == {"triton-server"}
        assert {span.state for span in spans} == {"", "a=1,b=2"}
        seen.append(tree(spans))
    assert seen[0] == seen[1]


def test_a_client_names_a_trace_by_grpc(root):
    """As over HTTP. Triton forgets the state, and on a busy machine at times the whole name."""
    with Collector() as collector, Server(root, flags=collector.flags(), grpc=True) as server:
        headers = {"traceparent": PARENT + "01", "tracestate": "c=3"}
        triton_grpc.InferenceServerClient(server.grpc_url).infer("any_fp32", fp32([1, 2]), headers=headers)
        spans = collector.wait(n_traces(1))
    assert {(span.trace_id, span.state) for span in spans} == {(PARENT.split("-")[1], "c=3")}
    assert [span.parent for span in spans if span.name == "InferRequest"] == [PARENT.split("-")[2]]


@triton.needed
@pytest.mark.parametrize("parent", [PARENT + "01", PARENT + "00", "01" + PARENT[2:] + "01", PARENT.upper() + "01", "rubbish", PARENT + "01-xx", "ff" + PARENT[2:] + "01",
                                    "00-" + 32 * "0" + "-b7ad6b7169203331-01", PARENT[:-1] + "x01"])
def test_a_traceparent_samples_as_in_triton(both_rare, parent):
    """One request of 1000 is traced, and those of a client that names a trace. A second request with a good parent says when the first one must have come."""
    seen = []
    for server, collector in both_rare:
        collector.spans.clear()
        ask_as_one(server, traceparent=parent, tracestate="a=1")
        ask_as_one(server, traceparent=PARENT[:-3] + "32-01")
        spans = collector.wait(lambda spans: any(span.parent.endswith("32") for span in spans))
        seen.append(tree([span for span in spans if not span.trace_id.startswith("0af7") or any(up.id == span.id for up in spans)]))
    assert seen[0] == seen[1]


@pytest.fixture(scope="module")
def both_rare(root):
    with Collector() as one, Collector() as other, Server(root, flags=one.flags(rate=1000)) as ours, triton.Triton(root, flags=other.flags(rate=1000)) as theirs:
        yield (ours, one), (theirs, other)


# What clients post in turn to a server that was started with rate 0, where only a traceparent samples.
STEPS = [(G, {}), (M, {"trace_rate": "7"}), (G, {"trace_rate": "0"}), (G, {"trace_rate": "5"}), (G, {"trace_rate": None}), (G, {"trace_count": "5"}), (G, {"trace_count": "0"}),
         (G, {"trace_mode": "triton"}), (G, {"log_frequency": "3"}), (G, {"trace_file": "x"}), (G, {"url": "x"}), (G, {"trace_level": ["OFF"]}), (G, {"trace_rate": "0"}),
         (G, {"trace_level": ["TIMESTAMPS"]}), (M, {"trace_rate": None})]


@triton.needed
def test_the_settings_are_those_of_triton(root):
    with Collector() as collector:
        flags = collector.flags("opentelemetry,resource=a=b", "opentelemetry,resource=c=d", rate=0)
        with Server(root, flags=flags, grpc=True) as ours, triton.Triton(root, flags=flags) as theirs:
            for path, change in STEPS:
                one, other = (ask(server, "POST", path, json.dumps(change).encode()) for server in (ours, theirs))
                assert (one.status, pairs(one)) == (other.status, pairs(other)), (path, change)
                for again in (G, M):
                    one, other = (ask(server, "GET", again) for server in (ours, theirs))
                    assert pairs(one) == pairs(other)
            assert settings_by_grpc(ours) == settings_by_grpc(theirs)
            assert settings_by_grpc(ours, "any_fp32") == settings_by_grpc(theirs, "any_fp32")


def pairs(answer):
    """The members of an object, some of which come twice; the reference has them in the order of its map."""
    return sorted(json.loads(answer.body, object_pairs_hook=lambda found: [str(pair) for pair in found]))


@pytest.mark.parametrize("env, content_type, packed", [
    ({}, "application/x-protobuf", None), ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "application/json", None),
    ({"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}, "application/x-protobuf", "gzip"), ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}, "application/json", "gzip")])
def test_each_encoding_has_the_same_spans(root, env, content_type, packed):
    env |= {"OTEL_SERVICE_NAME": "named", "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,site=%41%2C1", "OTEL_EXPORTER_OTLP_HEADERS": "x-token=a%20b"}
    with Collector() as collector, Server(root, flags=collector.flags(), env=env) as server:
        ask_http(server, "chain", "X", id='q"ü')
        spans = collector.wait(n_traces(1))
        (_, headers, _), *_ = collector.wait_requests(1)
    assert (headers["content-type"], headers.get("content-encoding"), headers["x-token"]) == (content_type, packed, "a b")
    assert headers["user-agent"].startswith("conch/")
    by_name = {span.name: span for span in spans}
    assert len(spans) == 8 and {span.trace_id for span in spans} == {spans[0].trace_id}
    assert by_name["chain"].attributes["triton.request_id"] == 'q"ü'
    assert by_name["InferRequest"].attributes == {"http.request.method": "POST", "http.route": "/v2/models/{m}[/versions/{v}]/infer",
                                                  "http.response.status_code": 200}
    assert [span.kind for span in (by_name["InferRequest"], by_name["compute"])] == [2, 1]
    assert {(span.resource["service.name"], span.resource["site"], span.resource["telemetry.sdk.language"]) for span in spans} == {("named", "A,1", "c")}
    for span in spans:    # each span lies within the one above it
        above = next((other for other in spans if other.id == span.parent), None)
        assert span.start_ns <= span.end_ns and all(span.start_ns <= time <= span.end_ns for _, time, _ in span.events)
        assert above or span.name == "InferRequest"
        if above:
            assert above.start_ns <= span.start_ns and (span.end_ns <= above.end_ns or above.name == "InferRequest")


def test_the_requests_of_a_batch_are_linked(root):
    def ask_batched():
        ask_as_one(server, "batched", {"inputs": [given("INPUT0", "FP32", [1, 2], [1, 2])]})

    with Collector() as collector, Server(root, flags=collector.flags()) as server:
        threads = [threading.Thread(target=ask_batched) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spans = collector.wait(n_traces(3))
    (batch,) = [span for span in spans if span.name == "batch"]
    models = {span.id: span for span in spans if span.name == "batched"}
    first = models[batch.parent]
    assert batch.attributes == {"conch.batch.requests": 3} and batch.trace_id == first.trace_id
    assert {span_id for _, span_id in batch.links} == set(models) - {first.id}
    assert all(trace_id == models[span_id].trace_id for trace_id, span_id in batch.links)
    linked = [span.links for span in spans if span.name == "compute" and span.parent != first.id]
    assert linked == 2 * [[(batch.trace_id, batch.id)]]


def test_a_failure_is_told(tmp_path):
    write_meter(tmp_path, "metered")
    write_decoupled(tmp_path, "script", "script", [1], ("INT32", [1]))
    fails = {"inputs": [given("IN", "INT32", [1, 1], [7])], "parameters": {"do": "fail"}}
    tensor = triton_grpc.InferInput("IN", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.array([[7]], np.int32))
    with Collector() as collector, Server(tmp_path, flags=collector.flags(), grpc=True) as server:
        assert infer(server, "metered", fails).status == 500
        with pytest.raises(InferenceServerException):
            triton_grpc.InferenceServerClient(server.grpc_url).infer("metered", [tensor], parameters={"do": "fail"})
        assert generate(server, "script", {"IN": 1, "do": "nExd"}, "generate").status == 501
        spans = [span for span in collector.wait(n_traces(3)) if span.name == "InferRequest"]
    names = "error.type", "http.response.status_code", "rpc.grpc.status_code"
    told = [(*span.status, *(span.attributes.get(name) for name in names)) for span in spans]
    # Each event loop's traces are sent in their order; those of different loops are not.
    assert sorted(told, key=str) == [(2, "as the script says", "Unsupported", 501, None), (2, "told to fail", "Internal", 500, None),
                                     (2, "told to fail", "Internal", None, 13)]


def test_a_fault_of_the_client_is_no_error_of_the_server(tmp_path):
    """The conventions leave the status of the server's span unset: in the whole 4xx of HTTP, and in the codes of gRPC that blame the client."""
    python_models.write_python(tmp_path / "models", "py", """
        def execute(self, requests):
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError("not so", pb_utils.TritonError.INVALID_ARG)) for _ in requests]
        """, ("input", "IN", "FP32", [1]), ("output", "OUT", "FP32", [1]))
    (tmp_path / "backends").mkdir()
    place = python_models.place("ours", "conch", tmp_path / "backends")
    with Collector() as collector, place.server(tmp_path / "models", flags=collector.flags()) as server:
        assert infer(server, "py", {"inputs": [given("IN", "FP32", [1], [1])]}).status == 400
        tensor = triton_grpc.InferInput("IN", [1], "FP32")
        tensor.set_data_from_numpy(np.array([1], np.float32))
        with pytest.raises(InferenceServerException, match="not so"):
            triton_grpc.InferenceServerClient(server.grpc_url).infer("py", [tensor])
        answers, client = queue.Queue(), triton_grpc.InferenceServerClient(server.grpc_url)
        client.start_stream(lambda result, error: answers.put(error))
        client.async_stream_infer("py", [tensor])
        assert "not so" in str(answers.get(timeout=30))
        client.stop_stream()
        spans = [span for span in collector.wait(n_traces(3)) if span.name == "InferRequest"]
    names = "conch.refusal", "error.type", "http.response.status_code", "rpc.grpc.status_code"
    told = [(*span.status, *(span.attributes.get(name) for name in names)) for span in spans]
    assert sorted(told, key=str) == [(0, "", "not so", None, 400, None), (0, "", "not so", None, None, 3), (0, "", "not so", None, None, None)]


def test_a_reply_has_its_status(root):
    """Also one that comes in parts. The messages of a stream have one status in all, at its end."""
    with Collector() as collector, Server(root, flags=collector.flags(), grpc=True) as server:
        ask_http(server)
        generate(server, "any_fp32", {"INPUT0": [1, 2]}, "generate_stream")
        ask_grpc(server)
        ask_stream(server)
        spans = [span for span in collector.wait(n_traces(4)) if span.name == "InferRequest"]
    assert sorted(str((span.attributes.get("http.response.status_code"), span.attributes.get("rpc.grpc.status_code"))) for span in spans) == [
        "(200, None)", "(200, None)", "(None, 0)", "(None, None)"]


def test_a_reply_that_is_late_has_its_status(tmp_path):
    """A deadline passes while the model executes: the trace ends when its request does."""
    gate = repository.Gated(tmp_path, "gate").shut("hold.execute")
    body = json.dumps({"inputs": [given("IN", "INT32", [1], [7])]}).encode()
    with Collector() as collector, Server(tmp_path, flags=collector.flags()) as server:
        answer = ask(server, "POST", "/v2/models/gate/infer", body, headers={"Conch-Timeout-Ms": "50"})
        assert answer.status == 504
        gate.open("hold.execute")
        spans = [span for span in collector.wait(n_traces(1)) if span.name == "InferRequest"]
    assert [span.attributes["http.response.status_code"] for span in spans] == [answer.status]


def write_teller(folder):
    """A model in Python whose output is the context of its request's trace."""
    python_models.write_python(folder, "py", """
        def execute(self, requests):
            contexts = [request.trace().get_context() for request in requests]
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(one).encode()], np.object_))]) for one in contexts]
        """, ("input", "IN", "FP32", [-1]), ("output", "OUT", "BYTES", [-1]))


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_a_python_model_continues_the_trace(which, tmp_path):
    write_teller(tmp_path / "models")
    (tmp_path / "backends").mkdir()
    place = python_models.place("ours", which, tmp_path / "backends")
    body = {"inputs": [given("IN", "FP32", [1], [1])]}
    with Collector() as collector, place.server(tmp_path / "models", flags=collector.flags(rate=1000)) as server:
        answer = ask(server, "POST", "/v2/models/py/infer", json.dumps(body).encode(), headers={"traceparent": PARENT + "01", "tracestate": "a=1"})
        (span,) = [span for span in collector.wait(n_traces(1)) if span.name == "py"]
        context = json.loads(answer.json()["outputs"][0]["data"][0])
        assert context == {"traceparent": f"00-{span.trace_id}-{span.id}-01", "tracestate": "a=1"}
        assert infer(server, "py", body).json()["outputs"][0]["data"] == ["None"]


# ---- Collectors that are slow, dead or lie. Requests are answered meanwhile, and what is dropped is counted.

def dropped(server, reason):
    return scrape(server).value("conch_spans_dropped", reason=reason)


def wait_dropped(server, reason, n):
    wait_for(lambda: dropped(server, reason) >= n, WITHIN_S, f"{n} spans are dropped by reason {reason}")


def test_a_slow_collector_delays_nothing(root):
    goes_on = threading.Event()
    with Collector([goes_on, FINE]) as collector, Server(root, flags=[*collector.flags("opentelemetry,bsp_max_queue_size=8"), *METRICS]) as server:
        ask_http(server)
        collector.wait_requests(1)
        for _ in range(5):    # the collector still has not answered
            ask_http(server)
        wait_dropped(server, "queue", 12)    # two traces of 4 spans fit
        assert dropped(server, "queue") == 12
        goes_on.set()
        collector.wait(n_traces(2))
        wait_for(lambda: scrape(server).value("conch_spans_sent") == 12, WITHIN_S, "12 spans are sent")


def test_a_dead_collector_costs_traces_alone(root):
    env = {"OTEL_BSP_EXPORT_TIMEOUT": "300"}
    flags = Collector().flags()
    url = f"opentelemetry,url=127.0.0.1:{free_port()}/v1/traces"    # http, as nothing else is said
    with Server(root, flags=[*flags, f"--trace-config={url}", *METRICS], env=env) as server:
        ask_http(server)
        wait_dropped(server, "collector", 4)
        ask_http(server)
        wait_dropped(server, "collector", 8)
        assert server.log().count("traces are dropped: no answer from") == 1


@pytest.mark.parametrize("answer", [b"rubbish\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort", None, (500, {}, b"no"), (400, {}, b"\xff"), (302, {"Location": "http://127.0.0.1:1/"}, b"")])
def test_a_collector_that_refuses_or_lies_costs_traces_alone(root, answer):
    with Collector([answer]) as collector, Server(root, flags=[*collector.flags(), *METRICS], env={"OTEL_BSP_EXPORT_TIMEOUT": "100"}) as server:
        ask_http(server)
        wait_dropped(server, "collector", 4)
        ask_http(server)
        assert scrape(server).value("conch_spans_sent") == 0


@pytest.mark.parametrize("body", [b"", b"rubbish", b"{}", 70000 * b"\n", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"])
def test_any_body_behind_status_200_is_fine(root, body):
    with Collector([(200, {"Content-Type": "application/json"} if body == b"{}" else {}, body)]) as collector, Server(root, flags=[*collector.flags(), *METRICS]) as server:
        ask_http(server)
        wait_for(lambda: scrape(server).value("conch_spans_sent") == 4, WITHIN_S, "4 spans are sent")


@pytest.mark.parametrize("code, headers", [(429, {"Retry-After": "1"}), (503, {}), (429, {"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"})])
def test_a_collector_that_has_no_time_is_asked_again(root, code, headers):
    with Collector([(code, headers, b""), FINE]) as collector, Server(root, flags=[*collector.flags(), *METRICS]) as server:
        ask_http(server)
        collector.wait(n_traces(1))
        one, other = collector.wait_requests(2)
        assert one[2] == other[2]
        wait_for(lambda: scrape(server).value("conch_spans_sent") == 4, WITHIN_S, "4 spans are sent")
        assert dropped(server, "collector") == 0


@pytest.mark.parametrize("content_type, body", [("application/x-protobuf", b"\x0a\x06\x08\x03\x12\x02no"), ("application/json", b'{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}'),
                                                ("application/json; charset=utf-8", b'{"partialSuccess":{"rejectedSpans":3,"errorMessage":"no"}}')])
def test_spans_that_a_collector_rejects_are_counted(root, content_type, body):
    with Collector([(200, {"Content-Type": content_type}, body)]) as collector, Server(root, flags=[*collector.flags(), *METRICS]) as server:
        ask_http(server)
        wait_dropped(server, "rejected", 3)
        assert scrape(server).value("conch_spans_sent") == 1
        server.wait_log("has rejected 3 of 4 spans: no")


def test_a_stop_sends_what_there_is(root):
    with Collector() as collector:
        with Server(root, flags=collector.flags("opentelemetry,bsp_schedule_delay=3600000")) as server:
            ask_http(server)
        assert len(collector.spans) == 4


def test_a_stop_does_not_wait_for_a_collector(root):
    never = threading.Event()
    try:
        with Collector([never]) as collector, Server(root, flags=collector.flags()) as server:
            ask_http(server)
            collector.wait_requests(1)
            server.signal(15)
            assert server.process.wait(WITHIN_S) == 0    # after 3 s
            assert not never.is_set()
    finally:
        never.set()


# ---- Collectors that speak HTTPS.

@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """What it has issued: the collector's certificate `mine`, that of another host, and a client's; and another authority."""
    folder = tmp_path_factory.mktemp("authority")
    root = certificates.Authority(folder)
    root.mine, root.elsewhere, root.client = root.issue("mine"), root.issue("elsewhere", names="DNS:elsewhere"), root.issue("client")
    root.other = certificates.Authority(folder, "other")
    return root


@pytest.mark.parametrize("asks_clients", [False, True])
def test_a_collector_is_asked_by_https(root, authority, asks_clients):
    env = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(authority.certificate)}
    if asks_clients:
        certificate, key = authority.client
        env |= {"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE": str(certificate), "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(key)}
    with Collector(tls=authority.mine, client_root=authority.certificate if asks_clients else None) as collector, \
            Server(root, flags=[*collector.flags(), *METRICS], env=env) as server:
        for n in (1, 2):
            ask_http(server)
            collector.wait(n_traces(n))
        wait_for(lambda: scrape(server).value("conch_spans_sent") == 8, WITHIN_S, "8 spans are sent")


@pytest.mark.parametrize("tls, trusts, client", [
    ("mine", None, None), ("mine", "other", None), ("elsewhere", "root", None), ("mine", "missing", None),    # the collector is not trusted
    ("mine", "root", "none"), ("mine", "root", "without a key"), ("mine", "root", "missing")])    # or does not trust the server
def test_a_collector_that_is_not_trusted_gets_nothing(root, authority, tls, trusts, client, tmp_path):
    files = {"root": authority.certificate, "other": authority.other.certificate, "missing": tmp_path / "missing.pem"}
    env = {"OTEL_BSP_EXPORT_TIMEOUT": "100"}
    if trusts:
        env["OTEL_EXPORTER_OTLP_CERTIFICATE"] = str(files[trusts])
    if client in ("without a key", "missing"):
        env["OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"] = str(authority.client[0] if client == "without a key" else files["missing"])
    with Collector(tls=getattr(authority, tls), client_root=authority.certificate if client else None) as collector, \
            Server(root, flags=[*collector.flags(), *METRICS], env=env) as server:
        ask_http(server)
        wait_dropped(server, "collector", 4)
        ask_http(server)    # the server goes on
        wait_dropped(server, "collector", 8)
        assert server.log().count(f"traces are dropped: no answer from '{collector.url}': ") == 1
        assert not collector.requests and scrape(server).value("conch_spans_sent") == 0


@pytest.mark.parametrize("setting, error", [
    ("opentelemetry,bsp_max_queue_size=0", "trace setting 'bsp_max_queue_size' must be a number from 1 to 1048576, got: 0"), ("opentelemetry,bsp_schedule_delay=-3", "got: -3"),
    ("opentelemetry,resource=abc", "trace setting 'resource' must be <key>=<value>, got: abc"), ("opentelemetry,url=ftp://x", "traces are sent by http or https, got: ftp://x"),
    ("opentelemetry,nonsense=1", "there is no such setting of traces: opentelemetry,nonsense=1"), ("opentelemetry,bsp_max_queue_size=x", "Invalid option value. Got x")])
def test_a_bad_setting_stops_the_start(root, setting, error):
    server = Server(root, flags=["--trace-config=mode=opentelemetry", f"--trace-config={setting}"]).start()
    assert server.process.wait(WITHIN_S) != 0
    assert error in server.log()
