# SPDX-License-Identifier: Apache-2.0
"""How often event loops write: all events that come together in a turn of a loop leave in one write, over HTTP and gRPC.

tests/fault/writes.c records the writes, and holds the loop back while events gather, so that they come together for certain.
"""

import collections
import http.client
import json
import mmap
import pathlib
import shutil
import struct
import sys

import grpc
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import preload  # noqa: E402
import repository  # noqa: E402
from server import BUILD, Server, wait_for  # noqa: E402
from tritonclient.grpc import service_pb2 as pb  # noqa: E402

HEAD = struct.Struct("=4I")    # struct record of writes.c
WRITE = struct.Struct("=IIqq")
MOST_WRITES = 1 << 16
GATHERED = 50
REFUSED = "script: "    # what the backend prints when all is sent, and it tries to send one more

Write = collections.namedtuple("Write", "turn fd asked sent")


class Recorded(Server):
    """A server with one loop, whose writes are recorded."""

    def __init__(self, models, folder, **more):
        file = folder / "writes"
        with file.open("wb") as made:
            made.truncate(HEAD.size + MOST_WRITES * WRITE.size)
        with file.open("r+b") as opened:
            self.record = mmap.mmap(opened.fileno(), 0)
        super().__init__(models, env=preload.environment("writes", WRITES_FILE=str(file)), flags=["--http-thread-count=1"], **more)

    def hold(self, on):
        self.record[:4] = struct.pack("=I", on)

    def n_held(self):
        return HEAD.unpack_from(self.record)[1]

    def n_writes(self):
        return HEAD.unpack_from(self.record)[2]

    def _write(self, at):
        """That record, once it is whole: the client may have what was written before it is recorded."""
        def whole():
            write = Write(*WRITE.unpack_from(self.record, HEAD.size + at * WRITE.size))
            return write if write.asked else None

        return wait_for(whole, 60, "the write is recorded")

    def writes(self, since):
        """The writes from that number on, one at least."""
        wait_for(lambda: self.n_writes() > since, 60, "something was written")
        assert self.n_writes() <= MOST_WRITES
        return [self._write(at) for at in range(since, self.n_writes())]


def write_backend(root, name, outputs, inputs):
    text = f'backend: "{name}"\nmodel_transaction_policy {{ decoupled: true }}\n'
    text += repository.tensor("input", "IN", "INT32", inputs) + repository.tensor("output", "OUT", *outputs)
    folder = repository.write_model(root, name, text + "instance_group [ { count: 1 kind: KIND_CPU } ]\n")
    shutil.copy(BUILD / f"tests/backends/{name}/libtriton_{name}.so", folder)
    return folder


@pytest.fixture(name="server", scope="module")
def _server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_backend(root, "script", ("INT32", [1]), [1])
    write_backend(root, "torrent", ("UINT8", [-1]), [2])
    with Recorded(root, tmp_path_factory.mktemp("record"), grpc=True) as server:
        server.root = root
        yield server


def events_by_http(server, model, values, **parameters):
    connection = http.client.HTTPConnection(server.url, timeout=60)
    connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps({"IN": values, **parameters}))
    yield
    answer = connection.getresponse()
    assert answer.status == 200
    body = answer.read().decode()
    connection.close()
    yield [json.loads(event.removeprefix("data: "))["OUT"] for event in body.split("\n\n") if event]


def events_by_grpc(server, model, values, **parameters):
    asked = pb.ModelInferRequest(model_name=model, raw_input_contents=[struct.pack(f"<{len(values)}i", *values)])
    asked.inputs.add(name="IN", datatype="INT32", shape=[len(values)])
    for name, value in parameters.items():
        asked.parameters[name].string_param = value
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer", pb.ModelInferRequest.SerializeToString,
                                     pb.ModelStreamInferResponse.FromString)
        answers = call(iter([asked]), timeout=60)
        yield
        contents = [answer.infer_response.raw_output_contents for answer in answers]
    if model == "script":
        yield [struct.unpack("<i", content[0])[0] for content in contents if content]
    else:
        yield [list(content[0]) for content in contents if content]


PROTOCOLS = pytest.mark.parametrize("ask", [events_by_http, events_by_grpc], ids=["generate_stream", "ModelStreamInfer"])


@PROTOCOLS
def test_all_events_of_a_turn_leave_in_one_write(server, ask):
    hold, reached = server.root / "script/hold", server.root / "script/hold.reached"
    hold.touch()
    said = server.err.text().count(REFUSED)
    client = ask(server, "script", [1], do="nh" + "f" * (GATHERED - 1) + "lfxd")
    next(client)
    wait_for(reached.exists, 60, "the backend has the request")
    server.hold(1)
    before = server.n_writes()
    hold.unlink()
    wait_for(lambda: server.err.text().count(REFUSED) > said and server.n_held(), 60, "all events are sent, and the loop is held")
    assert server.n_writes() == before, "nothing left while the loop was held"
    server.hold(0)
    assert next(client) == list(range(1000, 1000 + GATHERED))
    reached.unlink()
    first, *others = server.writes(before)
    assert first.sent == first.asked > GATHERED * 4
    assert not [other for other in others if (other.turn, other.fd) == (first.turn, first.fd)]
    assert sum(other.sent for other in others if other.fd == first.fd) < first.sent / 4, "the answer to a ping, the end of a stream"


@PROTOCOLS
def test_a_torrent_of_events_is_one_write_a_turn(server, ask):
    """However they come together. Another write follows in a turn only where one call takes no more: after 64 KiB or more, or
    after what the socket's buffer has cut short."""
    before = server.n_writes()
    client = ask(server, "torrent", [10000, 8])
    next(client)
    assert len(next(client)) == 10000
    turns = collections.defaultdict(list)
    for write in server.writes(before):
        turns[write.turn, write.fd].append(write)
    for writes in turns.values():
        assert all(write.sent >= 64 << 10 or write.sent < write.asked for write in writes[:-1]), writes
