# SPDX-License-Identifier: Apache-2.0
"""Steps that CONCH_IF makes conditional. Triton has nothing like it."""

import pytest

import embed
import repository
import server as servers
from wire import ask

pytestmark = pytest.mark.conch_only("CONCH_IF is an addition of Conch")

CONFIG = """platform: "ensemble"
input [ { name: "X" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "C" data_type: TYPE_BOOL dims: [ %s ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "ALWAYS" data_type: TYPE_INT32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "flag" model_version: -1 input_map { key: "INPUT0" value: "C" } output_map { key: "OUTPUT0" value: "F" } },
  { model_name: "plain" model_version: -1 input_map { key: "CONCH_IF" value: "F" } input_map { key: "INPUT0" value: "X" }
    output_map { key: "OUTPUT0" value: "Y" } },
  { model_name: "always" model_version: -1 input_map { key: "INPUT0" value: "X" } output_map { key: "OUTPUT0" value: "ALWAYS" } } ] }
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name in ("plain", "always"):
        repository.write_identity(root, name, [("INT32", [-1])])
    repository.write_identity(root, "flag", [("BOOL", [-1])])
    repository.write_model(root, "e", CONFIG % "-1")
    with embed.Session(root) as running:
        yield running


def infer(session, flags, outputs="-"):
    return embed.of(session.do(f"infer r e -1 {outputs} X:INT32:2:7,8 C:BOOL:{len(flags)}:{','.join(map(str, flags))}"), "r")


def executions(session, model):
    (text,) = (line for line in session.do(f"statistics {model}") if '"model_stats"' in line)
    return int(text.split('"execution_count":')[1].split(",")[0])


def test_a_step_runs_if_its_condition_is_true(session):
    (line,) = infer(session, [1])
    assert "Y:INT32:2:7,8" in line and "ALWAYS:INT32:2:7,8" in line


def test_a_step_is_skipped_if_its_condition_is_false(session):
    before = executions(session, "plain")
    assert infer(session, [0]) == ["response ALWAYS:INT32:2:7,8 final"]
    assert infer(session, [0], "Y") == ["response final"]
    assert executions(session, "plain") == before


def test_a_condition_of_several_elements_is_refused(session):
    assert infer(session, [1, 0]) == ["error Invalid argument: in ensemble 'e', the tensor 'F' of CONCH_IF is not BOOL with one element "
                                      "(step 1, model 'plain') final"]


def test_a_condition_of_another_type_or_shape_is_refused_by_the_load(models):
    repository.write_identity(models, "plain", [("INT32", [-1])])
    repository.write_identity(models, "always", [("INT32", [-1])])
    repository.write_identity(models, "flag", [("BOOL", [3])])
    repository.write_model(models, "e", CONFIG % "3")
    with servers.Server(models, flags=["--exit-on-error=false"], ready=False) as server:
        rows = ask(server, "POST", "/v2/repository/index", {}).json()
    (row,) = (row for row in rows if row["name"] == "e")
    assert row["reason"].startswith("Invalid argument: in ensemble e, ensemble tensor F, the CONCH_IF of step 1, must be TYPE_BOOL with "
                                    "shape [1], but TYPE_BOOL with shape [3] is inferred from model flag (")
