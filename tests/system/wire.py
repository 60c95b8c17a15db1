# SPDX-License-Identifier: Apache-2.0
"""HTTP by hand: for requests that a well-behaved client would not send, and for tests of every byte of the answer."""

import json
import select
import socket

from server import wait_for
from tls_socket import TlsSocket


class Response:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers  # names in lower case
        self.body = body

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The message of an error answer, whose body is one object with that single member."""
        document = self.json()
        assert list(document) == ["error"], document
        return document["error"]

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:500]!r}"


def is_readable(sock, within_s=0):
    """Whether bytes or the end come in time. (select() knows no descriptor above 1023.)"""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


class Connection:
    """One TCP connection, with TLS if server.tls is a context; bytes behind a response are kept for the next one."""

    def __init__(self, server, timeout_s=60):
        self.socket = socket.create_connection((server.address, server.port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls := getattr(server, "tls", None):
            self.socket = TlsSocket(self.socket, tls, server.address)
        self.host = f"{server.address}:{server.port}"
        self._buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def _more(self):
        chunk = self.socket.recv(1 << 20)
        if not chunk:
            raise EOFError(f"connection closed after {self._buffer[:300]!r}")
        self._buffer += chunk

    def _until(self, mark):
        while mark not in self._buffer:
            self._more()
        taken, _, self._buffer = self._buffer.partition(mark)
        return taken

    def _exactly(self, n):
        parts = [self._buffer[:n]]
        missing = n - len(parts[0])
        self._buffer = self._buffer[n:]
        while missing:
            chunk = self.socket.recv(min(missing, 1 << 20))
            if not chunk:
                raise EOFError(f"connection closed, {missing} of {n} bytes missing")
            parts.append(chunk)
            missing -= len(chunk)
        return b"".join(parts)

    def head(self):
        """(status, headers) of the next response or interim response; its body is not read yet."""
        lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1", lines[0]
        headers = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            assert name.lower() not in headers, f"header {name} twice: {lines}"
            headers[name.lower()] = value.strip()
        return int(status), headers

    def _chunks(self):
        while size := int(self._until(b"\r\n"), 16):
            yield self._exactly(size)
            assert self._exactly(2) == b"\r\n"
        assert self._until(b"\r\n") == b"", "trailers"

    def response(self):
        status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            return Response(status, headers, b"".join(self._chunks()))
        return Response(status, headers, self._exactly(int(headers.get("content-length", 0))))

    def taken(self):
        """Has the server read everything that was sent? Its kernel then holds no bytes for it."""
        here = f"{self.socket.getsockname()[1]:04X}"
        there = f"{self.socket.getpeername()[1]:04X}"
        with open("/proc/net/tcp", encoding="ascii") as table:
            for line in table:
                fields = line.split()
                if fields[1].endswith(":" + there) and fields[2].endswith(":" + here):
                    return fields[4].endswith(":00000000")
        return False

    def closed(self):
        """True when the other side has closed, with nothing more to read; waits for it."""
        try:
            return self._buffer == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def request(self, method, path, body=None, headers=()):
        """Sends one request and returns the response."""
        self.send(request_bytes(method, path, body, headers, self.host))
        return self.response()


def request_bytes(method, path, body=None, headers=(), host="localhost"):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in dict(headers).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


def ask(server, method, path, body=None, headers=()):
    """One request on a connection of its own. A body that is not bytes is sent as JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    with Connection(server) as connection:
        return connection.request(method, path, body, headers)


def infer(server, model, document, tail=b"", headers=()):
    """An inference request; with a tail it is in the binary form. document: an object, or the bytes to send."""
    return ask(server, *infer_request(model, document, tail, headers))


def infer_request(model, document, tail=b"", headers=()):
    head = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = dict(headers)
    if tail:
        headers["Inference-Header-Content-Length"] = len(head)
    return "POST", f"/v2/models/{model}/infer", head + tail, headers


def leave_run(server, model, document, tail=b"", after_s=0.2):
    """Asks for a long run, as infer() does, and closes the connection when the server has computed for so long."""
    with Connection(server) as gone:
        before_s = server.cpu_s()
        gone.send(request_bytes(*infer_request(model, document, tail)))
        wait_for(lambda: server.cpu_s() - before_s > after_s, 60, f"the model {model} runs")


def read_reasons(server):
    """{model: why it does not serve, or ""}, as the index has it."""
    rows = ask(server, "POST", "/v2/repository/index", b"{}").json()
    return {row["name"]: row.get("reason", "") for row in rows}


def given(name, datatype, shape, data, **more):
    """One input with its values as JSON."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": data, **more}
