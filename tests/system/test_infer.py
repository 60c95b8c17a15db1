# SPDX-License-Identifier: Apache-2.0
"""Inference with the unmodified tritonclient: data types, shapes, requested outputs, sizes, many requests at once."""

import asyncio
import concurrent.futures

import numpy
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import triton_to_np_dtype

from repository import DATATYPES
from wire import infer

FIXED_SIZE = [name for name in DATATYPES if name not in ("BYTES", "BF16")]
IN_JSON = [name for name in FIXED_SIZE if name != "FP16"]


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.url, connection_timeout=60, network_timeout=60) as client:
        yield client


def extremes(datatype):
    """A few values of a type, its smallest and its largest among them."""
    dtype = triton_to_np_dtype(datatype)
    if datatype == "BOOL":
        return numpy.array([True, False, True, True])
    if datatype == "BYTES":
        return numpy.array([b"", b"a", b"four", "ünï".encode(), b"\x00\xff", b"x" * 70000], dtype=object)
    info = numpy.finfo(dtype) if datatype.startswith("FP") else numpy.iinfo(dtype)
    return numpy.array([info.min, 0, 1, info.max], dtype=dtype)


def tensor(name, array, datatype, binary=True):
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def output(name, binary=True):
    return triton.InferRequestedOutput(name, binary_data=binary)


@pytest.mark.parametrize("datatype", FIXED_SIZE + ["BYTES"])
def test_tensors_survive_binary(client, datatype):
    sent = extremes(datatype)
    answer = client.infer(f"any_{datatype.lower()}", [tensor("INPUT0", sent, datatype)], outputs=[output("OUTPUT0")])
    got = answer.as_numpy("OUTPUT0")
    assert got.dtype == sent.dtype
    assert got.shape == sent.shape
    assert (got == sent).all()
    assert answer.get_output("OUTPUT0")["datatype"] == datatype


@pytest.mark.parametrize("binary_in, binary_out", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("datatype", IN_JSON)
def test_tensors_survive_json(client, datatype, binary_in, binary_out):
    sent = extremes(datatype)
    answer = client.infer(
        f"any_{datatype.lower()}",
        [tensor("INPUT0", sent, datatype, binary_in)],
        outputs=[output("OUTPUT0", binary_out)],
    )
    got = answer.as_numpy("OUTPUT0")
    assert got.dtype == sent.dtype
    assert (got == sent).all()


@pytest.mark.parametrize("binary_in, binary_out", [(False, False), (False, True), (True, False)])
def test_strings_in_json(client, binary_in, binary_out):
    sent = numpy.array(["", "plain", 'quote " backslash \\', "tab\tnewline\n", "ünï 漢字 🐚"], dtype=object)
    answer = client.infer(
        "any_bytes", [tensor("INPUT0", sent, "BYTES", binary_in)], outputs=[output("OUTPUT0", binary_out)]
    )
    got = [item if isinstance(item, str) else item.decode() for item in answer.as_numpy("OUTPUT0")]
    assert got == list(sent)


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_bytes(server, datatype):
    sent = bytes.fromhex("003c 00bc 0000 ff7b".replace(" ", ""))
    document = {
        "inputs": [
            {"name": "INPUT0", "datatype": datatype, "shape": [4], "parameters": {"binary_data_size": len(sent)}}
        ],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    answer = infer(server, f"any_{datatype.lower()}", document, sent)
    assert answer.status == 200, answer
    head = int(answer.headers["inference-header-content-length"])
    assert answer.body[head:] == sent


def test_floats_survive_json_exactly(client):
    sent = numpy.random.default_rng(7).integers(0, 2**32, 2000, dtype=numpy.uint32).view(numpy.float32)
    sent = sent[numpy.isfinite(sent)]
    answer = client.infer("any_fp32", [tensor("INPUT0", sent, "FP32", False)], outputs=[output("OUTPUT0", False)])
    got = answer.as_numpy("OUTPUT0")
    assert (got.view(numpy.uint32) == sent.view(numpy.uint32)).all()


@pytest.mark.parametrize("binary", [True, False])
def test_a_tensor_may_have_no_elements(client, binary):
    sent = numpy.zeros((0,), dtype=numpy.float32)
    answer = client.infer("any_fp32", [tensor("INPUT0", sent, "FP32", binary)], outputs=[output("OUTPUT0", binary)])
    assert answer.get_output("OUTPUT0")["shape"] == [0]
    got = answer.as_numpy("OUTPUT0")
    assert got is None or got.size == 0


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_dimension_may_be_variable(client, rows):
    sent = numpy.arange(rows * 3, dtype=numpy.float32).reshape(rows, 3)
    got = client.infer("matrix", [tensor("INPUT0", sent, "FP32")]).as_numpy("OUTPUT0")
    assert got.shape == (rows, 3)
    assert (got == sent).all()


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_requests_may_have_any_batch_size(client, batch):
    sent = numpy.arange(batch * 2, dtype=numpy.float32).reshape(batch, 2)
    got = client.infer("batch", [tensor("INPUT0", sent, "FP32")]).as_numpy("OUTPUT0")
    assert (got == sent).all()


def pair(n=3):
    return numpy.arange(n, dtype=numpy.float32) / 4, numpy.arange(n, dtype=numpy.int32) - 1


@pytest.mark.parametrize("binary", [True, False])
def test_two_inputs_become_two_outputs(client, binary):
    left, right = pair()
    inputs = [tensor("INPUT0", left, "FP32", binary), tensor("INPUT1", right, "INT32", binary)]
    answer = client.infer("pair", inputs, outputs=[output("OUTPUT0", binary), output("OUTPUT1", binary)])
    assert (answer.as_numpy("OUTPUT0") == left).all()
    assert (answer.as_numpy("OUTPUT1") == right).all()


def test_inputs_may_mix_binary_and_json(client):
    left, right = pair(5)
    inputs = [tensor("INPUT0", left, "FP32", False), tensor("INPUT1", right, "INT32", True)]
    answer = client.infer("pair", inputs, outputs=[output("OUTPUT0", True), output("OUTPUT1", False)])
    assert (answer.as_numpy("OUTPUT0") == left).all()
    assert (answer.as_numpy("OUTPUT1") == right).all()


def test_inputs_in_any_order(client):
    left, right = pair(2)
    answer = client.infer("pair", [tensor("INPUT1", right, "INT32"), tensor("INPUT0", left, "FP32")])
    assert (answer.as_numpy("OUTPUT0") == left).all()
    assert (answer.as_numpy("OUTPUT1") == right).all()


def test_a_reply_has_only_requested_outputs(client):
    left, right = pair()
    inputs = [tensor("INPUT0", left, "FP32"), tensor("INPUT1", right, "INT32")]
    answer = client.infer("pair", inputs, outputs=[output("OUTPUT1")])
    assert [o["name"] for o in answer.get_response()["outputs"]] == ["OUTPUT1"]
    assert (answer.as_numpy("OUTPUT1") == right).all()


def test_a_reply_has_all_outputs_by_default(client):
    left, right = pair()
    answer = client.infer("pair", [tensor("INPUT0", left, "FP32"), tensor("INPUT1", right, "INT32")])
    assert sorted(o["name"] for o in answer.get_response()["outputs"]) == ["OUTPUT0", "OUTPUT1"]


def test_a_reply_has_the_id_and_the_version(client):
    sent = numpy.ones(1, dtype=numpy.float32)
    answer = client.infer("versions", [tensor("INPUT0", sent, "FP32")], request_id="a request / 17").get_response()
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("a request / 17", "versions", "10")
    answer = client.infer("versions", [tensor("INPUT0", sent, "FP32")], model_version="10").get_response()
    assert "id" not in answer


@pytest.mark.parametrize("size", [602_112, 20_000_000])
def test_large_tensors_survive_binary(client, size):
    sent = numpy.random.default_rng(size).integers(0, 256, size, dtype=numpy.uint8)
    got = client.infer("any_uint8", [tensor("INPUT0", sent, "UINT8")]).as_numpy("OUTPUT0")
    assert got.shape == sent.shape
    assert (got == sent).all()


def test_a_large_tensor_survives_json(client):
    sent = numpy.random.default_rng(3).standard_normal(150_000).astype(numpy.float32)
    answer = client.infer("any_fp32", [tensor("INPUT0", sent, "FP32", False)], outputs=[output("OUTPUT0", False)])
    assert (answer.as_numpy("OUTPUT0") == sent).all()


ASKS_FOR_SHORTEST = (
    "application/json; floats=shortest",
    "application/json;floats=shortest",
    'text/html, APPLICATION/JSON ;q=0.5 ; nothing;\tFloats = "Shortest" ;x=1, */*',
)
ASKS_FOR_NOTHING = (
    None,
    "*/*",
    "application/json",
    "application/json; floats=longest",
    "application/json; floats",
    "application/json; floats=; =shortest;;, ;,,",
    "application/json, text/plain; floats=shortest",
    "application/jsonp; floats=shortest",
    "application/json; floats=shortest2; afloats=shortest",
)


def data_of(client, datatype, sent, accept):
    headers = {"Accept": accept} if accept else {}
    name = f"any_{datatype.lower()}"
    answer = client.infer(name, [tensor("INPUT0", sent, datatype)], outputs=[output("OUTPUT0", False)], headers=headers)
    got = answer.as_numpy("OUTPUT0")
    assert got.tobytes() == sent.tobytes()
    return answer.get_output("OUTPUT0")["data"]


@pytest.mark.conch_only("the reference knows no parameters of Accept")
def test_shortest_floats_are_printed_on_request(client):
    values = [0.1, -0.3, 1e-7, 1, 0, -0.0, 3.4028235e38, 1e-45, 16777216, 123456.79, 0.015625, 2 / 3]
    sent = numpy.array(values, dtype=numpy.float32)
    wide = [float(each) for each in sent]
    short = [float(str(each)) for each in sent]  # numpy prints the shortest form, too
    assert wide != short
    for asks, nothing in zip(ASKS_FOR_SHORTEST * 3, ASKS_FOR_NOTHING):
        for _ in range(2):  # the same head again on the same connection
            assert data_of(client, "FP32", sent, asks) == short, asks
        for _ in range(2):
            assert data_of(client, "FP32", sent, nothing) == wide, nothing
        assert data_of(client, "FP64", sent.astype(numpy.float64), asks) == wide


@pytest.mark.conch_only("the reference knows no parameters of Accept")
def test_many_shortest_floats_survive_json(client):
    bits = numpy.random.default_rng(5).integers(0, 1 << 32, 150_000, dtype=numpy.uint32)
    sent = bits.view(numpy.float32)[numpy.isfinite(bits.view(numpy.float32))]
    got = data_of(client, "FP32", sent, ASKS_FOR_SHORTEST[0])
    assert got == [float(str(each)) for each in sent]


def test_a_hundred_clients_get_their_own_bytes(server):
    """A hundred clients with ten requests each; each gets its own bytes back."""

    def work(number):
        with triton.InferenceServerClient(server.url, connection_timeout=60, network_timeout=60) as client:
            for turn in range(10):
                sent = numpy.full(number + 1, number * 1000 + turn, dtype=numpy.float32)
                answer = client.infer("any_fp32", [tensor("INPUT0", sent, "FP32")], request_id=f"{number}.{turn}")
                assert answer.get_response()["id"] == f"{number}.{turn}"
                got = answer.as_numpy("OUTPUT0")
                assert got.shape == sent.shape and (got == sent).all()
        return number

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert sorted(pool.map(work, range(100), timeout=120)) == list(range(100))


def test_async_infer(client):
    sent = [numpy.full(3, i, dtype=numpy.float32) for i in range(8)]
    running = [client.async_infer("any_fp32", [tensor("INPUT0", one, "FP32")]) for one in sent]
    for one, handle in zip(sent, running):
        assert (handle.get_result(timeout=60).as_numpy("OUTPUT0") == one).all()


def test_asyncio_client(server):
    async def one(client, number):
        sent = numpy.full(4, number, dtype=numpy.float32)
        made = triton_aio.InferInput("INPUT0", [4], "FP32")
        made.set_data_from_numpy(sent, binary_data=number % 2 == 0)
        wanted = [triton_aio.InferRequestedOutput("OUTPUT0", binary_data=number % 3 == 0)]
        answer = await client.infer("any_fp32", [made], outputs=wanted, request_id=str(number))
        assert answer.get_response()["id"] == str(number)
        assert (answer.as_numpy("OUTPUT0") == sent).all()

    async def main():
        async with triton_aio.InferenceServerClient(server.url, conn_limit=16) as client:
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert await client.is_model_ready("any_fp32")
            assert (await client.get_model_metadata("any_fp32"))["name"] == "any_fp32"
            assert (await client.get_model_config("any_fp32"))["name"] == "any_fp32"
            await asyncio.gather(*(one(client, number) for number in range(60)))
            with pytest.raises(triton.InferenceServerException, match="'nobody' is not found"):
                await client.get_model_metadata("nobody")

    asyncio.run(asyncio.wait_for(main(), 60))
