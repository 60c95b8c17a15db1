# SPDX-License-Identifier: Apache-2.0
"""Decoupled models over HTTP and gRPC, in both servers: who refuses them, what streams carry, cancels, deadlines, half-closed
streams, stops, statistics.

tests/plugins/script executes the script of each request, one letter a step; its head comment lists them.
"""

import http.client
import json
import re
import shutil
import signal
import socket
import struct
import threading
import urllib.request

import grpc
import pytest
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb

import http2_frames as h2
import repository
import triton
from server import BUILD, Server, wait_for

STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
INFER = "/inference.GRPCInferenceService/ModelInfer"
FLAGS = ["--model-control-mode=explicit", "--load-model=*"]
WITHIN_S = 60


def write_script(root, name, more="", batch=0, instances=1):
    text = f'backend: "script"\nmodel_transaction_policy {{ decoupled: true }}\nmax_batch_size: {batch}\n'
    text += repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "INT32", [1])
    folder = repository.write_model(root, name, text + f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n" + more)
    shutil.copy(BUILD / "tests/backends/script/libtriton_script.so", folder)
    return folder


def write_models(root):
    for name in ("plain", "counted", "held", "sleeping"):
        write_script(root, name)
    repository.Gated(root, "ordinary")
    return root


def open_server(which, root):
    if which == "conch":
        return Server(root, flags=FLAGS, grpc=True)
    return triton.Triton(root, flags=FLAGS)


@pytest.fixture(name="both", scope="module")
def both_(tmp_path_factory):
    """Both servers, for comparisons."""
    if triton.missing():
        pytest.skip(triton.missing())
    root = write_models(tmp_path_factory.mktemp("both"))
    with open_server("conch", root) as ours, open_server("triton", root) as theirs:
        yield ours, theirs


@pytest.fixture(name="server", scope="module", params=["conch", "triton"])
def server_(request, tmp_path_factory):
    """One of the servers. server.root is its repository."""
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    root = write_models(tmp_path_factory.mktemp(request.param))
    with open_server(request.param, root) as server:
        server.root = root
        yield server


@pytest.fixture(name="channel")
def channel_(server):
    with grpc.insecure_channel(server.grpc_url) as channel:
        yield channel


def ask(do, value=1, model="plain", **members):
    empty_final = members.pop("empty_final", False)
    made = pb.ModelInferRequest(model_name=model, raw_input_contents=[struct.pack("<i", value)], **members)
    made.inputs.add(name="IN", datatype="INT32", shape=[1])
    if model != "ordinary":
        made.parameters["do"].string_param = do
    if empty_final:
        made.parameters["triton_enable_empty_final_response"].bool_param = True
    return made


def stream(channel, requests, **how):
    """A call of ModelStreamInfer; the client closes its side behind the requests."""
    return channel.stream_stream(STREAM, pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString)(
        iter(requests), timeout=how.pop("timeout", WITHIN_S), **how)


def outcome(call):
    """The messages of a call as JSON, its code and its text."""
    messages = []
    try:
        for message in call:
            messages.append(json_format.MessageToDict(message, preserving_proto_field_name=True))
    except grpc.RpcError as error:
        return messages, error.code().name, error.details()
    return messages, call.code().name, call.details()


def told(message):
    """What an answer says: (id, value, "error" or "", final?)."""
    answer = message.infer_response
    value = struct.unpack("<i", answer.raw_output_contents[0])[0] if answer.raw_output_contents else None
    return answer.id, value, message.error_message, answer.parameters["triton_final_response"].bool_param


# ---- Who refuses ---------------------------------------------------------------------------------

BODY = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}).encode()
POSTS = {
    "a request": ("/v2/models/plain/infer", BODY, {}),
    "a version": ("/v2/models/plain/versions/1/infer", BODY, {}),
    "an unknown version": ("/v2/models/plain/versions/2/infer", BODY, {}),
    "no version at all": ("/v2/models/plain/versions/x/infer", BODY, {}),
    "no JSON": ("/v2/models/plain/infer", b"x", {}),
    "nothing": ("/v2/models/plain/infer", b"", {}),
    "a wrong header length": ("/v2/models/plain/infer", BODY, {"Inference-Header-Content-Length": "x"}),
    "a packed body that is not": ("/v2/models/plain/infer", BODY, {"Content-Encoding": "gzip"}),
}


def post(server, path, body, headers):
    connection = http.client.HTTPConnection(server.url, timeout=WITHIN_S)
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    got = answer.status, json.loads(answer.read())
    connection.close()
    return got


@pytest.mark.parametrize("case", POSTS)
def test_http_refuses_with_the_same_status_and_text(both, case):
    ours, theirs = (post(server, *POSTS[case]) for server in both)
    assert ours == theirs


def test_http_has_no_way_for_several_answers(server):
    assert post(server, *POSTS["a request"]) == (501, {"error": "HTTP end point doesn't support models with decoupled transaction policy"})


def test_a_call_with_one_answer_is_refused(channel):
    call = channel.unary_unary(INFER, pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString)
    for do in ("nlxd", "n.xd", ""):
        with pytest.raises(grpc.RpcError) as refused:
            call(ask(do), timeout=WITHIN_S)
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert refused.value.details() == "ModelInfer RPC doesn't support models with decoupled transaction policy"


# ---- What a stream carries -----------------------------------------------------------------------

TRUE_ERRORS = (("triton_grpc_error", "true"),)
FINE = ["n.xd", "nx.d", "nlxd", "nxtffld", "nxtff.d", "nrf.xd"]
ERRORS = ["nExd", "nxe.d", "nxfefefEd", "nxfef.d", "nxfuf.d"]


@pytest.mark.parametrize("empty_final", [False, True], ids=["", "empty-final"])
@pytest.mark.parametrize("do, metadata", [*((do, None) for do in FINE + ERRORS), *((do, TRUE_ERRORS) for do in FINE)])
def test_streams_carry_the_same(both, do, metadata, empty_final):
    seen = []
    for server in both:
        with grpc.insecure_channel(server.grpc_url) as channel:
            seen.append(outcome(stream(channel, [ask(do, id="r", empty_final=empty_final)], metadata=metadata)))
    assert seen[0] == seen[1]


@pytest.fixture(name="ours", scope="module")
def ours_(tmp_path_factory):
    """A server of ours, for what the genuine one does not survive, and a channel to it."""
    with open_server("conch", write_models(tmp_path_factory.mktemp("ours"))) as server, grpc.insecure_channel(server.grpc_url) as channel:
        yield channel


@pytest.mark.parametrize("empty_final", [False, True], ids=["", "empty-final"])
@pytest.mark.parametrize("do", ["n0f0.xd", "nof.xd", "nofo.xd", "nx0tf0t.d"])
def test_what_says_nothing_is_not_carried(ours, do, empty_final):
    """Flags of 0 alone, and responses that are deleted unsent. With either the genuine server never ends the stream."""
    values = [number for number, step in enumerate(step for step in do if step in ("f", "o")) if step == "f"]
    seen = [told(message) for message in stream(ours, [ask(do, id="r", empty_final=empty_final)])]
    assert seen == [("r", 1000 + value, "", False) for value in values] + [("r", None, "", True)] * empty_final


@pytest.mark.parametrize("do, values", [("nExd", []), ("nxe.d", []), ("nxfefefEd", [1000]), ("nxffef.d", [1000, 1001]), ("nxtfutf.d", [1000])])
def test_a_stream_may_end_with_the_first_error(ours, do, values):
    """What the backend sends after it is dropped, and other streams go on. The genuine server crashes."""
    call = stream(ours, [ask(do, id="r")], metadata=TRUE_ERRORS)
    messages, code, text = outcome(call)
    assert [message["infer_response"]["id"] for message in messages] == ["r"] * len(values)
    assert (code, text) == (("INVALID_ARGUMENT", "unexpected inference output 'NONE' for model 'plain'") if "u" in do
                            else ("UNIMPLEMENTED", "as the script says"))
    assert [told(message)[1] for message in stream(ours, [ask("nff.xd", 3)])] == [3000, 3001]


def test_each_answer_says_whether_it_is_the_last(channel):
    requests = [ask("nxff.d", 1, id="bare"), ask("nxff.d", 2, id="told", empty_final=True), ask("nxfld", 3, id="with data", empty_final=True),
                ask("nxfefEd", 4, id="errors"), ask("n.xd", 5, id="nothing"), ask("n.xd", 6, id="only the end", empty_final=True)]
    seen = {}
    for message in stream(channel, requests):
        name, *rest = told(message)
        seen.setdefault(name, []).append(tuple(rest))
    error = "as the script says"
    assert seen == {
        "bare": [(1000, "", False), (1001, "", False)],
        "told": [(2000, "", False), (2001, "", False), (None, "", True)],
        "with data": [(3000, "", False), (3001, "", True)],
        "errors": [(4000, "", False), (None, error, False), (4001, "", False), (None, error, True)],
        "only the end": [(None, "", True)],
    }


def test_decoupled_answers_overtake_those_of_ordinary_models(server, channel):
    """… which come in the order of their requests: the second waits for the first, the decoupled ones for nobody."""
    hold = server.root / "ordinary/hold.execute"
    hold.touch()
    requests = [ask("", 7, "ordinary", id="first"), ask("nxff.d", 1, id="decoupled"), ask("", 8, "ordinary", id="second")]
    call = stream(channel, requests)
    answers = [told(next(call)) for _ in range(2)]
    assert answers == [("decoupled", 1000, "", False), ("decoupled", 1001, "", False)]
    hold.unlink()
    assert [told(message)[:2] for message in call] == [("first", 7), ("second", 8)]


def test_a_client_that_has_closed_its_side_gets_all_answers(server, channel):
    """The requests are there, and the client has nothing more to say, long before the first response."""
    hold = server.root / "held/hold"
    hold.touch()
    call = stream(channel, [ask("nxthffeld", 1, "held", id="a"), ask("nxth.d", 2, "held", id="b", empty_final=True)])
    wait_for((server.root / "held/hold.reached").exists, WITHIN_S, "the script waits")
    assert call.is_active()
    hold.unlink()
    (server.root / "held/hold.reached").unlink()
    seen = [told(message) for message in call]
    assert [one for one in seen if one[0] == "a"] == [("a", 1000, "", False), ("a", 1001, "", False), ("a", None, "as the script says", False),
                                                     ("a", 1002, "", True)]
    assert [one for one in seen if one[0] == "b"] == [("b", None, "", True)]
    assert call.code() == grpc.StatusCode.OK


# ---- Cancels, deadlines, ends --------------------------------------------------------------------


def is_answered(server, model):
    """The only instance is free again: another request is executed."""
    with grpc.insecure_channel(server.grpc_url) as channel:
        return [told(message)[1] for message in stream(channel, [ask("nf.xd", 5, model)])] == [5000]


def test_a_cancelled_stream_tells_its_backend(server, channel):
    """The script keeps its request, and the instance, until it is cancelled."""
    call = stream(channel, [ask("nffcff.xd", 1, "sleeping")])
    assert [told(next(call))[1] for _ in range(2)] == [1000, 1001]
    call.cancel()
    assert call.code() == grpc.StatusCode.CANCELLED
    assert is_answered(server, "sleeping")


def test_a_deadline_tells_the_backend(server, channel):
    messages, code, _ = outcome(stream(channel, [ask("nffcff.xd", 1, "sleeping")], timeout=0.5))
    assert (len(messages), code) == (2, "DEADLINE_EXCEEDED")
    assert is_answered(server, "sleeping")


def frames_of(request):
    return h2.message(request.SerializeToString())


def test_a_lost_connection_tells_the_backend(server):
    with h2.Connection(server.grpc_url) as connection:
        connection.send(h2.begin(1) + h2.frame(h2.DATA, 0, 1, frames_of(ask("nffcff.xd", 1, "sleeping"))))
        connection.await_frame(h2.DATA, stream=1)
    assert is_answered(server, "sleeping")


@pytest.mark.conch_only("2.51 does not end while a stream is open")
def test_a_stop_lets_responses_come(tmp_path):
    """The request is released, and only its factory is left when the server begins to stop."""
    folder = write_script(tmp_path, "held")
    (folder / "hold").touch()
    with Server(tmp_path, flags=[*FLAGS, "--exit-timeout-secs=3600", "--http-thread-count=1"], grpc=True) as server, \
            grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.stream_stream(STREAM, pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString)(
            keep_open(ask("nxthffeld", 1, "held")), timeout=WITHIN_S)
        wait_for((folder / "hold.reached").exists, WITHIN_S, "the script waits")
        server.signal(signal.SIGTERM)
        wait_for(lambda: is_refused(server), WITHIN_S, "the port is closed")
        (folder / "hold").unlink()
        messages, code, _ = outcome(call)
        assert [message.get("error_message", "") for message in messages] == ["", "", "as the script says", ""]
        assert code == "UNAVAILABLE"
        assert server.wait() == 0


def keep_open(request):
    """The requests of a client that does not close its side."""
    yield request
    threading.Event().wait(WITHIN_S)


def is_refused(server):
    try:
        socket.create_connection(h2.address_of(server.grpc_url), timeout=WITHIN_S).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    return False


# ---- Statistics ----------------------------------------------------------------------------------

KINDS = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")


def times(**given):
    return {kind: given.get(kind, (0, 0)) for kind in KINDS}


def test_statistics_have_each_response_over_both_protocols(server, channel):
    """Reports of 100 ns: a success, an empty one, a failure, a cancelled one; then others at the same indices."""
    wanted = {
        "0": times(compute_infer=(2, 60), compute_output=(2, 140), success=(2, 200)),
        "1": times(compute_infer=(2, 200), empty_response=(2, 200)),
        "2": times(compute_infer=(1, 30), compute_output=(1, 70), fail=(1, 100), cancel=(1, 100)),
        "3": times(cancel=(1, 100)),
    }
    assert len(list(stream(channel, [ask("nsfmvz.xd", 1, "counted")]))) == 1
    assert len(list(stream(channel, [ask("nxtsfmz.d", 1, "counted")]))) == 1
    with urllib.request.urlopen(f"http://{server.url}/v2/models/counted/stats", timeout=WITHIN_S) as answer:
        by_http = json.load(answer)["model_stats"][0]["response_stats"]
    assert {index: {kind: (line[kind]["count"], line[kind]["ns"]) for kind in line} for index, line in by_http.items()} == wanted
    by_grpc = channel.unary_unary("/inference.GRPCInferenceService/ModelStatistics", pb.ModelStatisticsRequest.SerializeToString,
                                  pb.ModelStatisticsResponse.FromString)(pb.ModelStatisticsRequest(name="counted"), timeout=WITHIN_S)
    by_grpc = by_grpc.model_stats[0].response_stats
    assert {index: {kind: (getattr(line, kind).count, getattr(line, kind).ns) for kind in KINDS} for index, line in by_grpc.items()} == wanted


@pytest.mark.conch_only("2.51 has no such metric")
def test_the_first_response_of_a_request_is_measured(tmp_path):
    """Once for each request that has a response; a final flag alone is none."""
    write_script(tmp_path, "plain")
    flags = [*FLAGS, "--allow-metrics=true", "--metrics-port=0", "--metrics-config=histogram_latencies=true"]
    with Server(tmp_path, flags=flags, grpc=True) as server, grpc.insecure_channel(server.grpc_url) as channel:
        answers = list(stream(channel, [ask("nxfff.d"), ask("n.xd"), ask("nxEd"), ask("nxtfefld")]))
        assert len(answers) == 3 + 0 + 1 + 4
        port = wait_for(lambda: re.search(r"Started Metrics Service at \S*:(\d+)", server.log()), WITHIN_S, "metrics are served")[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN_S) as page:
            line = 'nv_inference_first_response_histogram_ms_count{model="plain",version="1"} 3\n'
            assert line in page.read().decode()
