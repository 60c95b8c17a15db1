# SPDX-License-Identifier: Apache-2.0
"""The contract of Vertex AI: the routes of AIP_PREDICT_ROUTE and AIP_HEALTH_ROUTE, the header that redirects a
prediction, and the defaults of AIP_MODE. The genuine Triton is asked the same where it can answer: its 2.51 still
changes the server by a redirection."""

import json
import os

import pytest

import platforms
import repository
from server import BACKENDS, run_to_end, wait_for
from wire import ask

STARTED = "Started Vertex AI HTTPService at "
TYPE = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
ROUTES = {"AIP_PREDICT_ROUTE": "/v1/endpoints/[0-9]+:predict", "AIP_HEALTH_ROUTE": "/health|/alive"}
REQUEST = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}).encode()
BINARY = json.dumps(
    {
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
).encode()
NUMBERS = b"\x00\x00\x80\x3f\x00\x00\x00\x40"
PREDICT = "/v1/endpoints/7:predict"
EMPTY = (200, "text/plain", b"")


def vertex_ai(kind, root, flags=(), ready=True, **env):
    flags = ["--allow-vertex-ai=true", "--vertex-ai-port={port}", *flags]
    return platforms.serving(kind, root, STARTED, flags, {**ROUTES, **env}, ready)


def write_fp32(root, name, **more):
    return repository.write_identity(root, name, [("FP32", [-1])], **more)


@pytest.fixture(scope="module", params=platforms.BOTH)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def asked(kind, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fp32(root, "default")
    write_fp32(root, "other")
    flags = ["--vertex-ai-default-model=default", "--allow-metrics=true"]
    if kind == "conch":
        flags.append("--metrics-port=0")
    with vertex_ai(kind, root, flags) as endpoint:
        yield endpoint


def redirect(endpoint, to, body=b""):
    return endpoint.ask("POST", PREDICT, body, X_Vertex_Ai_Triton_Redirect=to)


def test_health_is_the_readiness(asked):
    assert asked.ask("GET", "/health") == EMPTY
    assert asked.ask("GET", "/alive?x=1") == EMPTY
    assert asked.error("POST", "/health", b"") == (405, "Method Not Allowed")


@pytest.mark.parametrize("path", ["/", "/healthy", "/health/", "/xhealth", "/v1/endpoints/x:predict", "/v2/health/ready", "/ping"])
def test_another_path_is_400_without_a_body(asked, path):
    assert asked.ask("GET", path) == (400, "text/plain", b"")


def test_predictions_ask_the_default_model(asked):
    status, kind, body = asked.ask("POST", PREDICT, REQUEST)
    assert (status, kind) == (200, "application/json")
    assert json.loads(body)["model_name"] == "default"
    assert json.loads(body)["outputs"][0]["data"] == [1.0, 2.0]
    assert asked.error("GET", PREDICT) == (405, "Method Not Allowed")


def test_binary_tensors_of_requests_have_a_mime_type(asked):
    """In requests; replies have the header of HTTP."""
    typed = ("Content-Type", f"{TYPE}{len(BINARY)}")
    for model, more in (("default", []), ("other", [("X-Vertex-Ai-Triton-Redirect", "v2/models/other/infer")])):
        answer = ask(asked, "POST", PREDICT, BINARY + NUMBERS, [typed, *more])
        assert (answer.status, answer.headers["content-type"]) == (200, "application/octet-stream")
        length = int(answer.headers["inference-header-content-length"])
        assert json.loads(answer.body[:length])["model_name"] == model
        assert answer.body[length:] == NUMBERS


def test_encodings_are_not_known(asked):
    """Compression has no form at this endpoint, nor behind a redirection: the header changes nothing, in both directions."""
    for to in ([], [("X-Vertex-Ai-Triton-Redirect", "v2/models/other/infer")]):
        for encoding in ("gzip", "zstd", "identity"):
            answer = ask(asked, "POST", PREDICT, REQUEST, [("Content-Encoding", encoding), ("Accept-Encoding", "gzip"), *to])
            assert (answer.status, answer.headers.get("content-encoding")) == (200, None)
            assert json.loads(answer.body)["outputs"][0]["data"] == [1.0, 2.0]


def test_a_wrong_mime_type_is_400(asked):
    got = asked.error("POST", PREDICT, REQUEST, Content_Type=f"x{TYPE}1")
    assert got == (400, f"expect MIME type for binary data starts with '{TYPE}', got: x{TYPE}1")
    got = asked.error("POST", PREDICT, REQUEST, Content_Type=f"{TYPE}9999")
    assert got == (400, f"inference header size should be in range (0, {len(REQUEST)}), got: 9999")


def test_errors_are_those_of_http(asked):
    status, text = asked.error("POST", PREDICT, b"{")
    assert (status, text) == (500, "failed to parse the request JSON buffer: Missing a name for object member. at 1")


REACHED = [
    ("v2", '"name":"triton"'),
    ("v2/models/stats", '"model_stats":['),
    ("v2/models/other", '"name":"other"'),
    ("v2/models/other/versions/1", '"versions":["1"]'),
    ("v2/models/other/config", '"backend":"identity"'),
    ("v2/models/other/stats", '"model_stats":['),
    ("v2/repository/index", '"state":"READY"'),
    ("v2/repository/any/index", '"state":"READY"'),
    ("metrics", "nv_inference_request_success"),
    ("v2/health/live", ""),
    ("v2/health/ready", ""),
    ("v2/models/other/ready", ""),
    ("v2/models/other/versions/1/ready", ""),
]


@pytest.mark.parametrize(("to", "text"), REACHED)
def test_a_redirection_reaches(asked, to, text):
    status, _, body = redirect(asked, to)
    assert status == 200
    assert text in body.decode()
    assert bool(text) == bool(body)


def test_a_redirection_reaches_a_model(asked):
    status, kind, body = redirect(asked, "v2/models/other/infer", REQUEST)
    assert (status, kind) == (200, "application/json")
    assert json.loads(body)["model_name"] == "other"
    status, _, body = redirect(asked, "v2/models/nobody/infer", REQUEST)
    assert (status, json.loads(body)) == (404, {"error": "Request for unknown model: 'nobody' is not found"})


UNKNOWN = ["nope", "/v2", "v2/", "v2?x=1", "v2/logging", "v2/trace/setting", "v2/models/other/trace/setting",
           "v2/models/other/generate", "v2/models/other/generate_stream", "V2", "v2/models/other/infer/", "v2//models/stats"]


@pytest.mark.parametrize("to", UNKNOWN)
def test_another_redirection_is_400_without_a_body(asked, to):
    assert redirect(asked, to, b"{}") == (400, "text/plain", b"")


CHANGES = ["v2/repository/models/other/load", "v2/repository/models/other/unload", "v2/repository/any/models/other/unload"]


@pytest.mark.parametrize("to", CHANGES)
def test_a_redirection_changes_nothing(kind, asked, to):
    if kind != "conch":
        pytest.skip("2.51 changes the server by a redirection")
    assert redirect(asked, to) == (403, "text/plain", b"")
    assert redirect(asked, "v2/models/other/ready")[0] == 200


def test_a_redirection_is_a_post(asked):
    for method in ("GET", "PUT", "DELETE"):
        assert asked.ask(method, PREDICT, X_Vertex_Ai_Triton_Redirect="v2") == (405, "text/plain", b"")
    assert asked.ask("POST", "/nowhere", b"", X_Vertex_Ai_Triton_Redirect="v2") == (400, "text/plain", b"")
    assert asked.ask("GET", "/health", X_Vertex_Ai_Triton_Redirect="v2/models/nobody/ready") == EMPTY


# ---- Processes of their own ----------------------------------------------------------------------


def test_without_metrics_the_redirection_to_them_is_400(tmp_path):
    write_fp32(tmp_path, "default")
    with vertex_ai("conch", tmp_path, ["--allow-metrics=false"]) as endpoint:
        assert redirect(endpoint, "metrics") == (400, "text/plain", b"")


def test_the_only_model_is_the_default(kind, tmp_path):
    write_fp32(tmp_path, "only")
    with vertex_ai(kind, tmp_path) as endpoint:
        assert json.loads(endpoint.ask("POST", PREDICT, REQUEST)[2])["model_name"] == "only"


def test_categories_are_restricted_here_too(tmp_path):
    """Of Conch only: 2.51 has no restrictions at this endpoint. No redirection gets around them."""
    write_fp32(tmp_path, "default")
    flags = ["--http-restricted-api=health,inference,metadata,statistics,model-config,model-repository:key=secret"]
    with vertex_ai("conch", tmp_path, flags, None) as endpoint:
        text = "This API is restricted, expecting header 'key'"
        assert endpoint.error("GET", "/health") == (403, text)
        assert endpoint.error("POST", PREDICT, REQUEST) == (403, text)
        paths = [to for to, _ in REACHED] + ["v2/models/default/infer", "v2/repository/models/default/unload"]
        for path in paths:
            assert endpoint.error("POST", PREDICT, REQUEST, X_Vertex_Ai_Triton_Redirect=path) == (403, text), path
        assert endpoint.ask("GET", "/health", key="secret") == EMPTY


def start(root, flags=(), **env):
    """Runs the server where its start fails: the exit code, and what it printed."""
    env = {**{name: value for name, value in os.environ.items() if not name.startswith("AIP_")}, **env}
    flags = [f"--model-repository={root}", f"--backend-directory={BACKENDS}", "--vertex-ai-port=0", "--http-port=0",
             "--allow-grpc=false", "--allow-metrics=false", "--allow-vertex-ai=true", *flags]
    code, out, err = run_to_end(*flags, env=env)
    return code, out + err


FAILURES = [
    ({"AIP_HEALTH_ROUTE": "/health"}, [], "API_PREDICT_ROUTE is not defined for Vertex AI endpoint"),
    ({"AIP_PREDICT_ROUTE": "/predict"}, [], "AIP_HEALTH_ROUTE is not defined for Vertex AI endpoint"),
    (ROUTES, [], "Expect the model repository contains only a single model if default model is not specified"),
    (ROUTES, ["--vertex-ai-default-model=nobody"], "Expect the default model 'nobody' is loaded"),
    ({**ROUTES, "AIP_PREDICT_ROUTE": "/a)(b"}, [], "AIP_PREDICT_ROUTE: invalid regular expression '/a)(b'"),
    ({**ROUTES, "AIP_HEALTH_ROUTE": "/["}, [], "AIP_HEALTH_ROUTE: invalid regular expression '/['"),
]


@pytest.mark.parametrize(("env", "flags", "text"), FAILURES)
def test_a_start_that_fails_says_why(tmp_path, env, flags, text):
    write_fp32(tmp_path, "one")
    write_fp32(tmp_path, "two")
    code, said = start(tmp_path, flags, **env)
    assert code == 1
    assert f"failed to start Vertex AI service: Invalid argument - {text}" in said


def test_the_mode_prediction_turns_the_other_protocols_off(tmp_path):
    """Repository, port and routes come from the environment, as on the platform. Of Conch only: tools/reference, which
    starts the genuine server, gives it ports."""
    write_fp32(tmp_path, "only")
    port = platforms.servers.free_port()
    env = {**ROUTES, "AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": str(port), "AIP_STORAGE_URI": str(tmp_path)}
    with platforms.bare(env) as server:
        wait_for(lambda: STARTED in server.log(), 60, "Vertex AI is served")
        endpoint = platforms.Endpoint(server, port, STARTED)
        wait_for(lambda: platforms.listens(port), 60, "it listens")
        assert endpoint.ask("GET", "/health") == EMPTY
        assert json.loads(endpoint.ask("POST", PREDICT, REQUEST)[2])["model_name"] == "only"
        assert "Started HTTPService" not in server.log()
        assert "Started GRPCInferenceService" not in server.log()
