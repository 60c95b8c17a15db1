# SPDX-License-Identifier: Apache-2.0
"""Batches of several requests as a backend on backends/common sees them (tests/plugins/ragged): gathered inputs, batch
inputs and outputs, reshaped and ragged tensors. The same in our server and in the genuine Triton.
"""

import concurrent.futures
import json
import pathlib
import urllib.request

import pytest

import repository
import server as servers
import triton

BACKENDS = str(pathlib.Path(servers.BACKENDS).parent / "tests" / "backends")
KINDS = {
    "COUNT": "BATCH_ELEMENT_COUNT",
    "SUM": "BATCH_ACCUMULATED_ELEMENT_COUNT",
    "SUM0": "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
    "MAX": "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
    "ITEM": "BATCH_ITEM_SHAPE",
    "FLAT": "BATCH_ITEM_SHAPE_FLATTEN",
}
SEEN = 'output [ { name: "SEEN" data_type: TYPE_STRING dims: [1] } ]\n'


def batch_input(target, kind, datatype="TYPE_INT32"):
    return (f'batch_input [ {{ kind: {kind} target_name: "{target}" data_type: {datatype} source_input: "IN" }} ]\n')


def config(of_input="", of_output="", dims="[-1]", datatype="TYPE_FP32", more=""):
    return ('backend: "ragged"\nmax_batch_size: 8\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n'
            f'input [ {{ name: "IN" data_type: {datatype} dims: {dims} {of_input} }} ]\n'
            f'output [ {{ name: "OUT" data_type: {datatype} dims: {dims} {of_output} }} ]\n{SEEN}{more}')


def warm(batch_size, dims, datatype="TYPE_FP32"):
    return (f'model_warmup [ {{ name: "W" batch_size: {batch_size} inputs {{ key: "IN" value {{ '
            f"data_type: {datatype} dims: {dims} zero_data: true }} }} }} ]\n")


ALL = "".join(batch_input(target, kind) for target, kind in KINDS.items())
OUTPUT = 'batch_output [ { target_name: "OUT" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "IN" } ]\n'
MODELS = {
    "rows": config(dims="[2]", more=warm(3, "[2]")),
    "texts": config(dims="[1]", datatype="TYPE_STRING", more=warm(2, "[1]", "TYPE_STRING")),
    "reshaped": config("reshape { shape: [2, 2] }", "reshape { shape: [2, 2] }", dims="[4]", more=warm(2, "[4]")),
    "kinds": config("allow_ragged_batch: true", more=ALL + OUTPUT + warm(3, "[2]")),
    "real": config("allow_ragged_batch: true",
                   more=batch_input("SUM0", KINDS["SUM0"], "TYPE_FP32") + OUTPUT + warm(2, "[2]")),
}
# A warm-up with copies of one sample is a batch of several requests, in one execution.
WARMED = {
    "rows": "IN FP32 [3,2] copied: 0 0 0 0 0 0",
    "texts": "IN BYTES [2,1] copied:  ",
    "reshaped": "IN FP32 [2,2,2] copied: 0 0 0 0 0 0 0 0",
    "kinds": "IN FP32 [6] copied: 0 0 0 0 0 0; COUNT INT32 [3] copied: 2 2 2; SUM INT32 [3] copied: 2 4 6; "
             "SUM0 INT32 [4] copied: 0 2 4 6; MAX INT32 [2] copied: 0 0; ITEM INT32 [3,1] copied: 2 2 2; "
             "FLAT INT32 [3] copied: 2 2 2",
    "real": "IN FP32 [4] copied: 0 0 0 0; SUM0 FP32 [3] copied: 0 2 4",
}


def start(which, root, patch, flags=()):
    if which == "triton" and triton.missing():
        pytest.skip(triton.missing())
    patch.setattr(servers, "BACKENDS", BACKENDS)
    return {"conch": servers.Server, "triton": triton.Triton}[which](root, flags=flags)


@pytest.fixture(scope="module", params=["conch", "triton"])
def served(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, text in MODELS.items():
        repository.write_model(root, name, text)
    with pytest.MonkeyPatch.context() as patch, start(request.param, root, patch) as running:
        yield running


def ask(server, model, shape, data, datatype="FP32"):
    """{output: (shape, data)}"""
    body = {"inputs": [{"name": "IN", "datatype": datatype, "shape": shape, "data": data}]}
    request = urllib.request.Request(f"http://{server.url}/v2/models/{model}/infer", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return {o["name"]: (o["shape"], o["data"]) for o in json.loads(answer.read())["outputs"]}


@pytest.mark.parametrize("model", MODELS)
def test_a_warm_up_is_one_batch(served, model):
    assert f"{model} saw {WARMED[model]}" in served.log()


def test_one_request_is_not_copied(served):
    got = ask(served, "rows", [2, 2], [1, 2, 3, 4])
    assert got == {"OUT": ([2, 2], [1, 2, 3, 4]), "SEEN": ([2, 1], ["IN FP32 [2,2]: 1 2 3 4"] * 2)}


def test_strings_of_a_batch_are_gathered(served):
    got = ask(served, "texts", [3, 1], ["a", "", "bcd"], "BYTES")
    assert got["OUT"] == ([3, 1], ["a", "", "bcd"])
    assert got["SEEN"][1][0].endswith("BYTES [3,1]: a  bcd")


def test_a_reshaped_tensor_is_gathered(served):
    got = ask(served, "reshaped", [2, 4], [1, 2, 3, 4, 5, 6, 7, 8])
    assert got["OUT"] == ([2, 4], [1, 2, 3, 4, 5, 6, 7, 8])
    assert got["SEEN"][1][0] == "IN FP32 [2,2,2]: 1 2 3 4 5 6 7 8"


def test_every_kind_of_batch_input_is_computed(served):
    got = ask(served, "kinds", [2, 3], [1, 2, 3, 4, 5, 6])
    assert got["OUT"] == ([2, 3], [1, 2, 3, 4, 5, 6])
    assert got["SEEN"][1][0] == (
        "IN FP32 [6]: 1 2 3 4 5 6; COUNT INT32 [1] copied: 6; SUM INT32 [1] copied: 6; SUM0 INT32 [2] copied: 0 6; "
        "MAX INT32 [6] copied: 0 0 0 0 0 0; ITEM INT32 [2,1] copied: 3 3; FLAT INT32 [2] copied: 3 3")


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_requests_of_different_shapes_form_one_batch(which, tmp_path):
    """A batch begins when four rows have arrived: three requests of 1, 2 and 1."""
    more = ALL + OUTPUT + "dynamic_batching { preferred_batch_size: [4] max_queue_delay_microseconds: 30000000 }\n"
    repository.write_model(tmp_path, "ragged", config("allow_ragged_batch: true", more=more))
    asked = [([1, 3], [1, 2, 3]), ([2, 2], [4, 5, 6, 7]), ([1, 1], [8])]
    with pytest.MonkeyPatch.context() as patch, start(which, tmp_path, patch) as server:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda tensor: ask(server, "ragged", *tensor), asked))
    for tensor, got in zip(asked, answers, strict=True):
        assert got["OUT"] == tensor
    seen = {text for got in answers for text in got["SEEN"][1]}
    assert len(seen) == 1
    tensors = dict(part.split(" ", 1) for part in seen.pop().split("; "))
    # Their order in the batch is not defined, so the contents of each tensor are compared by COUNT.
    counts = [int(n) for n in tensors["COUNT"].split(": ")[1].split()]
    assert sorted(counts) == [1, 3, 4]
    order = [asked[[3, 4, 1].index(n)] for n in counts]
    rows = [shape[1] for shape, _ in order for _ in range(shape[0])]
    sums = [sum(counts[:i + 1]) for i in range(3)]
    assert tensors == {
        "IN": "FP32 [8] copied: " + " ".join(str(n) for _, data in order for n in data),
        "COUNT": "INT32 [3] copied: " + " ".join(map(str, counts)),
        "SUM": "INT32 [3] copied: " + " ".join(map(str, sums)),
        "SUM0": "INT32 [4] copied: 0 " + " ".join(map(str, sums)),
        "MAX": "INT32 [4] copied: 0 0 0 0",
        "ITEM": "INT32 [4,1] copied: " + " ".join(map(str, rows)),
        "FLAT": "INT32 [4] copied: " + " ".join(map(str, rows)),
    }
