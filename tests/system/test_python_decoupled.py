# SPDX-License-Identifier: Apache-2.0
"""Models in Python that answer any number of times, or later: response senders, in execute(), on threads and in async
execute(); errors amidst; cancels; requests that are rescheduled."""

import json
import time
import urllib.error
import urllib.request

import pytest
from tritonclient.utils import InferenceServerException

import server as servers
from python_models import DECOUPLED, NUMBER, Streaming, infer, number, only_ours, stream, words, write_python

SENDS = """
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        for i in range(n):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([i], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    return None
"""

# The sender lives longer than execute() and than its request.
THREADS = """
def initialize(self, args):
    self.threads = []

def answer(self, sender, n):
    for i in range(n):
        last = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if i == n - 1 else 0
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([i], np.int32))]), flags=last)
    if n == 0:
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

def execute(self, requests):
    import threading
    for request in requests:
        n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        thread = threading.Thread(target=self.answer, args=(request.get_response_sender(), n))
        self.threads.append(thread)
        thread.start()
    return None

def finalize(self):
    for thread in self.threads:
        thread.join()
"""

SAYS = """
def tensor(self, value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.int32))])

def execute(self, requests):
    FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    for request in requests:
        what = pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode()
        sender = request.get_response_sender()
        if what == "raise first":
            raise ValueError("nothing sent")
        if what == "returns":
            sender.send(self.tensor(1), flags=FINAL)
            return [self.tensor(2)]
        sender.send(self.tensor(1))
        if what == "error amidst":
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("amidst", pb_utils.TritonError.INVALID_ARG)))
        if what == "raise amidst":
            raise ValueError("one was sent")
        if what == "forgotten":
            continue
        if what == "flags":
            try:
                sender.send(self.tensor(2), flags=4)
            except Exception as e:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("refused: " + str(e))))
        if what == "nothing":
            try:
                sender.send()
            except Exception as e:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("refused: " + str(e))))
        sender.send(flags=FINAL)
        if what == "after the end":
            try:
                sender.send(self.tensor(3))
                self.said = "sent"
            except Exception as e:
                self.said = str(e)
        if what == "twice the end":
            try:
                sender.send(flags=FINAL)
                self.said = "sent"
            except Exception as e:
                self.said = str(e)
"""

ASYNC = """
async def execute(self, requests):
    import asyncio
    async def one(request):
        ms = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        sender = request.get_response_sender()
        await asyncio.sleep(ms / 1000)
        if ms == 13:
            raise ValueError("unlucky")
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([ms], np.int32))]),
                    flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    await asyncio.gather(*map(one, requests))
"""

ASYNC_ONCE = """
async def execute(self, requests):
    import asyncio
    await asyncio.sleep(0.001)
    return [pb_utils.InferenceResponse([pb_utils.Tensor(
        "OUT", 2 * pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())]) for request in requests]
"""

# Answers when it is told that the request is cancelled.
CANCELLED = """
def execute(self, requests):
    import threading, time
    for request in requests:
        sender = request.get_response_sender()
        def wait(sender=sender):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([0], np.int32))]))
            while not sender.is_cancelled():
                time.sleep(0.005)
            with open(self.folder + "/cancelled", "w") as file:
                file.write("yes")
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("cancelled", pb_utils.TritonError.CANCELLED)),
                        flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        threading.Thread(target=wait).start()

def initialize(self, args):
    self.folder = args["model_repository"]
"""

RESCHEDULES = """
def initialize(self, args):
    self.seen = {}

def execute(self, requests):
    responses = []
    for request in requests:
        key = request.request_id()
        self.seen[key] = self.seen.get(key, 0) + 1
        rounds = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        if self.seen[key] < rounds:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            responses.append(None)
        else:
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.seen.pop(key)], np.int32))]))
    return responses
"""
GENERATIVE = "sequence_batching { iterative_sequence: true }\n"

# The sender of a model that is not decoupled.
ONCE = """
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        for i in range(n):
            try:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([i], np.int32))]),
                            flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if i == n - 1 else 0)
            except Exception as e:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(e))), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                break
    return None
"""
WHAT = ("input", "WHAT", "BYTES", [1])


def write_models(root):
    write_python(root, "sends", SENDS, *NUMBER, more=DECOUPLED)
    write_python(root, "threads", THREADS, *NUMBER, more=DECOUPLED)
    write_python(root, "says", SAYS, WHAT, ("output", "OUT", "INT32", [1]), more=DECOUPLED)
    write_python(root, "async", ASYNC, *NUMBER, more=DECOUPLED)
    write_python(root, "async_once", ASYNC_ONCE, *NUMBER)
    write_python(root, "cancelled", CANCELLED, *NUMBER, more=DECOUPLED)
    write_python(root, "reschedules", RESCHEDULES, *NUMBER, more=GENERATIVE)
    write_python(root, "once", ONCE, *NUMBER)
    return root


@pytest.mark.parametrize("model", ["sends", "threads"])
@pytest.mark.parametrize("n", [0, 1, 5, 300])
def test_a_decoupled_model_sends_any_number_of_responses(python_server, model, n):
    assert stream(python_server, model, number(n)) == [[i] for i in range(n)]


def test_many_requests_get_their_own_responses(python_server):
    with Streaming(python_server) as asked:
        for n in range(1, 30):
            asked.send("threads", number(n), request_id=str(n))
        got, ended = {}, 0
        while ended < 29:
            result, error = asked.next()
            assert not error
            message = result.get_response()
            if message.outputs:
                got.setdefault(message.id, []).append(int(result.as_numpy("OUT")[0]))
            ended += message.parameters["triton_final_response"].bool_param
    assert got == {str(n): list(range(n)) for n in range(1, 30)}


def test_decoupled_python_models_are_refused_over_http(python_server):
    body = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}).encode()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{python_server.url}/v2/models/sends/infer", body)
    assert "doesn't support models with decoupled transaction policy" in json.load(refused.value)["error"]


def test_an_error_may_come_amidst(python_server):
    with Streaming(python_server) as asked:
        asked.send("says", words(WHAT="error amidst"))
        result, _ = asked.next()
        assert result.as_numpy("OUT").tolist() == [1]
        _, error = asked.next()
        assert "amidst" in error.message()


def test_an_exception_is_the_requests_answer(python_server):
    got = stream(python_server, "says", words(WHAT="raise first"))
    assert len(got) == 1
    assert "ValueError: nothing sent" in got[0]
    assert stream(python_server, "sends", number(1)) == [[0]]


@only_ours("it leaves the client without an end, now and then")
def test_an_exception_after_a_response_ends_the_request(python_server):
    got = stream(python_server, "says", words(WHAT="raise amidst"))
    assert got[0] == [1]
    assert "ValueError: one was sent" in got[-1]


@only_ours("it waits for ever")
def test_a_request_whose_end_was_forgotten_has_an_end(python_server):
    """Its sender is garbage: no final response can come any more."""
    got = stream(python_server, "says", words(WHAT="forgotten"))
    assert got[0] == [1]
    assert len(got) <= 2


def test_flags_that_there_are_not_are_refused(python_server):
    got = stream(python_server, "says", words(WHAT="flags"))
    assert got[0] == [1]
    assert got[1].startswith("refused: ")
    assert "Unable to send response. Unsupported flag" in got[1]


@only_ours("its client waits")
def test_nothing_cannot_be_sent(python_server):
    got = stream(python_server, "says", words(WHAT="nothing"))
    assert got[0] == [1]
    assert got[1].startswith("refused: ")
    assert "Inference Response object must be provided when the response flags is set to zero" in got[1]


@pytest.mark.parametrize("what", ["after the end", "twice the end"])
def test_nothing_comes_after_the_end(python_server, what):
    assert_nothing_comes(python_server, what)


@only_ours("the answer and the error race")
def test_what_execute_returns_does_not_come_after_the_end(python_server):
    assert_nothing_comes(python_server, "returns")


def assert_nothing_comes(python_server, what):
    got = stream(python_server, "says", words(WHAT=what))
    assert got[0] == [1]
    assert all(isinstance(more, str) for more in got[1:])
    assert stream(python_server, "sends", number(2)) == [[0], [1]]


def test_async_execute_serves_concurrently(python_server):
    """A hundred requests that sleep 300 ms each take less than the thirty seconds that one after the other takes."""
    began = time.monotonic()
    with Streaming(python_server) as asked:
        for i in range(100):
            asked.send("async", number(300), request_id=str(i))
        ended = 0
        while ended < 100:
            result, error = asked.next()
            assert not error, error
            ended += result.get_response().parameters["triton_final_response"].bool_param
    assert time.monotonic() - began < 30


def test_async_execute_of_a_model_that_is_not_decoupled_is_awaited(python_server):
    assert infer(python_server, "async_once", number(21)).as_numpy("OUT").tolist() == [42]


@only_ours("it only logs it")
def test_an_exception_of_async_execute_is_the_requests_answer(python_server):
    got = stream(python_server, "async", number(13))
    assert len(got) == 1
    assert "ValueError: unlucky" in got[0]


def test_a_sender_sees_that_its_request_is_cancelled(place, tmp_path):
    root = tmp_path / "models"
    folder = write_python(root, "cancelled", CANCELLED, *NUMBER, more=DECOUPLED)
    with place.start(root) as running:
        with Streaming(running) as asked:
            asked.send("cancelled", number(1))
            assert asked.next()[0].as_numpy("OUT").tolist() == [0]
        servers.wait_for((folder / "cancelled").exists, 60, "the model has seen it")


@pytest.mark.parametrize("rounds", [1, 2, 6])
def test_a_request_is_rescheduled(python_server, rounds):
    got = infer(python_server, "reschedules", number(rounds), protocol="grpc", request_id=f"r{rounds}")
    assert got.as_numpy("OUT").tolist() == [rounds]


def test_a_model_that_is_not_decoupled_answers_by_its_sender(python_server, place):
    assert infer(python_server, "once", number(1)).as_numpy("OUT").tolist() == [0]
    if place.ours:
        with pytest.raises(InferenceServerException):
            infer(python_server, "once", number(2))
        assert infer(python_server, "once", number(1)).as_numpy("OUT").tolist() == [0]
