# SPDX-License-Identifier: Apache-2.0
"""A collector of OTLP over HTTP for tests. It decodes what comes by the official messages, and answers as the test says.

    with otlp_collector.Collector() as collector:
        with Server(root, flags=collector.flags()) as server:
            …
        spans = collector.wait(lambda spans: len(spans) == 3)
"""

import base64
import gzip
import http.server
import json
import socket
import ssl
import threading

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import server as servers

WITHIN_S = 60
# What a collector answers to a batch: status, headers, body.
FINE = (200, {"Content-Type": "application/x-protobuf"}, b"")
SLOW = object()
REJECTED = 3
REJECTS = (200, {"Content-Type": "application/json"}, b'{"partialSuccess":{"rejectedSpans":"%d"}}' % REJECTED)
BABBLES = (200, {}, b"\x0a\xff\xff")    # it has taken the batch nevertheless
WHIMS = [SLOW, REJECTS, BABBLES, (503, {}, b""), (429, {"Retry-After": "0"}, b""), (400, {}, b"no"), None, b"rubbish\r\n\r\n",
         b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort"]


def plain(value):
    """An AnyValue as Python has it."""
    kind = value.WhichOneof("value")
    return [plain(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind) if kind else None


def attributes(pairs):
    return {pair.key: plain(pair.value) for pair in pairs}


class Span:
    """A span, with ids in hexadecimal and plain attributes."""

    def __init__(self, span, resource, scope):
        self.resource, self.scope = resource, scope
        self.name, self.kind, self.flags, self.state = span.name, span.kind, span.flags, span.trace_state
        self.trace_id, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.start_ns, self.end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        self.attributes = attributes(span.attributes)
        self.events = [(event.name, event.time_unix_nano, attributes(event.attributes)) for event in span.events]
        self.links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
        self.status = (span.status.code, span.status.message)

    def __repr__(self):
        return f"<{self.name} {self.id} in {self.parent or '-'} {self.attributes} {[name for name, _, _ in self.events]}>"


def decode(body, content_type):
    """The spans of a request. Ids are hexadecimal in OTLP's JSON, and base64 in that of protobuf."""
    request = ExportTraceServiceRequest()
    if content_type == "application/json":
        document = json.loads(body)
        for resource in document["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for holder in [span, *span.get("links", [])]:
                        for name in ("traceId", "spanId", "parentSpanId"):
                            if name in holder:
                                holder[name] = base64.b64encode(bytes.fromhex(holder[name])).decode()
        json_format.ParseDict(document, request)
    else:
        assert content_type == "application/x-protobuf", content_type
        request.ParseFromString(body)
    return [Span(span, attributes(resource.resource.attributes), (scope.scope.name, scope.scope.version))
            for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


class Collector:
    """Listens on a port of its own. `answers` are given in turn, the last one again and again; an answer is FINE's kind of tuple, bytes that are
    sent as they are, None (the connection is closed), or an Event for which the answer waits.

    tls: the certificate and the key with which it speaks HTTPS, as localhost. client_root: of the certificates that clients must have

    `whims`, random numbers, choose what it does with each batch, in place of `answers`: it takes half of them, and for the rest it is slow, rejects
    spans, refuses, lies, or closes the connection."""

    def __init__(self, answers=(FINE,), tls=None, client_root=None, whims=None):
        self.requests, self.spans, self._changed = [], [], threading.Condition()
        self._whims, self.n_taken, self.n_rejected = whims, 0, 0
        self._answers = list(answers)
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):    # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector._reply(self, collector._take(self.path, dict(self.headers), body))

            def log_message(self, *_):
                pass

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):    # a client that has gone
                pass

        self._listener = Listener(("127.0.0.1", 0), Handler)
        place = "http://127.0.0.1"
        if tls:
            place = "https://localhost"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            if client_root:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(client_root)
            self._listener.socket = context.wrap_socket(self._listener.socket, server_side=True)
        self.url = f"{place}:{self._listener.server_address[1]}/v1/traces"

    def __enter__(self):
        threading.Thread(target=self._listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown()
        self._listener.server_close()

    def flags(self, *more, rate=1, level="TIMESTAMPS"):
        """The flags of a server that sends its traces here, soon after each request."""
        return [f"--trace-config={one}" for one in ("mode=opentelemetry", f"opentelemetry,url={self.url}", f"rate={rate}", f"level={level}",
                                                    "opentelemetry,bsp_schedule_delay=20", *more)]

    def _choose(self):
        if not self._whims:
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return FINE if self._whims.random() < 0.5 else self._whims.choice(WHIMS)

    def _take(self, path, headers, body):
        with self._changed:
            answer = self._choose()
            self.requests.append((path, {name.lower(): value for name, value in headers.items()}, body))
            spans = decode(body, headers["Content-Type"])
            rejected = min(REJECTED, len(spans)) if answer is REJECTS else 0
            if answer in (FINE, REJECTS, BABBLES):
                self.n_taken += len(spans) - rejected
                self.n_rejected += rejected
            if answer is FINE:
                self.spans += spans
            self._changed.notify_all()
        return answer

    @staticmethod
    def _reply(handler, answer):
        if isinstance(answer, threading.Event):
            answer.wait(WITHIN_S)
            answer = FINE
        if answer is SLOW:    # nothing wakes it
            threading.Event().wait(0.3)
            answer = (503, {}, b"")
        if answer is None:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
        elif isinstance(answer, bytes):
            handler.close_connection = True
            handler.wfile.write(answer)
        else:
            status, headers, body = answer
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

    def wait(self, is_complete, what="the spans"):
        """The spans that have come, once the condition holds for them."""
        def complete():
            with self._changed:
                return list(self.spans) if is_complete(self.spans) else None

        return servers.wait_for(complete, WITHIN_S, what)

    def wait_requests(self, n):
        """The requests that have come, once there are so many."""
        return servers.wait_for(lambda: list(self.requests) if len(self.requests) >= n else None, WITHIN_S, f"{n} requests to the collector")
