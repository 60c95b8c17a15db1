# SPDX-License-Identifier: Apache-2.0
"""Who may: --http-restricted-api, --grpc-restricted-protocol and --access-rules. Nothing gets around them, whatever the method, the
protocol, the spelling of the path and the headers. And --http-header-forward-pattern."""

import itertools
import json
import os
import re
import shutil
import socket
import subprocess

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

import repository
from certificates import Authority
from server import BUILD, ROOT, Server, run_to_end, wait_for

pytestmark = pytest.mark.conch_only("test_grpc_reference.py compares restrictions with the genuine Triton; rules are Conch's own")

PARTS = ["health", "metadata", "inference", "shared-memory", "model-config", "model-repository", "statistics", "trace", "logging"]
METHODS = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"]
ROUTE = re.compile(r'^ROUTE\((\w+), +"([^"]+)", +\w+, +(\w+),', re.M)


def routes():
    """(method, path, part) of all routes of HTTP, with and without a version."""
    for method, pattern, part in ROUTE.findall((ROOT / "src/frontends/http/routes.def").read_text()):
        for version in ("", "/versions/1"):
            if version and "[" not in pattern:
                continue
            path = re.sub(r"\[.*?\]", version, pattern)
            yield method, re.sub(r"\{\w\}", "echo", path), part.lower().replace("_", "-")


def spellings(path):
    """Other ways to write a path. Some of them are other paths, which no server may take for this one without a right."""
    yield from (path, path + "?x=y", path + "#x", f"http://localhost{path}", f"http://other{path}?a", path + "/", path + "//", "/" + path)
    yield from (path.upper(), path.title(), path.replace("/", "//"), path.replace("/v2", "/%76%32", 1), "/." + path, "/x/.." + path)
    yield from (path[0] + path[1:].replace("/", "%2F"), path.replace("echo", "%65cho"), path + "%20", path + "/.", path + ";x", path + "%00")
    yield from (path.replace("/", "\\"), path[1:], path + "/versions/1")


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    for name in ("echo", "other"):
        repository.write_identity(models, name, [("FP32", [-1])])
    return models


class Http:
    """Requests as they are written, on one connection as long as the server keeps it."""

    def __init__(self, server):
        self.address = ("127.0.0.1", server.port)
        self.connection = None

    def ask(self, method, target, headers=(), body=b""):
        """(status, body) of a request."""
        lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
        for attempt in (0, 1):
            if self.connection is None:
                self.connection = socket.create_connection(self.address, timeout=60)
            try:
                self.connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
                return self._answer(method)
            except (ConnectionError, EOFError):    # the last answer was the last of its connection
                self.close()
                assert attempt == 0, (method, target)
        return None

    def _answer(self, method):
        got = b""
        while b"\r\n\r\n" not in got:
            part = self.connection.recv(65536)
            if not part:
                raise EOFError
            got += part
        head, body = got.split(b"\r\n\r\n", 1)
        length = int((re.search(rb"(?i)content-length: (\d+)", head) or [0, 0])[1])
        while method != "HEAD" and len(body) < length:
            body += self.connection.recv(65536)
        if re.search(rb"(?i)connection: close", head):
            self.close()
        return int(head.split()[1]), body

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


def infer_body(values=(1,)):
    tensor = {"name": "INPUT0", "shape": [len(values)], "datatype": "FP32", "data": list(values)}
    return json.dumps({"inputs": [tensor]}).encode()


# ---- Nothing gets around it ----------------------------------------------------------------------------------------------


@pytest.fixture(name="guarded", scope="module", params=["restricted", "rules", "no rule"])
def _guarded(request, models, tmp_path_factory):
    """A server that admits only clients with the header x-key: right, if any."""
    rules = tmp_path_factory.mktemp("rules") / "rules"
    rules.write_text({"rules": "allow header X-Key=right to all\n", "no rule": "# nobody\n"}.get(request.param, ""))
    parts = ",".join(PARTS)
    flags = {"restricted": [f"--http-restricted-api={parts}:X-Key=right", f"--grpc-restricted-protocol={parts}:x-key=right"]}
    on = flags.get(request.param, [f"--access-rules={rules}"])
    with Server(models, flags=[*on, "--model-control-mode=explicit", "--load-model=*"], ready=None, grpc=True) as server:
        server.wait_log("Loaded 2 of 2 models")
        server.kind = request.param
        yield server


WRONG = [(), ("X-Key: wrong",), ("X-Key: Right",), ("X-Key:",), ("X-Key: right, right",), ("X-Key: rightright",), ("X-Keys: right",),
         ("X_Key: right",), ("Cookie: x-key=right",), ("X-Key: wrong", "X-Key: right")]


def test_no_spelling_of_a_request_gets_around_it(guarded):
    """A path as it is gets 403 with any method; another spelling never a success."""
    http = Http(guarded)
    wrong = itertools.cycle(WRONG)
    for _, path, _ in routes():
        for method in METHODS:
            status, body = http.ask(method, path)
            assert status == 403, (method, path)
            assert method == "HEAD" or b'{"error":"This API is restricted' in body
            for spelling in spellings(path):
                headers = next(wrong)
                status, body = http.ask(method, spelling, headers, infer_body() if method == "POST" else b"")
                assert 400 <= status < 500, (method, spelling, headers, status, body)
    http.close()
    guarded.assert_alive()


def test_no_header_but_the_right_one_is_admitted(guarded):
    http = Http(guarded)
    for headers in WRONG:
        for method, path, _ in routes():
            assert http.ask(method, path, headers)[0] == 403, (path, headers)
    http.close()


def test_the_right_header_is_admitted(guarded):
    http = Http(guarded)
    for headers in (("X-Key: right",), ("x-key:right  ",), ("A: b", "X-KEY: \t right", "C: d")):
        for method, path, _ in routes():
            if path.endswith("load"):
                continue
            status = http.ask(method, path, headers, infer_body() if path.endswith("infer") else b"")[0]
            assert (status == 403) == (guarded.kind == "no rule"), (path, headers, status)
            if path.endswith(("infer", "/v2", "live", "ready", "config", "stats")) and guarded.kind != "no rule":
                assert status == 200, (path, headers)
    # Twice: the first one counts for restrictions, as in the reference. For rules the client is then not known.
    twice = http.ask("GET", "/v2", ("X-Key: right", "X-Key: wrong"))[0]
    assert twice == (200 if guarded.kind == "restricted" else 403)
    # A connection has no right, its requests have.
    assert http.ask("GET", "/v2")[0] == 403
    http.close()


def grpc_methods():
    for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
        yield f"/inference.GRPCInferenceService/{method.name}"
    yield "/grpc.health.v1.Health/Check"
    yield "/grpc.health.v1.Health/Watch"


def code_of(channel, path, metadata=(), message=b"", timeout=60):
    """The status of a call as the wire has it; a stream is given up after its first message."""
    call = channel.stream_stream(path)(iter([message]), metadata=metadata, timeout=timeout)
    try:
        next(call, None)
        call.cancel()
        return "OK", ""
    except grpc.RpcError as error:
        return error.code().name, error.details()


def test_no_call_gets_around_it(guarded):
    name = "triton-grpc-protocol-x-key" if guarded.kind == "restricted" else "x-key"
    # A name twice: the first counts for restrictions; for rules neither does.
    twice = ((name, "wrong"), (name, "right"))
    with grpc.insecure_channel(guarded.grpc_url) as channel:
        for path in grpc_methods():
            for metadata in ((), ((name, "wrong"),), (("x-keys", "right"),), ((name, "right, right"),), ((name + "-bin", b"right"),), twice):
                code, text = code_of(channel, path, metadata)
                assert code == "UNAVAILABLE" and text.startswith("This protocol is restricted"), (path, metadata, code, text)
            for spelling in (path + "/", "/" + path, path.upper(), path.lower(), path.replace("/", "%2F"), path + "?x", path[:-1]):
                code, text = code_of(channel, spelling)
                assert code in ("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "UNKNOWN"), (spelling, code, text)
        admitted = [code_of(channel, path, ((name, "right"),)) for path in grpc_methods() if "Load" not in path and "Unload" not in path]
        for code, text in admitted:
            assert ("restricted" in text) == (guarded.kind == "no rule"), (code, text)


# ---- Rules for models ----------------------------------------------------------------------------------------------------


RULES = """
allow anyone                  to health of the server
allow header x-team=digits    to inference,metadata,model-config,statistics,health,model-repository  of ech*
allow header x-team=admin     to all
allow certificate spiffe://lab/alice   to inference of other
allow certificate bob         to metadata
"""


@pytest.fixture(name="ruled", scope="module")
def _ruled(models, tmp_path_factory):
    rules = tmp_path_factory.mktemp("rules") / "rules"
    rules.write_text(RULES)
    with Server(models, flags=[f"--access-rules={rules}", "--model-control-mode=explicit", "--load-model=*"], grpc=True) as server:
        yield server


def test_http_admits_for_the_models_of_a_rule(ruled):
    http = Http(ruled)
    digits, admin = ("x-team: digits",), ("x-team: admin",)
    for what in ("", "/ready", "/config", "/stats", "/versions/1", "/versions/1/ready"):
        assert [http.ask("GET", f"/v2/models/{m}{what}", digits)[0] for m in ("echo", "other", "absent")] == [200, 403, 403], what
        assert [http.ask("GET", f"/v2/models/{m}{what}")[0] for m in ("echo", "other", "absent")] == [403, 403, 403], what
        assert http.ask("GET", f"/v2/models/other{what}", admin)[0] == 200
    for m, status in (("echo", 200), ("other", 403), ("Echo", 403), ("%65cho", 403), ("echoes", 404)):
        assert http.ask("POST", f"/v2/models/{m}/infer", digits, infer_body())[0] == status, m
    # Requests that name no model, although they tell of all.
    for method, path in (("GET", "/v2"), ("GET", "/v2/models/stats"), ("POST", "/v2/repository/index"), ("GET", "/v2/logging")):
        assert http.ask(method, path, digits)[0] == 403, path
        assert http.ask(method, path, admin)[0] == 200, path
    assert http.ask("GET", "/v2/health/live")[0] == 200    # anyone
    for verb in ("unload", "load"):
        assert http.ask("POST", f"/v2/repository/models/other/{verb}", digits)[0] == 403
        assert http.ask("POST", f"/v2/repository/models/echo/{verb}", digits)[0] == 200
    http.close()


def test_grpc_admits_for_the_models_of_a_rule(ruled):
    digits = (("x-team", "digits"),)
    named = {"ModelReady": "name", "ModelMetadata": "name", "ModelConfig": "name", "ModelStatistics": "name",
             "RepositoryModelUnload": "model_name", "RepositoryModelLoad": "model_name", "ModelInfer": "model_name"}
    with grpc.insecure_channel(ruled.grpc_url) as channel:
        def ask(method, metadata, **fields):
            message = getattr(service_pb2, f"{method}Request")(**fields).SerializeToString()
            return code_of(channel, f"/inference.GRPCInferenceService/{method}", metadata, message)
        for method, field in named.items():
            for model in ("other", "absent", "Echo", *([""] if method != "ModelReady" else [])):    # "" is no model
                code, text = ask(method, digits, **{field: model})
                assert code == "UNAVAILABLE" and "restricted" in text, (method, model, code, text)
            assert "restricted" not in ask(method, digits, **{field: "echo"})[1], method
            assert ask(method, (), **{field: "echo"})[0] == "UNAVAILABLE", method
        wait_for(lambda: ask("ModelReady", digits, name="echo") == ("OK", ""), 60, "the model is loaded again")
        for method in ("ServerMetadata", "RepositoryIndex", "LogSettings", "ModelStatistics"):
            assert "restricted" in ask(method, digits)[1], method
            assert ask(method, (("x-team", "admin"),))[0] == "OK", method
        assert "restricted" in ask("TraceSetting", digits, model_name="echo")[1]
        assert ask("ServerLive", ())[0] == "OK"
        # Health/Watch names a model; the server's own state is anyone's.
        watch = "/grpc.health.v1.Health/Watch"
        assert code_of(channel, watch)[0] == "OK"
        assert "restricted" in code_of(channel, watch, (), health_pb2.HealthCheckRequest(service="echo").SerializeToString())[1]
        assert "restricted" in code_of(channel, watch, digits, health_pb2.HealthCheckRequest(service="other").SerializeToString())[1]
        assert code_of(channel, watch, digits, health_pb2.HealthCheckRequest(service="echo").SerializeToString())[0] == "OK"


def test_each_message_of_a_stream_is_checked(ruled):
    tensor = grpc_client.InferInput("INPUT0", [1], "FP32")
    tensor.set_data_from_numpy(np.ones(1, np.float32))
    answers = []
    with grpc_client.InferenceServerClient(ruled.grpc_url) as triton:
        triton.start_stream(lambda result, error: answers.append(error.message() if error else "fine"), headers={"x-team": "digits"})
        for model in ("echo", "other", "absent", "echo"):
            triton.async_stream_infer(model, [tensor])
        wait_for(lambda: len(answers) == 4, 60, "all messages are answered")
        triton.stop_stream()
    refused = "This protocol is restricted, and no access rule allows the request"
    assert sorted(answers) == sorted(["fine", refused, refused, "fine"])


def test_both_clients_of_triton_pass_their_header(ruled):
    header = {"x-team": "digits"}
    values = np.arange(5, dtype=np.float32)
    for module, url in ((http_client, ruled.url), (grpc_client, ruled.grpc_url)):
        tensor = module.InferInput("INPUT0", [5], "FP32")
        tensor.set_data_from_numpy(values)
        with module.InferenceServerClient(url) as triton:
            assert (triton.infer("echo", [tensor], headers=dict(header)).as_numpy("OUTPUT0") == values).all()
            with pytest.raises(InferenceServerException, match="restricted, and no access rule allows the request"):
                triton.infer("other", [tensor], headers=dict(header))


# ---- Certificates --------------------------------------------------------------------------------------------------------


def test_clients_are_known_by_their_certificates(models, tmp_path):
    root = Authority(tmp_path)
    server_files = root.issue("server")
    rules = tmp_path / "rules"
    rules.write_text(RULES)
    tls = [f"--{service}-{option}" for service in ("http", "grpc")
           for option in ("use-ssl-mutual=true", f"server-cert={server_files[0]}", f"server-key={server_files[1]}",
                          f"root-cert={root.certificate}")]
    impostor = [path.rename(tmp_path / f"impostor{path.suffix}") for path in root.issue("bob", names="DNS:mallory")]
    clients = {
        "alice": root.issue("alice", names="URI:spiffe://lab/alice,DNS:alice"),
        "bob": root.issue("bob", names=None),                      # by its common name
        "not-bob": impostor,                                       # whose common name does not count
        "alice2": root.issue("alice2", names="URI:spiffe://lab/alice2"),
    }
    expected = {"alice": (403, 200), "bob": (200, 403), "not-bob": (403, 403), "alice2": (403, 403)}
    with Server(models, flags=[f"--access-rules={rules}", *tls], ready=None, grpc=True) as server:
        server.wait_log("Loaded 2 of 2 models")
        for name, (certificate, key) in clients.items():
            def curl(path, *more):
                done = subprocess.run(["curl", "-sS", "-m", "60", "-o", os.devnull, "-w", "%{http_code}", "--cacert", root.certificate,
                                       "--cert", certificate, "--key", key, *more, f"https://localhost:{server.port}{path}"],
                                      capture_output=True, timeout=90, check=True)
                return int(done.stdout)
            got = curl("/v2"), curl("/v2/models/other/infer", "-d", infer_body().decode())
            assert got == expected[name], name
            read = [path.read_bytes() for path in (root.certificate, key, certificate)]
            with grpc.secure_channel(server.grpc_url.replace("127.0.0.1", "localhost"), grpc.ssl_channel_credentials(*read)) as channel:
                code, text = code_of(channel, "/inference.GRPCInferenceService/ServerMetadata")
                assert (code == "OK") == (expected[name][0] == 200), (name, code, text)
                message = service_pb2.ModelInferRequest(model_name="other").SerializeToString()
                text = code_of(channel, "/inference.GRPCInferenceService/ModelInfer", (), message)[1]
                assert ("restricted" not in text) == (expected[name][1] == 200), (name, text)


# ---- The file ------------------------------------------------------------------------------------------------------------


def test_the_file_is_read_again(models, tmp_path):
    """Also on a connection that goes on, with a head that it repeats; what is wrong is logged and changes nothing."""
    rules = tmp_path / "rules"
    rules.write_text("allow header k=1 to all\n")

    def replace(text):
        new = tmp_path / "new"
        new.write_text(text)
        os.replace(new, rules)

    with Server(models, flags=[f"--access-rules={rules}"], ready=None, grpc=True) as server:
        server.wait_log("Loaded 2 of 2 models")
        http = Http(server)
        with grpc.insecure_channel(server.grpc_url) as channel:
            def states():
                call = code_of(channel, "/inference.GRPCInferenceService/ServerLive", (("k", "1"),))[0]
                return http.ask("GET", "/v2", ("k: 1",))[0], call
            assert states() == (200, "OK")
            replace("allow header k=2 to all\n")
            wait_for(lambda: states() == (403, "UNAVAILABLE"), 60, "the key has changed")
            replace("allow header k=1 to everything\n")
            server.wait_log("the access rules that were read before stay in use")
            assert f"access rules '{rules}': line 1: there is no category 'everything'" in server.log()
            assert states() == (403, "UNAVAILABLE")
            replace("allow anyone to metadata\nallow header k=1 to health\n")
            wait_for(lambda: states() == (200, "OK"), 60, "the file is read again")
        http.close()


def test_a_wrong_file_ends_the_start(models, tmp_path):
    rules = tmp_path / "rules"
    rules.write_text("allow header k=secret to all of the universe\n")
    start = [f"--model-repository={models}", "--http-port=0", "--grpc-port=0", "--allow-metrics=false", f"--access-rules={rules}"]
    code, out, err = run_to_end(*start)
    assert code == 1
    assert f"access rules '{rules}': line 1: 'the' is followed by 'server'" in err
    assert "secret" not in out + err
    rules.unlink()
    code, _, err = run_to_end(*start)
    assert code == 1 and "No such file" in err


# ---- Headers for models --------------------------------------------------------------------------------------------------


def test_headers_become_parameters(tmp_path):
    """test_grpc_reference.py compares which; here are errors, binary bodies, and a head that the client repeats."""
    repository.write_model(tmp_path, "teller", 'backend: "caller"\n' + repository.tensor("input", "IN", "INT32", [1])
                           + repository.tensor("output", "OUT", "BYTES", [1]))
    shutil.copy(BUILD / "tests/backends/caller/libtriton_caller.so", tmp_path / "teller")
    with Server(tmp_path, flags=["--http-header-forward-pattern=^x-|^timeout$|^triton_"]) as server, \
            http_client.InferenceServerClient(server.url) as triton:
        def told(headers):
            tensor = http_client.InferInput("IN", [1], "INT32")
            tensor.set_data_from_numpy(np.zeros(1, np.int32))
            lines = triton.infer("teller", [tensor], headers=headers).as_numpy("OUT")[0].decode().splitlines()
            return [line for line in lines if line.startswith("parameter")]
        plain = told({})
        for value in ("1", "1", "2"):
            lines = told({"X-One": value, "other": "3"})
            assert len(lines) == len(plain) + 1
            (line,) = [line for line in lines if line not in plain]
            assert "X-One" in line and value in line
        for name in ("Timeout", "triton_x"):
            if name == "Timeout":    # only the name as it is has a meaning
                assert len(told({name: "1"})) == len(plain) + 1
                name = "timeout"
            with pytest.raises(InferenceServerException, match=f"Header '{name}' is reserved for Triton usage and cannot be forwarded."):
                told({name: "1"})
    code, _, err = run_to_end(f"--model-repository={tmp_path}", "--allow-grpc=false", "--allow-metrics=false", "--http-port=0",
                              "--http-header-forward-pattern=x-(")
    assert code == 1
    assert "invalid regular expression 'x-('" in err
