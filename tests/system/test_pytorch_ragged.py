# SPDX-License-Identifier: Apache-2.0
"""Ragged batches of a TorchScript model: an input whose rows differ in length, a `batch_input` that tells where each ends, and a
`batch_output` that is cut as the input was. In Conch, and in Triton with our backend."""

from concurrent import futures

import numpy as np
import pytest
import tritonclient.http as http

import repository
import server as servers
import torch_models
import triton

pytestmark = pytest.mark.skipif(not torch_models.MAKER.exists(), reason="`make test-frameworks` installs PyTorch")

SCRIPT = """
def forward(self, x, ends):
    so_far = torch.cumsum(x, 0)
    return so_far[torch.sub(ends, 1).long()].reshape([-1, 1]), x * 2
"""
TENSORS = ('input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]\n'
           + repository.tensor("output", "so_far__0", "FP32", [1]) + repository.tensor("output", "twice__1", "FP32", [-1])
           + 'batch_input [ { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32 source_input: "x" } ]\n'
           + 'batch_output [ { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "twice__1" source_input: "x" } ]\n')
BATCHES = "max_batch_size: 8\ndynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 60000000 }\n"


@pytest.fixture(scope="module", params=["conch", "triton"])
def server(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("ragged")
    torch_models.write_model(root, "pairs", SCRIPT, more=BATCHES + TENSORS)
    torch_models.write_model(root, "single", SCRIPT, more="max_batch_size: 8\n" + TENSORS)
    if request.param == "triton" and triton.missing():
        pytest.skip(triton.missing())
    with (triton.Triton if request.param == "triton" else servers.Server)(root) as running:
        yield running


def ask(server, model, *values):
    tensor = http.InferInput("x", [1, len(values)], "FP32")
    tensor.set_data_from_numpy(np.array([values], np.float32))
    with http.InferenceServerClient(server.url) as client:
        answer = client.infer(model, [tensor])
    return answer.as_numpy("so_far__0").tolist(), answer.as_numpy("twice__1").tolist()


def test_a_list_alone(server):
    assert ask(server, "single", 1, 2, 4) == ([[7]], [[2, 4, 8]])


def test_two_lists_are_one_batch(server):
    """The model's sum goes on from the first list of the batch to the second, whichever came first."""
    for _ in range(3):
        with futures.ThreadPoolExecutor(2) as clients:
            (short, short_twice), (long, long_twice) = clients.map(lambda values: ask(server, "pairs", *values), [(1,), (10, 20, 40)])
        assert (short, long) in (([[1]], [[71]]), ([[71]], [[70]]))
        assert (short_twice, long_twice) == ([[2]], [[20, 40, 80]])
