# SPDX-License-Identifier: Apache-2.0
"""Who may, at SageMaker's and Vertex AI's endpoints: restrictions and access rules hold there as they do over HTTP, whatever the
method, the spelling of the path and of the redirection, and the headers."""

import itertools
import json
import re

import pytest

import repository
from server import Server, free_port, wait_for
from test_access import METHODS, PARTS, WRONG, Http, infer_body, spellings

pytestmark = pytest.mark.conch_only("2.51 has no restrictions at these endpoints")

ENV = {"AIP_PREDICT_ROUTE": "/predict/[a-z]+", "AIP_HEALTH_ROUTE": "/health|/alive", "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "echo"}
PREDICT = "/predict/echo"
SAGEMAKER = {"/ping": ["GET"], "/invocations": ["POST"], "/models": ["GET", "POST", "DELETE"], "/models/": ["GET", "POST", "DELETE"],
             "/models/echo": ["GET", "POST", "DELETE"], "/models/echo/invoke": ["GET", "POST", "DELETE"]}
VERTEX_AI = {"/health": ["GET"], "/alive": ["GET"], PREDICT: ["POST"]}
REACHED = ["v2", "metrics", "v2/health/live", "v2/health/ready", "v2/models/stats", "v2/repository/index", "v2/systemsharedmemory/status",
           "v2/cudasharedmemory/status", *[f"v2/models/echo{more}" for more in ("", "/ready", "/config", "/stats", "/infer", "/versions/1")]]
CHANGES = ["v2/repository/models/echo/load", "v2/repository/models/echo/unload", "v2/systemsharedmemory/unregister",
           "v2/cudasharedmemory/region/r/register"]
REFUSED = b'{"error":"This API is restricted'


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    for name in ("echo", "other"):
        repository.write_identity(models, name, [("FP32", [-1])])
    return models


class Port:
    def __init__(self, port):
        self.port = port


def serving(models, *flags):
    """A server with all three endpoints over HTTP."""
    return Server(models, ready=None, env=ENV, flags=[
        "--model-control-mode=explicit", "--load-model=*", "--allow-sagemaker=true", f"--sagemaker-port={free_port()}", "--allow-vertex-ai=true",
        f"--vertex-ai-port={free_port()}", "--vertex-ai-default-model=echo", "--allow-metrics=true", "--metrics-port=0", *flags])


def endpoint(server, name):
    """An Http of the platform's port, once it listens."""
    line = re.compile(rf"Started {name} HTTPService at \S+:(\d+)", re.I)
    wait_for(lambda: line.search(server.log()), 60, f"{name} is served")
    return Http(Port(int(line.search(server.log())[1])))


@pytest.fixture(name="guarded", scope="module", params=["restricted", "rules", "no rule"])
def _guarded(request, models, tmp_path_factory):
    """A server that admits only clients with the header x-key: right, if any."""
    rules = tmp_path_factory.mktemp("rules") / "rules"
    rules.write_text({"rules": "allow header X-Key=right to all\n"}.get(request.param, "# nobody\n"))
    flag = f"--http-restricted-api={','.join(PARTS)}:X-Key=right" if request.param == "restricted" else f"--access-rules={rules}"
    with serving(models, flag) as server:
        server.kind = request.param
        server.sagemaker, server.vertex_ai = endpoint(server, "sagemaker"), endpoint(server, "vertex ai")
        yield server
        server.sagemaker.close()
        server.vertex_ai.close()


def other_spellings(path):
    """Some are the same path: a query behind it, the absolute form."""
    return [spelling for spelling in spellings(path) if spelling != path]


@pytest.mark.parametrize("platform, paths", [("sagemaker", SAGEMAKER), ("vertex_ai", VERTEX_AI)])
def test_no_spelling_of_a_request_gets_around_it(guarded, platform, paths):
    """A path as it is gets 403 by its methods; another method or spelling never a success."""
    http = getattr(guarded, platform)
    wrong = itertools.cycle(WRONG)
    for path, own in paths.items():
        for method in METHODS:
            body = infer_body() if method == "POST" else b""
            for headers in WRONG:
                status, said = http.ask(method, path, headers, body)
                assert status == 403 or method not in own and 400 <= status < 500, (method, path, headers, status)
                assert method not in own or said.startswith(REFUSED), (method, path, said)
            for spelling in other_spellings(path):
                headers = next(wrong)
                status, _ = http.ask(method, spelling, headers, body)
                assert 400 <= status < 500, (method, spelling, headers, status)
    guarded.assert_alive()


def test_no_redirection_gets_around_it(guarded):
    http = guarded.vertex_ai
    wrong = itertools.cycle(WRONG)
    for to in REACHED + CHANGES:
        redirect = f"X-Vertex-Ai-Triton-Redirect: {to}"
        status, said = http.ask("POST", PREDICT, (redirect, *next(wrong)), infer_body())
        assert status == 403 and said.startswith(REFUSED), (to, status, said)
        # Twice, and with a right inside it.
        for more in ("X-Vertex-Ai-Triton-Redirect: v2", "X-Vertex-Ai-Triton-Redirect: X-Key: right", "x-vertex-ai-triton-redirect:"):
            for headers in ((redirect, more), (more, redirect)):
                status, _ = http.ask("POST", PREDICT, headers, infer_body())
                assert 400 <= status < 500, (headers, status)
        for method in METHODS:
            status, _ = http.ask(method, PREDICT, (redirect, *next(wrong)))
            assert 400 <= status < 500, (method, to, status)
        for spelling in other_spellings("/" + to):
            headers = (f"X-Vertex-Ai-Triton-Redirect: {spelling}", *next(wrong))
            status, _ = http.ask("POST", PREDICT, headers, infer_body())
            assert 400 <= status < 500, (spelling, headers, status)
    guarded.assert_alive()


def test_the_right_header_is_admitted(guarded):
    admitted = guarded.kind != "no rule"
    for header in ("X-Key: right", "x-key:right  "):
        for http, path, body, status in (
                (guarded.sagemaker, "/ping", None, 200), (guarded.sagemaker, "/invocations", infer_body(), 200),
                (guarded.sagemaker, "/models", None, 200), (guarded.sagemaker, "/models/echo", None, 404),
                (guarded.sagemaker, "/models/echo/invoke", infer_body(), 404), (guarded.vertex_ai, "/health", None, 200),
                (guarded.vertex_ai, PREDICT, infer_body(), 200)):
            got = http.ask("POST" if body else "GET", path, (header,), body or b"")[0]
            assert got == (status if admitted else 403), (path, header)
        for to in REACHED:
            body = infer_body() if to.endswith("infer") else b""
            got = guarded.vertex_ai.ask("POST", PREDICT, (header, f"X-Vertex-Ai-Triton-Redirect: {to}"), body)[0]
            assert got == (200 if admitted else 403), to
    assert guarded.sagemaker.ask("GET", "/ping")[0] == 403    # a connection has no right, its requests have


RULES = """
allow header x-team=digits   to inference,metadata of ech*
allow header x-team=other    to inference of other
allow anyone                 to health of the server
"""


def test_rules_are_about_the_model_that_answers(models, tmp_path):
    rules = tmp_path / "rules"
    rules.write_text(RULES)
    with serving(models, f"--access-rules={rules}") as server:
        sagemaker, vertex_ai = endpoint(server, "sagemaker"), endpoint(server, "vertex ai")
        for team, model in (("digits", "echo"), ("other", "other")):
            own = f"x-team: {team}"
            default = 200 if model == "echo" else 403
            for http, path in ((sagemaker, "/invocations"), (vertex_ai, PREDICT)):
                status, said = http.ask("POST", path, (own,), infer_body())
                assert status == default, (team, path)
                assert status != 200 or json.loads(said)["model_name"] == "echo"
            # The header names a model only for those that SageMaker has loaded, and is checked before that.
            target = "X-Amzn-SageMaker-Target-Model"
            for named, status in ((model, 404), ("absent", 403), ("echo" if model == "other" else "other", 403)):
                assert sagemaker.ask("POST", "/models/echo/invoke", (own, f"{target}: {named}"), infer_body())[0] == status, (team, named)
            assert sagemaker.ask("POST", "/invocations", (own, f"{target}: other"), infer_body())[0] == default
            for to in ("echo", "other", "absent"):
                redirect = f"X-Vertex-Ai-Triton-Redirect: v2/models/{to}/infer"
                assert vertex_ai.ask("POST", PREDICT, (own, redirect), infer_body())[0] == (200 if to == model else 403), (team, to)
            for to in ("v2", "v2/models/stats", "metrics", "v2/repository/index"):
                assert vertex_ai.ask("POST", PREDICT, (own, f"X-Vertex-Ai-Triton-Redirect: {to}"))[0] == 403, to
            for method, path in (("GET", "/models"), ("POST", "/models"), ("DELETE", "/models/echo"), ("GET", "/models/echo")):
                assert sagemaker.ask(method, path, (own,))[0] == 403, (method, path)
        assert sagemaker.ask("GET", "/ping")[0] == vertex_ai.ask("GET", "/health")[0] == 200
        sagemaker.close()
        vertex_ai.close()
