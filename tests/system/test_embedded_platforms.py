# SPDX-License-Identifier: Apache-2.0
"""SageMaker and Vertex AI served by a program that embeds the server: tests/programs/platforms.c."""

import json
import os
import re
import subprocess

import pytest

import platforms
import repository
import server as servers
from server import wait_for

pytestmark = pytest.mark.conch_only("conch_sagemaker_start() and conch_vertex_ai_start() are Conch's own")

ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}
REQUEST = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}).encode()
EMPTY = (200, "text/plain", b"")


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name in ("default", "other"):
        repository.write_identity(root, name, [("FP32", [-1])])
    return root


def command(models, model="default"):
    return [servers.BUILD / "tests/platforms", str(models), str(servers.BACKENDS), model]


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIP_", "SAGEMAKER_"))}
    return {**clean, **ROUTES, **more}


class Program:
    def __init__(self, models, **more):
        self.process = subprocess.Popen(command(models), env=environment(**more), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.out, self.err = servers.Output(self.process.stdout), servers.Output(self.process.stderr)

    def __enter__(self):
        try:
            self.sagemaker, self.vertex_ai = (platforms.Endpoint(None, self._await_port(name), None) for name in ("sagemaker", "vertex_ai"))
        except BaseException:
            self.process.kill()
            raise
        return self

    def __exit__(self, kind, *_):
        self.process.stdin.close()
        try:
            code = self.process.wait(60)
        finally:
            self.process.kill()
        self.out.join()
        self.err.join()
        if kind is None:
            assert code == 0 and self.out.text().endswith("stopped 0\n"), self.out.text() + self.err.text()

    def _await_port(self, name):
        line = re.compile(rf"^{name} (\d+)$", re.M)
        wait_for(lambda: self.process.poll() is not None or line.search(self.out.text()), 60, f"{name} is served")
        return int(line.search(self.out.text())[1])


def test_a_program_serves_both(models):
    with Program(models) as program:
        assert program.sagemaker.ask("GET", "/ping") == EMPTY
        assert program.vertex_ai.ask("GET", "/health") == EMPTY
        for answer in (program.sagemaker.ask("POST", "/invocations", REQUEST), program.vertex_ai.ask("POST", "/predict", REQUEST)):
            assert answer[0] == 200 and json.loads(answer[2])["model_name"] == "default"
        redirected = program.vertex_ai.ask("POST", "/predict", REQUEST, X_Vertex_Ai_Triton_Redirect="v2/models/other/infer")
        assert json.loads(redirected[2])["model_name"] == "other"
        assert program.sagemaker.ask("GET", "/models") == (200, "text/plain", b'{"models":[]}')
        # Each endpoint has its own routes.
        assert program.sagemaker.ask("POST", "/predict", REQUEST)[0] == program.vertex_ai.ask("GET", "/ping")[0] == 400


def test_the_environment_says_what_the_program_does_not(models):
    with Program(models, SAGEMAKER_TRITON_INFERENCE_TYPE="generate", AIP_HEALTH_ROUTE="/alive") as program:
        assert program.vertex_ai.ask("GET", "/alive") == EMPTY
        assert program.vertex_ai.ask("GET", "/health")[0] == 400
        status, _, body = program.sagemaker.ask("POST", "/invocations", b'{"INPUT0":3}')
        assert (status, json.loads(body)["OUTPUT0"]) == (200, 3.0)


WRONG = [
    ({"AIP_PREDICT_ROUTE": "/["}, "default", "AIP_PREDICT_ROUTE: invalid regular expression '/['"),
    ({}, "nobody", "Expect the default model 'nobody' is loaded"),
    ({"SAGEMAKER_TRITON_INFERENCE_TYPE": "guess"}, "default", "Server has invalid inference type 'guess'"),
]


@pytest.mark.parametrize(("env", "model", "text"), WRONG)
def test_what_makes_no_sense_is_an_error(models, env, model, text):
    done = subprocess.run(command(models, model), env=environment(**env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"platforms: Invalid argument: {text}" in done.stderr
