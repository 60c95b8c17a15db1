# SPDX-License-Identifier: Apache-2.0
"""A backend that is faster than its client's reads: memory stays flat, whatever is asked for.

tests/plugins/torrent sends its responses as fast as the server takes them. The client speaks HTTP/2 by hand, so that
it gives windows, and reads, when the test says so.
"""

import socket
import struct

import pytest
from tritonclient.grpc import service_pb2

import repository
from server import BUILD, SANITIZED, Server, wait_for

pytestmark = pytest.mark.conch_only("is about our limits of unsent responses")

BYTES = 602_112
RESPONSES = 300 if SANITIZED else 10_000
HELD = 64 << 20          # responses of a request that wait for their reader
SLACK = 48 << 20         # threads' pools, buffers, the responses that are being made
WINDOW = 2**31 - 1
PREFIX = 5

CONFIG = ('backend: "torrent"\nmodel_transaction_policy { decoupled: true }\n' + repository.tensor("input", "IN", "INT32", [2])
          + repository.tensor("output", "OUT", "UINT8", [-1]))

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def field(name, value):
    """A header that is neither indexed nor compressed."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class Reader:
    """One ModelStreamInfer, whose answer is read by read_to_end() only. It gives no windows but the first ones, of 65 535 bytes."""

    def __init__(self, url, responses):
        host, port = url.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.settimeout(120)
        request = service_pb2.ModelInferRequest(model_name="torrent")
        request.inputs.add(name="IN", datatype="INT32", shape=[2])
        request.raw_input_contents.append(struct.pack("<ii", responses, BYTES))
        message = request.SerializeToString()
        head = b"".join(field(name, value) for name, value in [
            (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"test"),
            (b":path", b"/inference.GRPCInferenceService/ModelStreamInfer"), (b"content-type", b"application/grpc")])
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(HEADERS, 4, 1, head)
                            + frame(DATA, 1, 1, struct.pack(">BI", 0, len(message)) + message))

    def give_windows(self):
        first = 65535
        self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW - first))
                            + frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", WINDOW - first)))

    def read_to_end(self):
        """Returns the bytes of the answer's messages, and what ended the stream: HEADERS with the status, or a reset."""
        n_bytes, unseen = 0, 0
        got = self.socket.makefile("rb", buffering=1 << 20)
        while True:
            head = got.read(9)
            if len(head) < 9:
                return n_bytes, None
            length = struct.unpack(">I", b"\0" + head[:3])[0]
            got.read(length)
            if head[3] == DATA:
                n_bytes += length
                unseen += length
                if unseen > WINDOW // 4:
                    update = struct.pack(">I", unseen)
                    self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, update) + frame(WINDOW_UPDATE, 0, 1, update))
                    unseen = 0
            elif head[3] == RST_STREAM or head[3] == HEADERS and head[4] & 1:
                return n_bytes, head[3]

    def close(self):
        self.socket.close()


def memory(server, line):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return next(int(text.split()[1]) << 10 for text in status if text.startswith(line))


def await_flat(server, least):
    """Waits until the server has so much memory, and no more for a while."""
    seen = []

    def is_flat():
        seen.append(memory(server, "VmRSS:"))
        return seen[-1] >= least and len(seen) > 20 and seen[-1] - seen[-20] < 1 << 20

    wait_for(is_flat, 60, "the backend waits for its reader")


@pytest.fixture
def torrent(tmp_path):
    repository.write_model(tmp_path, "torrent", CONFIG)
    return tmp_path


def serve(models, *flags):
    return Server(models, flags=[f"--backend-directory={BUILD}/tests/backends", *flags], grpc=True)


def test_memory_is_flat_while_the_reader_sleeps(torrent):
    with serve(torrent) as server:
        before = memory(server, "VmRSS:")
        reader = Reader(server.grpc_url, RESPONSES)
        await_flat(server, before + HELD // 2)
        assert memory(server, "VmHWM:") - before < (HELD + SLACK) * (2 if SANITIZED else 1)
        reader.give_windows()
        n_bytes, end = reader.read_to_end()
        reader.close()
        assert end == HEADERS
        assert n_bytes > RESPONSES * (BYTES + PREFIX)
        assert (n_bytes - RESPONSES * BYTES) % RESPONSES == 0    # each message has the same head
        assert memory(server, "VmHWM:") - before < (HELD + SLACK) * (2 if SANITIZED else 1)


def test_a_reader_that_sleeps_for_too_long_is_given_up(torrent):
    with serve(torrent, "--grpc-stall-timeout-secs=1") as server:
        before = memory(server, "VmRSS:")
        reader = Reader(server.grpc_url, RESPONSES)
        wait_for(lambda: memory(server, "VmHWM:") >= before + HELD // 2, 60, "the backend has waited for its reader, or waits")
        n_bytes, _ = reader.read_to_end()
        reader.close()
        assert n_bytes < 200_000
        other = Reader(server.grpc_url, 3)    # the instance is free again
        other.give_windows()
        n_bytes, end = other.read_to_end()
        other.close()
        assert (end, n_bytes // BYTES) == (HEADERS, 3)
