# SPDX-License-Identifier: Apache-2.0
"""Memory of the backends of frameworks: what they report of a model, in Conch and in the genuine Triton."""

import json
import urllib.request

import pytest

import weighted_models
import server as servers
import torch_models
import triton

NAMES = [framework.name for framework in weighted_models.ALL]
SPARE = 64 << 10    # what the server itself keeps for a model of few tensors


@pytest.fixture(params=weighted_models.ALL, ids=NAMES)
def framework(request):
    if request.param.missing():
        pytest.skip(request.param.missing())
    return request.param


def used(server, model="m"):
    with urllib.request.urlopen(f"http://{server.url}/v2/models/{model}/stats") as answer:
        return json.load(answer)["model_stats"][0]["memory_usage"]


def assert_reported(server, expected):
    (usage,) = used(server)
    assert (usage["type"], usage["id"]) == ("CPU", 0)
    if isinstance(server, triton.Triton):
        assert usage["byte_size"] == expected
    else:
        assert expected < usage["byte_size"] < expected + SPARE


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_the_weights_are_in_the_statistics(framework, which, tmp_path):
    if which == "triton" and framework.missing_in_triton():
        pytest.skip(framework.missing_in_triton())
    framework.write(tmp_path, "m")
    made = {"conch": servers.Server, "triton": triton.Triton}[which](tmp_path, flags=framework.flags())
    made.env |= framework.environment
    with made as server:
        assert_reported(server, framework.bytes)
        framework.assert_answers(server.url, "m")
        assert_reported(server, framework.bytes)


@pytest.mark.skipif(not torch_models.MAKER.exists(), reason="`make test-frameworks` installs PyTorch")
def test_instances_with_weights_of_their_own_report_them(tmp_path):
    """Three instances: the model's own module serves one of them, and two have copies."""
    torch_models.write_model(tmp_path, "m", "def forward(self, x):\n    return x + self.weight[0, 0]", ("input", "x", "FP32", [1]),
                             ("output", "y", "FP32", [1]), more="instance_group [ { count: 3 kind: KIND_CPU } ]\n",
                             weights={"weight": [512, 512]}, ENABLE_WEIGHT_SHARING="false")
    with servers.Server(tmp_path) as server:
        assert_reported(server, 3 << 20)


@pytest.mark.skipif(bool(weighted_models.ALL[2].missing()), reason="`make test-frameworks` installs OpenVINO")
def test_a_saved_model_has_the_size_of_its_folder(tmp_path):
    import openvino_models

    openvino_models.write_saved_model(tmp_path, "m", "max_batch_size: 8\n")
    folder = tmp_path / "m/1/model.saved_model"
    (folder / "assets").mkdir()
    (folder / "assets/words").write_bytes(b"w" * (1 << 20))
    with servers.Server(tmp_path) as server:
        assert_reported(server, (1 << 20) + (folder / "saved_model.pb").stat().st_size)
