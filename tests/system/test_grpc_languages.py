# SPDX-License-Identifier: Apache-2.0
"""Clients of other languages by gRPC: generated from our .proto files (tests/clients/), grpcurl, grpc-health-probe."""

import json
import os
import shutil
import subprocess

import pytest

import protos
import repository
import server as servers
import triton

DEPS = servers.ROOT / ".deps"
GO = DEPS / "go/bin"
PROGRAMS = {
    "go": [GO / "generated"],
    "java": ["java", "-cp", f"{DEPS}/java-client:{DEPS}/clients-java/*", "Client"],
    "node": ["node", DEPS / "node/client.js"],
    "rust": [DEPS / "rust/client"],
}
BUILT = {"go": GO / "generated", "java": DEPS / "java-client/Client.class", "node": DEPS / "node/node_modules",
         "rust": DEPS / "rust/client"}
SCENARIOS = ["health", "metadata", "raw", "typed", "error", "stream", "deadline", "cancel", "gzip"]
needs_go = pytest.mark.skipif(not (GO / "grpcurl").exists(), reason="grpcurl and grpc-health-probe are not built: make test-go")
conch_only = pytest.mark.conch_only("is about our service")


def write_models(models):
    repository.write_identity(models, "echo", [("FP32", [-1])])
    repository.write_identity(models, "slow", [("FP32", [1])], execute_delay_ms=1000)
    repeat = 'backend: "repeat"\nmodel_transaction_policy { decoupled: true }\n'
    repeat += repository.tensor("input", "IN", "INT32", [-1]) + repository.tensor("input", "DELAY", "UINT32", [-1])
    repeat += repository.tensor("input", "WAIT", "UINT32", [1])
    repeat += repository.tensor("output", "OUT", "INT32", [1]) + repository.tensor("output", "IDX", "UINT32", [1])
    repository.write_model(models, "repeat", repeat + "instance_group [ { count: 1 kind: KIND_CPU } ]\n")
    return models


@pytest.fixture(scope="module", params=["conch", "triton"])
def served(request, tmp_path_factory):
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    models = write_models(tmp_path_factory.mktemp("models"))
    flags = ["--grpc-infer-response-compression-level=low"]
    made = triton.Triton(models, flags=flags) if request.param == "triton" else servers.Server(models, flags=flags, grpc=True)
    with made as server:
        yield server


def run(*command, within_s=120, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=within_s, check=False, **more)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("language", PROGRAMS)
def test_a_generated_client(served, language, scenario):
    if not BUILT[language].exists() or not shutil.which(PROGRAMS[language][0]):
        pytest.skip(f"the client in {language} is not built: make test-{language}")
    code, out, errors = run(*PROGRAMS[language], served.grpc_url, scenario, env={**os.environ, "PROTOS": servers.ROOT / "src"})
    assert code == 0, out + errors


# ---- grpcurl


@pytest.fixture(scope="module")
def protoset(tmp_path_factory):
    """Describes our services for grpcurl, which can also ask the server."""
    path = tmp_path_factory.mktemp("protos") / "set"
    path.write_bytes(protos.describe("proto/inference.proto", servers.ROOT / "src") +
                     protos.describe("proto/health.proto", servers.ROOT / "src"))
    return path


def grpcurl(server, method, question=None, *options):
    """The answers of a method, as documents."""
    code, out, errors = run(GO / "grpcurl", "-plaintext", *options, "-d", json.dumps(question or {}), server.grpc_url, method)
    assert code == 0, errors
    decoder, documents = json.JSONDecoder(), []
    while out := out.lstrip():
        document, end = decoder.raw_decode(out)
        documents.append(document)
        out = out[end:]
    return documents


@needs_go
def test_grpcurl_asks(served, protoset):
    def ask(method, question=None, *options):
        return grpcurl(served, method, question, "-protoset", protoset, *options)

    service = "inference.GRPCInferenceService"
    assert ask(f"{service}/ServerReady") == [{"ready": True}]
    assert ask("grpc.health.v1.Health/Check") == [{"status": "SERVING"}]
    assert ask(f"{service}/ModelMetadata", {"name": "echo"})[0]["inputs"][0]["datatype"] == "FP32"
    (answer,) = ask(f"{service}/ModelInfer", {"model_name": "echo", "inputs": [
        {"name": "INPUT0", "datatype": "FP32", "shape": [2], "contents": {"fp32_contents": [1, 2]}}]}, "-max-time", "60")
    assert answer["rawOutputContents"] == ["AACAPwAAAEA="]
    tensor = [("IN", "INT32", {"int_contents": [5, 6, 7]}), ("DELAY", "UINT32", {"uint_contents": [0, 0, 0]}),
              ("WAIT", "UINT32", {"uint_contents": [0]})]
    answers = ask(f"{service}/ModelStreamInfer", {"model_name": "repeat", "inputs": [
        {"name": name, "datatype": datatype, "shape": [len(next(iter(contents.values())))], "contents": contents}
        for name, datatype, contents in tensor]})
    assert [answer["inferResponse"]["rawOutputContents"][1] for answer in answers] == ["AAAAAA==", "AQAAAA==", "AgAAAA=="]
    code, _, errors = run(GO / "grpcurl", "-plaintext", "-protoset", protoset, "-d", '{"name": "nobody"}', served.grpc_url,
                          f"{service}/ModelMetadata")
    assert code != 0
    assert "Code: NotFound" in errors and "Message: Request for unknown model: 'nobody' is not found" in errors


@needs_go
@conch_only
@pytest.mark.parametrize("served", ["conch"], indirect=True)
def test_grpcurl_asks_by_reflection(served):
    def ask(*command):
        code, out, errors = run(GO / "grpcurl", "-plaintext", served.grpc_url, *command)
        assert code == 0, errors
        return out

    service = "inference.GRPCInferenceService"
    assert {service, "grpc.health.v1.Health"} <= set(ask("list").split())
    assert len(ask("list", service).split()) == 20
    assert "rpc ModelStreamInfer ( stream .inference.ModelInferRequest )" in ask("describe", service)
    assert "repeated bytes raw_input_contents" in ask("describe", "inference.ModelInferRequest")
    assert grpcurl(served, f"{service}/ServerReady") == [{"ready": True}]
    (answer,) = grpcurl(served, f"{service}/ModelInfer", {"model_name": "echo", "inputs": [
        {"name": "INPUT0", "datatype": "FP32", "shape": [2], "contents": {"fp32_contents": [1, 2]}}]})
    assert answer["rawOutputContents"] == ["AACAPwAAAEA="]


# ---- Health


@needs_go
@conch_only
@pytest.mark.parametrize("served", ["conch"], indirect=True)
def test_a_watch_begins_with_the_state(served):
    code, out, errors = run(*PROGRAMS["go"], served.grpc_url, "watch")
    assert code == 0, out + errors


@needs_go
@pytest.mark.parametrize("options", [[], ["-service", "inference.GRPCInferenceService"]])
def test_the_health_probe(served, options):
    code, _, errors = run(GO / "grpc-health-probe", "-addr", served.grpc_url, "-connect-timeout", "60s", "-rpc-timeout", "60s",
                          *options)
    assert (code, "status: SERVING" in errors) == (0, True), errors


@needs_go
@conch_only
def test_the_health_probe_follows_readiness(tmp_path):
    """A server whose models are not all ready is not serving."""
    gate = repository.Gated(tmp_path, "gated").shut("hold.load")
    with servers.Server(tmp_path, flags=["--strict-readiness=true"], ready=None, grpc=True) as server:
        gate.await_reached("hold.load")
        code, _, errors = run(GO / "grpc-health-probe", "-addr", server.grpc_url, "-connect-timeout", "60s", "-rpc-timeout", "60s")
        assert (code, "NOT_SERVING" in errors) == (4, True), errors
        gate.open("hold.load")
        servers.wait_for(lambda: run(GO / "grpc-health-probe", "-addr", server.grpc_url)[0] == 0, 60, "it serves")
