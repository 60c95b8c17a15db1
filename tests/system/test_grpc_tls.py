# SPDX-License-Identifier: Apache-2.0
"""gRPC with TLS: Triton's own client and grpcio against the server; certificates are made by the program openssl."""

import concurrent.futures
import contextlib
import os
import re
import socket
import ssl
import subprocess
import threading

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

import repository
from certificates import Authority, make_key, openssl
from server import Server, run_to_end, wait_for

pytestmark = pytest.mark.conch_only("the reference's server has grpc-core's TLS; the last tests here compare with that")

LIVE = "/inference.GRPCInferenceService/ServerLive"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture(name="root", scope="module")
def _root(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("root"))


@pytest.fixture(name="stranger", scope="module")
def _stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


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


def flags(files, root=None):
    certificate, key = files
    mutual = ["--grpc-use-ssl-mutual=true", f"--grpc-root-cert={root}"] if root else ["--grpc-use-ssl=true"]
    return [*mutual, f"--grpc-server-cert={certificate}", f"--grpc-server-key={key}", "--log-verbose=1"]


@pytest.fixture(name="served", scope="module")
def _served(models, server_files):
    with Server(models, flags=flags(server_files), grpc=True) as server:
        yield server


@pytest.fixture(name="mutual", scope="module")
def _mutual(models, server_files, root):
    with Server(models, flags=flags(server_files, root.certificate), grpc=True) as server:
        yield server


def credentials(root, files=None):
    certificate, key = [path.read_bytes() for path in files] if files else (None, None)
    return grpc.ssl_channel_credentials(root.certificate.read_bytes(), key, certificate)


def is_live(url, channel_credentials):
    """One call of ServerLive on a connection of its own; raises grpc.RpcError."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(url, channel_credentials, own) as channel:
        ask = channel.unary_unary(LIVE, request_serializer=service_pb2.ServerLiveRequest.SerializeToString,
                                  response_deserializer=service_pb2.ServerLiveResponse.FromString)
        return ask(service_pb2.ServerLiveRequest(), timeout=60).live


def infer(triton, values):
    sent = client.InferInput("INPUT0", list(values.shape), "FP32")
    sent.set_data_from_numpy(values)
    return triton.infer("echo", [sent]).as_numpy("OUTPUT0")


def tls_client(served, root, alpn=("h2",), **more):
    """A connection of Python's own TLS: (context, connected plain socket)."""
    context = ssl.create_default_context(cafile=root.certificate)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    for name, value in more.items():
        setattr(context, name, value)
    host, port = served.grpc_url.rsplit(":", 1)
    return context, socket.create_connection((host, int(port)), timeout=60)


def assert_serves(served, root, files=None):
    assert is_live(served.grpc_url, credentials(root, files))


# ---- Calls ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 16, 150_528, 4_000_000])
def test_inferences_of_any_size_are_answered(served, root, count):
    values = np.arange(count, dtype=np.float32)
    with client.InferenceServerClient(served.grpc_url, ssl=True, root_certificates=str(root.certificate)) as triton:
        assert (infer(triton, values) == values).all()


def test_many_calls_at_once_are_answered_right(served, root):
    with client.InferenceServerClient(served.grpc_url, ssl=True, root_certificates=str(root.certificate)) as triton:
        def ask(number):
            values = np.full(number * 997 % 60_000, number, dtype=np.float32)
            return bool((infer(triton, values) == values).all())
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(100)))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions_of_tls(served, root, version):
    context, plain = tls_client(served, root, maximum_version=version, minimum_version=version)
    with context.wrap_socket(plain, server_hostname="localhost") as tls:
        assert tls.selected_alpn_protocol() == "h2"
        assert tls.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]
        assert tls.recv(9)[3] == 4    # SETTINGS


@pytest.mark.filterwarnings("ignore:.*TLSv1_1 is deprecated")
def test_older_versions_are_refused(served, root):
    context, plain = tls_client(served, root)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with plain, pytest.raises(ssl.SSLError, match="(?i)alert protocol version|version"):
        context.wrap_socket(plain, server_hostname="localhost")
    assert_serves(served, root)


def test_sessions_are_resumed(served, root):
    context, plain = tls_client(served, root)
    with context.wrap_socket(plain, server_hostname="localhost") as tls:
        assert tls.recv(1)    # tickets come with the first data
        session = tls.session
        assert session.has_ticket
    context, plain = context, socket.create_connection(plain_address(served), timeout=60)
    with context.wrap_socket(plain, server_hostname="localhost", session=session) as tls:
        assert tls.recv(1)
        assert tls.session_reused


def plain_address(served):
    host, port = served.grpc_url.rsplit(":", 1)
    return host, int(port)


# ---- Mutual TLS ----------------------------------------------------------------------------------------------------------


def test_a_client_with_the_right_certificate_is_served(mutual, root, client_files):
    certificate, key = map(str, client_files)
    with client.InferenceServerClient(mutual.grpc_url, ssl=True, root_certificates=str(root.certificate), private_key=key,
                                      certificate_chain=certificate) as triton:
        assert triton.is_server_live()
        values = np.arange(150_528, dtype=np.float32)
        assert (infer(triton, values) == values).all()


def test_clients_without_a_fit_certificate_are_refused(mutual, root, stranger, client_files):
    for files in (None, stranger.issue("client"), (stranger.certificate, stranger.key)):
        with pytest.raises(grpc.RpcError) as caught:
            is_live(mutual.grpc_url, credentials(root, files))
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert_serves(mutual, root, client_files)
    mutual.wait_log("TLS: a handshake failed: peer did not return a certificate")
    mutual.wait_log("TLS: a handshake failed: certificate verify failed")


def test_resumption_keeps_the_client_known(mutual, root, client_files):
    context, plain = tls_client(mutual, root)
    context.load_cert_chain(*client_files)
    with context.wrap_socket(plain, server_hostname="localhost") as tls:
        assert tls.recv(1)
        session = tls.session
    with context.wrap_socket(socket.create_connection(plain_address(mutual), timeout=60), server_hostname="localhost",
                             session=session) as tls:
        assert tls.recv(1)
        assert tls.session_reused


def test_an_authority_below_the_root_may_be_trusted_alone(models, root, server_files):
    below = root.issue("below", is_authority=True)
    issuer = Authority.__new__(Authority)
    issuer.folder, issuer.kind, issuer.certificate, issuer.key = root.folder, root.kind, *below
    files = issuer.issue("client-of-below")
    with Server(models, flags=flags(server_files, below[0]), grpc=True) as server:
        assert_serves(server, root, files)


# ---- Files ---------------------------------------------------------------------------------------------------------------


def test_an_unfit_file_ends_the_start(models, root, stranger, server_files, tmp_path):
    certificate, key = server_files
    empty, folder, locked, garbage = (tmp_path / name for name in ("empty", "folder", "locked.key", "garbage"))
    empty.write_text("")
    folder.mkdir()
    garbage.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    openssl("pkey", "-in", key, "-aes128", "-passout", "pass:secret", "-out", locked)
    absent = tmp_path / "absent"
    cases = [
        (["--grpc-use-ssl=true"], "gRPC with TLS needs a server certificate: --grpc-server-cert=PATH"),
        (["--grpc-use-ssl=true", f"--grpc-server-cert={certificate}"], "gRPC with TLS needs a server key: --grpc-server-key=PATH"),
        (["--grpc-use-ssl-mutual=true", *flags(server_files)[1:]],
         "gRPC with TLS needs a root certificate of its clients: --grpc-root-cert=PATH"),
        (flags((absent, key)), f"server certificate '{absent}': .*No such file"),
        (flags((folder, key)), f"server certificate '{folder}': "),
        (flags((empty, key)), f"server certificate '{empty}': no start line"),
        (flags((garbage, key)), f"server certificate '{garbage}': "),
        (flags((key, key)), f"server certificate '{key}': no start line"),
        (flags((certificate, empty)), f"server key '{empty}': "),
        (flags((certificate, certificate)), f"server key '{certificate}': "),
        (flags((certificate, locked)), f"server key '{locked}': has a passphrase"),
        (flags((certificate, stranger.key)), f"server key '{stranger.key}': key values mismatch"),
        (flags((certificate, make_key(tmp_path / "rsa.key", "rsa"))), f"server key '{tmp_path}/rsa.key': "),
        (flags(server_files, empty), f"root certificate '{empty}': no start line"),
        (flags(server_files, garbage), f"root certificate '{garbage}': "),
    ]
    for arguments, text in cases:
        code, _, err = run_to_end(f"--model-repository={models}", "--http-port=0", "--grpc-port=0", "--allow-metrics=false",
                                  *arguments)
        assert code == 1, arguments
        assert re.search(text, err), (arguments, err)


def test_options_that_encrypt_nothing_warn(models, root, server_files):
    certificate, key = server_files
    with Server(models, flags=[f"--grpc-server-cert={certificate}", f"--grpc-server-key={key}"], grpc=True) as server:
        server.wait_log("gRPC is served without encryption: --grpc-use-ssl is false")
    with Server(models, flags=[*flags(server_files), f"--grpc-root-cert={root.certificate}"], grpc=True) as server:
        server.wait_log("clients of gRPC are not asked for a certificate: --grpc-use-ssl-mutual is false")
        assert_serves(server, root)


def replace(path, content):
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    os.replace(new, path)


def shown_certificate(served):
    return ssl.get_server_certificate(plain_address(served))


def test_files_are_read_again_when_they_change(models, root, stranger, tmp_path):
    certificate, key, roots = (tmp_path / name for name in ("server.pem", "server.key", "root.pem"))
    first, second = root.issue("first"), stranger.issue("second")
    certificate.write_bytes(first[0].read_bytes())
    key.write_bytes(first[1].read_bytes())
    roots.write_bytes(root.certificate.read_bytes())
    mine, theirs = root.issue("mine"), stranger.issue("theirs")
    with Server(models, flags=flags((certificate, key), roots), grpc=True) as server:
        old = grpc.secure_channel(server.grpc_url, credentials(root, mine))
        ask = old.unary_unary(LIVE)
        assert ask(b"", timeout=60)

        # A certificate without its key: the pair that was read before stays, and one line warns.
        replace(certificate, second[0].read_bytes())
        server.wait_log("TLS goes on with the files that were read before")
        assert f"server key '{key}': key values mismatch" in server.log()
        assert_serves(server, root, mine)

        # The rest of the change: new connections get the new certificate, and other clients are known.
        replace(key, second[1].read_bytes())
        server.wait_log("TLS: read server certificate")
        replace(roots, stranger.certificate.read_bytes())
        wait_for(lambda: server.log().count("TLS: read server certificate") == 2, 60, "the root was read again")
        assert_serves(server, stranger, theirs)
        with pytest.raises(grpc.RpcError):
            is_live(server.grpc_url, credentials(stranger, mine))
        assert ask(b"", timeout=60)    # a connection from before goes on
        old.close()

        # A file that is gone changes nothing, either, and warns once.
        os.remove(key)
        wait_for(lambda: server.log().count("TLS goes on with") == 2, 60, "the loss is logged")
        assert_serves(server, stranger, theirs)
    assert server.log().count("TLS goes on with") == 2


# ---- Clients that break it -----------------------------------------------------------------------------------------------


def connect(served):
    return socket.create_connection(plain_address(served), timeout=60)


def all_bytes(connection):
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            got += part
    return got


@pytest.mark.parametrize("text", [PREFACE, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 70000,
                                  bytes(range(256)) * 40, b"\x15\x03\x01\x00\x02\x01\x00" * 10000],
                         ids=["plaintext HTTP/2", "plaintext HTTP/1.1", "a long record", "garbage", "alerts"])
def test_what_is_not_tls_ends_the_connection(served, root, text):
    with connect(served) as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
        answer = all_bytes(connection)
        assert len(answer) < 100 and (not answer or answer[0] == 21), answer    # nothing, or an alert
    assert_serves(served, root)


def test_plaintext_clients_are_told_unavailable(served):
    with grpc.insecure_channel(served.grpc_url) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(LIVE)(b"", timeout=60)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


class Portions:
    """A client's handshake and requests, of which the bytes are sent one at a time."""

    def __init__(self, served, root):
        context, self.plain = tls_client(served, root)
        self.plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def send(self):
        for byte in self.outgoing.read():
            self.plain.sendall(bytes([byte]))

    def do(self, call, *arguments):
        while True:
            try:
                result = call(*arguments)
                self.send()
                return result
            except ssl.SSLWantReadError:
                self.send()
                got = self.plain.recv(65536)
                assert got
                self.incoming.write(got)


def test_a_handshake_in_single_bytes(served, root):
    portions = Portions(served, root)
    with portions.plain:
        portions.do(portions.tls.do_handshake)
        assert portions.tls.selected_alpn_protocol() == "h2"
        portions.do(portions.tls.write, PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\6\0\0\0\0\0pingpong")
        got = b""
        while b"pingpong" not in got:
            got += portions.do(portions.tls.read, 65536)


def test_handshakes_that_stall_hold_up_nobody(served, root):
    """test_conn.c tests how long a handshake may take, with a clock of its own."""
    before = len(os.listdir(f"/proc/{served.pid}/fd"))
    with contextlib.ExitStack() as stack:
        for number in range(200):
            connection = stack.enter_context(connect(served))
            connection.sendall((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300))[:number % 40])
        for _ in range(10):
            assert_serves(served, root)
    wait_for(lambda: len(os.listdir(f"/proc/{served.pid}/fd")) <= before, 60, "all descriptors are closed")


def test_a_stop_does_not_wait_for_handshakes(models, server_files):
    with Server(models, flags=flags(server_files), grpc=True) as server, connect(server) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00")
        server.signal(15)
        assert all_bytes(connection) == b""
        assert server.wait() == 0


@pytest.mark.parametrize("count", [10, 5000, 400_000])
def test_clients_that_vanish_in_a_transfer_leave_nothing(served, root, count):
    """Connections are cut in the middle of a request and of an answer; descriptors come back and others are served."""
    values = np.ones(4_000_000, dtype=np.float32)
    before = len(os.listdir(f"/proc/{served.pid}/fd"))

    class Relay(threading.Thread):
        """Relays a connection and cuts it after so many bytes in one direction."""

        def __init__(self, limits):
            super().__init__(daemon=True)
            self.limits = limits
            self.door = socket.create_server(("127.0.0.1", 0))
            self.url = f"localhost:{self.door.getsockname()[1]}"

        def run(self):
            near, _ = self.door.accept()
            self.door.close()
            far = connect(served)
            threads = [threading.Thread(target=self.pass_on, args=way, daemon=True)
                       for way in ((near, far, self.limits[0]), (far, near, self.limits[1]))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        @staticmethod
        def pass_on(source, target, limit):
            with contextlib.suppress(OSError):
                while limit > 0 and (got := source.recv(min(65536, limit))):
                    target.sendall(got)
                    limit -= len(got)
            for side in (source, target):
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
                side.close()

    for limits in ((count * 4, 1 << 40), (1 << 40, count * 4)):
        relay = Relay(limits)
        relay.start()
        options = [("grpc.enable_retries", 0)]
        with client.InferenceServerClient(relay.url, ssl=True, root_certificates=str(root.certificate),
                                          channel_args=options) as triton, pytest.raises(InferenceServerException):
            infer(triton, values)
        relay.join(60)
    assert_serves(served, root)
    wait_for(lambda: len(os.listdir(f"/proc/{served.pid}/fd")) <= before, 60, "all descriptors are closed")


def test_the_client_is_told_the_end(models, root, server_files):
    """A stop ends each connection with close_notify: Python's TLS would raise an error without it."""
    with Server(models, flags=flags(server_files), grpc=True) as server:
        context, plain = tls_client(server, root)
        with context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as tls:
            tls.sendall(PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\6\0\0\0\0\0pingpong")
            got = b""
            while b"pingpong" not in got:
                got += tls.recv(65536)
            server.signal(15)
            while tls.recv(65536):
                pass
        assert server.wait() == 0


def test_the_client_may_end_first(served, root):
    """close_notify of the client is answered with ours."""
    context, plain = tls_client(served, root)
    tls = context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False)
    tls.sendall(PREFACE + b"\0\0\0\4\0\0\0\0\0")
    wait_for(lambda: tls.recv(65536), 60, "the server's SETTINGS")
    with contextlib.suppress(ssl.SSLError):    # data that comes behind our end
        while True:
            tls.unwrap().close()
            break
    tls.close()
    assert_serves(served, root)


# ---- As grpc-core --------------------------------------------------------------------------------------------------------


@pytest.fixture(name="genuine", scope="module")
def _genuine(server_files):
    """A server of grpcio with the same certificate, to compare with."""
    certificate, key = [path.read_bytes() for path in server_files]
    made = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    port = made.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    made.start()
    yield type("Genuine", (), {"grpc_url": f"127.0.0.1:{port}"})
    made.stop(None)


@pytest.mark.parametrize("alpn", [None, ("http/1.1",), ("h2",), ("http/1.1", "h2"), ("grpc-exp", "h2")])
def test_the_protocol_is_negotiated_as_grpcio_does(served, genuine, root, alpn):
    """Without h2 the handshake succeeds, and the connection ends without a byte of HTTP/2."""
    for server in (genuine, served):
        context, plain = tls_client(server, root, alpn=alpn)
        with context.wrap_socket(plain, server_hostname="localhost") as tls:
            chosen = tls.selected_alpn_protocol()
            got = b""
            with contextlib.suppress(ConnectionResetError):
                got = tls.recv(9)
        assert (chosen, len(got)) == (("h2", 9) if alpn and "h2" in alpn else (None, 0)), server.grpc_url


def test_the_program_openssl_agrees(served, root):
    """Another view of the same: the versions and the ciphers that a scanner would find."""
    def ask(*arguments):
        host, port = plain_address(served)
        done = subprocess.run(["openssl", "s_client", "-connect", f"{host}:{port}", "-CAfile", root.certificate, "-alpn", "h2",
                               *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=60, check=False)
        return done.stdout + done.stderr
    assert "Verify return code: 0 (ok)" in ask("-tls1_3")
    assert "ALPN protocol: h2" in ask("-tls1_2")
    assert "Cipher is (NONE)" in ask("-tls1_2", "-cipher", "AES128-SHA:ECDHE-ECDSA-AES128-SHA")
