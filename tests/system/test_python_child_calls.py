# SPDX-License-Identifier: Apache-2.0
"""What a Python model says by itself: responses of its senders, calls of other models, metrics, log lines, control of models.
The test is in the server's place (tests/lib/python_child.py)."""

import json
import struct
import sys
import textwrap

import numpy as np
import pytest

import python_child
from python_child import Child, Tensor, pack_strings, u8, u64, unpack_strings

HEAD = """import asyncio
import gc
import json
import threading
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def say(self, value):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(value).encode()], dtype=object))])

    def number(self, value):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.int32))])

    def ask(self, model="other", **more):
        return pb_utils.InferenceRequest(inputs=[pb_utils.Tensor("IN", np.array([7], np.int32))], requested_output_names=["OUT"],
                                         model_name=model, **more)

    def tried(self, function):
        try:
            return function()
        except Exception as e:
            return f"{type(e).__name__}: {e}"
"""
NUMBER = Tensor("OUT", "INT32", [1], struct.pack("<i", 49))
LATER = """
def execute(self, requests):
    self.senders = [request.get_response_sender() for request in requests]
"""


@pytest.fixture
def start(tmp_path):
    """Starts a process for the body of a model's class; what is left of them is ended."""
    started = []

    def start_one(body, **options):
        child = Child(tmp_path / str(len(started)), HEAD + textwrap.indent(textwrap.dedent(body), "    "), sys.executable, **options)
        started.append(child)
        assert child.initialize() is None
        return child

    yield start_one
    for child in started:
        if child.socket.fileno() >= 0:
            child.end()


def said(response):
    assert response.error is None, response.error
    return unpack_strings(response.tensors["OUT"].data)[0].decode()


def evaluate(child, **request):
    (answer,) = child.execute(child.request(**request))
    return said(answer)


def value(response):
    return struct.unpack("<i", response.tensors["OUT"].data)[0]


# ---- Senders

def test_a_decoupled_model_sends_while_it_executes_and_after(start):
    child = start("""
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            sender.send(self.number(1))
            threading.Thread(target=self.later, args=(sender,)).start()

        def later(self, sender):
            sender.send(self.number(2))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """, decoupled=True)
    answer = child.execute(child.request(key=77))
    assert [(a.kind, a.release_flags) for a in answer] == [(python_child.NONE, 0)]
    for expected in (1, 2):
        key, flags, response = child.next_response()
        assert (key, flags, value(response)) == (77, 0, expected)
    key, flags, response = child.next_response()
    assert (key, flags, response.kind) == (77, 1, python_child.NONE)
    child.wait(child.all_back)
    with pytest.raises(TimeoutError):
        child.note(python_child.DROP_REQUEST, within_s=0)


def test_a_response_may_be_the_last_one_and_an_error(start):
    child = start("""
        def execute(self, requests):
            for request in requests:
                error = pb_utils.TritonError("no", pb_utils.TritonError.UNAVAILABLE)
                request.get_response_sender().send(pb_utils.InferenceResponse(error=error), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """, decoupled=True)
    child.execute(child.request(key=1), child.request(key=2))
    for expected in (1, 2):
        key, flags, response = child.next_response()
        assert (key, flags, response.error) == (expected, 1, (4, "no"))


def test_outputs_of_a_sender_are_those_that_are_wanted(start):
    child = start("""
        def execute(self, requests):
            tensors = [pb_utils.Tensor(name, np.zeros(1)) for name in ("A", "OUT", "B")]
            requests[0].get_response_sender().send(pb_utils.InferenceResponse(tensors), 1)
    """, decoupled=True)
    child.execute(child.request(outputs=["B", "OUT"]))
    assert list(child.next_response()[2].tensors) == ["OUT", "B"]


def test_what_a_sender_refuses(start):
    body = """
        def execute(self, requests):
            s = requests[0].get_response_sender()
            ok = self.number(3)
            told = [
                self.tried(lambda: s.send(ok, flags=2)), self.tried(lambda: s.send()), self.tried(lambda: s.send(3)),
                self.tried(lambda: s.send(flags=1)), self.tried(lambda: s.send(ok)), self.tried(lambda: s.send(ok)),
                self.tried(lambda: s.send(flags=1)), self.tried(lambda: s.send(ok, flags=1)), self.tried(lambda: s.send(flags=1)),
                s is requests[0].get_response_sender()]
            pb_utils.Logger.log_info(json.dumps(told))
    """
    unsupported = "TritonModelException: Unable to send response. Unsupported flag provided."
    needed = "TritonModelException: Inference Response object must be provided when the response flags is set to zero."
    typed = "TypeError: a sender sends an InferenceResponse, not <class 'int'>"
    closed = "TritonModelException: Unable to send response. Response sender has been closed."
    twice = "TritonModelException: Unable to send response. Non-decoupled model cannot send more than one response."
    early = ("TritonModelException: Unable to send response. Non-decoupled model cannot send complete final before sending a "
             "response.")
    for decoupled, expected in ((False, [unsupported, needed, typed, early, None, twice, None, twice, closed, True]),
                                (True, [unsupported, needed, typed, None, closed, closed, closed, closed, closed, True])):
        child = start(body, decoupled=decoupled)
        child.execute(child.request())
        reader = child.note(python_child.LOG).reader
        reader.take("B"), reader.str(), reader.take("I")
        assert json.loads(reader.str()) == expected


def test_a_model_that_has_answered_by_its_sender_returns_none(start):
    child = start("""
        def execute(self, requests):
            requests[0].get_response_sender().send(self.number(4), 1)
            return [None, self.number(5)]
    """)
    answers = child.execute(child.request(key=1), child.request(key=2))
    assert [a.kind for a in answers] == [python_child.NONE, python_child.TENSORS]
    key, flags, response = child.next_response()
    assert (key, flags, value(response)) == (1, 1, 4)


def test_an_answer_behind_that_of_the_sender_is_an_error(start):
    child = start("""
        def execute(self, requests):
            requests[0].get_response_sender().send(self.number(4), 1)
            return [self.number(5)]
    """)
    assert child.execute(child.request()).endswith("message: Unable to send response. Non-decoupled model cannot send more than one "
                                                   "response.")


def test_a_decoupled_model_may_not_return_responses(start):
    child = start("def execute(self, requests):\n    return [self.number(1)]\n", decoupled=True)
    assert child.execute(child.request()) == (
        "Failed to process the request(s) for model 'm_0_0', message: Python model 'm_0_0' is using the decoupled mode and the "
        "execute function must return None.")


def test_the_server_hears_when_nothing_more_can_come(start):
    """The request and its sender are garbage, without a final response."""
    child = start("""
        def execute(self, requests):
            if requests[0].request_id() == "free":
                self.kept = None
            elif requests[0].request_id() == "keep":
                self.kept = requests[0].get_response_sender()
                self.kept.send(self.number(1))
    """, decoupled=True)
    child.execute(child.request(key=1))
    assert child.note(python_child.DROP_REQUEST).id == 1
    child.execute(child.request(key=2, ident="keep"))
    child.next_response()
    child.execute(child.request(key=3, ident="free"))
    assert sorted(child.note(python_child.DROP_REQUEST).id for _ in range(2)) == [2, 3]


def test_a_decoupled_model_may_reschedule(start):
    child = start("""
        def execute(self, requests):
            requests[0].get_response_sender().send(self.number(1))
            requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
    """, decoupled=True)
    assert [(a.kind, a.release_flags) for a in child.execute(child.request(key=8))] == [(python_child.NONE, 2)]
    assert child.next_response()[0] == 8
    assert child.note(python_child.DROP_REQUEST).id == 8


def test_coroutines_of_a_decoupled_model_go_on_in_the_background(start):
    child = start("""
        async def execute(self, requests):
            sender = requests[0].get_response_sender()
            self.waiting = getattr(self, "waiting", 0) + 1
            while self.waiting < 100:
                await asyncio.sleep(0.001)
            sender.send(self.number(self.waiting), flags=1)
    """, decoupled=True)
    for key in range(1, 101):
        assert child.execute(child.request(key=key))[0].kind == python_child.NONE
    got = [child.next_response() for _ in range(100)]
    assert sorted(key for key, _, _ in got) == list(range(1, 101))
    assert {value(response) for _, _, response in got} == {100}


def test_an_exception_in_the_background_is_an_answer(start):
    """…of what has no final response yet, and a line of the log."""
    child = start("""
        async def execute(self, requests):
            requests[0].get_response_sender().send(self.number(1), flags=1)
            requests[1].get_response_sender().send(self.number(2))
            await asyncio.sleep(0)
            raise ValueError("in the background")
    """, decoupled=True)
    child.execute(child.request(key=4), child.request(key=5), child.request(key=6))
    assert [child.next_response()[:2] for _ in range(2)] == [(4, 1), (5, 0)]
    words = ("Failed to process the request(s) for model 'm_0_0', message: ValueError: in the background\n\nAt:\n"
             f"  {child.version}/model.py(")
    for expected in (5, 6):
        key, flags, response = child.next_response()
        assert (key, flags, response.error[0]) == (expected, 1, 1)
        assert response.error[1].startswith(words)
    reader = child.note(python_child.LOG).reader
    level, _, _, told = reader.take("B"), reader.str(), reader.take("I"), reader.str()
    assert level == 2
    assert told.startswith(words)
    child.wait(child.all_back)
    with pytest.raises(TimeoutError):
        child.note(python_child.DROP_REQUEST, within_s=0)


def test_is_cancelled_asks_the_server(start):
    child = start("""
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            got = [requests[0].is_cancelled(), sender.is_cancelled(), self.tried(sender.is_cancelled)]
            got += [self.ask().is_cancelled(), self.ask().get_response_sender()]
            sender.send(self.say(got), flags=1)
            pb_utils.Logger.log_info(str(sender.is_cancelled()))
    """, decoupled=True)
    child.start(child.request(key=6))
    for reply in ({"fields": u8(0)}, {"fields": u8(1)}, {"error": (5, "not here")}):
        question = child.note(python_child.IS_CANCELLED)
        assert question.reader.take("Q") == 6
        child.reply(question, **reply)
    child.answer()
    assert said(child.next_response()[2]) == "[False, True, 'TritonModelException: not here', False, None]"
    assert child.note(python_child.LOG)


# ---- Calls

def test_exec_asks_another_model(start):
    child = start("""
        def execute(self, requests):
            r = self.ask(request_id="b7", correlation_id="seq", model_version=3, flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
                         timeout=1000, parameters={"p": 1, "q": "x"}, trace=requests[0].trace(),
                         preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 2))
            response = r.exec()
            got = pb_utils.get_output_tensor_by_name(response, "OUT")
            return [self.say([response.has_error(), got.as_numpy().tolist(), response.parameters()])]
    """)
    child.start(child.request(key=12, trace='{"traceparent": "x"}'))
    call = child.next_call()
    (tensor,) = call.pop("inputs")
    assert (tensor.name, tensor.datatype, tensor.shape, tensor.data) == ("IN", "INT32", [1], struct.pack("<i", 7))
    ident, slot = call.pop("id"), call.pop("slot")
    assert 1 <= slot <= python_child.SLOTS, "the caller sleeps"
    assert call == {"model": "other", "version": 3, "parent": 12, "decoupled": False, "request_id": "b7", "correlation": "seq",
                    "flags": 2, "timeout": 1000, "priority": 0, "parameters": '{"p": 1, "q": "x"}', "trace": '{"traceparent": "x"}',
                    "memory": (2, 2), "outputs": ["OUT"]}
    child.respond({"id": ident, "slot": slot}, [NUMBER])
    assert said(child.answer()[0]) == "[False, [49], '{}']"
    child.wait(child.all_back)


def test_a_call_belongs_to_the_only_request_of_its_batch(start):
    child = start("""
        def execute(self, requests):
            self.ask(trace=requests[-1].trace() if requests[0].flags() else pb_utils.InferenceRequest(
                inputs=[], requested_output_names=[], model_name="m").trace()).exec()
            return [self.say(1) for _ in requests]
    """)
    for keys, flags, parent in (([5], 0, 5), ([6, 7], 0, 0), ([8, 9], 1, 9)):
        child.start(*(child.request(key=key, flags=flags) for key in keys))
        call = child.next_call()
        assert call["parent"] == parent
        child.respond(call, [NUMBER])
        child.answer()


def test_errors_of_calls_are_responses(start):
    child = start("""
        def execute(self, requests):
            response = self.ask().exec()
            return [self.say([response.has_error(), response.error().message(), response.error().code(), response.output_tensors()])]
    """)
    child.start(child.request())
    child.respond(child.next_call(), error=(2, "nobody"))
    assert said(child.answer()[0]) == "[True, 'nobody', 2, []]"


def test_async_exec_asks_many_at_once(start):
    child = start("""
        async def execute(self, requests):
            responses = await asyncio.gather(*(self.ask(f"m{i}").async_exec() for i in range(20)))
            return [self.say([int(r.output_tensors()[0].as_numpy()[0]) for r in responses])]
    """)
    child.start(child.request())
    calls = [child.next_call() for _ in range(20)]
    assert sorted(call["model"] for call in calls) == sorted(f"m{i}" for i in range(20))
    for call in reversed(calls):
        child.respond(call, [Tensor("OUT", "INT32", [1], struct.pack("<i", int(call["model"][1:]) ** 2))])
    assert said(child.answer()[0]) == str([i ** 2 for i in range(20)])
    child.wait(child.all_back)


def test_a_call_whose_future_was_cancelled_is_forgotten(start):
    child = start("""
        async def execute(self, requests):
            future = self.ask().async_exec()
            await asyncio.sleep(0)
            future.cancel()
            kept = await self.ask("second").async_exec()
            return [self.say(kept.output_tensors()[0].as_numpy()[0])]
    """)
    child.start(child.request())
    first, second = child.next_call(), child.next_call()
    child.respond(first, [NUMBER])
    child.respond(second, [NUMBER])
    assert said(child.answer()[0]) == "49"
    child.wait(child.all_back)


def respond_thrice(child, call):
    for i in range(3):
        child.respond(call, [Tensor("OUT", "INT32", [1], struct.pack("<i", i))], flags=0)
    child.respond(call, empty=True)


@pytest.mark.parametrize("run", ["self.ask().exec(decoupled=True)", "self.ask().async_exec(decoupled=True)"])
def test_responses_of_a_decoupled_model_are_iterated(start, run):
    """The last one is empty, as in Triton; a second iteration begins anew."""
    child = start(f"""
        async def execute(self, requests):
            responses = {"await " if "async_" in run else ""}{run}
            seen = [len(next(responses).output_tensors())]
            seen += [[int(t.as_numpy()[0]) for t in r.output_tensors()] for r in responses]
            again = [[int(t.as_numpy()[0]) for t in r.output_tensors()] for r in responses]
            return [self.say([seen, again, self.tried(lambda: next(responses) and "anew")])]
    """)
    child.start(child.request())
    call = child.next_call()
    assert call["decoupled"]
    respond_thrice(child, call)
    assert said(child.answer()[0]) == "[[1, [1], [2], []], [[0], [1], [2], []], 'StopIteration: Iteration is done for the responses.']"
    child.wait(child.all_back)


def test_an_iteration_is_cancelled(start):
    child = start("""
        def execute(self, requests):
            responses = self.ask().exec(decoupled=True)
            first = next(responses)
            responses.cancel()
            rest = [r.has_error() and r.error().message() for r in responses]
            return [self.say([first.has_error(), rest])]
    """)
    child.start(child.request())
    call = child.next_call()
    child.respond(call, [NUMBER], flags=0)
    assert child.note(python_child.CALL_CANCEL).id == call["id"]
    child.respond(call, error=(7, "cancelled"))
    assert said(child.answer()[0]) == "[False, ['cancelled']]"


def test_a_call_that_nobody_awaits_is_cancelled(start):
    """…and what still comes of it is given back."""
    child = start("""
        def execute(self, requests):
            responses = self.ask().exec(decoupled=True)
            next(responses)
            del responses
            return [self.say("done")]
    """)
    child.start(child.request())
    call = child.next_call()
    child.respond(call, [NUMBER], flags=0)
    assert child.note(python_child.CALL_CANCEL).id == call["id"]
    assert said(child.answer()[0]) == "done"
    respond_thrice(child, call)
    child.wait(child.all_back)
    child.respond(call, [NUMBER])    # of a call that has ended
    child.wait(child.all_back)


def test_a_forked_process_may_end_while_calls_are_under_way(start):
    """…again and again, while the reader takes responses: its copies of iterators end without the reader's lock."""
    child = start("""
        def execute(self, requests):
            import os
            responses, statuses = self.ask().exec(decoupled=True), set()
            for response in responses:
                pid = os.fork()
                if pid == 0:
                    del responses, response
                    gc.collect()
                    os._exit(7)
                statuses.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if hasattr(os, "waitstatus_to_exitcode") else 7)
            return [self.say(statuses)]
    """)
    child.start(child.request())
    call = child.next_call()
    for i in range(100):
        child.respond(call, [NUMBER], flags=python_child.LAST if i == 99 else 0)
    assert said(child.answer()[0]) == "{7}"
    with pytest.raises(TimeoutError):
        child.note(python_child.CALL_CANCEL, within_s=0)


def test_a_first_response_that_is_not_the_last_is_the_result(start):
    """…of a model that is not decoupled; what follows is given back."""
    child = start("""
        def execute(self, requests):
            return [self.number(int(self.ask().exec().output_tensors()[0].as_numpy()[0]))]
    """)
    for _ in range(3):
        child.start(child.request())
        call = child.next_call()
        assert call["slot"] == 1, "it is free again"
        child.respond(call, [NUMBER], flags=0)
        assert child.note(python_child.CALL_CANCEL).id == call["id"]
        assert value(child.answer()[0]) == 49
        respond_thrice(child, call)
        child.wait(child.all_back)


def test_calls_from_threads(start):
    """…more than there are slots: the other responses come by notes."""
    child = start("""
        def execute(self, requests):
            results = [None] * 40
            def run(i):
                results[i] = int(self.ask(f"m{i}").exec().output_tensors()[0].as_numpy()[0])
            threads = [threading.Thread(target=run, args=(i,)) for i in range(40)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            return [self.say(results)]
    """)
    for _ in range(2):
        child.start(child.request())
        calls = [child.next_call() for _ in range(40)]
        assert sorted(call["slot"] for call in calls) == [0] * 8 + list(range(1, python_child.SLOTS + 1))
        for call in reversed(calls):
            child.respond(call, [Tensor("OUT", "INT32", [1], struct.pack("<i", int(call["model"][1:])))])
        assert said(child.answer()[0]) == str(list(range(40)))
        child.wait(child.all_back)


def test_calls_outside_of_execute_are_refused(start):
    refused = "TritonModelException: BLS is only supported during the 'execute' function."
    child = start("""
        def initialize(self, args):
            self.told = self.tried(lambda: self.ask().exec())

        def execute(self, requests):
            return [self.say(self.told)]

        def finalize(self):
            print(self.tried(lambda: self.ask().exec()), flush=True)
    """)
    assert evaluate(child) == refused
    assert child.finalize() == 0
    assert child.process.stdout.read().decode() == refused + "\n"


@pytest.mark.parametrize("expression, error", [
    ("self.ask(request_id=3)", "TypeError"),
    ("self.ask(correlation_id=2.5)", "TritonModelException: Correlation ID must be integer or string"),
    ("self.ask(correlation_id=-1)", "OverflowError"),
    ("self.ask(parameters={'a': None})",
     "TritonModelException: Expect parameters values to have type bool/int/str, found type <class 'NoneType'>"),
    ("self.ask(preferred_memory=3)", "TypeError: preferred_memory is a PreferredMemory"),
    ("self.ask(trace=3)", "TypeError: trace is an InferenceTrace"),
    ("pb_utils.InferenceRequest(request_id='i', inputs=[None], requested_output_names=[], model_name='o')",
     "TritonModelException: Input tensor for request with id 'i' and model name 'o' should not be empty."),
    ("pb_utils.InferenceRequest(request_id='i', inputs=[], requested_output_names=[''], model_name='o')",
     "TritonModelException: Requested output name for request with id 'i' and model name 'o' should not be empty."),
    ("pb_utils.InferenceRequest(inputs=[])", "TypeError: InferenceRequest() needs inputs, requested_output_names and model_name"),
    ("requests[0].exec()", "TritonModelException: a request of the server cannot be sent to another model"),
    ("self.ask().async_exec()", "RuntimeError: no running event loop"),
    ("pb_utils.PreferredMemory(1)", "ValueError: 1 is not a type of memory"),
    ("pb_utils.TritonError('x', 99)", "ValueError: 99 is not a code of TritonError"),
])
def test_requests_that_cannot_be(start, expression, error):
    child = start(f"def execute(self, requests):\n    return [self.say(self.tried(lambda: {expression}))]\n")
    assert evaluate(child).startswith(error)
    child.wait(child.all_back)


# ---- Log

def test_log_lines_tell_level_and_place(start):
    child = start("""
        def execute(self, requests):
            log = pb_utils.Logger
            log.log_info("ü")
            log.log_warn("b")
            log.log_error("c")
            log.log_verbose("d")
            log.log("e")
            log.log("f", log.LogLevel.ERROR)
            log.log(message="g", level=log.VERBOSE)
            return [self.say(self.tried(lambda: log.log("x", 9)))]
    """)
    assert evaluate(child) == "ValueError: 9 is not a level of Logger"
    lines = (child.version / "model.py").read_text().splitlines()
    first = next(i for i, line in enumerate(lines, 1) if "log_info" in line)
    for i, (level, words) in enumerate(zip((0, 1, 2, 3, 0, 2, 3), "übcdefg")):
        reader = child.note(python_child.LOG).reader
        assert (reader.take("B"), reader.str(), reader.take("I"), reader.str()) == (level, f"{child.version}/model.py", first + i, words)


# ---- Metrics

def test_metrics_of_each_kind(start):
    child = start("""
        def initialize(self, args):
            F = pb_utils.MetricFamily
            self.family = F(name="f", description="some", kind=F.HISTOGRAM)
            self.metric = self.family.Metric(labels={"a": "b", "n": 1}, buckets=[0.1, 1])
            self.plain = F("g", "", F.MetricKind.GAUGE).Metric()

        def execute(self, requests):
            self.metric.observe(0.25)
            self.plain.set(2)
            self.plain.increment(-1.5)
            value = self.plain.value()
            refused = self.tried(lambda: self.plain.observe(1))
            del self.metric, self.family, self.plain
            return [self.say([value, refused])]
    """.replace("def initialize(self, args):", "def prepare(self):").replace("self.metric.observe", "self.prepare()\n            self.metric.observe"))
    child.start(child.request())

    def answer(kind, fields, *expected, error=None):
        question = child.note(kind)
        assert tuple(question.reader.str() if form == "s" else question.reader.take(form) for form, _ in expected) == tuple(
            thing for _, thing in expected)
        child.reply(question, fields, error)

    answer(python_child.FAMILY_NEW, u64(70), ("s", "f"), ("s", "some"), ("B", 2))
    answer(python_child.METRIC_NEW, u64(71), ("Q", 70), ("I", 2), ("s", "a"), ("s", "b"), ("s", "n"), ("s", "1"), ("I", 2),
           ("d", 0.1), ("d", 1))
    answer(python_child.FAMILY_NEW, u64(72), ("s", "g"), ("s", ""), ("B", 1))
    answer(python_child.METRIC_NEW, u64(73), ("Q", 72), ("I", 0), ("I", 0))
    answer(python_child.METRIC_OBSERVE, b"", ("Q", 71), ("d", 0.25))
    answer(python_child.METRIC_SET, b"", ("Q", 73), ("d", 2))
    answer(python_child.METRIC_INCREMENT, b"", ("Q", 73), ("d", -1.5))
    answer(python_child.METRIC_VALUE, struct.pack("<d", 0.5), ("Q", 73))
    answer(python_child.METRIC_OBSERVE, b"", ("Q", 73), ("d", 1), error=(5, "no histogram"))
    ended = [child.note() for _ in range(4)]
    assert [(note.kind, note.reader.take("Q")) for note in ended] == [
        (python_child.METRIC_DELETE, 71), (python_child.FAMILY_DELETE, 70), (python_child.METRIC_DELETE, 73), (python_child.FAMILY_DELETE, 72)]
    assert said(child.answer()[0]) == "[0.5, 'TritonModelException: Failed to observe metric value: no histogram']"


def test_what_a_family_refuses(start):
    child = start("""
        def execute(self, requests):
            F = pb_utils.MetricFamily
            counter, histogram = F("c", "", F.COUNTER), F("h", "", F.HISTOGRAM)
            return [self.say(json.dumps([
                self.tried(lambda: counter.Metric(labels=[])), self.tried(lambda: counter.Metric(buckets=[1])),
                self.tried(lambda: histogram.Metric()), self.tried(lambda: histogram.Metric(buckets={})),
                self.tried(lambda: F("x", "", 7)), self.tried(lambda: F("x", "", F.COUNTER))]))]
    """)
    child.start(child.request())
    for ident in (1, 2):
        child.reply(child.note(python_child.FAMILY_NEW), u64(ident))
    child.reply(child.note(python_child.FAMILY_NEW), error=(6, "there is one"))
    assert json.loads(said(child.answer()[0])) == [
        "TritonModelException: Failed to create metric. Labels must be a dictionary.",
        "TritonModelException: Failed to create metric. Unexpected buckets found.",
        "TritonModelException: Failed to create metric. Missing required buckets.",
        "TritonModelException: Failed to create metric. Buckets must be a list.",
        "ValueError: 7 is not a kind of MetricFamily",
        "TritonModelException: Error when creating MetricFamily: there is one"]


# ---- Other models

def test_models_are_loaded_and_asked_for(start):
    child = start("""
        def execute(self, requests):
            pb_utils.load_model(model_name="a")
            pb_utils.load_model("b", config='{"x": 1}', files={"file:1/w": b"\\0data"})
            pb_utils.unload_model("b", unload_dependents=True)
            ready = [pb_utils.is_model_ready("a"), pb_utils.is_model_ready(model_name="a", model_version="3")]
            return [self.say(json.dumps([ready, self.tried(lambda: pb_utils.load_model("nobody")),
                                         self.tried(lambda: pb_utils.load_model("c", files={"f": "text"}))]))]
    """)
    child.start(child.request())
    load = child.note(python_child.LOAD_MODEL)
    assert (load.reader.str(), load.reader.take("I")) == ("a", 0)
    child.reply(load)
    load = child.note(python_child.LOAD_MODEL)
    assert [load.reader.str(), load.reader.take("I"), *(load.reader.str() for _ in range(4))] == ["b", 2, "config", '{"x": 1}', "file:1/w",
                                                                                              "\0data"]
    child.reply(load)
    unload = child.note(python_child.UNLOAD_MODEL)
    assert (unload.reader.str(), unload.reader.take("B")) == ("b", 1)
    child.reply(unload)
    for version, ready in (("", 1), ("3", 0)):
        question = child.note(python_child.IS_MODEL_READY)
        assert (question.reader.str(), question.reader.str()) == ("a", version)
        child.reply(question, u8(ready))
    child.reply(child.note(python_child.LOAD_MODEL), error=(1, "failed to load 'nobody'"))
    assert json.loads(said(child.answer()[0])) == [
        [True, False], "TritonModelException: Failed to load model: failed to load 'nobody'",
        "TritonModelException: failed to load model 'c', files should be a dictionary of file paths and file contents"]


# ---- Helpers of triton_python_backend_utils

def test_helpers(start):
    child = start("""
        def execute(self, requests):
            config = {"input": [{"name": "A", "data_type": "TYPE_FP32"}], "output": [{"name": "B"}]}
            strings = np.array([b"a", "ü", 3], dtype=object)
            packed = pb_utils.serialize_byte_tensor(strings)
            types = [pb_utils.triton_to_numpy_type(n).__name__ for n in range(1, 14)]
            import c_python_backend_utils
            return [self.say([
                pb_utils.get_input_config_by_name(config, "A"), pb_utils.get_input_config_by_name(config, "B"),
                pb_utils.get_output_config_by_name(config, "B"), pb_utils.get_output_config_by_name({}, "B"),
                pb_utils.using_decoupled_model_transaction_policy(config),
                pb_utils.using_decoupled_model_transaction_policy({"model_transaction_policy": {"decoupled": True}}),
                packed, pb_utils.deserialize_bytes_tensor(packed).tolist(), pb_utils.serialize_byte_tensor(np.zeros(0)),
                pb_utils.serialize_byte_tensor(np.zeros(1)), types[0] in ("bool", "bool_"), types[1:],
                [pb_utils.numpy_to_triton_type(pb_utils.triton_string_to_numpy(t)) for t in pb_utils.TRITON_STRING_TO_NUMPY],
                pb_utils.triton_to_numpy_type(14), pb_utils.numpy_to_triton_type(np.bytes_), pb_utils.numpy_to_triton_type(np.complex64),
                c_python_backend_utils.Tensor is pb_utils.Tensor, c_python_backend_utils.shared_memory.free_memory() > 0,
                pb_utils.get_input_tensor_by_name(requests[0], "IN").name(), pb_utils.get_input_tensor_by_name(requests[0], "X"),
                pb_utils.MemoryType.TRITONSERVER_MEMORY_CPU == pb_utils.TRITONSERVER_MEMORY_CPU])]
    """)
    packed = pack_strings([b"a", "ü".encode(), b"3"])
    assert evaluate(child, inputs=[Tensor("IN", "INT32", [1], bytes(4))]) == str([
        {"name": "A", "data_type": "TYPE_FP32"}, None, {"name": "B"}, None, False, True, packed, [b"a", "ü".encode(), b"3"], (), None, True,
        ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "object_"],
        list(range(1, 14)), None, 13, None, True, True, "IN", None, True])


def test_the_helpers_work_outside_of_a_server(tmp_path):
    """A test of a model may import the module without our extension."""
    (tmp_path / "triton_python_backend_utils.py").write_text((python_child.FOLDER / "triton_python_backend_utils.py").read_text())
    import subprocess
    told = subprocess.run([sys.executable, "-c", "import triton_python_backend_utils as p; print(p.triton_string_to_numpy('TYPE_FP32'))"],
                          cwd=tmp_path, capture_output=True, text=True, check=True, env={"PATH": "/bin", "PYTHONPATH": str(tmp_path)})
    assert told.stdout == f"{np.float32}\n"


CHECKS = [
    ("c.set_max_batch_size(4)", "configuration specified max_batch_size 6, but in auto-complete-config function for model 'M' specified "
                                "max_batch_size 4"),
    ("c.set_dynamic_batching()", "Configuration specified scheduling_choice as 'sequence_batching', but auto-complete-config function "
                                 "for model 'M' tries to set scheduling_choice as 'dynamic_batching'"),
    ("c.set_model_transaction_policy({'decoupled': True})", "trying to change decoupled property in auto-complete-config for model 'M', "
                                                            "which is already set to 'False'."),
    ("c.set_model_transaction_policy({'x': 1})", "model transaction property in auto-complete-config function for model 'M' contains "
                                                 "property other than 'decoupled'."),
    ("c.add_input({'name': 'J', 'data_type': 'TYPE_FP32', 'dims': [1], 'x': 1})",
     "input 'J' in auto-complete-config function for model 'M' contains property other than 'name', 'data_type', 'dims' and 'optional'."),
    ("c.add_output({'name': 'J', 'data_type': 'TYPE_FP32', 'dims': [1], 'optional': 1})",
     "output 'J' in auto-complete-config function for model 'M' contains property other than 'name', 'data_type' and 'dims'."),
    ("c.add_input({'data_type': 'TYPE_FP32'})", "input in auto-complete-config function for model 'M' is missing 'name' property."),
    ("c.add_output({'name': 'J', 'dims': [1]})", "output 'J' in auto-complete-config function for model 'M' is missing 'data_type' "
                                                 "property."),
    ("c.add_input({'name': 'I', 'data_type': 'TYPE_FP16', 'dims': [4]})",
     "unable to load model 'M', configuration expects datatype TYPE_FP32 for input 'I', model provides TYPE_FP16"),
    ("c.add_input({'name': 'I', 'data_type': 'TYPE_FP32', 'dims': [5]})",
     "model 'M', tensor 'I': the model expects dims [5] but the model configuration specifies dims [4]"),
    ("c.add_input({'name': 'I', 'data_type': 'TYPE_FP32', 'dims': [4], 'optional': True})",
     "model 'M', tensor 'I': the model expects optional True but the model configuration specifies optional False"),
    ("c.add_output({'name': 'O', 'data_type': 'TYPE_INT8', 'dims': [9]})", None),
]


@pytest.mark.parametrize("call, error", CHECKS)
def test_checks_of_a_configuration(monkeypatch, call, error):
    monkeypatch.syspath_prepend(str(python_child.FOLDER))
    import triton_python_backend_utils
    c = triton_python_backend_utils.ModelConfig(json.dumps({
        "name": "M", "max_batch_size": 6, "sequence_batching": {}, "model_transaction_policy": {"decoupled": False},
        "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [4], "optional": False}],
        "output": [{"name": "O", "data_type": "TYPE_INVALID", "dims": []}]}))
    before = json.dumps(c.as_dict())
    if error is None:
        eval(call)    # pylint: disable=eval-used
        assert c.as_dict()["output"] == [{"name": "O", "data_type": "TYPE_INT8", "dims": [9]}]
        return
    with pytest.raises(ValueError) as raised:
        eval(call)    # pylint: disable=eval-used
    assert str(raised.value) == error
    assert json.dumps(c.as_dict()) == before
