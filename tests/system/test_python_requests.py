# SPDX-License-Identifier: Apache-2.0
"""What a model in Python sees of a request, and what it says in a response besides tensors: parameters, correlation ids,
flags, time limits, requested outputs, errors with codes, sequences, wrong answers."""

import json

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from python_models import NUMBER, TEXT, Streaming, infer, number, only_in_conch, only_ours, text_of, words, write_python

WHO = """
def execute(self, requests):
    responses = []
    for request in requests:
        told = {"id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
                "timeout": request.timeout(), "outputs": sorted(request.requested_output_names()),
                "parameters": json.loads(request.parameters()) if request.parameters() else {},
                "cancelled": request.is_cancelled(), "inputs": [t.name() for t in request.inputs()]}
        text = np.array([json.dumps(told).encode()], dtype=np.object_)
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text), pb_utils.Tensor("MORE", text)]))
    return responses
"""

# Each case of what a model may do wrong, or say.
SAYS = """
def response(self, value, **more):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.int32))], **more)

def execute(self, requests):
    what = [pb_utils.get_input_tensor_by_name(request, "WHAT").as_numpy()[0].decode() for request in requests][0]
    fine = [self.response(1) for request in requests]
    error = lambda *args: [pb_utils.InferenceResponse(error=pb_utils.TritonError(*args)) for request in requests]
    if what in ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED"):
        return error("as code", getattr(pb_utils.TritonError, what))
    if what == "no code":
        return error("without a code")
    if what == "parameters":
        return [self.response(1, parameters={"text": "é", "yes": True, "number": -7, "real": 2.5}) for request in requests]
    if what == "none":
        return None
    if what == "none inside":
        return [None for request in requests]
    if what == "no list":
        return 7
    if what == "no response":
        return ["text" for request in requests]
    if what == "too many":
        return fine + fine
    if what == "twice the same":
        return [self.response(1)] * len(requests)
    if what == "raise":
        raise KeyError("whatever")
    if what == "exit":
        raise SystemExit(3)
    if what == "unknown output":
        return [pb_utils.InferenceResponse([pb_utils.Tensor("NOBODY", np.array([1], np.int32)), self.response(1).output_tensors()[0]])
                for request in requests]
    if what == "missing output":
        return [pb_utils.InferenceResponse([]) for request in requests]
    if what == "other type":
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1.5], np.float64))]) for request in requests]
    if what == "error and tensors":
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1], np.int32))], error=pb_utils.TritonError("both"))
                for request in requests]
    if what == "bad parameters":
        return [self.response(1, parameters={"list": [1]}) for request in requests]
    return fine
"""

NUMBERS = """
def initialize(self, args):
    self.total = {}

def execute(self, requests):
    responses = []
    for request in requests:
        start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy()[0]
        key = pb_utils.get_input_tensor_by_name(request, "CORRID").as_numpy().reshape(-1)[0]
        value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0]
        self.total[key] = value + (0 if start else self.total[key])
        responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.total[key]], np.int32))]))
    return responses
"""

BATCHES = """
def execute(self, requests):
    responses = []
    for request in requests:
        array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if array[0][0] < 0:
            responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("negative")))
        else:
            size = np.full(array.shape, len(requests), np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array), pb_utils.Tensor("SIZE", size)]))
    return responses
"""

SEQUENCES = """sequence_batching {{ max_sequence_idle_microseconds: 60000000 control_input [
  {{ name: "START" control [ {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} ] }},
  {{ name: "CORRID" control [ {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{} }} ] }} ] }}
"""
WHAT = ("input", "WHAT", "BYTES", [1])


def write_models(root):
    write_python(root, "who", WHO, *TEXT, ("output", "MORE", "BYTES", [-1]), more='parameters { key: "a" value { string_value: "b" } }\n')
    write_python(root, "says", SAYS, WHAT, ("output", "OUT", "INT32", [1]))
    write_python(root, "sums", NUMBERS, *NUMBER, more=SEQUENCES.format("UINT64"), instances=2)
    write_python(root, "named_sums", NUMBERS, *NUMBER, more=SEQUENCES.format("STRING"), instances=2)
    write_python(root, "batches", BATCHES, *NUMBER, ("output", "SIZE", "INT32", [1]),
                 more="max_batch_size: 8\ndynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 200000 }\n")
    return root


def who(server, **options):
    return json.loads(text_of(infer(server, "who", number(1), **options)))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_model_sees_all_of_a_request(python_server, protocol):
    told = who(python_server, protocol=protocol, request_id="r7", sequence_id=42, sequence_start=True, timeout=5000000,
               parameters={"text": "x", "number": 3, "flag": True})
    assert told == {"id": "r7", "correlation": 42, "flags": 1, "timeout": 5000000, "outputs": ["MORE", "OUT"],
                    "parameters": {"text": "x", "number": 3, "flag": True}, "cancelled": False, "inputs": ["IN"]}


def test_a_model_sees_the_absence_of_all(python_server):
    told = who(python_server)
    assert told == {"id": "", "correlation": 0, "flags": 0, "timeout": 0, "outputs": ["MORE", "OUT"], "parameters": {},
                    "cancelled": False, "inputs": ["IN"]}


def test_correlation_ids_may_be_texts(python_server):
    assert who(python_server, sequence_id="sequence é", sequence_end=True)["correlation"] == "sequence é"


def test_only_requested_outputs_are_answered(python_server):
    outputs = [tritonclient.http.InferRequestedOutput("MORE")]
    got = infer(python_server, "who", number(1), outputs=outputs)
    assert [output["name"] for output in got.get_response()["outputs"]] == ["MORE"]
    assert json.loads(text_of(got, "MORE"))["outputs"] == ["MORE"]


@only_ours("2.51 has no parameters of responses")
def test_parameters_of_a_response_reach_the_client(python_server):
    expected = {"text": "é", "yes": True, "number": -7, "real": 2.5}
    got = infer(python_server, "says", words(WHAT="parameters"))
    assert {name: value for name, value in got.get_response()["parameters"].items() if name in expected} == expected
    got = infer(python_server, "says", words(WHAT="parameters"), protocol="grpc").get_response()
    assert got.parameters["text"].string_param == "é"
    assert got.parameters["number"].int64_param == -7


# HTTP has no number of its own for the last three.
CODES = {"INTERNAL": 500, "NOT_FOUND": 404, "INVALID_ARG": 400, "UNAVAILABLE": 503, "UNSUPPORTED": 501, "ALREADY_EXISTS": 400,
         "CANCELLED": 400, "UNKNOWN": 400}


@pytest.mark.parametrize("code", [*CODES, "no code"])
def test_errors_of_a_model_have_codes(python_server, code):
    with pytest.raises(InferenceServerException) as raised:
        infer(python_server, "says", words(WHAT=code))
    assert raised.value.message() == ("without a code" if code == "no code" else "as code")
    assert raised.value.status() == str({"no code": 500, **CODES}[code])


WRONG = {
    "none": "", "none inside": "", "no list": "", "no response": "", "raise": "KeyError: 'whatever'", "bad parameters": "",
    "too many": ("Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) "
                 "size is:1, and InferenceResponse(s) size is:2"),
}
NOT_SURVIVED = ["none", "none inside", "bad parameters"]


@pytest.mark.parametrize("what", [what for what in WRONG if what not in NOT_SURVIVED])
def test_what_a_model_does_wrong_is_an_error_of_that_request(python_server, what):
    assert_wrong(python_server, what)


@only_ours("it never answers, or does not know parameters")
@pytest.mark.parametrize("what", NOT_SURVIVED)
def test_what_else_a_model_does_wrong_is_an_error_of_that_request(python_server, what):
    """2.51 hangs on None (reference/behaviours §27.11)."""
    assert_wrong(python_server, what)


def assert_wrong(python_server, what):
    with pytest.raises(InferenceServerException) as raised:
        infer(python_server, "says", words(WHAT=what))
    assert WRONG[what] in raised.value.message()
    assert infer(python_server, "says", words(WHAT="fine")).as_numpy("OUT").tolist() == [1]


@pytest.mark.parametrize("what", ["unknown output", "missing output", "other type", "error and tensors", "twice the same"])
def test_what_a_model_does_oddly_has_one_answer(python_server, what):
    assert_one_answer(python_server, what)


@only_ours("its process ends")
def test_a_model_that_leaves_python_has_one_answer(python_server):
    assert_one_answer(python_server, "exit")


def assert_one_answer(python_server, what):
    """Whatever the answer is; the model serves on."""
    try:
        infer(python_server, "says", words(WHAT=what))
    except InferenceServerException as e:
        assert e.message()
    assert infer(python_server, "says", words(WHAT="fine")).as_numpy("OUT").tolist() == [1]


def test_sequences_have_their_state_by_correlation_id(python_server):
    assert_sums(python_server, "sums", (7, 8))


@only_in_conch("the tensor that 2.51 makes of a text is no string")
def test_sequences_have_their_state_by_a_text(python_server):
    assert_sums(python_server, "named_sums", ("seven", "eight"))


def assert_sums(python_server, model, ids):
    for first, last in ((True, False), (False, False), (False, True)):
        got = [infer(python_server, model, number(10 + i), sequence_id=name, sequence_start=first, sequence_end=last).as_numpy("OUT")[0]
               for i, name in enumerate(ids)]
        rounds = 1 if first else 3 if last else 2
        assert got == [10 * rounds, 11 * rounds]


def test_a_batch_has_an_answer_for_each_request(python_server):
    with Streaming(python_server) as stream:
        for value in (1, -2, 3, 4):
            stream.send("batches", {"IN": np.array([[value]], np.int32)})
        got = {}
        for _ in range(4):
            (first, *rest) = stream.rest()
            key = first if isinstance(first, str) else first[0][0]
            got[key] = rest
    assert set(got) == {1, "negative", 3, 4}
