# SPDX-License-Identifier: Apache-2.0
"""Options that bound what clients of gRPC may do, through the program: each test fails if its option has no effect."""

import os
import signal
import struct
import threading

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

import http2_frames as h2
import preload
import repository
from server import Server, wait_for

pytestmark = pytest.mark.conch_only("the options are ours, or younger than 2.51")

STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
WITHIN_S = 60
SQUARE = ('backend: "square"\nmodel_transaction_policy { decoupled: true }\n' + repository.tensor("input", "IN", "INT32", [1])
          + repository.tensor("output", "OUT", "INT32", [1]) + "instance_group [ { count: 1 kind: KIND_CPU } ]\n")


@pytest.fixture(name="models")
def models_(tmp_path):
    repository.write_identity(tmp_path, "echo", [("FP32", [-1])])
    repository.write_model(tmp_path, "square", SQUARE)
    return tmp_path


def serve(models, *flags, **more):
    return Server(models, flags=[*flags, "--model-control-mode=explicit", "--load-model=*"], grpc=True, **more)


def floats(values):
    made = client.InferInput("INPUT0", [len(values)], "FP32")
    made.set_data_from_numpy(np.asarray(values, np.float32))
    return [made]


# ---- Responses that wait for their client --------------------------------------------------------


def ask_square(n_responses):
    made = pb.ModelInferRequest(model_name="square", raw_input_contents=[struct.pack("<i", n_responses)])
    made.inputs.add(name="IN", datatype="INT32", shape=[1])
    return made


def count_reported(server):
    """How many requests have come how far: the responses that the backend has reported, by their index. It reports a response
    before it sends it."""
    with client.InferenceServerClient(server.grpc_url) as asking:
        stats = asking.get_inference_statistics("square").model_stats[0].response_stats
    return {int(index): line.success.count for index, line in stats.items() if line.success.count}


def read_stream(connection, stream):
    """The outputs of a stream's answers, up to its end. Gives no windows."""
    content = b""
    for got in iter(connection.take, None):
        if got.stream == stream and got.kind == h2.DATA:
            content += got.payload
        if got.stream == stream and got.kind in (h2.HEADERS, h2.RST_STREAM) and (got.kind == h2.RST_STREAM or got.flags & h2.END_STREAM):
            break
    values = []
    while content:
        length = struct.unpack(">BI", content[:5])[1]
        message = pb.ModelStreamInferResponse.FromString(content[5:5 + length])
        values.append(struct.unpack("<i", message.infer_response.raw_output_contents[0])[0])
        content = content[5 + length:]
    return values


def begin_square(connection, stream, n_responses):
    """A stream with one request, whose client has closed its side."""
    connection.send(h2.begin(stream) + h2.frame(h2.DATA, h2.END_STREAM, stream, h2.message(ask_square(n_responses).SerializeToString())))


@pytest.mark.parametrize("size", [1, 4, 50])
def test_a_full_response_pool_holds_back_its_own_request_only(models, size):
    """The client of the first stream gives no window. The backend makes one response more than there is room for, and waits.
    Others on the same connection, on others, of the same model are answered meanwhile."""
    count, others = 500, 20
    with serve(models, f"--grpc-max-response-pool-size={size}") as server, \
            h2.Connection(server.grpc_url, settings=h2.setting(h2.INITIAL_WINDOW_SIZE, 0)) as connection:
        begin_square(connection, 1, count)
        wait_for(lambda: size in count_reported(server), WITHIN_S, f"the backend has made {size} responses and one more")
        begin_square(connection, 3, count // 5)
        connection.send(h2.window_update(3, 1 << 20))
        assert read_stream(connection, 3) == [count // 5] * (count // 5)
        with grpc.insecure_channel(server.grpc_url) as channel:
            call = channel.stream_stream(STREAM, pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString)
            assert len(list(call(iter([ask_square(count)] * others), timeout=WITHIN_S))) == count * others
        with client.InferenceServerClient(server.grpc_url) as asking:
            assert asking.infer("echo", floats([1])).as_numpy("OUTPUT0").tolist() == [1]
        reported = count_reported(server)
        assert [reported[index] for index in (0, size, size + 1, count - 1)] == [others + 2, others + 2, others + 1, others]
        connection.send(h2.window_update(0, 1 << 20) + h2.window_update(1, 1 << 20))
        assert read_stream(connection, 1) == [count] * count
        assert count_reported(server)[count - 1] == others + 1


def test_a_reader_that_leaves_frees_its_backend(models):
    """The thread that waits for the client ends, so that the model can be unloaded, and the server ends."""
    with serve(models, "--grpc-max-response-pool-size=2") as server, client.InferenceServerClient(server.grpc_url) as asking:
        with h2.Connection(server.grpc_url, settings=h2.setting(h2.INITIAL_WINDOW_SIZE, 0)) as connection:
            begin_square(connection, 1, 1000)
            wait_for(lambda: 2 in count_reported(server), WITHIN_S, "the backend waits")
        asking.unload_model("square")
        wait_for(lambda: [(model.state, model.reason) for model in asking.get_model_repository_index().models if model.name == "square"]
                 == [("UNAVAILABLE", "unloaded")], WITHIN_S, "the model is unloaded")


def test_a_stop_gives_up_a_reader_that_sleeps(models):
    """… when it has not read for the stall time; it need not wait for the time that a stop may take."""
    with serve(models, "--grpc-max-response-pool-size=2", "--grpc-stall-timeout-secs=1", "--exit-timeout-secs=3600") as server:
        with h2.Connection(server.grpc_url, settings=h2.setting(h2.INITIAL_WINDOW_SIZE, 0)) as connection:
            begin_square(connection, 1, 1000)
            wait_for(lambda: 2 in count_reported(server), WITHIN_S, "the backend waits")
            server.signal(signal.SIGTERM)
            assert server.wait() == 0


def test_bytes_of_responses_hold_back_their_request(models):
    """The first client gives no window. While its backend waits, the same request of another client is answered, again and
    again."""
    count, others = 500, 5
    with serve(models, "--grpc-max-response-bytes=4096") as server, \
            h2.Connection(server.grpc_url, settings=h2.setting(h2.INITIAL_WINDOW_SIZE, 0)) as connection:
        begin_square(connection, 1, count)
        wait_for(lambda: 1 in count_reported(server), WITHIN_S, "the backend has made two responses")
        with grpc.insecure_channel(server.grpc_url) as channel:
            call = channel.stream_stream(STREAM, pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString)
            for _ in range(others):
                assert len(list(call(iter([ask_square(count)]), timeout=WITHIN_S))) == count
        reported = count_reported(server)
        assert (reported[1], reported[count - 1]) == (others + 1, others)
        connection.send(h2.window_update(0, 1 << 20) + h2.window_update(1, 1 << 20))
        assert read_stream(connection, 1) == [count] * count


# ---- Cancels and silence -------------------------------------------------------------------------


@pytest.mark.parametrize("flags, ends", [(["--grpc-max-resets-per-sec=5"], True), ([], False)], ids=["5", "default"])
def test_a_connection_cancels_no_more_calls_than_the_limit(models, flags, ends):
    """Twice the limit may come at once."""
    with serve(models, *flags) as server, h2.Connection(server.grpc_url) as connection:
        connection.send(b"".join(h2.begin(i) + h2.reset(i) for i in range(1, 401, 2)))
        if ends:
            code, _, text = h2.goaway(connection.await_frame(h2.GOAWAY))
            assert (code, b"too many streams were reset" in text) == (h2.ENHANCE_YOUR_CALM, True)
        else:
            connection.next_stream = 401
            assert h2.status_of(connection.ask()) == 0


def test_a_silent_connection_is_told_the_end(models):
    with serve(models, "--grpc-idle-timeout-secs=1") as server, h2.Connection(server.grpc_url) as connection:
        assert h2.status_of(connection.ask()) == 0
        assert h2.goaway(connection.await_frame(h2.GOAWAY))[0] == h2.NO_ERROR
        assert not [got for got in connection.take_all() if got.kind == h2.HEADERS]    # the connection is closed


# ---- Streams of a connection ---------------------------------------------------------------------

MAX_CONCURRENT_STREAMS = 3    # the number of the setting


@pytest.mark.parametrize("limit", [1, 3])
def test_a_connection_has_no_more_streams_than_the_limit(models, limit):
    """The server says the limit. A client that goes beyond it has broken the protocol."""
    with serve(models, f"--grpc-max-streams={limit}") as server:
        for beyond in (False, True):
            with h2.Connection(server.grpc_url) as connection:
                settings = connection.await_frame(h2.SETTINGS).payload
                settings = dict(struct.unpack(">HI", settings[at:at + 6]) for at in range(0, len(settings), 6))
                assert settings[MAX_CONCURRENT_STREAMS] == limit
                for i in range(limit + beyond):
                    connection.send(h2.begin(2 * i + 1))
                if beyond:
                    code, _, text = h2.goaway(connection.await_frame(h2.GOAWAY))
                    assert (code, b"max concurrent streams exceeded" in text) == (h2.PROTOCOL_ERROR, True)
                    continue
                for i in range(limit):
                    content = h2.message(ask_square(2).SerializeToString())
                    connection.send(h2.frame(h2.DATA, h2.END_STREAM, 2 * i + 1, content))
                    assert read_stream(connection, 2 * i + 1) == [2, 2]
                connection.next_stream = 2 * limit + 1
                assert h2.status_of(connection.ask()) == 0    # there is room again


def test_a_client_waits_for_a_stream(models):
    """A real client does not go beyond the limit: its third call begins when one of two streams has ended."""
    over = threading.Event()

    def keep_open():
        yield ask_square(1)
        over.wait(WITHIN_S)

    with serve(models, "--grpc-max-streams=2") as server, grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.stream_stream(STREAM, pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString)
        streams = [call(keep_open()) for _ in range(2)]
        for stream in streams:
            next(stream)
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive", pb.ServerLiveRequest.SerializeToString,
                                   pb.ServerLiveResponse.FromString)
        with pytest.raises(grpc.RpcError) as late:
            live(pb.ServerLiveRequest(), timeout=0.5)
        assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        third = live.future(pb.ServerLiveRequest(), timeout=WITHIN_S)
        streams[0].cancel()
        assert third.result().live
        streams[1].cancel()
        over.set()


# ---- Heads and messages --------------------------------------------------------------------------


def live_with(server, n_bytes):
    """How a call with so many bytes of metadata ends."""
    with grpc.insecure_channel(server.grpc_url) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive", pb.ServerLiveRequest.SerializeToString,
                                   pb.ServerLiveResponse.FromString)
        try:
            return live.with_call(pb.ServerLiveRequest(), metadata=[("x-long", "x" * n_bytes)], timeout=WITHIN_S)[1].code().name
        except grpc.RpcError as error:
            return error.details()


TOO_LARGE = "Received http2 header with status: 431"


@pytest.mark.parametrize("flags, fits, is_too_large", [(["--grpc-max-header-size=2048"], 1000, 2048), ([], 15000, 16384),
                                                       (["--grpc-max-header-size=65536"], 60000, 65536)])
def test_a_head_has_no_more_bytes_than_the_limit(models, flags, fits, is_too_large):
    with serve(models, *flags) as server:
        assert [live_with(server, n_bytes) for n_bytes in (fits, is_too_large, fits)] == ["OK", TOO_LARGE, "OK"]


def outcome_of(server, count, packing=None):
    with client.InferenceServerClient(server.grpc_url) as asking:
        try:
            got = asking.infer("echo", floats(np.zeros(count)), compression_algorithm=packing).as_numpy("OUTPUT0")
            return len(got)
        except InferenceServerException as error:
            return error.status()


@pytest.mark.parametrize("packing", [None, "gzip", "deflate"])
def test_a_message_has_no_more_bytes_than_the_limit(models, packing):
    """Packed ones count unpacked: these zeros would be small."""
    with serve(models, "--grpc-max-message-size=5000") as server:
        assert outcome_of(server, 1000, packing) == 1000
        assert outcome_of(server, 2000, packing) == "StatusCode.RESOURCE_EXHAUSTED"
        assert outcome_of(server, 1000, packing) == 1000


def test_a_stream_ends_at_a_message_beyond_the_limit(models):
    with serve(models, "--grpc-max-message-size=500") as server, grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.stream_stream(STREAM, pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString)
        large = ask_square(1)
        large.parameters["x"].string_param = "x" * 500
        answers = call(iter([ask_square(2), large]), timeout=WITHIN_S)
        with pytest.raises(grpc.RpcError) as refused:
            list(answers)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


# ---- Threads -------------------------------------------------------------------------------------


def count_loops(server):
    tasks = f"/proc/{server.pid}/task"
    names = [open(f"{tasks}/{task}/comm", encoding="ascii").read().strip() for task in os.listdir(tasks)]
    return len([name for name in names if name.startswith("http-")])


@pytest.mark.parametrize("flags, loops", [([], 5), (["--http-thread-count=1"], 1), (["--http-thread-count=1", "--grpc-infer-thread-count=3"], 3),
                                          (["--http-thread-count=2", "--grpc-infer-thread-count=2"], 2),
                                          (["--http-thread-count=1", "--grpc-infer-thread-count=100"], 5)])
def test_grpc_has_as_many_loops_as_it_is_given(models, flags, loops):
    """… or as HTTP has, and never more than there are processors."""
    with serve(models, *flags, env=preload.environment("processors", PROCESSORS="5")) as server:
        assert count_loops(server) == loops
        assert outcome_of(server, 3) == 3


def test_connections_of_grpc_use_all_their_loops(models):
    """One loop executes a model that does not end. The next connection is served by the other one."""
    gate = repository.Gated(models, "gate", more='parameters { key: "CONCH_EXECUTION" value { string_value: "inline" } }\n')
    gate.shut("bounded")
    gate.shut("hold.execute")
    two = preload.environment("processors", PROCESSORS="2")
    with serve(models, "--http-thread-count=1", "--grpc-infer-thread-count=2", env=two) as server:
        try:
            with h2.Connection(server.grpc_url) as blocked:
                request = pb.ModelInferRequest(model_name="gate", raw_input_contents=[struct.pack("<i", 7)])
                request.inputs.add(name="IN", datatype="INT32", shape=[1])
                blocked.send(h2.call(1, h2.INFER, request.SerializeToString()))
                gate.await_reached("hold.execute")
                with h2.Connection(server.grpc_url) as served:
                    assert h2.status_of(served.ask()) == 0
                gate.open("hold.execute")
                assert blocked.await_frame(h2.DATA, stream=1).payload.endswith(struct.pack("<i", 7))
        finally:
            (gate.folder / "hold.execute").unlink(missing_ok=True)
