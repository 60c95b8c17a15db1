# SPDX-License-Identifier: Apache-2.0
"""Models in Python that ask other models (exec, async_exec, decoupled=True): from execute(), its threads and its event loop;
themselves, ensembles, sequences and decoupled models; errors; cancels; what is refused."""

import json

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

import repository
from python_models import DECOUPLED, NUMBER, TEXT, infer, number, only_ours, stream, text_of, words, write_python

SCRIPT = """
async def execute(self, requests):
    responses = []
    for request in requests:
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        name = pb_utils.get_input_tensor_by_name(request, "MODEL").as_numpy()[0].decode()
        inner = pb_utils.InferenceRequest(
            model_name=name, requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.Tensor("INPUT0", tensor.as_numpy())])
        once = inner.exec()
        if once.has_error():
            responses.append(pb_utils.InferenceResponse(error=once.error()))
            continue
        again = await inner.async_exec()
        one, two = (pb_utils.get_output_tensor_by_name(r, "OUTPUT0").as_numpy() for r in (once, again))
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one + two)]))
    return responses
"""

# Many calls at the same time: on the event loop, and on threads.
MANY = """
async def execute(self, requests):
    import asyncio, concurrent.futures
    responses = []
    def make(i):
        return pb_utils.InferenceRequest(model_name="identity", requested_output_names=["OUTPUT0"],
                                         inputs=[pb_utils.Tensor("INPUT0", np.array([i], np.float32))])
    for request in requests:
        n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        got = await asyncio.gather(*(make(i).async_exec() for i in range(n)))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got += list(pool.map(lambda i: make(i).exec(), range(n)))
        total = sum(int(pb_utils.get_output_tensor_by_name(r, "OUTPUT0").as_numpy()[0]) for r in got)
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([total], np.int32))]))
    return responses
"""

# Counts down by calls to itself, which other instances execute.
ITSELF = """
def execute(self, requests):
    responses = []
    for request in requests:
        n = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if n[0] > 0:
            inner = pb_utils.InferenceRequest(model_name="itself", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", n - 1)])
            response = inner.exec()
            assert not response.has_error(), response.error().message()
            n = pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy() + 1
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", n)]))
    return responses
"""

STREAMS = """
def execute(self, requests):
    responses = []
    for request in requests:
        n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        inner = pb_utils.InferenceRequest(model_name="sends", requested_output_names=["OUT"],
                                          inputs=[pb_utils.Tensor("IN", np.array([n], np.int32))])
        seen = []
        for response in inner.exec(decoupled=True):
            assert not response.has_error(), response.error().message()
            if len(response.output_tensors()) > 0:
                seen.append(int(response.output_tensors()[0].as_numpy()[0]))
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([sum(seen)], np.int32))]))
    return responses
"""

STREAMS_ASYNC = """
async def execute(self, requests):
    for request in requests:
        n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        inner = pb_utils.InferenceRequest(model_name="sends", requested_output_names=["OUT"],
                                          inputs=[pb_utils.Tensor("IN", np.array([n], np.int32))])
        sender = request.get_response_sender()
        for response in await inner.async_exec(decoupled=True):
            if len(response.output_tensors()) > 0:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", response.output_tensors()[0].as_numpy())]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

# The loop is left after two responses: the rest is garbage, or cancelled.
LEAVES = """
def execute(self, requests):
    responses = []
    for request in requests:
        inner = pb_utils.InferenceRequest(model_name="sends", requested_output_names=["OUT"],
                                          inputs=[pb_utils.Tensor("IN", np.array([1000], np.int32))])
        several = inner.exec(decoupled=True)
        seen = [int(next(several).output_tensors()[0].as_numpy()[0]) for _ in range(2)]
        if hasattr(several, "cancel"):
            several.cancel()
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([sum(seen)], np.int32))]))
    return responses
"""

SENDS = """
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        for i in range(n):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([i], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

# What is told of the error of a call, in each case of a bad one.
ERRS = """
def initialize(self, args):
    self.early = self.attempt(lambda: pb_utils.InferenceRequest(
        model_name="identity", requested_output_names=["OUTPUT0"], inputs=[self.tensor()]).exec())

def tensor(self):
    return pb_utils.Tensor("INPUT0", np.array([1], np.float32))

def attempt(self, call):
    try:
        response = call()
        return "error: " + response.error().message() if response.has_error() else "ok"
    except Exception as e:
        return type(e).__name__ + ": " + str(e)

def execute(self, requests):
    R = pb_utils.InferenceRequest
    cases = {
        "early": lambda: self.early,
        "no such model": lambda: self.attempt(lambda: R(model_name="nobody", requested_output_names=["OUTPUT0"], inputs=[self.tensor()]).exec()),
        "no such version": lambda: self.attempt(lambda: R(model_name="identity", model_version=9, requested_output_names=["OUTPUT0"], inputs=[self.tensor()]).exec()),
        "no such output": lambda: self.attempt(lambda: R(model_name="identity", requested_output_names=["OUT"], inputs=[self.tensor()]).exec()),
        "no input": lambda: self.attempt(lambda: R(model_name="identity", requested_output_names=["OUTPUT0"], inputs=[]).exec()),
        "other type": lambda: self.attempt(lambda: R(model_name="identity", requested_output_names=["OUTPUT0"],
                                                     inputs=[pb_utils.Tensor("INPUT0", np.array([1], np.int8))]).exec()),
        "decoupled": lambda: self.attempt(lambda: R(model_name="sends", requested_output_names=["OUT"],
                                                    inputs=[pb_utils.Tensor("IN", np.array([1], np.int32))]).exec()),
        "the model's": lambda: self.attempt(lambda: R(model_name="raises", requested_output_names=["OUT"],
                                                      inputs=[pb_utils.Tensor("IN", np.array([1], np.int32))]).exec()),
        "no name": lambda: self.attempt(lambda: R(model_name="", requested_output_names=["OUTPUT0"], inputs=[self.tensor()]).exec()),
        "fine": lambda: self.attempt(lambda: R(model_name="identity", requested_output_names=["OUTPUT0"], inputs=[self.tensor()]).exec()),
    }
    text = json.dumps({case: attempt() for case, attempt in cases.items()})
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([text.encode()], dtype=np.object_))]) for request in requests]
"""

RAISES = """
def execute(self, requests):
    raise ValueError("the inner one")
"""

# Passes on who asks: the called model tells what it sees.
PASSES = """
def execute(self, requests):
    responses = []
    for request in requests:
        inner = pb_utils.InferenceRequest(
            model_name="sees", requested_output_names=["OUT"], request_id="inner", correlation_id=77,
            flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, timeout=3000000, parameters={"k": "v", "n": 1, "b": True},
            inputs=[pb_utils.get_input_tensor_by_name(request, "IN")])
        response = inner.exec()
        assert not response.has_error(), response.error().message()
        responses.append(pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(response, "OUT")]))
    return responses
"""

SEES = """
def execute(self, requests):
    responses = []
    for request in requests:
        told = {"id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
                "timeout": request.timeout(), "parameters": json.loads(request.parameters())}
        text = np.array([json.dumps(told).encode()], dtype=np.object_)
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]))
    return responses
"""

TWICE = """
def execute(self, requests):
    return [pb_utils.InferenceResponse([pb_utils.Tensor(
        "OUT", 2 * pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())]) for request in requests]
"""

ASKS = """
def execute(self, requests):
    responses = []
    for request in requests:
        inner = pb_utils.InferenceRequest(model_name="four_times", requested_output_names=["OUT"],
                                          inputs=[pb_utils.get_input_tensor_by_name(request, "IN")])
        response = inner.exec()
        responses.append(pb_utils.InferenceResponse(error=response.error()) if response.has_error() else
                         pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(response, "OUT")]))
    return responses
"""

ENSEMBLE = """platform: "ensemble"
ensemble_scheduling { step [
  { model_name: "twice" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "HALF" } },
  { model_name: "twice" model_version: -1 input_map { key: "IN" value: "HALF" } output_map { key: "OUT" value: "OUT" } } ] }
"""


# Sums up two sequences of another model, whose requests alternate.
SEQUENCES = """
def execute(self, requests):
    def add(sequence, value, flags):
        inner = pb_utils.InferenceRequest(model_name="sums", requested_output_names=["OUT"], correlation_id=sequence, flags=flags,
                                          inputs=[pb_utils.Tensor("IN", np.array([value], np.int32))])
        response = inner.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return int(pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()[0])

    first, last = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
    responses = []
    for request in requests:
        n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        if n < 0:
            add(99, n, 0)    # has not begun
        got = [[add(sequence, sequence * n, flags) for sequence in (7, 8)] for flags in (first, 0, last)]
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(got).encode()], np.object_))]))
    return responses
"""
SUMS = """
def execute(self, requests):
    responses = []
    for request in requests:
        start, value = (pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0] for name in ("START", "IN"))
        key = request.correlation_id()
        self.totals = {**getattr(self, "totals", {}), key: value if start else self.totals[key] + value}
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.totals[key]], np.int32))]))
    return responses
"""
START = """sequence_batching { max_sequence_idle_microseconds: 60000000 control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }
"""


def write_models(root):
    write_python(root, "script", SCRIPT, ("input", "IN", "FP32", [-1]), ("input", "MODEL", "BYTES", [1]),
                 ("output", "OUT", "FP32", [-1]))
    write_python(root, "many", MANY, *NUMBER)
    write_python(root, "itself", ITSELF, *NUMBER, instances=4)
    write_python(root, "sends", SENDS, *NUMBER, more=DECOUPLED)
    write_python(root, "streams", STREAMS, *NUMBER)
    write_python(root, "streams_async", STREAMS_ASYNC, *NUMBER, more=DECOUPLED)
    write_python(root, "errs", ERRS, *TEXT)
    write_python(root, "raises", RAISES, *NUMBER)
    write_python(root, "passes", PASSES, *TEXT)
    write_python(root, "sees", SEES, *TEXT)
    write_python(root, "twice", TWICE, *NUMBER)
    write_python(root, "asks", ASKS, *NUMBER)
    repository.write_model(root, "four_times", ENSEMBLE + "".join(repository.tensor(*tensor) for tensor in NUMBER))
    repository.write_identity(root, "identity", [("FP32", [-1])])
    repository.write_identity(root, "slow", [("FP32", [-1])], execute_delay_ms=100)
    return root


def test_scripts_ask_other_models(python_server, place):
    array = np.array([1, 2.5], np.float32)

    def ask(model):
        return infer(python_server, "script", {"IN": array, **words(MODEL=model)})

    assert np.array_equal(ask("identity").as_numpy("OUT"), 2 * array)
    assert np.array_equal(ask("slow").as_numpy("OUT"), 2 * array)
    with pytest.raises(InferenceServerException, match="'nobody' is not found" if place.in_conch else "nobody"):
        ask("nobody")
    with pytest.raises(InferenceServerException, match="unexpected inference output 'OUTPUT0' for model 'sees'"):
        ask("sees")


def test_large_tensors_go_to_a_model_and_back(python_server):
    array = np.random.default_rng(1).random(3_000_000, np.float32)
    got = infer(python_server, "script", {"IN": array, **words(MODEL="identity")}, protocol="grpc").as_numpy("OUT")
    assert np.array_equal(got, array + array)


def test_many_calls_go_at_the_same_time(python_server, place):
    n = 100 if place.ours else 20
    assert infer(python_server, "many", number(n)).as_numpy("OUT").tolist() == [2 * sum(range(n))]


def test_a_model_asks_itself(python_server):
    """Other instances of it execute the calls."""
    assert infer(python_server, "itself", number(3)).as_numpy("OUT").tolist() == [3]


def test_a_model_asks_an_ensemble(python_server):
    assert infer(python_server, "asks", number(5)).as_numpy("OUT").tolist() == [20]


@pytest.mark.parametrize("n", [0, 1, 50])
def test_responses_of_a_decoupled_model_are_iterated(python_server, n):
    assert infer(python_server, "streams", number(n)).as_numpy("OUT").tolist() == [sum(range(n))]
    assert stream(python_server, "streams_async", number(n)) == [[i] for i in range(n)]


@only_ours("takes long to start two more models in a server of its own")
def test_a_model_asks_a_model_of_sequences(place, tmp_path):
    root = tmp_path / "models"
    write_python(root, "sequences", SEQUENCES, *TEXT)
    write_python(root, "sums", SUMS, *NUMBER, more=START, instances=2)
    with place.start(root) as running:
        for n in (1, 5):
            assert json.loads(text_of(infer(running, "sequences", number(n)))) == [[7 * n, 8 * n], [14 * n, 16 * n], [21 * n, 24 * n]]
        with pytest.raises(InferenceServerException, match="START flag"):
            infer(running, "sequences", number(-1))


@only_ours("its model can then not be unloaded")
def test_a_loop_over_responses_may_be_left(place, tmp_path):
    root = tmp_path / "models"
    write_python(root, "leaves", LEAVES, *NUMBER)
    write_python(root, "sends", SENDS, *NUMBER, more=DECOUPLED)
    write_python(root, "streams", STREAMS, *NUMBER)
    with place.start(root) as running:
        for _ in range(5):
            assert infer(running, "leaves", number(1)).as_numpy("OUT").tolist() == [1]
        assert infer(running, "streams", number(3)).as_numpy("OUT").tolist() == [3]


def test_errors_of_calls_are_told(python_server, place):
    told = json.loads(text_of(infer(python_server, "errs", number(1))))
    assert told["fine"] == "ok"
    assert "the inner one" in told["the model's"]
    assert "unexpected inference output 'OUT' for model 'identity'" in told["no such output"]
    assert "model 'identity'" in told["no input"] and "expected 1 inputs but got 0 inputs" in told["no input"]
    assert "INT8" in told["other type"]
    assert any(text in told["no such version"] for text in ("not available", "not found", "is not ready"))    # the last one: 2.51
    assert "nobody" in told["no such model"]
    assert "decoupled" in told["decoupled"]
    assert told["no name"] != "ok"
    assert told["early"].endswith("BLS is only supported during the 'execute' function.")


def test_a_call_says_who_asks(python_server):
    told = json.loads(text_of(infer(python_server, "passes", number(1))))
    assert told == {"id": "inner", "correlation": 77, "flags": 1, "timeout": 3000000, "parameters": {"k": "v", "n": 1, "b": True}}
