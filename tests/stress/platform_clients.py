# SPDX-License-Identifier: Apache-2.0
"""Clients of SageMaker and of Vertex AI, as clients.py has those of HTTP: kinds that know the answers that they must get.

The server has the flags and the environment of flags() and environment(); find_endpoints() finds its ports.
"""

import json
import re
import types

import platforms
import repository
import server as servers
from clients import Question, ok, receive
from wire import Connection

SAGEMAKER_MODEL, VERTEX_AI_MODEL = "steady_inline", "steady_thread"
SAGEMAKER_TYPE = "application/vnd.sagemaker-triton.binary+json;json-header-size="
VERTEX_AI_TYPE = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
PREDICT = "/predict"
REDIRECT = "X-Vertex-Ai-Triton-Redirect"


def flags():
    return ["--model-control-mode=explicit", "--load-model=*", "--allow-sagemaker=true", f"--sagemaker-port={servers.free_port()}",
            "--allow-vertex-ai=true", f"--vertex-ai-port={servers.free_port()}", f"--vertex-ai-default-model={VERTEX_AI_MODEL}"]


def environment():
    return {"AIP_PREDICT_ROUTE": PREDICT, "AIP_HEALTH_ROUTE": "/health", "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": SAGEMAKER_MODEL}


def find_endpoints(server):
    """Waits until both are served, and sets server.sagemaker and server.vertex_ai, which Connection() takes."""
    for member, name in ("sagemaker", "Sagemaker"), ("vertex_ai", "Vertex AI"):
        server.wait_log(f"Started {name} HTTPService at ")
        port = int(re.search(rf"Started {name} HTTPService at \S+:(\d+)", server.log())[1])
        setattr(server, member, types.SimpleNamespace(address=server.address, port=port))


# ---- Requests


def ask_for_numbers(chance, path, binary_type, model=None, n=None, more=None):
    """Values of their own, as JSON or as bytes behind it."""
    number = f"platform-{chance.getrandbits(64)}"
    n = n or chance.choice([1, 16, 1000, 50000])
    values = [chance.randrange(-(2**20), 2**20) for _ in range(n)]
    given = {"name": "INPUT0", "datatype": "FP32", "shape": [n], "data": values}
    body = {"id": number, "inputs": [given]}

    def check(response):
        ok(response)
        told = response.json()
        assert (told["id"], told["outputs"][0]["data"]) == (number, values)

    if chance.random() < 0.5:
        return Question("POST", path, check, json.dumps(body).encode(), more, model)
    raw = chance.randbytes(4 * n)
    given["parameters"] = {"binary_data_size": len(raw)}
    del given["data"]
    head = json.dumps({**body, "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()

    def check_bytes(response):
        ok(response)
        length = response.headers.get("inference-header-content-length") or response.headers["content-type"].partition("json-header-size=")[2]
        assert json.loads(response.body[:int(length)])["id"] == number
        assert response.body[int(length):] == raw, f"{path}: other bytes"

    return Question("POST", path, check_bytes, head + raw, {"Content-Type": f"{binary_type}{len(head)}", **(more or {})}, model)


def expect(status, body=None):
    """The check of an answer that always is the same."""
    def check(response):
        assert response.status == status and body in (None, response.body), response

    return check


def ask_wrongly(chance, path):
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [chance.randrange(2, 9)], "data": [0]}]}
    return Question("POST", path, expect(500), json.dumps(body).encode())


def ask_without_a_right(path):
    question = Question("POST", path, expect(403), b"{}")
    question.headers = {"X-Key": "wrong"}
    return question


def ask_sagemaker(chance):
    dice = chance.random()
    if dice < 0.2:
        return Question("GET", "/ping", expect(200, b""))
    if dice < 0.3:
        return chance.choice([ask_wrongly(chance, "/invocations"), ask_without_a_right("/invocations")])
    return ask_for_numbers(chance, "/invocations", SAGEMAKER_TYPE, SAGEMAKER_MODEL)


def ask_vertex_ai(chance):
    dice = chance.random()
    if dice < 0.1:
        return Question("GET", "/health", expect(200))
    if dice < 0.2:
        return chance.choice([ask_wrongly(chance, PREDICT), ask_without_a_right(PREDICT)])
    if dice < 0.3:
        return Question("POST", PREDICT, expect(403, b""), b"", {REDIRECT: "v2/repository/models/steady_text/unload"})
    if dice < 0.4:
        path = chance.choice(["v2", "v2/models/stats", "v2/models/steady_batch/config", "v2/models/steady_text", "v2/repository/index"])
        return Question("POST", PREDICT, ok, b"", {REDIRECT: path})
    if dice < 0.6:
        return ask_for_numbers(chance, PREDICT, VERTEX_AI_TYPE, "steady_ensemble", more={REDIRECT: "v2/models/steady_ensemble/infer"})
    return ask_for_numbers(chance, PREDICT, VERTEX_AI_TYPE, VERTEX_AI_MODEL)


# ---- Clients


def converse(run, chance, at, ask, name):
    """Some requests on a connection of its own, one by one or in a pipeline."""
    with Connection(at, timeout_s=300) as own:
        questions = [ask(chance) for _ in range(chance.randrange(1, 7))]
        at_once = chance.random() < 0.5 and sum(len(question.body or b"") for question in questions) < 1 << 20
        if at_once:
            own.send(b"".join(question.bytes(chance) for question in questions))
        for question in questions:
            if not at_once:
                own.send(question.bytes(chance))
            receive(run, own, question)
            run.add(run.reached, name)


def by_sagemaker(run, chance, _):
    converse(run, chance, run.server.sagemaker, ask_sagemaker, "SageMaker")


def by_vertex_ai(run, chance, _):
    converse(run, chance, run.server.vertex_ai, ask_vertex_ai, "Vertex AI")


def by_a_model_of_its_own(run, chance, _):
    """SageMaker loads a model, asks it, and deletes it while others do the same."""
    name = f"mme-{chance.getrandbits(64)}"
    path = f"/models/{name}"
    with platforms.archive() as folder:
        repository.write_identity(folder, "packed", [("FP32", [-1])])
        entry = {"modelName": name, "modelUrl": str(folder)}
        load = json.dumps({"model_name": name, "url": str(folder)}).encode()

        def is_listed(response):
            ok(response)
            assert entry in response.json()["models"], response

        invoke = [ask_for_numbers(chance, f"{path}/invoke", SAGEMAKER_TYPE) for _ in range(chance.randrange(4))]
        steps = [Question("POST", "/models", expect(200), load), Question("POST", "/models", expect(409), load), *invoke,
                 Question("GET", "/models", is_listed), Question("DELETE", path, expect(200)),
                 Question("GET", path, expect(404)), Question("POST", f"{path}/invoke", expect(404), b"{}")]
        with Connection(run.server.sagemaker, timeout_s=300) as own:
            for step in steps:
                own.send(step.bytes(chance))
                response = own.response()
                if run.stopping and response.status in (400, 404, 503):    # models are neither loaded nor asked any more
                    return
                step.check(response)
            run.add(run.reached, "models of SageMaker")


KINDS = [by_sagemaker] * 2 + [by_vertex_ai] * 2
NAMES = ["SageMaker", "Vertex AI"]
if platforms.can_unpack():
    KINDS.append(by_a_model_of_its_own)
    NAMES.append("models of SageMaker")
