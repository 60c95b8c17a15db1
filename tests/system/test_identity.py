# SPDX-License-Identifier: Apache-2.0
"""The backend identity with the extras of Triton's own, as Triton's qa/L0_backend_identity expects them; only on request."""

import urllib.request

import numpy
import pytest
import tritonclient.http as triton

import repository
from server import Server

pytestmark = pytest.mark.conch_only("it is about our backend")
FLAGS = ["--allow-metrics=true", "--metrics-port=0", "--log-verbose=1"]
COUNTER = 'input_byte_size_counter{model="m",version="2"}'


@pytest.fixture
def batching(models):
    repository.write_identity(models, "m", [("UINT32", [-1])], max_batch_size=8, versions=(2,), creation_delay_sec=1)
    return models


def ask(server, shape, request_id):
    with triton.InferenceServerClient(server.url) as client:
        tensor = triton.InferInput("INPUT0", shape, "UINT32")
        tensor.set_data_from_numpy(numpy.ones(shape, numpy.uint32))
        result = client.infer("m", [tensor], request_id=request_id)
        assert result.as_numpy("OUTPUT0").tolist() == numpy.ones(shape).tolist()
        return result.get_response()


def page(server):
    port = server.log().split("Started Metrics Service at ")[1].split('"')[0].rsplit(":", 1)[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return answer.read().decode()


def test_identity_demonstrates_parameters_and_metrics_on_request(batching):
    with Server(batching, flags=[*FLAGS, "--backend-config=identity,demonstrate=true"]) as server:
        for n in (1, 8):
            answer = ask(server, [n, 5], f"r{n}")
            assert answer["parameters"] == {"param0": "an example string parameter", "param1": 42, "param2": False, "param3": 123.123}
        (line,) = [line for line in page(server).splitlines() if line.startswith(COUNTER)]
        assert float(line[len(COUNTER):]) == 9 * 5 * 4
        assert "# HELP input_byte_size_counter Cumulative input byte size of all requests received by the model" in page(server)
        for text in ("TRITONBACKEND_Initialize: identity", "TRITONBACKEND_ModelInitialize: m (version 2)", "Creation delay is set to: 1",
                     "TRITONBACKEND_ModelInstanceInitialize: m_0_0 (CPU device 0)", "model m, instance m_0_0, executing 1 requests",
                     'request 0: id = \\"r8\\", correlation_id = 0, input_count = 1, requested_output_count = 1',
                     "input INPUT0: datatype = UINT32, shape = [8,5], byte_size = 160, buffer_count = 1"):
            server.wait_log(text)
        stopped = server
    for text in ("delete model state", "delete instance state", "TRITONBACKEND_Finalize"):
        assert text in stopped.log()


def test_identity_demonstrates_nothing_by_default(batching):
    with Server(batching, flags=FLAGS) as server:
        assert "parameters" not in ask(server, [1, 5], "r")
        assert COUNTER not in page(server)
        assert "TRITONBACKEND_" not in server.log()
