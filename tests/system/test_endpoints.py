# SPDX-License-Identifier: Apache-2.0
"""Server and model metadata, configuration, health, and paths that the router refuses."""

import subprocess

import pytest
import tritonclient.http as triton

import repository
from server import Server
from wire import ask


def test_server_metadata_names_server_and_extensions(server):
    answer = ask(server, "GET", "/v2")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert list(document) == ["name", "version", "extensions"]
    assert document["name"] == "triton"
    assert "binary_tensor_data" in document["extensions"]


def test_server_id_names_the_server(models):
    repository.write_identity(models, "m", [("FP32", [-1])])
    with Server(models, flags=["--id=somewhere"]) as server:
        assert ask(server, "GET", "/v2").json()["name"] == "somewhere"


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/v2/models/fixed/ready", "/v2/models/fixed/versions/1/ready"])
def test_health_is_200_without_a_body(server, path):
    answer = ask(server, "GET", path)
    assert (answer.status, answer.body) == (200, b"")


def test_model_metadata_describes_the_tensors(server):
    assert ask(server, "GET", "/v2/models/fixed").json() == {
        "name": "fixed",
        "versions": ["1"],
        "platform": "identity",
        "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [4]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "INT32", "shape": [4]}],
    }


def test_metadata_of_a_batching_model_shows_the_batch_dimension(server):
    document = ask(server, "GET", "/v2/models/batch").json()
    assert document["inputs"][0]["shape"] == [-1, 2]
    assert document["outputs"][0]["shape"] == [-1, 2]


def test_the_highest_version_is_served(server):
    assert ask(server, "GET", "/v2/models/versions").json()["versions"] == ["10"]
    assert ask(server, "GET", "/v2/models/versions/versions/10").json()["versions"] == ["10"]
    answer = ask(server, "GET", "/v2/models/versions/versions/3")
    assert (answer.status, answer.error) == (404, "Request for unknown model: 'versions' version 3 is not found")


def test_a_models_configuration_is_completed(server):
    for path in ("/v2/models/batch/config", "/v2/models/batch/versions/1/config"):
        document = ask(server, "GET", path).json()
        assert document["name"] == "batch"
        assert document["backend"] == "identity"
        assert document["max_batch_size"] == 4
        assert document["version_policy"] == {"latest": {"num_versions": 1}}
        assert document["input"][0]["name"] == "INPUT0"
        assert document["input"][0]["data_type"] == "TYPE_FP32"
        assert document["input"][0]["dims"] == [2]
        assert document["output"][0]["dims"] == [2]
        assert [(g["kind"], g["count"]) for g in document["instance_group"]] == [("KIND_CPU", 1)]


REST = ["", "/config", pytest.param("/ready", marks=pytest.mark.conch_only("2.51 says 400, the release we follow 404"))]


@pytest.mark.parametrize("rest", REST)
def test_an_unknown_model_is_refused(server, rest):
    answer = ask(server, "GET", f"/v2/models/nobody{rest}")
    assert (answer.status, answer.error) == (404, "Request for unknown model: 'nobody' is not found")


@pytest.mark.parametrize("rest", REST)
def test_unknown_version(server, rest):
    answer = ask(server, "GET", f"/v2/models/fixed/versions/99{rest}")
    assert (answer.status, answer.error) == (404, "Request for unknown model: 'fixed' version 99 is not found")


@pytest.mark.parametrize("path", ["//", "/v1", "/v2/", "/v2/nothing", "/v2/health", "/v2/health/live/", "/v2/models/fixed/nothing", "/v2/models/fixed/versions/x"])
def test_an_unknown_path_is_404(server, path):
    answer = ask(server, "GET", path)
    assert (answer.status, answer.error) == (404, "Not Found")


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/v2"),
        ("POST", "/v2/health/live"),
        ("DELETE", "/v2/health/ready"),
        ("POST", "/v2/models/fixed"),
        ("POST", "/v2/models/fixed/config"),
        ("PUT", "/v2/models/fixed/ready"),
        ("GET", "/v2/models/fixed/infer"),
    ],
)
def test_a_wrong_method_is_405(server, method, path):
    answer = ask(server, method, path, b"" if method != "GET" else None)
    assert answer.status == 405
    assert answer.error == "Method Not Allowed"


def test_a_query_does_not_change_the_route(server):
    assert ask(server, "GET", "/v2/health/ready?verbose=1").status == 200


def test_tritonclient_sees_the_server(server):
    with triton.InferenceServerClient(server.url) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("batch")
        assert client.is_model_ready("batch", "1")
        assert not client.is_model_ready("nobody")
        assert not client.is_model_ready("batch", "2")
        assert client.get_server_metadata()["name"] == "triton"
        assert client.get_model_metadata("batch")["inputs"][0]["datatype"] == "FP32"
        assert client.get_model_config("batch")["max_batch_size"] == 4
        with pytest.raises(triton.InferenceServerException, match="'nobody' is not found"):
            client.get_model_metadata("nobody")


def test_curl_reads_metadata(server):
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "10", "-w", "%{http_code} %{content_type}", f"http://{server.url}/v2/models/fixed"],
        capture_output=True,
        text=True,
        check=True,
    )
    body, _, code = done.stdout.rpartition("}")
    assert code == "200 application/json"
    assert body.startswith('{"name":"fixed","versions":["1"],')


def test_a_server_without_models_is_ready(models):
    with Server(models) as server:
        assert ask(server, "GET", "/v2/health/ready").status == 200
        assert ask(server, "GET", "/v2/models/any").status == 404
