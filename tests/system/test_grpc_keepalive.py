# SPDX-License-Identifier: Apache-2.0
"""PINGs both ways and the age of gRPC connections, as the options --grpc-keepalive-…, --grpc-http2-… and
--grpc-max-connection-… set them: by frames, and by gRPC's own client. The genuine Triton behaves alike where a test has
both. Times are chosen so that nothing depends on the speed of the machine: what must not happen is compared with what
has happened often on another connection meanwhile."""

import contextlib
import queue
import time

import grpc
import pytest
from tritonclient.grpc import service_pb2

import http2_frames as h2
import triton
from server import Server, wait_for

FOR_EVER = "7200000"


@pytest.fixture(name="serve", params=["conch", pytest.param("triton", marks=triton.needed)])
def _serve(request, models):
    """Starts a server without models, with the given gRPC options."""
    def start(**options):
        flags = [f"--grpc-{name.replace('_', '-')}={value}" for name, value in options.items()]
        flags.append("--model-control-mode=explicit")
        return triton.Triton(models, flags) if request.param == "triton" else Server(models, flags=flags, grpc=True)
    return start


def url_of(server):
    return server.grpc_url.replace("0.0.0.0", "127.0.0.1")


def pings(frames):
    return [got for got in frames if got.kind == h2.PING and not got.flags & h2.ACK]


def test_a_client_that_does_not_answer_pings_is_closed(serve):
    with serve(keepalive_time=200, keepalive_timeout=200, keepalive_permit_without_calls="true",
               http2_max_pings_without_data=0) as server:
        with h2.Connection(url_of(server), acks_pings=False) as silent:
            assert len(pings(silent.take_all())) == 1


def test_pings_are_for_connections_with_calls(serve):
    with serve(keepalive_time=100, keepalive_timeout=60000, http2_max_pings_without_data=0) as server:
        with h2.Connection(url_of(server)) as idle, h2.Connection(url_of(server)) as busy:
            idle.await_frame(h2.SETTINGS, ack=True)
            busy.send(h2.begin(1))
            for _ in range(5):
                busy.await_frame(h2.PING)
            assert not pings(idle.take_ready())
            assert idle.ask()


def test_pings_without_data_have_a_maximum(serve):
    with serve(keepalive_time=100, keepalive_timeout=60000, keepalive_permit_without_calls="true",
               http2_max_pings_without_data=1) as server:
        with h2.Connection(url_of(server)) as idle, h2.Connection(url_of(server)) as busy:
            for _ in range(6):
                busy.await_frame(h2.PING)
                assert busy.ask()  # the answer has data, which allows the next PING
            assert len(pings(idle.take_ready())) == 1
            assert idle.ask()


def test_fast_pings_are_strikes(serve):
    with serve() as server, h2.Connection(url_of(server)) as client:
        assert client.ask()
        client.ping()
        client.await_frame(h2.PING, ack=True)
        client.ping(2)  # two strikes are allowed
        for _ in range(2):
            client.await_frame(h2.PING, ack=True)
        client.ping()
        code, _, text = h2.goaway(client.await_frame(h2.GOAWAY))
        assert code == h2.ENHANCE_YOUR_CALM
        assert text == b"too_many_pings"
        client.take_all()


def test_data_forgives_pings(serve):
    with serve() as server, h2.Connection(url_of(server)) as client:
        for _ in range(20):
            assert client.ask()
            client.ping(3)
            for _ in range(3):
                client.await_frame(h2.PING, ack=True)


def test_without_strikes_pings_have_no_limit(serve):
    with serve(http2_max_ping_strikes=0) as server, h2.Connection(url_of(server)) as client:
        client.ping(50)
        for _ in range(50):
            client.await_frame(h2.PING, ack=True)
        assert client.ask()


def ping_slowly(client, times):
    """PINGs that are more than a millisecond apart. Returns whether all are acknowledged."""
    for _ in range(times):
        client.ping()
        for got in iter(client.take, None):
            if got.kind == h2.PING and got.flags & h2.ACK:
                break
        else:
            return False
        since = time.monotonic()
        while time.monotonic() < since + 0.003:
            pass
    return True


@pytest.mark.parametrize("permit, has_call, endures", [("false", True, True), ("true", False, True), ("false", False, False)],
                         ids=["with_a_call", "permitted_without_calls", "without_calls"])
def test_slow_pings_are_allowed(serve, permit, has_call, endures):
    """Without a call the interval is two hours, unless PINGs are permitted without calls."""
    with serve(http2_min_recv_ping_interval_without_data=1, keepalive_permit_without_calls=permit) as server:
        with h2.Connection(url_of(server)) as client:
            if has_call:
                client.send(h2.begin(1))
            client.await_frame(h2.SETTINGS, ack=True)
            assert ping_slowly(client, 20) == endures


def end_stream(stream):
    return h2.frame(h2.DATA, h2.END_STREAM, stream)


def test_an_old_connection_ends_in_two_steps(serve):
    with serve(max_connection_age=1500) as server, h2.Connection(url_of(server)) as client:
        client.send(h2.begin(1))
        code, last, _ = h2.goaway(client.await_frame(h2.GOAWAY))
        assert (code, last) == (h2.NO_ERROR, 2**31 - 1)
        code, last, _ = h2.goaway(client.await_frame(h2.GOAWAY))
        assert (code, last) == (h2.NO_ERROR, 1)
        client.send(end_stream(1))  # calls in progress go on to their end
        frames = client.take_all()
        assert h2.status_of(frames) == 0


def test_after_the_grace_calls_are_cut_off(serve):
    with serve(max_connection_age=1000, max_connection_age_grace=300) as server, h2.Connection(url_of(server)) as client:
        client.send(h2.begin(1))
        frames = client.take_all()
        assert [got for got in frames if got.kind == h2.GOAWAY]
        assert h2.status_of(frames) != 0  # Triton says 1 or 14, Conch leaves it to the GOAWAY


# ---- gRPC's own client ----------------------------------------------------------------------------------------------

EAGER = [("grpc.keepalive_time_ms", 20), ("grpc.keepalive_timeout_ms", 60000), ("grpc.http2.max_pings_without_data", 0),
         ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.min_ping_interval_without_data_ms", 20)]


class Stream:
    """A ModelStreamInfer on which nothing happens."""

    def __init__(self, channel):
        self._requests = queue.Queue()
        self.call = channel.stream_stream(h2.STREAM_INFER, service_pb2.ModelInferRequest.SerializeToString,
                                          service_pb2.ModelStreamInferResponse.FromString)(iter(self._requests.get, None))

    def end(self):
        self._requests.put(None)
        with contextlib.suppress(grpc.RpcError):
            assert not list(self.call)


def is_live(channel):
    return channel.unary_unary(h2.SERVER_LIVE, service_pb2.ServerLiveRequest.SerializeToString,
                               service_pb2.ServerLiveResponse.FromString)(service_pb2.ServerLiveRequest(), timeout=60).live


def test_a_client_that_pings_too_often_loses_its_calls(serve):
    with serve() as strict, serve(http2_min_recv_ping_interval_without_data=0) as lenient:
        with grpc.insecure_channel(url_of(strict), EAGER) as refused, grpc.insecure_channel(url_of(lenient), EAGER) as served:
            lost, kept = Stream(refused), Stream(served)
            wait_for(lambda: not lost.call.is_active(), 60, "the call ends")
            assert lost.call.code() == grpc.StatusCode.UNAVAILABLE
            assert "too many pings" in lost.call.details().lower().replace("_", " ")
            assert kept.call.is_active()
            lost.end()
            kept.end()
            assert kept.call.code() == grpc.StatusCode.OK


def test_calls_go_on_over_the_ages_of_connections(serve):
    """The client connects again and again, and no call fails. A call that takes longer than the grace is cut off."""
    with serve(max_connection_age=200, max_connection_age_grace=5000) as server:
        states = []
        with grpc.insecure_channel(url_of(server)) as channel:
            channel.subscribe(states.append)
            long = Stream(channel)
            until = time.monotonic() + 60
            while long.call.is_active() or states.count(grpc.ChannelConnectivity.READY) < 3:
                assert is_live(channel)
                assert time.monotonic() < until, states
            assert long.call.code() == grpc.StatusCode.UNAVAILABLE
            long.end()
