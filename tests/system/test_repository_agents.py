# SPDX-License-Identifier: Apache-2.0
"""Repository agents: what they see of loads and unloads, and what they may do. tests/agents/teller does what the
configuration says and tells the server's answers, the same in Conch and in the genuine Triton; our agent `checksum`
runs in both, too."""

import base64
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import urllib.error
import urllib.request

import pytest

import repository
import server as servers
import triton

AGENTS = servers.BUILD / "tests/repoagents"
TENSORS = repository.tensor("input", "IN", "INT32", [1]) + repository.tensor("output", "OUT", "INT32", [1])
MODEL = 'backend: "identity"\n' + TENSORS + "instance_group [ { count: 1 kind: KIND_CPU } ]\n"


def start(which, root, agents=AGENTS, flags=(), ready=False):
    flags = [f"--repoagent-directory={agents}", *flags]
    if which == "conch":
        return servers.Server(root, flags=flags, ready=ready)
    if triton.missing():
        pytest.skip(triton.missing())
    return triton.Triton(root, flags=flags, ready=ready)


def agent(name, **parameters):
    values = "".join(f' parameters {{ key: "{key}" value: {json.dumps(value)} }}' for key, value in parameters.items())
    return f'agents {{ name: "{name}"{values} }}'


def write(root, name, *agents, config=MODEL, versions=(1,)):
    folder = root / name
    folder.mkdir(exist_ok=True)    # a test of the genuine Triton may be repeated
    for version in versions:
        (folder / str(version)).mkdir(exist_ok=True)
    (folder / "config.pbtxt").write_text(f'name: "{name}"\n{config}model_repository_agents {{ {" ".join(agents)} }}\n')
    return folder


class Control:
    """A server in mode explicit, its repository, and what agents have told."""

    def __init__(self, server, root, log):
        self.server, self.root, self.log = server, root, log
        self.n_read = 0

    def teller(self, who=None, **actions):
        who = {} if who is None else {"who": who}
        return agent("teller", log=str(self.log), **who, **actions)

    def told(self):
        """What has been told since the last call."""
        lines = self.log.read_text().split("\n")[:-1] if self.log.exists() else []
        new, self.n_read = lines[self.n_read:], len(lines)
        return new

    def ask(self, path, body=None):
        request = urllib.request.Request(f"http://{self.server.url}/v2/{path}", json.dumps(body or {}).encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["error"]

    def load(self, name, body=None):
        return self.ask(f"repository/models/{name}/load", body)

    def loads(self, name):
        assert self.load(name) == (200, "")

    def unload(self, name):
        assert self.ask(f"repository/models/{name}/unload") == (200, "")

    def await_told(self, *lines):
        """Reads until the last of the lines is there; they are all that was told."""
        told = []
        servers.wait_for(lambda: told.extend(self.told()) or lines[-1] in told, 60, f"{lines[-1]} is told")
        assert told == list(lines)

    def why(self, name, text):
        """The load fails; its reason is in the answer of Conch, and in the log of both."""
        code, error = self.load(name)
        assert code in (400, 500) and f"'{name}'" in error
        self.server.wait_log(text)
        if self.server.name == "conch":
            assert text in error
        return error


@pytest.fixture(scope="module", params=["conch", "triton"])
def place(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    with start(request.param, root, flags=["--model-control-mode=explicit"]) as server:
        yield server, root


@pytest.fixture
def control(place, tmp_path):
    server, root = place
    server.assert_alive()
    yield Control(server, root, tmp_path / "log")
    server.assert_alive()


def test_agents_see_the_whole_life_of_a_model_in_order(control):
    write(control.root, "life", control.teller("a"), control.teller("b"), versions=(1, 2), config=MODEL + "version_policy { all { } }\n")
    control.loads("life")
    assert control.told() == ["a: INITIALIZE", "a: LOAD", "b: INITIALIZE", "b: LOAD", "b: LOAD_COMPLETE", "a: LOAD_COMPLETE"]
    control.loads("life")    # nothing has changed, so that nothing is done
    assert control.told() == []
    control.unload("life")
    told = []
    servers.wait_for(lambda: told.extend(control.told()) or len(told) == 6, 60, "the end is told")
    assert told[:4] == ["a: UNLOAD", "b: UNLOAD", "b: UNLOAD_COMPLETE", "a: UNLOAD_COMPLETE"]
    assert sorted(told[4:]) == ["a: FINALIZE", "b: FINALIZE"]


def test_what_an_agent_is_answered(control):
    commands = "where;states;wrong;release;acquire remote;acquire;acquire;release;release"
    folder = write(control.root, "answers", control.teller(LOAD=commands, LOAD_COMPLETE="where;update /tmp;states"))
    control.loads("answers")
    assert control.told() == [
        "INITIALIZE",
        "LOAD",
        f"  location: type 0, {folder}",
        "  states: agent kept, model NULL",
        "  config of version 2: Invalid argument: model configuration version 2 not supported, supported versions are: 1",
        "  parameter 99: Invalid argument: index out of range for model parameters",
        "  release: Unavailable: No mutable location to be deleted",
        "  acquire: Invalid argument: Unexpected artifact type, expects 'TRITONREPOAGENT_ARTIFACT_FILESYSTEM'",
        "  acquire: a folder",
        "  acquire: a folder",
        "  release: Unavailable: No mutable location to be deleted",
        "LOAD_COMPLETE",
        f"  location: type 0, {folder}",
        "  update: Invalid argument: location can only be updated during TRITONREPOAGENT_ACTION_LOAD, current action "
        "type is TRITONREPOAGENT_ACTION_LOAD_COMPLETE",
        "  states: agent kept, model set",
    ]


def test_an_agent_has_its_parameters_and_the_configuration_as_it_was_written(control):
    write(control.root, "config", control.teller(LOAD="config;parameters", extra="ä \\ \" }"))
    control.loads("config")
    told = control.told()
    config = json.loads(next(line for line in told if line.startswith("  config: ")).removeprefix("  config: "))
    assert config["name"] == "config" and config["input"][0]["name"] == "IN" and "version_policy" not in config
    assert "default_model_filename" not in config or config["default_model_filename"] == ""
    assert [agent["name"] for agent in config["model_repository_agents"]["agents"]] == ["teller"]
    assert sorted(line for line in told if line.startswith("  parameter: ")) == [
        "  parameter: LOAD = config;parameters", "  parameter: extra = ä \\ \" }"]


def test_an_agent_brings_the_versions_from_elsewhere(control, tmp_path):
    """The configuration that counts is that of the model's own folder; the next agent sees the one that was brought."""
    other = f'name: \\"moved\\"\\nmax_batch_size: 7\\n'.replace('\\"', '"')
    write(control.root, "moved", control.teller("a", LOAD=f"acquire;write config.pbtxt={other};write 3/x=hello;update ."),
          control.teller("b", LOAD="config"), versions=())
    control.loads("moved")
    told = control.told()
    assert '"max_batch_size":7' in next(line for line in told if line.startswith("  config: "))
    with urllib.request.urlopen(f"http://{control.server.url}/v2/models/moved/config") as answer:
        assert json.load(answer)["max_batch_size"] == 0
    with urllib.request.urlopen(f"http://{control.server.url}/v2/models/moved/versions/3/ready") as answer:
        assert answer.status == 200


def test_files_of_a_load_request_go_through_the_agents(control):
    write(control.root, "files", control.teller())
    config = json.dumps({
        "backend": "identity", "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],
        "model_repository_agents": {"agents": [{"name": "teller", "parameters": {"log": str(control.log), "LOAD": "where"}}]}})
    files = {"config": config, "file:1/x": base64.b64encode(b"x").decode()}
    assert control.load("files", {"parameters": files}) == (200, "")
    told = control.told()
    location = pathlib.Path(told[2].split(", ", 1)[1])
    assert told[:2] + told[3:] == ["INITIALIZE", "LOAD", "LOAD_COMPLETE"]
    assert (location / "1/x").read_bytes() == b"x"
    control.unload("files")
    control.await_told("UNLOAD", "UNLOAD_COMPLETE", "FINALIZE")
    servers.wait_for(lambda: not location.exists(), 60, "the files of the request are removed")


def test_an_agent_refuses_a_model(control):
    write(control.root, "refused", control.teller("a"), control.teller("b", LOAD="error I refuse"))
    control.why("refused", "I refuse")
    assert control.told() == ["a: INITIALIZE", "a: LOAD", "b: INITIALIZE", "b: LOAD", "b: LOAD_FAIL", "b: FINALIZE",
                              "a: LOAD_FAIL", "a: FINALIZE"]
    write(control.root, "unready", control.teller(INITIALIZE="error not begun"))
    control.why("unready", "not begun")
    assert control.told() == ["INITIALIZE", "FINALIZE"]


@pytest.mark.parametrize("config", [MODEL.replace("identity", "nobody"), MODEL.replace("[ 1 ]", "[ 0 ]")])
def test_agents_hear_of_a_load_that_fails(control, config):
    name = "failed_" + hashlib.md5(config.encode()).hexdigest()
    write(control.root, name, control.teller("a"), control.teller("b"), config=config)
    assert control.load(name)[0] == 400
    told = control.told()
    assert told[:6] == ["a: INITIALIZE", "a: LOAD", "b: INITIALIZE", "b: LOAD", "b: LOAD_FAIL", "a: LOAD_FAIL"]


def test_errors_of_an_agent_after_the_load_are_logged(control):
    write(control.root, "noisy", control.teller(LOAD_COMPLETE="error late", UNLOAD="error later", UNLOAD_COMPLETE="error last"))
    control.loads("noisy")
    control.unload("noisy")
    control.await_told("INITIALIZE", "LOAD", "LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE", "FINALIZE")
    control.server.wait_log("Agent model returns error on TRITONREPOAGENT_ACTION_LOAD_COMPLETE: Invalid argument: late")
    control.server.wait_log("Agent model returns error on TRITONREPOAGENT_ACTION_UNLOAD: Invalid argument: later")


@pytest.mark.parametrize("name", ["nobody", "", "../repoagents/teller"])
def test_a_library_that_is_not_there(control, name):
    model = f"library{len(name)}"
    write(control.root, model, agent(name))
    control.why(model, f"unable to find 'libtritonrepoagent_{name}.so' for repo agent '{name}', searched: {AGENTS}")


def test_a_library_that_is_no_agent(control):
    write(control.root, "mute", agent("mute"))
    control.why("mute", "unable to find required entrypoint 'TRITONREPOAGENT_ModelAction'")


@pytest.mark.parametrize("place_of_model, text", [("/nowhere", "failed to open directory /nowhere"),
                                                  ("/etc/passwd", "failed to open directory /etc/passwd")])
def test_a_model_that_moves_to_nowhere(control, place_of_model, text):
    name = "gone" + place_of_model.replace("/", "_")
    write(control.root, name, control.teller(LOAD=f"update {place_of_model}"))
    control.why(name, text)
    assert control.told()[:3] == ["INITIALIZE", "LOAD", "LOAD_FAIL"]


# ---- Conch alone


@pytest.fixture
def conch(tmp_path):
    root = tmp_path / "models"
    root.mkdir()
    with start("conch", root, flags=["--model-control-mode=explicit"]) as server:
        yield Control(server, root, tmp_path / "log")


@pytest.mark.conch_only("the genuine Triton asks the network, or follows any link")
def test_a_model_that_moves_outside(conch, tmp_path):
    write(conch.root, "remote", conch.teller(LOAD="remote s3://x/y"))
    assert "location 's3://x/y' is in an object store, which is not supported (repository agent 'teller')" in conch.load("remote")[1]
    write(conch.root, "root", conch.teller(LOAD="update /"))
    assert "directory '/' cannot be a model's" in conch.load("root")[1]
    outside = tmp_path / "outside"
    (outside / "1").mkdir(parents=True)
    (outside / "1/secret").symlink_to("/etc/passwd")
    write(conch.root, "link", conch.teller(LOAD=f"update {outside}"))
    assert "leads to '/etc/passwd', out of" in conch.load("link")[1]
    (outside / "1/secret").unlink()
    (outside / "1/fine").symlink_to(conch.root / "link/config.pbtxt")    # a file of the repository
    conch.loads("link")


@pytest.mark.conch_only("what the genuine Triton holds up meanwhile is not compared")
@pytest.mark.parametrize("when", ["LOAD", "LOAD_COMPLETE", "UNLOAD"])
def test_an_agent_that_does_not_answer_holds_up_its_own_model_alone(conch, tmp_path, when):
    hold = tmp_path / "hold"
    hold.write_text("")
    write(conch.root, "late", conch.teller(**{when: f"wait {hold}"}))
    write(conch.root, "other", agent("teller"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        try:
            loading = pool.submit(conch.load, "late")
            if when == "UNLOAD":
                assert loading.result() == (200, "")
                loading = pool.submit(conch.unload, "late")
            servers.wait_for(lambda: conch.log.exists() and "  waits" in conch.log.read_text(), 60, "the agent waits")
            for _ in range(3):
                conch.loads("other")
                status, _ = conch.ask("models/other/infer", {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]})
                assert status == 200
                conch.unload("other")
        finally:
            hold.unlink()
        loading.result()
    conch.server.assert_alive()


@pytest.mark.conch_only("the genuine Triton keeps a model whose file has only been touched")
def test_a_reload_has_agents_of_its_own(conch):
    folder = write(conch.root, "again", conch.teller(), versions=(1, 2), config=MODEL + "version_policy { all { } }\n")
    conch.loads("again")
    assert conch.told() == ["INITIALIZE", "LOAD", "LOAD_COMPLETE"]
    (folder / "2/new").write_text("new")    # the version 1 is loaded again, too: agents may change any file
    conch.loads("again")
    conch.await_told("INITIALIZE", "LOAD", "LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE", "FINALIZE")
    (folder / "config.pbtxt").write_text((folder / "config.pbtxt").read_text().replace("identity", "nobody"))
    assert conch.load("again")[0] == 400    # the old versions serve on, with their agents
    assert conch.told() == ["INITIALIZE", "LOAD", "LOAD_FAIL", "FINALIZE"]
    with urllib.request.urlopen(f"http://{conch.server.url}/v2/models/again/ready") as answer:
        assert answer.status == 200


@pytest.mark.conch_only("its own load of members")
def test_agents_of_an_ensemble_act_once(conch):
    """The ensemble's member is found in a second look at the folders."""
    write(conch.root, "member", conch.teller("member"))
    scheduling = ('platform: "ensemble"\n' + TENSORS + 'ensemble_scheduling { step { model_name: "member" model_version: -1 '
                  'input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }\n')
    write(conch.root, "whole", conch.teller("whole"), config=scheduling)
    conch.loads("whole")
    told = conch.told()
    assert sorted(told) == ["member: INITIALIZE", "member: LOAD", "member: LOAD_COMPLETE",
                            "whole: INITIALIZE", "whole: LOAD", "whole: LOAD_COMPLETE"]
    conch.unload("whole")
    conch.unload("member")
    told = []
    servers.wait_for(lambda: told.extend(conch.told()) or len(told) == 6, 60, "the end is told")
    assert {"member: FINALIZE", "whole: FINALIZE"} <= set(told)


@pytest.mark.conch_only("when exactly the genuine Triton tells it differs")
def test_the_end_of_the_server_is_told(tmp_path):
    root = tmp_path / "models"
    root.mkdir()
    log = tmp_path / "log"
    write(root, "m", agent("teller", log=str(log), LOAD="acquire;copy;update ."))
    own = tmp_path / "tmp"
    own.mkdir()
    with servers.Server(root, flags=[f"--repoagent-directory={AGENTS}"], env={"TMPDIR": str(own)}) as server:
        server.wait_log("libtritonrepoagent_teller.so")    # the table of agents
        assert list(own.glob("conch-model-*/*/m"))
    assert not list(own.iterdir())
    assert log.read_text().splitlines() == ["INITIALIZE", "LOAD", "  acquire: a folder", "LOAD_COMPLETE", "UNLOAD",
                                            "UNLOAD_COMPLETE", "FINALIZE"]


@pytest.mark.conch_only("mode poll is timed")
def test_mode_poll_tells_agents_of_changes(tmp_path):
    root = tmp_path / "models"
    root.mkdir()
    log = tmp_path / "log"
    with start("conch", root, flags=["--model-control-mode=poll", "--repository-poll-secs=1"]) as server:
        control = Control(server, root, log)
        staged = write(tmp_path, "m", control.teller())
        staged.rename(root / "m")
        control.await_told("INITIALIZE", "LOAD", "LOAD_COMPLETE")
        (root / "m").rename(tmp_path / "gone")
        control.await_told("UNLOAD", "UNLOAD_COMPLETE", "FINALIZE")


# ---- Our agent `checksum`, in both


@pytest.fixture(scope="module", params=["conch", "triton"])
def checking(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("checked")
    with start(request.param, root, agents=servers.BUILD / "repoagents", flags=["--model-control-mode=explicit"]) as server:
        yield Control(server, root, root / ".log")


CONTENT = bytes(range(256)) * 5000
MD5, SHA256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()
WRONG = "0" * 32
FAULTS = {
    "wrong": ({"MD5:1/x": WRONG}, f"Mismatched MD5 hash for file 1/x, expect: {WRONG}, got: {MD5}"),
    "second": ({"MD5:1/x": MD5, "SHA256:1/x": MD5}, f"Mismatched SHA256 hash for file 1/x, expect: {MD5}, got: {SHA256}"),
    "capitals": ({"MD5:1/x": MD5.upper()}, "Mismatched MD5 hash for file 1/x"),
    "empty": ({"MD5:1/x": ""}, "Mismatched MD5 hash for file 1/x, expect: , got: "),
    "algorithm": ({"SHA512:1/x": MD5}, "Unsupported checksum algorithm: SHA512"),
    "key": ({"1/x": MD5}, "failed to parse key: 1/x"),
    "outside": ({"MD5:../../../../etc/passwd": MD5}, "failed to parse key: MD5:../../../../etc/passwd: the file is outside"),
    "missing": ({"MD5:1/y": MD5}, "1/y': No such file or directory"),
    "folder": ({"MD5:1": MD5}, "1' is not a regular file"),
    "fifo": ({"MD5:1/fifo": MD5}, "1/fifo' is not a regular file"),
}


def test_files_with_the_right_checksums_are_served(checking):
    folder = write(checking.root, "right", agent("checksum", **{"MD5:1/x": MD5, "SHA256:1/x": SHA256}))
    (folder / "1/x").write_bytes(CONTENT)
    checking.loads("right")


@pytest.mark.parametrize("case", FAULTS)
def test_other_files_are_not(checking, case):
    parameters, text = FAULTS[case]
    folder = write(checking.root, case, agent("checksum", **parameters))
    (folder / "1/x").write_bytes(CONTENT)
    if not (folder / "1/fifo").exists():
        os.mkfifo(folder / "1/fifo")
    checking.why(case, text)


@pytest.mark.conch_only("the folder of an installation")
def test_the_agents_of_the_build_are_found_without_an_option(tmp_path):
    root = tmp_path / "models"
    root.mkdir()
    (write(root, "m", agent("checksum", **{"MD5:1/x": MD5})) / "1/x").write_bytes(CONTENT)
    with servers.Server(root) as server:
        server.wait_log("libtritonrepoagent_checksum.so")


@pytest.mark.conch_only("only Conch has such a program")
def test_conch_check_does_not_judge_files_that_an_agent_may_bring(tmp_path):
    write(tmp_path, "m", agent("checksum"), versions=())
    checked = subprocess.run([servers.BIN, "check", tmp_path], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
