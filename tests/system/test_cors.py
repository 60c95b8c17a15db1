# SPDX-License-Identifier: Apache-2.0
"""Pages of other origins: --http-cors-origins, in requests as browsers send them."""

import json
import re

import pytest

import repository
from server import ROOT, Server, run_to_end
from wire import Connection, ask, given, infer

pytestmark = pytest.mark.conch_only("Triton has no such option")

PAGE, OTHER = "https://page.example", "http://localhost:8080"
STRANGERS = ["https://stranger.example", "https://page.example:8443", "http://page.example", "https://page.example.evil", "null", PAGE.upper(), ""]
EXPOSED = "Inference-Header-Content-Length, Endpoint-Load-Metrics, Retry-After, Accept-Encoding"
ROUTE = re.compile(r'^ROUTE\((\w+), +"([^"]+)"', re.M)
TARGETS = [(method, re.sub(r"\{\w\}", "m", re.sub(r"\[.*?\]", "", pattern)))
           for method, pattern in ROUTE.findall((ROOT / "src/frontends/http/routes.def").read_text())]
INFER = {"inputs": [given("INPUT0", "FP32", [2], [1, 2])]}


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    repository.write_identity(models, "m", [("FP32", [-1])])
    repository.write_identity(models, "text", [("BYTES", [1])])
    return models


@pytest.fixture(name="server", scope="module")
def _server(models):
    flags = [f"--http-cors-origins={PAGE},{OTHER}", "--http-max-body-size=100000", "--http-restricted-api=model-repository,logging:admin-key=secret"]
    with Server(models, flags=flags) as server:
        yield server


def cors(headers):
    """The headers that CORS and caches read."""
    return {name: value for name, value in headers.items() if name.startswith("access-control-") or name == "vary"}


def of(origin):
    return {"access-control-allow-origin": origin, "access-control-expose-headers": EXPOSED, "vary": "Origin"}


def preflight(server, path, origin=PAGE, method="POST", names="content-type"):
    headers = {"Origin": origin, "Access-Control-Request-Method": method}
    if names is not None:
        headers["Access-Control-Request-Headers"] = names
    return ask(server, "OPTIONS", path, headers=headers)


@pytest.mark.parametrize("origin", [PAGE, OTHER])
def test_a_listed_origin_may_read_replies(server, origin):
    answer = infer(server, "m", INFER, headers={"Origin": origin})
    assert (answer.status, cors(answer.headers)) == (200, of(origin))
    assert answer.json()["outputs"][0]["data"] == [1.0, 2.0]
    binary = infer(server, "m", {"inputs": [given("INPUT0", "FP32", [1], [5])], "parameters": {"binary_data_output": True}}, headers={"Origin": origin})
    assert cors(binary.headers) == of(origin)
    assert len(binary.body) == int(binary.headers["inference-header-content-length"]) + 4


@pytest.mark.parametrize("origin", [None, *STRANGERS])
def test_other_origins_get_no_header(server, origin):
    headers = {} if origin is None else {"Origin": origin}
    for path in ("/v2/health/ready", "/v2", "/v2/nothing"):
        assert cors(ask(server, "GET", path, headers=headers).headers) == {"vary": "Origin"}
    answer = infer(server, "m", INFER, headers=headers)
    assert (answer.status, cors(answer.headers)) == (200, {"vary": "Origin"})
    if origin is not None:
        answer = preflight(server, "/v2/models/m/infer", origin)
        assert (answer.status, cors(answer.headers)) == (405, {"vary": "Origin"})


def test_two_origins_are_none(server):
    with Connection(server) as connection:
        connection.send(f"GET /v2 HTTP/1.1\r\nHost: x\r\nOrigin: {PAGE}\r\nOrigin: {PAGE}\r\n\r\n".encode())
        assert cors(connection.response().headers) == {"vary": "Origin"}


def test_replies_on_one_connection_are_each_for_their_origin(server):
    body = json.dumps(INFER).encode()
    with Connection(server) as connection:
        for origin in (PAGE, PAGE, OTHER, None, STRANGERS[0], OTHER, None, PAGE):
            answer = connection.request("POST", "/v2/models/m/infer", body, {"Origin": origin} if origin else {})
            assert cors(answer.headers) == (of(origin) if origin in (PAGE, OTHER) else {"vary": "Origin"})


@pytest.mark.parametrize("method, path", TARGETS)
def test_every_route_has_a_preflight(server, method, path):
    answer = preflight(server, path, method=method, names="admin-key,content-type")
    assert (answer.status, answer.body) == (200, b"")
    assert cors(answer.headers) == of(PAGE) | {
        "access-control-allow-methods": "GET, POST", "access-control-allow-headers": "admin-key,content-type", "access-control-max-age": "7200"}


def test_a_preflight_does_nothing_and_gives_no_right(server):
    with Connection(server) as connection:
        for path in ("/v2/repository/models/m/unload", "/v2/logging"):
            answer = connection.request("OPTIONS", path, b'{"log_verbose_level":7}', {"Origin": PAGE, "Access-Control-Request-Method": "POST", "admin-key": "secret"})
            assert answer.status == 200
            answer = connection.request("POST", path, b"{}", {"Origin": PAGE})
            assert (answer.status, cors(answer.headers)) == (403, of(PAGE))
            assert answer.error == "This API is restricted, expecting header 'admin-key'"
        assert connection.request("GET", "/v2/logging", headers={"admin-key": "secret"}).json()["log_verbose_level"] == 0
        assert connection.request("GET", "/v2/models/m/ready").status == 200


def test_options_without_a_question_is_a_method_like_others(server):
    answer = ask(server, "OPTIONS", "/v2/models/m/infer", headers={"Origin": PAGE})
    assert (answer.status, cors(answer.headers)) == (405, of(PAGE))


@pytest.mark.parametrize("names", [None, "", "a b\x01", "x\xe4", "a;b", "x" * 5000])
def test_what_is_no_list_of_names_is_not_repeated(server, names):
    with Connection(server) as connection:
        line = "" if names is None else f"Access-Control-Request-Headers: {names}\r\n"
        head = f"OPTIONS /v2 HTTP/1.1\r\nHost: x\r\nOrigin: {PAGE}\r\nAccess-Control-Request-Method: GET\r\n{line}\r\n"
        connection.send(head.encode("latin-1"))
        answer = connection.response()
    assert "access-control-allow-headers" not in answer.headers
    assert answer.status in (200, 400)


def test_long_lists_of_names_are_repeated(server):
    names = ",".join(f"x-header-{i}" for i in range(200))
    assert preflight(server, "/v2", names=names).headers["access-control-allow-headers"] == names


@pytest.mark.parametrize("method, path, body, status", [
    ("GET", "/v2/nothing", None, 404),
    ("GET", "/v2/models/m/infer", None, 405),
    ("GET", "/v2/models/none", None, 404),
    ("POST", "/v2/models/m/infer", b"{", 500),
    ("POST", "/v2/models/m/infer", b'{"inputs":[]}', 400),
    ("POST", "/v2/models/m/infer", b"x" * 100001, 413),
    ("POST", "/v2/models/m/generate", b"{", 500),
])
def test_errors_can_be_read(server, method, path, body, status):
    with Connection(server) as connection:
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        connection.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\nOrigin: {PAGE}\r\n{length}\r\n".encode() + (body or b"")[:100000])
        answer = connection.response()
    assert (answer.status, cors(answer.headers)) == (status, of(PAGE))


def test_bytes_that_are_no_request_have_no_origin(server):
    with Connection(server) as connection:
        connection.send(b"nonsense\r\n\r\n")
        answer = connection.response()
        assert (answer.status, cors(answer.headers)) == (400, {"vary": "Origin"})


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_streams_can_be_read(server, version):
    body = json.dumps({"INPUT0": "hello"}).encode()
    with Connection(server) as connection:
        connection.send(f"POST /v2/models/text/generate_stream HTTP/{version}\r\nHost: x\r\nOrigin: {PAGE}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        status, headers = connection.head()
    assert (status, cors(headers)) == (200, of(PAGE))
    assert headers["content-type"].startswith("text/event-stream")


def test_a_head_that_closes_has_all_headers(server):
    for path in ("/v2/health/live", "/v2"):    # a fixed reply, and a printed one
        with Connection(server) as connection:
            answer = connection.request("GET", path, headers={"Origin": PAGE, "Connection": "close"})
            assert (answer.headers["connection"], cors(answer.headers)) == ("close", of(PAGE))
            assert connection.closed()


def test_all_origins_by_a_star(models):
    everyone = {"access-control-allow-origin": "*", "access-control-expose-headers": EXPOSED}
    with Server(models, flags=["--http-cors-origins=*"]) as server:
        for headers in ({}, {"Origin": PAGE}, {"Origin": "null"}):
            assert cors(ask(server, "GET", "/v2/health/ready", headers=headers).headers) == everyone
            assert cors(infer(server, "m", INFER, headers=headers).headers) == everyone
        assert preflight(server, "/v2", "null").headers["access-control-allow-headers"] == "content-type"
        assert ask(server, "OPTIONS", "/v2", headers={"Access-Control-Request-Method": "GET"}).status == 405


def test_without_the_option_nothing_is_added(models):
    with Server(models) as server:
        for path in ("/v2/health/ready", "/v2", "/v2/nothing"):
            assert cors(ask(server, "GET", path, headers={"Origin": PAGE}).headers) == {}
        assert set(infer(server, "m", INFER, headers={"Origin": PAGE}).headers) == {"content-type", "content-length"}
        answer = preflight(server, "/v2/models/m/infer")
        assert (answer.status, cors(answer.headers)) == (405, {})


@pytest.mark.parametrize("origins, reason", [
    ("page.example", "'page.example' is no origin: the scheme is missing"),
    (f"{PAGE},{PAGE}/", f"'{PAGE}/' is no origin: an origin ends with its host or its port"),
    (f"{PAGE},*", "'*' is no origin"),
    ("null", "'null' is no origin"),
    (f"{PAGE}\r\nX: y", "is no origin"),
])
def test_a_wrong_list_is_refused_at_the_start(tmp_path, origins, reason):
    code, _, err = run_to_end(f"--model-repository={tmp_path}", f"--http-cors-origins={origins}")
    assert code == 1 and "--http-cors-origins" in err and reason in err
