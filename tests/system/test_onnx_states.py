# SPDX-License-Identifier: Apache-2.0
"""Implicit states of sequences in ONNX models: outputs that the server keeps and gives to the model with the next request
of the same sequence. In Conch and, with the same backend, in the genuine Triton."""

import concurrent.futures

import numpy
import pytest
import tritonclient.http

import onnx_models
import repository
import server as servers
import triton

pytest.importorskip("onnx")
pytestmark = pytest.mark.skipif(servers.REFERENCE, reason="asks the genuine Triton by itself")

CONTROLS = """control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 100 ] } ] },
  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1000 ] } ] } ]
"""


def state(in_name, out_name, datatype, dims="1"):
    return (f'state [ {{ input_name: "{in_name}" output_name: "{out_name}" data_type: TYPE_{datatype} dims: [ {dims} ] '
            f'initial_state: {{ name: "zero" data_type: TYPE_{datatype} dims: [ {dims} ] zero_data: true }} }} ]\n')


def write(root, name, batching, tensors, sequences):
    text = f'backend: "onnxruntime"\nmax_batch_size: {batching}\n' + "".join(repository.tensor(*tensor) for tensor in tensors)
    text += "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    return repository.write_model(root, name, text + f"sequence_batching {{ max_sequence_idle_microseconds: 60000000 {sequences} }}\n")


SUM = state("INPUT_STATE", "OUTPUT_STATE", "FP32")
IO = [("input", "INPUT", "FP32", [1]), ("output", "OUTPUT", "FP32", [1])]
TEXT_IO = [("input", "IN", "BYTES", [1]), ("output", "OUT", "BYTES", [1])]


@pytest.fixture(scope="module", params=["conch", "triton"])
def served(request, tmp_path_factory):
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    root = tmp_path_factory.mktemp("states")
    onnx_models.accumulate(write(root, "direct", 4, IO, "direct { } " + CONTROLS + SUM))
    onnx_models.accumulate(write(root, "oldest", 4, IO, "oldest { max_candidate_sequences: 4 } " + CONTROLS + SUM))
    shown = [*IO, ("output", "OUTPUT_STATE", "FP32", [1])]
    onnx_models.accumulate(write(root, "shown", 4, shown, "direct { } " + CONTROLS + SUM))
    onnx_models.remember(write(root, "texts", 4, TEXT_IO, "direct { } " + state("LAST", "THIS", "STRING")), ("b", 1))
    onnx_models.remember(write(root, "padded", 4, TEXT_IO, "direct { } " + state("LAST", "THIS", "STRING")), ("b", 1))
    onnx_models.remember(write(root, "alone", 0, TEXT_IO, "direct { } " + state("LAST", "THIS", "STRING")), (1,))
    with {"conch": servers.Server, "triton": triton.Triton}[request.param](root) as running:
        yield running


@pytest.fixture(name="client")
def make_client(served):
    with connect(served) as client:
        yield client


def connect(served):
    """A client object serves only the thread that made it."""
    return tritonclient.http.InferenceServerClient(served.url, network_timeout=60)


def ask(client, model, sequence, value, place, outputs=None):
    """place: of the value in its sequence: "first", "last" or neither."""
    name, datatype, array = (("IN", "BYTES", numpy.array([value], object)) if isinstance(value, str)
                             else ("INPUT", "FP32", numpy.array([value], numpy.float32)))
    if model != "alone":
        array = array.reshape(1, 1)
    made = tritonclient.http.InferInput(name, array.shape, datatype)
    made.set_data_from_numpy(array)
    wanted = outputs and [tritonclient.http.InferRequestedOutput(output) for output in outputs]
    result = client.infer(model, [made], outputs=wanted, sequence_id=sequence, sequence_start=place == "first",
                          sequence_end=place == "last")
    arrays = {output["name"]: result.as_numpy(output["name"]).reshape(-1) for output in result.get_response()["outputs"]}
    return {output: [item.decode() if isinstance(item, bytes) else item for item in array.tolist()] for output, array in arrays.items()}


def run_through(client, model, sequence, values):
    answers = []
    for i, value in enumerate(values):
        place = "first" if i == 0 else "last" if i == len(values) - 1 else ""
        answers.append(ask(client, model, sequence, value, place))
    return answers


def sums(values):
    """OUTPUT: the sum so far, with what START and READY add."""
    return [{"OUTPUT": [sum(values[:i + 1]) + 1000 + 100 * (i == 0)]} for i in range(len(values))]


@pytest.mark.parametrize("model", ["direct", "oldest"])
def test_each_sequence_has_its_own_sum(served, model):
    """Several at once, so that batches have requests of several sequences, and empty slots."""
    sequences = {n: [float(10 * n + i) for i in range(5)] for n in range(1, 7)}

    def one(n):
        with connect(served) as client:
            return run_through(client, model, n, sequences[n])

    with concurrent.futures.ThreadPoolExecutor(len(sequences)) as pool:
        got = dict(zip(sequences, pool.map(one, sequences), strict=True))
    for n, values in sequences.items():
        assert got[n] == sums(values), n


def test_a_sequence_begins_anew(client):
    for _ in range(2):
        assert run_through(client, "direct", 77, [1.0, 2.0, 4.0]) == sums([1.0, 2.0, 4.0])


def test_sequences_may_have_names(client):
    assert run_through(client, "oldest", "a name", [5.0, 6.0]) == sums([5.0, 6.0])


def test_a_state_may_be_an_output_too(client):
    assert ask(client, "shown", 5, 1.0, "first") == {"OUTPUT": [1101.0], "OUTPUT_STATE": [1.0]}
    assert ask(client, "shown", 5, 2.0, "", ["OUTPUT"]) == {"OUTPUT": [1003.0]}
    assert ask(client, "shown", 5, 4.0, "", ["OUTPUT_STATE"]) == {"OUTPUT_STATE": [7.0]}
    assert ask(client, "shown", 5, 8.0, "last", ["OUTPUT_STATE"]) == {"OUTPUT_STATE": [15.0]}


def test_a_state_is_no_output_unless_it_is_declared(client):
    with pytest.raises(tritonclient.utils.InferenceServerException, match="unexpected inference output 'OUTPUT_STATE'"):
        ask(client, "direct", 6, 1.0, "first", ["OUTPUT_STATE"])


@pytest.mark.parametrize("model", ["texts", "alone"])
def test_a_state_may_have_strings_of_any_length(client, model):
    texts = ["one", "", "a longer one than those before", "end"]
    assert run_through(client, model, 9, texts) == [{"OUT": [text]} for text in ["", *texts[:-1]]]


def batch_sizes(client, model):
    """How often the model was executed, by the size of the batch."""
    (one,) = client.get_inference_statistics(model)["model_stats"]
    return {batch["batch_size"]: batch["compute_infer"]["count"] for batch in one["batch_stats"]}


def test_a_padding_has_a_valid_state_of_strings(served, client):
    """The second sequence is asked alone, so that the slot in front of it is empty, and is executed as a padding."""
    assert ask(client, "padded", 21, "of the first slot", "first") == {"OUT": [""]}
    before = batch_sizes(client, "padded")
    texts = ["a text that is longer than an empty one", "b", "", "the end"]
    assert run_through(client, "padded", 22, texts) == [{"OUT": [text]} for text in ["", *texts[:-1]]]
    if served.name == "conch":  # 2.51 leaves memory contents there, not zeros
        assert before == {1: 1}
        assert batch_sizes(client, "padded") == {1: 1, 2: len(texts)}
    assert ask(client, "padded", 21, "", "last") == {"OUT": ["of the first slot"]}
