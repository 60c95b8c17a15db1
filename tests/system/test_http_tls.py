# SPDX-License-Identifier: Apache-2.0
"""HTTP and metrics with TLS, and at sockets of this machine: Triton's own clients, curl and Python's ssl."""

import asyncio
import re
import socket
import ssl
import subprocess

import numpy as np
import pytest
import tritonclient.http as client
import tritonclient.http.aio as aio_client

import repository
from certificates import Authority
from server import Server, run_to_end, wait_for

pytestmark = pytest.mark.conch_only("the reference's HTTP server has no TLS")

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(name="root", scope="module")
def _root(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("root"))


@pytest.fixture(name="server_files", scope="module")
def _server_files(root):
    return root.issue("server")


@pytest.fixture(name="client_files", scope="module")
def _client_files(root):
    return root.issue("client")


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    repository.write_identity(models, "echo", [("FP32", [-1])])
    return models


def flags(service, files, root=None):
    certificate, key = files
    mutual = [f"--{service}-use-ssl-mutual=true", f"--{service}-root-cert={root}"] if root else [f"--{service}-use-ssl=true"]
    return [*mutual, f"--{service}-server-cert={certificate}", f"--{service}-server-key={key}", "--log-verbose=1"]


def started(*arguments, **more):
    """A server that is not asked over HTTP whether it is ready: it may not answer without TLS."""
    return Server(*arguments, ready=None, **more)


@pytest.fixture(name="served", scope="module")
def _served(models, server_files):
    metrics = ["--allow-metrics=true", "--metrics-port=0", *flags("metrics", server_files)]
    with started(models, flags=[*flags("http", server_files), *metrics]) as server:
        server.wait_log("Loaded 1 of 1 models")
        yield server


@pytest.fixture(name="mutual", scope="module")
def _mutual(models, server_files, root):
    with started(models, flags=flags("http", server_files, root.certificate)) as server:
        server.wait_log("Loaded 1 of 1 models")
        yield server


def curl(root, *arguments):
    done = subprocess.run(["curl", "-sS", "-m", "60", "--cacert", root.certificate, *map(str, arguments)], capture_output=True,
                          timeout=90, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def connect(served, root, alpn=None, files=None):
    context = ssl.create_default_context(cafile=root.certificate)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if files:
        context.load_cert_chain(*files)
    return context.wrap_socket(socket.create_connection(("127.0.0.1", served.port), timeout=60), server_hostname="localhost")


def read_until(tls, what):
    got = b""
    while what not in got:
        part = tls.recv(65536)
        assert part, got
        got += part
    return got


def tensor(values):
    sent = client.InferInput("INPUT0", list(values.shape), "FP32")
    sent.set_data_from_numpy(values)
    return [sent]


# ---- Clients -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 16, 150_528, 4_000_000])
def test_inferences_of_any_size_are_answered(served, root, count):
    values = np.arange(count, dtype=np.float32)
    with client.InferenceServerClient(f"localhost:{served.port}", ssl=True, ssl_options={"ca_certs": str(root.certificate)},
                                      network_timeout=60, connection_timeout=60) as triton:
        assert (triton.infer("echo", tensor(values)).as_numpy("OUTPUT0") == values).all()


def test_the_client_of_asyncio_is_served(served, root):
    async def ask():
        context = ssl.create_default_context(cafile=root.certificate)
        async with aio_client.InferenceServerClient(f"localhost:{served.port}", ssl=True, ssl_context=context) as triton:
            values = [np.full(number * 997, number, dtype=np.float32) for number in range(1, 20)]
            answers = await asyncio.gather(*(triton.infer("echo", tensor(value)) for value in values))
            return all((answer.as_numpy("OUTPUT0") == value).all() for answer, value in zip(answers, values))
    assert asyncio.run(ask())


@pytest.mark.parametrize("version", ["--http1.1", "--http1.0", "--http2"])
def test_curl_is_served(served, root, version):
    code, out, err = curl(root, version, f"https://localhost:{served.port}/v2")
    assert code == 0, err
    assert b'"name":"triton"' in out


def test_the_log_says_https(served):
    served.wait_log(f"Serving HTTP at https://127.0.0.1:{served.port}/v2")


def test_pipelined_requests_in_one_record_and_bytes_in_records_of_their_own(served, root):
    with connect(served, root) as tls:
        tls.sendall(LIVE * 50)
        got = b""
        while got.count(b"200 OK") < 50 or not got.endswith(b"\r\n\r\n"):
            got += tls.recv(65536)
        for byte in LIVE:
            tls.send(bytes([byte]))
        assert b"200 OK" in read_until(tls, b"\r\n\r\n")


@pytest.mark.parametrize("alpn, chosen", [
    (None, None), (("http/1.1",), "http/1.1"), (("h2", "http/1.1"), "http/1.1"), (("http/1.0",), "http/1.0"),
    (("http/1.0", "http/1.1"), "http/1.1")])
def test_the_protocol_is_negotiated(served, root, alpn, chosen):
    with connect(served, root, alpn) as tls:
        assert tls.selected_alpn_protocol() == chosen
        tls.sendall(LIVE)
        assert read_until(tls, b"\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_client_without_a_common_protocol_is_told(served, root):
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        connect(served, root, ("h2",))
    served.assert_alive()


def test_plaintext_gets_no_answer(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as plain:
        plain.sendall(LIVE)
        try:
            got = plain.recv(100)
        except ConnectionResetError:
            got = b""
        assert not got.startswith(b"HTTP"), got


# ---- Mutual TLS ----------------------------------------------------------------------------------------------------------


def test_only_clients_with_a_certificate_are_served(mutual, root, client_files):
    certificate, key = map(str, client_files)
    options = {"ca_certs": str(root.certificate), "certfile": certificate, "keyfile": key}
    with client.InferenceServerClient(f"localhost:{mutual.port}", ssl=True, ssl_options=options) as triton:
        assert triton.is_server_live()
    url = f"https://localhost:{mutual.port}/v2/health/live"
    assert curl(root, "--cert", certificate, "--key", key, "-f", url)[0] == 0
    code, out, err = curl(root, "-f", url)
    assert code != 0 and not out, err
    mutual.wait_log("TLS: a handshake failed: peer did not return a certificate")


# ---- Metrics -------------------------------------------------------------------------------------------------------------


def test_metrics_speak_tls_too(served, root):
    served.wait_log("Started Metrics Service at ")    # HTTP's port is open before
    port = re.search(r"Started Metrics Service at \S+:(\d+)", served.log())[1]
    code, out, err = curl(root, "-f", f"https://localhost:{port}/metrics")
    assert code == 0, err
    assert b"nv_inference_request_success" in out
    assert curl(root, "-f", f"http://localhost:{port}/metrics")[0] != 0


# ---- Files ---------------------------------------------------------------------------------------------------------------


def test_an_unfit_file_ends_the_start(models, server_files, tmp_path):
    certificate, key = server_files
    absent = tmp_path / "absent"
    start = [f"--model-repository={models}", "--http-port=0", "--allow-grpc=false", "--http-address=127.0.0.1"]
    for service, name in (("http", "HTTP"), ("metrics", "metrics")):
        on = [*start, f"--{service}-use-ssl=true", f"--allow-metrics={str(service == 'metrics').lower()}", "--metrics-port=0"]
        cases = [
            (on, f"{name} with TLS needs a server certificate: --{service}-server-cert=PATH"),
            ([*on, *flags(service, (absent, key))], f"server certificate '{absent}': .*No such file"),
            ([*on, *flags(service, (certificate, certificate))], f"server key '{certificate}': "),
            ([*on, *flags(service, server_files), f"--{service}-use-ssl-mutual=true"],
             f"{name} with TLS needs a root certificate of its clients: --{service}-root-cert=PATH"),
        ]
        for arguments, text in cases:
            code, _, err = run_to_end(*arguments)
            assert code == 1, arguments
            assert re.search(text, err), (arguments, err)


def test_options_that_encrypt_nothing_warn(models, server_files):
    certificate, key = server_files
    with Server(models, flags=[f"--http-server-cert={certificate}", f"--http-server-key={key}"]) as server:
        server.wait_log("HTTP is served without encryption: --http-use-ssl is false")


# ---- Sockets of this machine ---------------------------------------------------------------------------------------------


def test_http_and_metrics_at_sockets_of_this_machine(models, root, server_files, tmp_path):
    """With TLS over the file; what a dead server has left at it is replaced."""
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    name = f"conch-{tmp_path.name}-{path.stat().st_ino}"
    server = started(models, address=f"unix:{path}", flags=[*flags("http", server_files), "--allow-metrics=true",
                                                            f"--metrics-address=unix:@{name}"])
    server.start()
    try:
        server.wait_log("Loaded 1 of 1 models")
        code, out, err = curl(root, "--unix-socket", path, "https://localhost/v2")
        assert code == 0 and b'"name":"triton"' in out, err
        code, out, err = curl(root, "--abstract-unix-socket", name, "http://localhost/metrics")
        assert code == 0 and b"nv_inference_request_success" in out, err
        code, _, err = run_to_end(*started(models, address=f"unix:{path}").args[1:])
        assert code == 1 and f"Socket 'unix:{path}' already in use " in err
    finally:
        server.signal(15)
        assert server.wait() == 0
    wait_for(lambda: not path.exists(), 60, "the file is removed")


def test_two_services_cannot_have_one_socket(models):
    code, _, err = run_to_end(f"--model-repository={models}", "--allow-grpc=false", "--http-address=unix:@conch-one")
    assert code == 1
    assert ("The server cannot listen to HTTP requests and metrics requests at the same address unix:@conch-one: "
            "give --metrics-address, too") in err
