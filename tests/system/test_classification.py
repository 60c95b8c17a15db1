# SPDX-License-Identifier: Apache-2.0
"""Outputs as their best classes, over HTTP and gRPC, by hand and by Triton's clients. Both servers answer the same."""

import asyncio
import math
import queue
import struct

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http_client
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

import repository
import server as servers
import triton
from wire import infer

NUMBERS = ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64"]
NUMPY = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_, "BYTES": np.object_}
LABELS = ["cat", "dog", "", "a:b", "ö"]
WITHIN_S = 60


def numpy_type(datatype):
    return NUMPY.get(datatype) or np.dtype(datatype.lower())


def label(models, name, file="labels.txt", labels=LABELS):
    config = models / name / "config.pbtxt"
    config.write_text(config.read_text().replace('output [ { name: "OUTPUT0"', f'output [ {{ name: "OUTPUT0" label_filename: "{file}"'))
    (models / name / file).write_text("\n".join(labels) + "\n", encoding="utf-8")


def write_models(models):
    for datatype in [*NUMBERS, "FP16", "BOOL", "BYTES"]:
        repository.write_identity(models, f"any_{datatype.lower()}", [(datatype, [-1])])
    repository.write_identity(models, "labelled", [("FP32", [-1])])
    label(models, "labelled")
    repository.write_identity(models, "batched", [("FP32", [-1, 2])], max_batch_size=4)
    label(models, "batched")
    repository.write_identity(models, "pair", [("FP32", [-1]), ("INT32", [-1])])
    repository.write_identity(models, "aside", [("FP32", [-1])], CONCH_EXECUTION="thread")
    return models


@pytest.fixture(scope="module", params=["conch", "triton"])
def served(request, tmp_path_factory):
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    models = write_models(tmp_path_factory.mktemp("models"))
    made = triton.Triton(models) if request.param == "triton" else servers.Server(models, grpc=True)
    with made as server:
        yield server


class Http:
    module = http_client

    def __init__(self, server, binary=True):
        self.client = http_client.InferenceServerClient(server.url)
        self.binary = binary

    def wanted(self, name, classes):
        return http_client.InferRequestedOutput(name, binary_data=self.binary, class_count=classes)


class Json(Http):
    def __init__(self, server):
        super().__init__(server, binary=False)


class Grpc:
    module = grpc_client

    def __init__(self, server):
        self.client = grpc_client.InferenceServerClient(server.grpc_url)

    def wanted(self, name, classes):
        return grpc_client.InferRequestedOutput(name, class_count=classes)


class Stream(Grpc):
    """The same by ModelStreamInfer."""

    def __init__(self, server):
        super().__init__(server)
        self.answers = queue.Queue()
        self.infer = self.client.infer
        self.client.infer = self.ask

    def ask(self, model, inputs, outputs):
        self.client.start_stream(lambda result, error: self.answers.put((result, error)))
        self.client.async_stream_infer(model, inputs, outputs=outputs)
        result, error = self.answers.get(timeout=WITHIN_S)
        self.client.stop_stream()
        if error:
            raise error
        return result


@pytest.fixture(params=[Http, Json, Grpc, Stream])
def protocol(request, served):
    made = request.param(served)
    with made.client:
        yield made


def ask(protocol, model, values, classes, datatype="FP32", name="0"):
    values = np.asarray(values, numpy_type(datatype))
    given = protocol.module.InferInput(f"INPUT{name}", list(values.shape), datatype)
    given.set_data_from_numpy(values)
    result = protocol.client.infer(model, [given], outputs=[protocol.wanted(f"OUTPUT{name}", classes)])
    found = result.as_numpy(f"OUTPUT{name}")
    return list(found.shape), [text.decode() if isinstance(text, bytes) else text for text in found.flatten()]


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_of_each_type(protocol, datatype):
    values = [3, 100, 7, 0, 50]
    texts = ["100:1", "50:4", "7:2"]
    if datatype.startswith("FP"):
        texts = ["100.000000:1", "50.000000:4", "7.000000:2"]
    assert ask(protocol, f"any_{datatype.lower()}", values, 3, datatype) == ([3], texts)


@pytest.mark.parametrize("datatype, least, most", [
    ("INT8", -128, 127), ("INT64", -(2**63), 2**63 - 1), ("UINT64", 0, 2**64 - 1), ("UINT8", 0, 255), ("INT32", -(2**31), 2**31 - 1)])
def test_the_ends_of_a_type(protocol, datatype, least, most):
    assert ask(protocol, f"any_{datatype.lower()}", [0, most, least], 3, datatype)[1][0] == f"{most}:1"
    assert ask(protocol, f"any_{datatype.lower()}", [1, least, most], 9, datatype) == ([3], [f"{most}:2", "1:0", f"{least}:1"])


@pytest.mark.parametrize("value", [
    0.1, -0.0, 1e-7, 5e-7, 1.5e-6, 2.5e-6, 0.0000005, -4e-7, 1e20, 3.4e38, 123456.7890625, 0.9999999, 1073741823.5, 1073741824.5,
    0.5, 1 / 3, -2.0000005, 8388608.5, 1e-45, float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_floats_have_six_decimals(protocol, datatype, value):
    wanted = "%f" % float(np.asarray(value, numpy_type(datatype)))
    shape, texts = ask(protocol, f"any_{datatype.lower()}", [value], 1, datatype)
    assert (shape, texts) == ([1], [f"{wanted}:0"])


def test_random_floats_have_the_decimals_of_printf(protocol):
    random = np.random.default_rng(7)
    values = np.concatenate([random.random(200), random.random(200) * 10.0 ** random.integers(-12, 12, 200),
                             random.integers(-2**31, 2**31, 100) / 2**random.integers(1, 40, 100)])
    _, texts = ask(protocol, "any_fp64", values, len(values), "FP64")
    order = np.argsort(-values, kind="stable")
    assert texts == [f"{values[i]:f}:{i}" for i in order]


def test_more_classes_than_elements_are_all(protocol):
    assert ask(protocol, "any_fp32", [1, 3, 2], 1000) == ([3], ["3.000000:1", "2.000000:2", "1.000000:0"])


def test_labels_stand_behind_the_index(protocol):
    """An empty line is no label."""
    assert ask(protocol, "labelled", [1, 2, 3, 4, 5, 6], 6) == (
        [6], ["6.000000:5", "5.000000:4:ö", "4.000000:3:a:b", "3.000000:2",
              "2.000000:1:dog", "1.000000:0:cat"])


def test_each_entry_of_a_batch_has_its_best(protocol):
    values = [[[1, 2], [4, 3]], [[9, 8], [6, 7]], [[0, 0], [-1, 5]]]
    assert ask(protocol, "batched", values, 2) == (
        [3, 2], ["4.000000:2", "3.000000:3:a:b", "9.000000:0:cat", "8.000000:1:dog",
                 "5.000000:3:a:b", "0.000000:0:cat"])


def test_other_outputs_stay_as_they_are(protocol):
    given = [protocol.module.InferInput("INPUT0", [3], "FP32"), protocol.module.InferInput("INPUT1", [2], "INT32")]
    given[0].set_data_from_numpy(np.array([1, 3, 2], np.float32))
    given[1].set_data_from_numpy(np.array([8, 9], np.int32))
    result = protocol.client.infer("pair", given, outputs=[protocol.wanted("OUTPUT0", 1), protocol.wanted("OUTPUT1", 0)])
    assert list(result.as_numpy("OUTPUT0")) in ([b"3.000000:1"], ["3.000000:1"])
    assert list(result.as_numpy("OUTPUT1")) == [8, 9]


@pytest.mark.sanitize
@pytest.mark.parametrize("classes", [5, 65, 4000, 40000])
def test_many_elements(protocol, classes):
    random = np.random.default_rng(3)
    values = random.permutation(40000).astype(np.float32)
    for model in ["any_fp32", "aside"]:
        shape, texts = ask(protocol, model, values, classes)
        assert shape == [classes]
        order = np.argsort(-values)[:classes]
        assert texts == [f"{values[i]:.6f}:{i}" for i in order]


def refused(protocol, datatype):
    with pytest.raises(InferenceServerException) as caught:
        ask(protocol, f"any_{datatype.lower()}", [1, 0], 1, datatype)
    return f"class result not available for output due to unsupported type '{datatype}'" in caught.value.message()


def test_booleans_have_no_order(protocol):
    assert refused(protocol, "BOOL")


@pytest.mark.parametrize("kind", [Http, Grpc, Stream])
def test_short_floats_have_no_order(served, kind):
    protocol = kind(served)
    with protocol.client:
        assert refused(protocol, "FP16")


def one(classes, **parameters):
    return {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [3], "data": [1, 3, 2]}],
            "outputs": [{"name": "OUTPUT0", "parameters": {"classification": classes, **parameters}}]}


def test_the_bytes_of_an_answer(served):
    answer = infer(served, "any_fp32", one(2))
    assert answer.body == (b'{"model_name":"any_fp32","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"BYTES","shape":[2],'
                           b'"data":["3.000000:1","2.000000:2"]}]}')
    answer = infer(served, "any_fp32", one(2, binary_data=True))
    length = int(answer.headers["inference-header-content-length"])
    assert answer.body[:length].endswith(b'"datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":28}}]}')
    assert answer.body[length:] == struct.pack("<I10sI10s", 10, b"3.000000:1", 10, b"2.000000:2")


def test_a_count_of_zero_asks_for_nothing(served):
    assert infer(served, "any_fp32", one(0)).json()["outputs"][0]["data"] == [1.0, 3.0, 2.0]


@pytest.mark.parametrize("count", [-1, 1.5, "2", True, None])
def test_a_count_that_is_none_is_refused(served, count):
    answer = infer(served, "any_fp32", one(count))
    assert answer.status == 500 and answer.error.startswith("Unable to set 'classification'"), answer


def test_an_error_has_the_status_of_the_reference(served):
    document = {"inputs": [{"name": "INPUT0", "datatype": "BOOL", "shape": [1], "data": [True]}],
                "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 1}}]}
    answer = infer(served, "any_bool", document)
    assert (answer.status, answer.error) == (400, "class result not available for output due to unsupported type 'BOOL'")


@pytest.mark.parametrize("choice, text", [
    ({"int64_param": 0}, "invalid value for 'classification' parameter, expected >= 0"),
    ({"int64_param": -1}, "invalid value for 'classification' parameter, expected >= 0"),
    ({"string_param": "2"}, "invalid value type for 'classification' parameter, expected int64_param"),
    ({"bool_param": True}, "invalid value type for 'classification' parameter, expected int64_param")])
def test_grpc_refuses_other_parameters(served, choice, text):
    with grpc_client.InferenceServerClient(served.grpc_url) as client:
        given = grpc_client.InferInput("INPUT0", [1], "FP32")
        given.set_data_from_numpy(np.zeros(1, np.float32))
        wanted = grpc_client.InferRequestedOutput("OUTPUT0", class_count=1)
        wanted._output.parameters["classification"].Clear()
        for name, value in choice.items():
            setattr(wanted._output.parameters["classification"], name, value)
        with pytest.raises(InferenceServerException) as caught:
            client.infer("any_fp32", [given], outputs=[wanted])
    assert (caught.value.status(), caught.value.message()) == ("StatusCode.INVALID_ARGUMENT", text)


@pytest.fixture(scope="module")
def conch(tmp_path_factory):
    with servers.Server(write_models(tmp_path_factory.mktemp("models")), grpc=True) as made:
        yield made


def test_of_equal_ones_the_first_is_better(conch):
    protocol = Http(conch)
    with protocol.client:
        assert ask(protocol, "any_fp32", [0.0, 1, -0.0, 1, 1, 0], 5)[1] == [
            "1.000000:1", "1.000000:3", "1.000000:4", "0.000000:0", "-0.000000:2"]
        nan = math.nan
        assert [text.split(":")[1] for text in ask(protocol, "any_fp32", [nan, 1, nan, -math.inf, 2], 5)[1]] == ["4", "1", "3", "0", "2"]
        assert ask(protocol, "any_fp32", [nan] * 3 + [1.5, nan], 1)[1] == ["1.500000:3"]


def test_a_tensor_without_elements_has_no_best(conch):
    """Triton 2.51 crashes."""
    for protocol in [Http(conch), Grpc(conch)]:
        with protocol.client:
            assert ask(protocol, "any_fp32", [], 3) == ([0], [])


def test_strings_have_no_order(conch):
    """Triton 2.51 crashes."""
    document = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": ["x"]}],
                "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 1}}]}
    answer = infer(conch, "any_bytes", document)
    assert (answer.status, answer.error) == (400, "class result not available for output due to unsupported type 'BYTES'")


def test_more_than_a_million_elements_are_refused(conch):
    for protocol in [Http(conch), Grpc(conch)]:
        with protocol.client:
            assert ask(protocol, "any_uint8", np.zeros(1000000), 1, "UINT8") == ([1], ["0:0"])
            with pytest.raises(InferenceServerException, match="classification output tensor too large"):
                ask(protocol, "any_uint8", np.zeros(1000001), 1, "UINT8")


def test_the_clients_of_asyncio_get_classes(served):
    async def ask_all(module, outputs, url):
        async with module.InferenceServerClient(url) as client:
            def infer(best):
                values = np.zeros(5, np.float32)
                values[best] = 1
                given = outputs.InferInput("INPUT0", [5], "FP32")
                given.set_data_from_numpy(values)
                return client.infer("labelled", [given], outputs=[outputs.InferRequestedOutput("OUTPUT0", class_count=1)])
            answers = await asyncio.gather(*map(infer, range(5)))
            return [answer.as_numpy("OUTPUT0")[0].decode() for answer in answers]
    expected = ["1.000000:0:cat", "1.000000:1:dog", "1.000000:2", "1.000000:3:a:b", "1.000000:4:ö"]
    assert asyncio.run(ask_all(http_aio, http_client, served.url)) == expected
    assert asyncio.run(ask_all(grpc_aio, grpc_client, served.grpc_url)) == expected


def test_a_remembered_request_keeps_its_classes(conch):
    """The same text with other data: http/memo.h gives the parsed form, with the number of classes."""
    protocol = Http(conch)
    with protocol.client:
        for best in range(5):
            values = np.zeros(8)
            values[best] = 1
            assert ask(protocol, "any_fp32", values, 2)[1] == [f"1.000000:{best}", f"0.000000:{1 if best == 0 else 0}"]
