# SPDX-License-Identifier: Apache-2.0
"""Which versions of a model are served, and how clients ask for them."""

import pytest

import repository
from server import Server
from wire import ask

CONFIG = (
    'backend: "identity"\n'
    + repository.tensor("input", "INPUT0", "INT32", [1])
    + repository.tensor("output", "OUTPUT0", "INT32", [1])
)
BODY = b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[7]}]}'


def served(server):
    return ask(server, "GET", "/v2/models/m").json()["versions"]


@pytest.mark.parametrize(
    "policy, versions",
    [
        ("", ["10"]),
        ("version_policy { latest { num_versions: 2 } }", ["3", "10"]),
        ("version_policy { latest { num_versions: 9 } }", ["1", "2", "3", "10"]),
        ("version_policy { all { } }", ["1", "2", "3", "10"]),
        ("version_policy { }", ["1", "2", "3", "10"]),    # makes no choice, so all are served
        ("version_policy { specific { versions: [ 3, 1 ] } }", ["1", "3"]),
    ],
)
def test_the_policy_chooses_the_served_versions(models, policy, versions):
    repository.write_model(models, "m", CONFIG + policy, versions=(1, 2, 3, 10))
    with Server(models) as server:
        assert served(server) == versions
        latest = ask(server, "POST", "/v2/models/m/infer", BODY).json()
        assert latest["model_version"] == versions[-1]
        for version in ("1", "2", "3", "10"):
            answer = ask(server, "POST", f"/v2/models/m/versions/{version}/infer", BODY)
            if version in versions:
                assert (answer.status, answer.json()["model_version"]) == (200, version)
            else:
                assert answer.status == 404
                assert answer.json()["error"] == f"Request for unknown model: 'm' version {version} is not found"


def test_a_missing_specific_version_is_logged_once(models):
    repository.write_model(models, "m", CONFIG + "version_policy { specific { versions: [ 1, 2, 7 ] } }", versions=(1, 2))
    with Server(models) as server:
        assert served(server) == ["1", "2"]
    told = "version 7 is specified for model 'm', but the version directory is not present"
    assert server.log().count(told) == 1


def test_a_model_without_a_served_version_is_unavailable(models):
    repository.write_model(models, "m", CONFIG + "version_policy { specific { versions: [ 7 ] } }", versions=(1,))
    with Server(models, flags=["--exit-on-error=false"], ready=False) as server:
        assert ask(server, "GET", "/v2/models/m").status == 404
    assert "at least one version must be available under the version policy of model 'm'" in server.log()


def test_one_version_may_fail_and_the_others_serve(models):
    folder = repository.copy_example(models, "add_sub")
    config = (folder / "config.pbtxt").read_text()
    (folder / "config.pbtxt").write_text(config + "\nversion_policy { all { } }\n")
    (folder / "2").mkdir()
    (folder / "2" / "model.onnx").write_bytes(b"not a model")
    with Server(models, flags=["--exit-on-error=false"], ready=False) as server:
        assert ask(server, "GET", "/v2/models/add_sub/versions/1/ready").status == 200
        assert ask(server, "GET", "/v2/models/add_sub/versions/2/ready").status == 503
        assert ask(server, "GET", "/v2/models/add_sub").json()["versions"] == ["1"]
