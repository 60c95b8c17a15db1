# SPDX-License-Identifier: Apache-2.0
"""The process of a Python model, asked by tests in the server's place (tests/lib/python_child.py).

CONCH_TEST_PYTHONS names further interpreters with NumPy (paths with a colon between them), each of which runs every test.
"""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import python_child
from python_child import Child, Tensor, pack_strings, unpack_strings

PYTHONS = [sys.executable, *filter(None, os.environ.get("CONCH_TEST_PYTHONS", "").split(":"))]
HEAD = """import asyncio
import json
import threading
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
"""
TYPES = {"BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "INT8": np.int8,
         "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}


@pytest.fixture(params=PYTHONS)
def start(request, tmp_path):
    """Starts a process for the body of a model's class; what is left of them is ended."""
    started = []

    def start_one(body, initialized=True, **options):
        child = Child(tmp_path / str(len(started)), HEAD + textwrap.indent(textwrap.dedent(body), "    "), request.param, **options)
        started.append(child)
        if initialized:
            assert child.initialize() is None
        return child

    yield start_one
    for child in started:
        if child.socket.fileno() >= 0:
            child.end()


def of_array(name, array):
    datatype = next(t for t, of_numpy in TYPES.items() if of_numpy == array.dtype)
    return Tensor(name, datatype, array.shape, array.tobytes())


def as_array(tensor):
    if tensor.datatype == "BYTES":
        return np.array(unpack_strings(tensor.data), dtype=object).reshape(tensor.shape)
    return np.frombuffer(tensor.data, TYPES[tensor.datatype]).reshape(tensor.shape)


EXPRESSION = """
def execute(self, requests):
    responses = []
    for request in requests:
        tensors = {tensor.name(): tensor for tensor in request.inputs()}
        x = tensors["IN"]
        y = %s
        responses.append(pb_utils.InferenceResponse([y if isinstance(y, pb_utils.Tensor) else pb_utils.Tensor("OUT", y)]))
    return responses
"""
SAY = """
def say(self, value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(value).encode()], dtype=object))])
"""


def said(answer):
    assert isinstance(answer, list), answer
    assert answer[0].error is None, answer[0].error
    return unpack_strings(answer[0].tensors["OUT"].data)[0].decode()


def evaluate(child, *inputs, **request):
    """The text that a model of say(…) answers."""
    return said(child.execute(child.request(inputs=inputs, **request)))


NUMBER = Tensor("IN", "INT32", [1], np.array([5], np.int32).tobytes())


# ---- Tensors

@pytest.mark.parametrize("shape", [(1,), (), (0, 3), (3, 50000)], ids=str)
def test_tensors_of_each_type_go_in_and_out(start, shape):
    child = start(EXPRESSION % "np.array(x.as_numpy())")
    for datatype, of_numpy in TYPES.items():
        array = np.random.default_rng(1).integers(0, 2, shape).astype(of_numpy)
        got = child.run(of_array("IN", array))["OUT"]
        assert got.datatype == datatype
        assert got.shape == list(shape)
        assert np.array_equal(as_array(got), array)
    child.wait(child.all_back)


def test_an_answer_is_signalled_by_the_eventfd_where_the_command_says_so(start):
    """It has its bytes in other blocks beside its own, too: the server copies a large one on a thread."""
    child = start("""
        def execute(self, requests):
            out = pb_utils.empty("OUT", np.uint8, [100000])
            return [pb_utils.InferenceResponse([pb_utils.Tensor("IN", np.zeros(1, np.uint8)), out]) for _ in requests]
    """)
    for by_event in (True, False, True):
        child.start(child.request(), by_event=by_event)
        assert isinstance(child.answer(), list)
        assert child.more_bytes == 100000
        if by_event:
            assert select.select([child.event], [], [], python_child.WITHIN_S)[0]
        assert child.events() == by_event
    assert child.finalize() == 0


def test_an_input_is_a_view_that_keeps_its_memory(start):
    child = start("""
        def execute(self, requests):
            self.kept = getattr(self, "kept", None)
            array = requests[0].inputs()[0].as_numpy()
            before, self.kept = self.kept, array
            assert not array.flags.owndata and array.flags.writeable and array.flags.c_contiguous
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array if before is None else before)])]
    """)
    blocks = []
    for value, expected in ((1, 1), (2, 1), (3, 2)):
        array = np.full((4, 4), value, np.float32)
        first = len(child.blocks)
        assert as_array(child.run(of_array("IN", array))["OUT"]).tolist() == np.full((4, 4), expected).tolist()
        blocks.append(child.blocks[first])
    child.wait(lambda: child.is_back(blocks[0]) and child.is_back(blocks[1]))
    assert not child.is_back(blocks[2]), "the model holds an array of this block"


def test_a_tensor_names_its_type_and_shape(start):
    child = start(SAY + """
def execute(self, requests):
    x = requests[0].inputs()[0]
    return [self.say([x.name(), x.triton_dtype(), x.shape(), x.is_cpu(), x.__dlpack_device__(), pb_utils.triton_to_numpy_type(8).__name__])]
""")
    assert evaluate(child, Tensor("IN", "INT32", [2, 1, 3], bytes(24))) == "['IN', 8, [2, 1, 3], True, (1, 0), 'int32']"


@pytest.mark.parametrize("expression, expected", [
    ("x.as_numpy().T", [[0, 3], [1, 4], [2, 5]]),
    ("x.as_numpy()[:, ::-2]", [[2, 0], [5, 3]]),
    ("np.broadcast_to(x.as_numpy()[0], (3, 3))", [[0, 1, 2]] * 3),
    ("np.asfortranarray(x.as_numpy())", [[0, 1, 2], [3, 4, 5]]),
])
def test_arrays_that_are_not_contiguous(start, expression, expected):
    child = start(EXPRESSION % expression)
    got = child.run(of_array("IN", np.arange(6, dtype=np.int64).reshape(2, 3)))["OUT"]
    assert as_array(got).tolist() == expected


def test_strings_go_in_and_out(start):
    child = start(EXPRESSION % "x.as_numpy()")
    strings = [b"", b"a", b"\0\xff", "ü€".encode() * 1000]
    got = child.run(Tensor("IN", "BYTES", [2, 2], pack_strings(strings)))["OUT"]
    assert (got.datatype, got.shape, unpack_strings(got.data)) == ("BYTES", [2, 2], strings)
    got = child.run(Tensor("IN", "BYTES", [0, 2], b""))["OUT"]
    assert (got.shape, got.data) == ([0, 2], b"")
    child.wait(child.all_back)


def test_elements_of_a_string_array_may_be_anything(start):
    child = start(EXPRESSION % "np.array([b'bytes', 'stü', 7, None, 2.5, np.str_('s')], dtype=object)")
    assert unpack_strings(child.run(NUMBER)["OUT"].data) == [b"bytes", "stü".encode(), b"7", b"None", b"2.5", b"s"]
    child = start(EXPRESSION % "np.array([[b'a\\0b', b'c', b'']])")
    got = child.run(NUMBER)["OUT"]
    assert (got.shape, unpack_strings(got.data)) == ([1, 3], [b"a\0b", b"c", b""])


def test_the_same_string_array_is_given_each_time(start):
    child = start(SAY + """
def execute(self, requests):
    x = requests[0].inputs()[0]
    x.as_numpy()[0] = b"changed"
    return [self.say([x.as_numpy()[0], x.as_numpy().dtype == np.object_])]
""")
    assert evaluate(child, Tensor("IN", "BYTES", [1], pack_strings([b"a"]))) == "[b'changed', True]"


@pytest.mark.parametrize("shape, data", [([2], pack_strings([b"a"])), ([1], pack_strings([b"a", b"b"])), ([1], b"\1\0\0"),
                                         ([1], b"\xff\xff\xff\xffa"), ([0], b"\0\0\0\0")])
def test_strings_that_do_not_fit_their_shape(start, shape, data):
    child = start(EXPRESSION % "x.as_numpy()")
    answer = child.execute(child.request(inputs=[Tensor("IN", "BYTES", shape, data)]))
    assert "TritonModelException: The bytes of a tensor are not as many strings as its shape says." in answer


@pytest.mark.parametrize("expression, error", [
    ("np.array(['a'])", "NumPy dtype is not supported."),
    ("np.zeros(1, '>f4')", "NumPy dtype is not supported."),
    ("np.zeros(1, np.complex64)", "NumPy dtype is not supported."),
    ("[1]", "TypeError: a tensor is made of a numpy.ndarray, not of <class 'list'>"),
    ("pb_utils.Tensor('', x.as_numpy())", "Tensor name cannot be an empty string."),
    ("pb_utils.Tensor(3, x.as_numpy())", "TypeError"),
    ("pb_utils.Tensor('OUT')", "TypeError"),
    ("pb_utils.empty('OUT', np.object_, [1])", "NumPy dtype is not supported."),
    ("pb_utils.empty('OUT', np.int8, [-1])", "negative dimensions are not allowed"),
    ("pb_utils.empty('OUT', np.int8, [2 ** 40])", "MemoryError: no shared memory for 1099511627776 bytes"),
    ("pb_utils.empty('OUT', np.int64, [2 ** 40, 2 ** 40])", "a tensor's shape has too many elements"),
    ("pb_utils.empty('OUT', np.int64, [1] * 65)", "a shape has too many dimensions"),
    ("np.array([b'a', '\\ud800'], dtype=object)", "UnicodeEncodeError"),
    ("np.broadcast_to(np.int8(0), (2 ** 41,))", "MemoryError"),
])
def test_tensors_that_cannot_be(start, expression, error):
    """…make an error of the request, and leave a model that serves."""
    child = start(EXPRESSION % f"{expression} if x.as_numpy()[0] else x")
    assert error in child.execute(child.request(inputs=[NUMBER]))
    assert child.run(Tensor("IN", "INT32", [1], bytes(4)), outputs=["IN"])["IN"].data == bytes(4)


def test_empty_makes_an_output_that_is_not_copied(start):
    child = start("""
        def execute(self, requests):
            self.made = pb_utils.empty("OUT", np.float32, (3, 2)) if not hasattr(self, "made") else self.made
            self.made.as_numpy()[:] = requests[0].inputs()[0].as_numpy()[0]
            return [pb_utils.InferenceResponse([self.made, pb_utils.empty("FLAT", "int8", 4), pb_utils.empty("NONE", "i4", [0])])]
    """)
    offsets = []
    for value in (1, 2):
        child.start(child.request(inputs=[of_array("IN", np.array([value], np.float32))], outputs=["OUT", "FLAT", "NONE"]))
        data, at = child.raw_answer()
        reader = python_child.Reader(data[5:])
        reader.take("B"), reader.str(), reader.take("I")
        reader.str(), reader.take("I"), [reader.take("q") for _ in range(reader.take("I"))]
        size, where, block = (reader.take("Q") for _ in range(3))
        assert (size, block) == (24, 0)
        assert not at <= where < at + len(data), "the tensor lies in the message"
        assert np.frombuffer(child.get(where, size), np.float32).tolist() == [value] * 6
        child.give_back(at)
        offsets.append(where)
    assert offsets[0] == offsets[1]


def test_memory_of_empty_stays_while_the_server_reads(start):
    """The model drops it at once; the next ones lie elsewhere until the message is given back, and then there again."""
    child = start("""
        def execute(self, requests):
            out = pb_utils.empty("OUT", np.uint8, (4096,))
            out.as_numpy()[:] = requests[0].inputs()[0].as_numpy()[0]
            return [pb_utils.InferenceResponse([out])]
    """, up=(4096, 4096, 1 << 20))
    held = []
    for value in range(20):
        child.start(child.request(inputs=[of_array("IN", np.array([value], np.uint8))]))
        data, at = child.raw_answer()
        where = int.from_bytes(data[-16:-8], "little")
        held.append((value, at, where))
    assert len({where for _, _, where in held}) == 20
    for value, at, where in held:
        assert child.get(where, 4096) == bytes([value]) * 4096
        child.give_back(at)
    sizes = []
    for value in range(100):
        assert child.run(of_array("IN", np.array([value], np.uint8)))["OUT"].data == bytes([value]) * 4096
        sizes.append(os.fstat(child.up).st_size)
    assert sizes[-1] == sizes[10] < 25 * 4096


def test_answers_of_sizes_that_cannot_be_foreseen(start):
    """The process makes an answer as large as those before at first; fields or elements may be more."""
    child = start("""
        def execute(self, requests):
            n = int(requests[0].inputs()[0].as_numpy()[0])
            outputs = [pb_utils.Tensor("OUT", np.full(n, n, np.int16)), pb_utils.Tensor("TEXT", np.array(["x" * n, "y"], object))]
            outputs += [pb_utils.Tensor(f"T{i}", np.array([i], np.int16)) for i in range(n % 1000)]
            return [pb_utils.InferenceResponse(outputs)]
    """)
    for n in (0, 1, 40, 2, 999, 3, 1000, 4000, 70, 20000, 0):
        tensors = child.run(of_array("IN", np.array([n], np.int32)), outputs=())
        assert as_array(tensors.pop("OUT")).tolist() == [n] * n
        assert as_array(tensors.pop("TEXT")).tolist() == [b"x" * n, b"y"]
        assert [as_array(tensors[f"T{i}"]).tolist() for i in range(len(tensors))] == [[i] for i in range(n % 1000)]
    child.wait(child.all_back)


def test_a_name_that_comes_after_others_is_its_own(start):
    """Names are kept for the next requests: many, long ones and such that are no ASCII are told apart."""
    child = start(EXPRESSION.replace('tensors["IN"]', "list(tensors.values())[0]") % "pb_utils.Tensor(x.name(), x.as_numpy())")
    for name in [f"name {i}" for i in range(200)] * 2 + ["n" * 63, "n" * 64, "n" * 65, "n" * 1000, "\N{SNOWMAN}", "\N{SNOWMAN}", "name 0"]:
        assert list(child.run(of_array(name, np.array([1], np.int8)), outputs=[name])) == [name]


def test_the_model_waits_for_memory_that_the_server_holds(start):
    child = start(EXPRESSION % "np.full(600000, x.as_numpy()[0])", up=(4096, 4096, 1 << 22))
    child.start(child.request(inputs=[NUMBER]))
    _, at = child.raw_answer()
    child.start(child.request(inputs=[NUMBER]))
    child.wait(lambda: child.page[python_child._RETURNED + 4])
    child.give_back(at)
    assert child.answer()[0].tensors["OUT"].shape == [600000]


def test_memory_of_large_outputs_goes_back_to_the_system(start):
    """…when the model has been idle for a second."""
    child = start(EXPRESSION % "np.ones(8 << 20, np.uint8)")
    assert child.run(NUMBER)["OUT"].data == b"\1" * (8 << 20)
    assert os.fstat(child.up).st_blocks * 512 > 8 << 20
    child.wait(lambda: os.fstat(child.up).st_blocks * 512 < 1 << 20)
    assert child.run(NUMBER)["OUT"].data == b"\1" * (8 << 20)


@pytest.mark.parametrize("expression", [
    "pb_utils.Tensor.from_dlpack('OUT', x)",
    "pb_utils.Tensor.from_dlpack('OUT', x.to_dlpack())",
    "pb_utils.Tensor.from_dlpack('OUT', pb_utils.Tensor('A', x.as_numpy()).to_dlpack())",
    "pb_utils.Tensor.from_dlpack('OUT', x.as_numpy())",
    "np.from_dlpack(x) if hasattr(np, 'from_dlpack') else x.as_numpy()",
    "pb_utils.Tensor.from_dlpack(name='OUT', tensor=pb_utils.Tensor.from_dlpack('B', x))",
    "pb_utils.Tensor.from_dlpack('OUT', pb_utils.Tensor('A', x.as_numpy().T.copy().T))",
])
def test_dlpack_goes_in_and_out(start, expression):
    child = start(EXPRESSION % expression)
    for datatype in ("FP32", "INT64", "UINT8", "FP16", "INT16"):
        array = np.arange(6).reshape(2, 3).astype(TYPES[datatype])
        got = child.run(of_array("IN", array))["OUT"]
        assert got.datatype == datatype
        assert np.array_equal(as_array(got), array)
    child.wait(child.all_back)


def test_bfloat16_goes_by_dlpack(start):
    child = start(EXPRESSION % "pb_utils.Tensor.from_dlpack('OUT', x)")
    got = child.run(Tensor("IN", "BF16", [2], b"abcd"))["OUT"]
    assert (got.datatype, got.shape, got.data) == ("BF16", [2], b"abcd")
    child = start(EXPRESSION % "x.as_numpy()")
    assert ("TritonModelException: Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            in child.execute(child.request(inputs=[Tensor("IN", "BF16", [2], b"abcd")])))


@pytest.mark.parametrize("expression, error", [
    ("3", "Provided tensor is not supported. Tensor must be a DLPack capsule         or have `__dlpack__` and `__dlpack_device__`"),
    ("x.as_numpy()[:, ::2]", "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order"),
    ("x.as_numpy().astype(np.complex64)", 'DType code "5" is not supported.'),
    ("tensors['S']", "DLPack does not have support for string tensors."),
    ("type('Gpu', (), {'__dlpack__': None, '__dlpack_device__': lambda self: (2, 0)})()",
     "DLDevice type 2 is not support by Python backend."),
    ("used", "ValueError"),
])
def test_dlpack_that_cannot_be(start, expression, error):
    child = start(EXPRESSION % f"((used := x.to_dlpack()), np.from_dlpack, pb_utils.Tensor.from_dlpack('A', used), "
                               f"pb_utils.Tensor.from_dlpack('OUT', {expression}))[-1]")
    inputs = [of_array("IN", np.arange(6, dtype=np.float32).reshape(2, 3)), Tensor("S", "BYTES", [1], pack_strings([b"a"]))]
    assert error in child.execute(child.request(inputs=inputs))


# ---- Requests and responses

def test_a_request_tells_what_it_is(start):
    child = start(SAY + """
def execute(self, requests):
    r = requests[0]
    return [self.say(json.dumps({
        "id": r.request_id(), "correlation": r.correlation_id(), "flags": r.flags(), "timeout": r.timeout(),
        "parameters": json.loads(r.parameters()), "trace": r.trace().get_context(), "outputs": sorted(r.requested_output_names()),
        "inputs": [t.name() for t in r.inputs()], "set": type(r.requested_output_names()).__name__, "priority": r.priority(),
        "memory": type(r.preferred_memory()).__name__}))]
""")
    told = json.loads(evaluate(child, NUMBER, ident="ü7", correlation=2 ** 64 - 1, flags=3, timeout=5000000, priority=3,
                               parameters='{"a": [1]}', trace='{"traceparent": "00-1"}', outputs=["OUT", "B"]))
    assert told == {"id": "ü7", "correlation": 2 ** 64 - 1, "flags": 3, "timeout": 5000000, "parameters": {"a": [1]},
                    "trace": '{"traceparent": "00-1"}', "outputs": ["B", "OUT"], "inputs": ["IN"], "set": "set",
                    "priority": 3, "memory": "PreferredMemory"}
    told = json.loads(evaluate(child, correlation="seq", outputs=["OUT"]))
    assert (told["correlation"], told["parameters"], told["trace"], told["id"], told["inputs"]) == ("seq", {}, None, "", [])


def test_outputs_that_nobody_wants_are_left_out(start):
    child = start("""
        def execute(self, requests):
            tensors = [pb_utils.Tensor(name, np.zeros(1)) for name in ("C", "A", "B")]
            return [pb_utils.InferenceResponse(output_tensors=tensors) for _ in requests]
    """)
    answers = child.execute(*(child.request(key=k, outputs=outputs) for k, outputs in enumerate([["A"], ["B", "C"], []], 1)))
    assert [list(answer.tensors) for answer in answers] == [["A"], ["C", "B"], ["C", "A", "B"]]


def test_a_batch_is_answered_in_its_order(start):
    child = start("""
        def execute(self, requests):
            def answer(i, request):
                if i % 3 == 1:
                    return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"no {i}", pb_utils.TritonError.NOT_FOUND))
                return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy() + i)], parameters={"i": i})
            return [answer(i, request) for i, request in enumerate(requests)]
    """)
    answers = child.execute(*(child.request(key=9 - k, inputs=[NUMBER]) for k in range(6)))
    assert [a.error for a in answers] == [None, (2, "no 1"), None, None, (2, "no 4"), None]
    assert [a.parameters for a in answers if not a.error] == ['{"i": %d}' % i for i in (0, 2, 3, 5)]
    assert [as_array(a.tensors["OUT"])[0] for a in answers if not a.error] == [5, 7, 8, 10]


def test_responses_and_errors_have_their_parts(start):
    child = start(SAY + """
def execute(self, requests):
    error = pb_utils.TritonError("why", code=pb_utils.TritonError.CANCELLED)
    ok = pb_utils.InferenceResponse([pb_utils.Tensor("A", np.zeros(1))], parameters={"p": True, "q": "ü", "f": 1.5})
    bad = pb_utils.InferenceResponse(error=error)
    return [self.say(json.dumps([
        ok.has_error(), ok.error(), [t.name() for t in ok.output_tensors()], json.loads(ok.parameters()), bad.has_error(),
        bad.error().message(), bad.error().code() == pb_utils.TritonError.CANCELLED, bad.output_tensors(), bad.parameters(),
        pb_utils.TritonError("x").code() == pb_utils.TritonError.INTERNAL, pb_utils.get_output_tensor_by_name(ok, "A").name(),
        pb_utils.get_output_tensor_by_name(ok, "B")]))]
""")
    assert json.loads(evaluate(child)) == [False, None, ["A"], {"p": True, "q": "ü", "f": 1.5}, True, "why", True, [], "{}", True,
                                           "A", None]


@pytest.mark.parametrize("expression, error", [
    ("None", None),
    ("3", "Expected a list in the execute return, found type '<class 'int'>'."),
    ("()", "Expected a list in the execute return, found type '<class 'tuple'>'."),
    ("[]", "Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) size is:1, "
           "and InferenceResponse(s) size is:0\n"),
    ("[3]", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'."),
    ("[pb_utils.InferenceResponse([None])]", "TritonModelException: Output tensor for inference response should not be empty.\n\nAt:\n"),
    ("[pb_utils.InferenceResponse([3])]", "TypeError: an output is a Tensor"),
    ("[pb_utils.InferenceResponse(parameters={3: 4})]", "Expect parameters keys to have type str, found type <class 'int'>"),
    ("[pb_utils.InferenceResponse(parameters={'a': []})]",
     "Expect parameters values to have type bool/int/str, found type <class 'list'>"),
    ("[pb_utils.InferenceResponse(error='x')]", "TypeError: a response's error is a TritonError"),
    ("[(requests[0].set_release_flags(2), self.say(1))[1]]",
     "Expected a None object in the execute function return list for reschduled request, found type"),
    ("exit(3)", "SystemExit: 3"),
    ("self.nothing", "AttributeError: 'TritonPythonModel' object has no attribute 'nothing'"),
])
def test_what_execute_may_not_return(start, expression, error):
    child = start(SAY + f"\ndef execute(self, requests):\n    return self.say and {expression}\n")
    answer = child.execute(child.request(inputs=[NUMBER]))
    if error is None:
        assert [a.kind for a in answer] == [python_child.NONE]
        assert child.note(python_child.DROP_REQUEST).id == 1
    else:
        assert answer.startswith("Failed to process the request(s) for model 'm_0_0', message: ")
        assert error in answer
        with pytest.raises(TimeoutError):
            child.note(python_child.DROP_REQUEST, within_s=0)
    child.wait(child.all_back)


def test_an_exception_comes_with_its_lines(start):
    child = start("""
        def execute(self, requests):
            self.deeper()

        def deeper(self):
            raise ValueError("all went wrong")
    """)
    file = child.version / "model.py"
    lines = file.read_text().splitlines()
    raised, called = (next(i for i, line in enumerate(lines, 1) if words in line) for words in ("raise ValueError", "self.deeper()"))
    assert child.execute(child.request()) == (
        "Failed to process the request(s) for model 'm_0_0', message: ValueError: all went wrong\n\nAt:\n"
        f"  {file}({raised}): deeper\n  {file}({called}): execute\n")
    assert child.execute(child.request()).count("deeper") == 1


@pytest.mark.parametrize("raised, expected", [("ValueError()", "ValueError: <EMPTY MESSAGE>"), ("KeyError('k')", "KeyError: 'k'"),
                                              ("ValueError('\\ud800')", "ValueError: \\ud800"),
                                              ("type('Odd', (Exception,), {'__str__': None})()", "Odd: <MESSAGE UNAVAILABLE>")])
def test_odd_exceptions_have_a_text(start, raised, expected):
    child = start(f"def execute(self, requests):\n    raise {raised}\n")
    assert f"message: {expected}\n\nAt:" in child.execute(child.request())


def test_rescheduled_requests_say_so(start):
    child = start("""
        def execute(self, requests):
            requests[1].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return [pb_utils.InferenceResponse(), None]
    """)
    answers = child.execute(child.request(key=5), child.request(key=6))
    assert [(a.kind, a.release_flags) for a in answers] == [(python_child.TENSORS, 0), (python_child.NONE, 2)]
    assert child.note(python_child.DROP_REQUEST).id == 6


def test_an_async_execute_is_awaited(start):
    child = start(SAY + """
async def execute(self, requests):
    await asyncio.gather(*(asyncio.sleep(0.01) for _ in range(100)))
    if len(requests) == 2:
        raise ValueError("two")
    return [self.say(threading.current_thread() is threading.main_thread())]
""")
    assert evaluate(child) == "False"
    answer = child.execute(child.request(key=1), child.request(key=2))
    assert "message: ValueError: two\n\nAt:\n" in answer
    assert f"{child.version}/model.py" in answer


# ---- The life of a model

def test_a_model_may_import_what_lies_beside_it(start, tmp_path):
    child = start(SAY + """
def execute(self, requests):
    from . import helper
    import plain
    import start
    return [self.say([helper.VALUE, plain.VALUE, start.VALUE, __name__, pb_utils.get_model_dir()])]
""")
    (child.version / "helper.py").write_text("VALUE = 'relative'\n")
    (child.version / "start.py").write_text("VALUE = 'no name of ours'\n")
    (child.version.parent / "plain.py").write_text("VALUE = 'of the folder'\n")
    assert evaluate(child) == str(["relative", "of the folder", "no name of ours", "1.model", str(child.version)])


def test_a_backend_written_in_python_runs_its_own_file(start, tmp_path):
    backend = tmp_path / "backends/mine"
    backend.mkdir(parents=True)
    (backend / "beside.py").write_text("VALUE = 'beside'\n")
    (backend / "model.py").write_text(HEAD + textwrap.indent(SAY + """
def execute(self, requests):
    import beside
    return [self.say([beside.VALUE, __name__, pb_utils.get_model_dir()])]
""", "    "))
    child = start("pass\n", file=str(backend / "model.py"))
    assert evaluate(child) == str(["beside", "model", str(child.version)])


def test_initialize_gets_its_arguments(start):
    child = start(SAY + """
def initialize(self, args):
    self.args = args

def execute(self, requests):
    return [self.say(json.dumps(self.args))]
""")
    told = json.loads(evaluate(child))
    assert sorted(told) == ["model_config", "model_instance_device_id", "model_instance_kind", "model_instance_name", "model_name",
                            "model_repository", "model_version"]
    assert (told["model_name"], json.loads(told["model_config"])["name"]) == ("m", "m")


@pytest.mark.parametrize("body, error", [
    ("def initialize(self, args):\n    raise RuntimeError('no luck')\n", "RuntimeError: no luck\n\nAt:\n  "),
    ("def __init__(self):\n    raise RuntimeError('no object')\n", "RuntimeError: no object"),
    ("def initialize(self):\n    pass\n", "TypeError: "),
    ("x = 1\ny = nothing\n", "NameError: name 'nothing' is not defined"),
    ("def (:\n", "SyntaxError: "),
])
def test_errors_of_initialize(start, body, error):
    child = start(body, initialized=False)
    got = child.initialize()
    assert got.startswith(error)
    if "raise" in body:
        assert f"{child.version}/model.py(" in got


def test_a_model_without_its_parts(tmp_path):
    with Child(tmp_path) as child:
        assert child.initialize() == f"Python model file not found in '{child.version}/model.py'"
    with Child(tmp_path, "x = 1\n") as child:
        assert child.initialize().startswith("AttributeError: module '1.model' has no attribute 'TritonPythonModel'")
    with Child(tmp_path, "class TritonPythonModel:\n    pass\n") as child:
        assert child.initialize() is None
        assert not child.has_is_ready
        assert child.execute(child.request()) == (f"Failed to process the request(s) for model 'm_0_0', message: Python model "
                                                  f"{child.version}/model.py does not implement `execute` method.")
        assert child.finalize() == 0
    with Child(tmp_path, "x = 1\n", file="model.txt") as child:
        assert child.initialize() == "Model name must end with '.py'. Model name is \"model.txt\"."


def test_finalize_is_called_and_the_process_ends(start):
    child = start("""
        def execute(self, requests):
            return [pb_utils.InferenceResponse()]

        def finalize(self):
            print("finalized", flush=True)
    """)
    child.run()
    assert child.finalize() == 0
    assert child.process.stdout.read() == b"finalized\n"


def test_an_exception_of_finalize_is_logged(start):
    child = start("def finalize(self):\n    raise ValueError('at the end')\n")
    assert child.finalize() == 0
    note = child.note(python_child.LOG)
    assert (note.reader.take("B"), note.reader.str(), note.reader.take("I")) == (2, "model.py", 0)
    assert note.reader.str().startswith("ValueError: at the end\n\nAt:\n")


COMPLETES = """
@staticmethod
def auto_complete_config(config):
    %s
    return config
"""


@pytest.mark.parametrize("fake, error", [
    ("sys.abiflags = 't'", "conch: the Python backend does not run in a free-threaded Python, and /py is one\n"),
    ("sys.version_info = (3, 7, 9)", "conch: the Python backend needs Python 3.8 or later, and /py is 3.7.9\n"),
])
def test_an_interpreter_that_cannot_serve_is_refused_by_name(fake, error):
    code = f"import runpy, sys; sys.executable = '/py'; sys.version = '3.7.9 (fake)'; {fake}; runpy.run_path({str(python_child.FOLDER / 'start.py')!r}, run_name='__main__')"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (1, "", error)


def test_a_configuration_is_completed(start):
    child = start(COMPLETES % """config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [4], "optional": True})
    config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]})
    config.set_max_batch_size(8)
    config.set_dynamic_batching()
    config.set_model_transaction_policy({"decoupled": True})""", initialized=False)
    error, config = child.complete()
    assert error is None
    assert json.loads(config) == {
        "name": "m", "max_batch_size": 8, "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [4], "optional": True}],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [4]}], "dynamic_batching": {},
        "model_transaction_policy": {"decoupled": True}}
    assert child.goes_on


def test_a_model_need_not_complete_its_configuration(start):
    child = start("pass\n", initialized=False)
    assert child.complete() == (None, "")
    assert child.goes_on


def test_the_process_that_completes_is_initialized_without_another_import(start):
    child = start(COMPLETES % "pass" + """
count = 0

def initialize(self, args):
    TritonPythonModel.count += 1
    self.name = args["model_instance_name"]

def execute(self, requests):
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.count]))])]
""", initialized=False)
    (child.version / "model.py").write_text((child.version / "model.py").read_text() + "\nopen(__file__ + '.imports', 'a').write('.')\n")
    assert child.complete()[0] is None
    assert child.initialize(greets=False) is None
    assert child.run(outputs=())["OUT"].data == np.array([1]).tobytes()
    assert (child.version / "model.py.imports").read_text() == "."


@pytest.mark.parametrize("daemon", [False, True])
def test_a_process_with_a_thread_of_the_completion_does_not_go_on(start, daemon):
    child = start(COMPLETES % f"threading.Thread(target=threading.Event().wait, daemon={daemon}).start()", initialized=False)
    assert child.complete()[0] is None
    assert not child.goes_on


@pytest.mark.parametrize("body, error", [
    (COMPLETES % "raise ValueError('no')", "ValueError: no\n\nAt:\n"),
    (COMPLETES % "config = 3", "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."),
    (COMPLETES % "config.add_input({'name': 'I', 'data_type': 'TYPE_FP32'})",
     "ValueError: input 'I' in auto-complete-config function for model 'm' is missing 'dims' property."),
])
def test_errors_of_auto_complete_config(start, body, error):
    assert start(body, initialized=False).complete()[0].startswith(error)


def test_is_ready_is_asked_while_the_model_executes(start):
    child = start("""
        def initialize(self, args):
            self.go, self.state = threading.Event(), True

        def is_ready(self):
            self.go.set()
            if isinstance(self.state, Exception):
                raise self.state
            return self.state

        def execute(self, requests):
            self.go.wait()
            self.state = {1: 0, 2: ValueError("not well")}.get(requests[0].flags(), 1)
            self.go.clear()
            return [pb_utils.InferenceResponse()]
    """)
    assert child.has_is_ready
    for flags, expected in ((1, (0, 1)), (2, (0, 0)), (3, (1, "ValueError: not well"))):
        child.start(child.request(flags=flags))
        child.send(python_child.IS_READY, 40 + flags)
        note = child.note(python_child.READINESS)
        assert note.id == 40 + flags
        failed = note.reader.take("B")
        assert failed == expected[0]
        if failed:
            assert note.reader.str().startswith(expected[1])
        else:
            assert note.reader.take("B") == expected[1]
        child.answer()


def test_an_async_is_ready_is_awaited(start):
    child = start("async def is_ready(self):\n    await asyncio.sleep(0)\n    return False\n")
    child.send(python_child.IS_READY, 3)
    note = child.note(python_child.READINESS)
    assert (note.id, note.reader.take("B"), note.reader.take("B")) == (3, 0, 0)


@pytest.mark.parametrize("body", ["while True: pass", "threading.Event().wait()"])
def test_the_process_ends_with_its_server(start, body):
    """…also while the model hangs."""
    child = start(f"""
        def execute(self, requests):
            print("begun", flush=True)
            {body}
    """)
    child.start(child.request())
    assert child.process.stdout.readline() == b"begun\n"
    child.socket.close()
    assert child.process.wait(python_child.WITHIN_S) == 1
    child.process.communicate()


def test_an_idle_process_ends_with_its_server(start):
    child = start("pass\n")
    child.socket.close()
    assert child.process.wait(python_child.WITHIN_S) == 1
    child.process.communicate()


def test_an_interrupt_is_the_servers(start):
    child = start(EXPRESSION % "x.as_numpy()")
    child.process.send_signal(signal.SIGINT)
    assert child.run(NUMBER)["OUT"].data == NUMBER.data
    assert child.finalize() == 0


def test_a_signal_handler_of_the_model_runs_while_it_waits(start):
    child = start("""
        def initialize(self, args):
            import signal
            signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
    """)
    ready = []
    while not ready:    # a signal just before the process sleeps is handled with the next one
        child.process.send_signal(signal.SIGUSR1)
        ready = select.select([child.process.stdout], [], [], 1)[0]
    assert child.process.stdout.readline() == b"handled\n"
    assert child.finalize() == 0


def test_a_forked_process_leaves_the_servers_memory_alone(start):
    """Its copies of views end without giving anything back, and it has none of the descriptors."""
    child = start(SAY + """
def execute(self, requests):
    import os
    array = requests[0].inputs()[0].as_numpy()
    pid = os.fork()
    if pid == 0:
        try:
            pb_utils.empty("X", np.int8, 1)
        except RuntimeError as e:
            code = "not the one that serves" in str(e)
        open_ones = [fd for fd in (3, 4, 5, 6) if os.path.exists(f"/proc/self/fd/{fd}")]
        del array, requests
        os._exit(0 if code and not open_ones else 1)
    _, status = os.waitpid(pid, 0)
    self.seen = array
    return [self.say([status, int(array[0])])]
""")
    assert evaluate(child, NUMBER) == "[0, 5]"
    assert not child.is_back(child.blocks[-2])


def test_what_the_model_prints_appears_at_once(start):
    child = start("def execute(self, requests):\n    print('printed')\n    return [pb_utils.InferenceResponse()]\n")
    child.run()
    assert child.process.stdout.readline() == b"printed\n"


def test_numpy_is_imported_when_it_is_needed(tmp_path):
    model = ("import sys\nimport triton_python_backend_utils as pb_utils\nclass TritonPythonModel:\n"
             "    def execute(self, requests):\n"
             "        error = pb_utils.TritonError(str(['numpy' in sys.modules, 'asyncio' in sys.modules]))\n"
             "        return [pb_utils.InferenceResponse(error=error)]\n")
    with Child(tmp_path, model, sys.executable) as child:
        assert child.initialize() is None
        assert child.execute(child.request(inputs=[NUMBER]))[0].error == (1, "[False, False]")


# ---- Memory

def resident(child):
    return int(next(line for line in open(f"/proc/{child.process.pid}/status", encoding="ascii") if line.startswith("RssAnon")).split()[1])


@pytest.mark.parametrize("expression", ["x.as_numpy() + 1", "pb_utils.Tensor.from_dlpack('OUT', x.to_dlpack())", "nothing",
                                        "pb_utils.empty('OUT', np.int32, [4])",
                                        "pb_utils.Tensor('OUT', tensors['S'].as_numpy().astype(object))"])
def test_memory_does_not_grow_with_requests(start, expression):
    child = start(EXPRESSION % expression)

    def ask():
        inputs = [Tensor("IN", "INT32", [16], bytes(64)), Tensor("S", "BYTES", [3], pack_strings([b"a", b"b" * 100, b""]))]
        fields = child.request(inputs=inputs, parameters='{"a": 1}', ident="id", correlation="c")
        for _ in range(1000):
            child.execute(fields)

    ask()
    before = resident(child)
    for _ in range(3):
        ask()
    assert resident(child) - before < 200, "kB more after 3000 requests"
