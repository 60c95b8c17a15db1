# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 frame by frame over a socket: for tests of what no well-behaved client does, or counts. Heads are sent without
HPACK's tables."""

import collections
import contextlib
import socket
import struct

from wire import is_readable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 7, 8, 11
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE = 1, 4

SERVER_LIVE = "/inference.GRPCInferenceService/ServerLive"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
INFER = "/inference.GRPCInferenceService/ModelInfer"

Frame = collections.namedtuple("Frame", "kind flags stream payload")


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def setting(number, value):
    return struct.pack(">HI", number, value)


def window_update(stream, count):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", count))


def reset(stream, code=CANCEL):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def text(value):
    value = value.encode()
    assert len(value) < 127
    return bytes([len(value)]) + value


def head(path):
    """The block of a call's HEADERS."""
    return (b"\x83\x86" + b"\x04" + text(path) + b"\x01" + text("test") + b"\x00" + text("te") + text("trailers")
            + b"\x0f\x10" + text("application/grpc"))


def begin(stream, path=STREAM_INFER, flags=END_HEADERS):
    return frame(HEADERS, flags, stream, head(path))


def message(content=b""):
    return struct.pack(">BI", 0, len(content)) + content


def call(stream, path=SERVER_LIVE, content=b""):
    """The frames of a call with one message."""
    return begin(stream, path) + frame(DATA, END_STREAM, stream, message(content))


def address_of(url):
    host, port = url.rsplit(":", 1)
    return host, int(port)


NAMES = [b"grpc-status\x01", b"\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x01"]  # plain, and by Huffman's code


def status_of(frames):
    """The status of a call, of one digit; None: it has none, or a longer one."""
    for got in frames:
        for name in NAMES:
            if got.kind == HEADERS and name in got.payload:
                return int(got.payload.split(name)[1][:1])
    return None


class Connection:
    """A client's side. The server must not compress heads by a table. Acknowledges the server's SETTINGS, and its PINGs unless told otherwise."""

    def __init__(self, url, settings=b"", acks_pings=True):
        self.socket = socket.create_connection(address_of(url), timeout=60)
        self.acks_pings = acks_pings
        self._received = b""
        self.next_stream = 1
        self.send(PREFACE + frame(SETTINGS, payload=setting(HEADER_TABLE_SIZE, 0) + settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, frames):
        """Sends the frames; a server that has closed the connection does not read them."""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            self.socket.sendall(frames)

    def take(self):
        """Returns the next frame; None: the server has closed the connection."""
        while (got := self._next()) is None:
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not more:
                return None
            self._received += more
        if got.kind == SETTINGS and not got.flags & ACK:
            self.send(frame(SETTINGS, ACK))
        if got.kind == PING and not got.flags & ACK and self.acks_pings:
            self.send(frame(PING, ACK, payload=got.payload))
        return got

    def _next(self):
        length = int.from_bytes(self._received[:3], "big")
        if len(self._received) < 9 + length:
            return None
        kind, flags, stream = struct.unpack(">BBI", self._received[3:9])
        payload = self._received[9:9 + length]
        self._received = self._received[9 + length:]
        return Frame(kind, flags, stream, payload)

    def take_all(self):
        """Returns the frames up to the end of the connection."""
        return list(iter(self.take, None))

    def take_ready(self):
        """Returns the frames that have come."""
        got = []
        while self._next_is_ready():
            one = self.take()
            if one is None:
                break
            got.append(one)
        return got

    def _next_is_ready(self):
        length = int.from_bytes(self._received[:3], "big")
        return len(self._received) >= 9 + length or is_readable(self.socket)

    def await_frame(self, kind, ack=False, stream=None):
        """Returns the next frame of that kind; the connection must not end before."""
        for got in iter(self.take, None):
            if got.kind == kind and bool(got.flags & ACK and kind in (PING, SETTINGS)) == ack and stream in (None, got.stream):
                return got
        raise AssertionError(f"the connection has ended without a frame of kind {kind}")

    def ask(self, path=SERVER_LIVE, content=b""):
        """Makes a call, and returns its frames up to the end of its stream."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.send(call(stream, path, content))
        frames = []
        for got in iter(self.take, None):
            if got.stream == stream:
                frames.append(got)
                if got.kind == RST_STREAM or got.flags & END_STREAM and got.kind in (DATA, HEADERS):
                    return frames
        raise AssertionError("the connection has ended without an answer")

    def ping(self, times=1):
        self.send(frame(PING, payload=b"pingpong") * times)


def goaway(got):
    """The code, the last stream and the text of a GOAWAY."""
    last, code = struct.unpack(">II", got.payload[:8])
    return code, last, got.payload[8:]
