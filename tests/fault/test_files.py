# SPDX-License-Identifier: Apache-2.0
"""A repository whose files cannot be read, or vanish and change while they are read.

filefault.c makes the faults, each at one named file and system call. The model's failure is in the log and in the
table; its neighbour serves in any case.
"""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import preload  # noqa: E402
import repository  # noqa: E402
from server import Server, run_to_end  # noqa: E402
from wire import ask  # noqa: E402

FLAGS = ["--exit-on-error=false"]


def environment(faults):
    return preload.environment("filefault", FILE_FAULTS=faults)


@pytest.fixture
def models(tmp_path):
    root = tmp_path / "models"
    repository.write_identity(root, "m", [("FP32", [-1])])
    repository.write_identity(root, "neighbour", [("FP32", [-1])])
    (root / "m" / "labels.txt").write_text("a\nb\n")
    config = root / "m" / "config.pbtxt"
    config.write_text(config.read_text().replace("output [ { ", 'output [ { label_filename: "labels.txt" '))
    return root


# What fails -> the call, the file, the kind of fault; the error of the model.
REFUSED = {
    "a configuration that may not be read": (
        "open:/m/config.pbtxt:EACCES", "Poll failed for model directory 'm': failed to open '{m}/config.pbtxt': Permission denied"),
    "a configuration that is broken on disk": (
        "read:/m/config.pbtxt:EIO",
        "Poll failed for model directory 'm': failed to read text proto from {m}/config.pbtxt: failed to read '{m}/config.pbtxt': Input/output error"),
    "a configuration of a server that is gone": (
        "stat:/m/config.pbtxt:ESTALE", "failed to look at '{m}/config.pbtxt': Stale file handle"),
    "no descriptor for the folder": (
        "open:/m:EMFILE", "Poll failed for model directory 'm': failed to open '{m}': Too many open files"),
    "no descriptor for the configuration": (
        "open:/m/config.pbtxt:EMFILE", "failed to open '{m}/config.pbtxt': Too many open files"),
    "a folder that may not be listed": (
        "open:/m:EACCES", "Poll failed for model directory 'm': failed to open '{m}': Permission denied"),
    "a folder that is broken on disk": (
        "read:/m:EIO", "Poll failed for model directory 'm': failed to read folder '{m}': Input/output error"),
    "a version that may not be listed": (
        "open:/m/1:EACCES", "Poll failed for model directory 'm': failed to open '{m}/1': Permission denied"),
    "labels that may not be read": (
        "open:/labels.txt:EACCES",
        "failed to open '{m}/labels.txt': Permission denied (labels of output 'OUTPUT0' of model 'm')"),
    "labels that vanish": (
        "open:/labels.txt:VANISH",
        "failed to open text file for read {m}/labels.txt: No such file or directory (labels of output"),
    "labels that are broken on disk": (
        "read:/labels.txt:EIO", "failed to read '{m}/labels.txt': Input/output error (labels of output"),
    "a configuration that vanishes once it was seen": (
        "stat:/m/config.pbtxt:VANISH",
        "Poll failed for model directory 'm': failed to open text file for read {m}/config.pbtxt: No such file or directory"),
    "a configuration that becomes a link once it was seen": (
        "stat:/m/config.pbtxt:LINK", "link '{m}/config.pbtxt' leads to '/etc/hostname', out of the model repository"),
    "a version that vanishes once it was listed": (
        "open:/m/1:VANISH", "Poll failed for model directory 'm': failed to open '{m}/1': No such file or directory"),
    "a configuration that shrinks while it is read": (
        "read:/m/config.pbtxt:SHRINK", "failed to read text proto from {m}/config.pbtxt:"),
    "a configuration that grows while it is read": (
        "read:/m/config.pbtxt:GROW", "failed to read text proto from {m}/config.pbtxt:"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_failed_file_fails_its_model_and_not_the_neighbour(models, case):
    faults, text = REFUSED[case]
    with Server(models, flags=FLAGS, env=environment(faults), ready=False) as server:
        server.await_rest()
        assert ask(server, "GET", "/v2/models/neighbour/ready").status == 200
        assert ask(server, "GET", "/v2/models/m/ready").status in (404, 503)
        assert f"filefault: {faults.split(':')[0]}:{models}" in server.err.text()
        said = server.log().replace("\\\"", '"')
        assert text.format(m=models / "m") in said


@pytest.mark.parametrize("case", ["open:/m/config.pbtxt:EINTR", "read:/m/config.pbtxt:EINTR"])
def test_interruptions_do_no_harm(models, case):
    with Server(models, flags=FLAGS, env=environment(case)) as server:
        assert "filefault: " in server.err.text()
        assert ask(server, "GET", "/v2/models/m/ready").status == 200


def test_an_inaccessible_repository_is_an_error(models):
    code, _, err = run_to_end(
        f"--model-repository={models}", "--http-port=0", "--allow-grpc=false", "--allow-metrics=false",
        env=environment(f"stat:{models.name}:EACCES"),
    )  # fmt: skip
    assert code == 1
    assert f"creating server: Internal - model repository: failed to look at '{models}': Permission denied" in err


def test_an_unlistable_repository_leaves_the_others(models, tmp_path):
    repository.write_identity(tmp_path / "second", "there", [("FP32", [-1])])
    faults = f"read:{models.name}:EIO"
    with Server(models, tmp_path / "second", flags=FLAGS, env=environment(faults), ready=False) as server:
        server.await_rest()
        assert ask(server, "GET", "/v2/models/there/ready").status == 200
        assert ask(server, "GET", "/v2/health/ready").status == 200  # as in the reference: no model is known to be missing
        assert f"failed to poll model repository '{models}': failed to read folder" in server.err.text()
    code, _, err = run_to_end(
        f"--model-repository={models}", f"--model-repository={tmp_path / 'second'}", "--http-port=0", "--allow-grpc=false",
        "--allow-metrics=false", env=environment(faults),
    )  # fmt: skip
    assert code == 1
    assert f"creating server: Internal - failed to poll model repository '{models}': failed to read folder" in err


# ---- Files of load requests, when their server is killed


def load(server, name):
    config = '{"backend":"identity","input":[{"name":"I","data_type":"TYPE_FP32","dims":[1]}],"output":[{"name":"O","data_type":"TYPE_FP32","dims":[1]}]}'
    answer = ask(server, "POST", f"/v2/repository/models/{name}/load", {"parameters": {"config": config, "file:1/w.bin": "AAAA"}})
    assert answer.status == 200, answer


def explicit(models, temporary, faults=""):
    env = {**(environment(faults) if faults else {}), "TMPDIR": str(temporary)}
    return Server(models, flags=["--model-control-mode=explicit"], env=env)


def test_a_server_removes_the_files_of_a_killed_one(models, tmp_path):
    """… and nothing of a server that lives, and no other folder."""
    temporary = tmp_path / "temporary"
    (temporary / "conch-model-of-somebody").mkdir(parents=True)
    (temporary / "conch-model-file").write_text("x")
    (temporary / "conch-model-link").symlink_to(tmp_path)
    others = set(temporary.iterdir())
    with explicit(models, temporary) as lives:
        load(lives, "a")
        (of_the_living,) = set(temporary.iterdir()) - others
        killed = explicit(models, temporary)
        with pytest.raises(AssertionError, match="ended with -9"), killed:
            load(killed, "a")
            load(killed, "b")
            (left,) = set(temporary.iterdir()) - others - {of_the_living}
            killed.signal(9)
            assert killed.wait(60) == -9
        assert len(list(left.glob("*/*/1/w.bin"))) == 2
        with explicit(models, temporary) as third:
            third.wait_log(f"removed '{left}', which a server that was killed has left")
            assert set(temporary.iterdir()) == others | {of_the_living}
            load(third, "c")
            assert len(set(temporary.iterdir())) == len(others) + 2
        assert set(temporary.iterdir()) == others | {of_the_living}
        assert len(list(of_the_living.glob("*/a/1/w.bin"))) == 1
        load(lives, "a")
    assert set(temporary.iterdir()) == others


def test_a_folder_that_cannot_be_removed_is_logged(models, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with explicit(models, temporary, "remove:/w.bin:EIO") as server:
        load(server, "a")
        (file,) = temporary.glob("*/*/a/1/w.bin")
        assert ask(server, "POST", "/v2/repository/models/a/unload").status == 200
        server.wait_log(f"cannot remove '{file}', of a model's temporary folder: Input/output error")
    assert file.exists()
    with explicit(models, temporary, "remove:/w.bin:EACCES") as server:
        server.wait_log(f"cannot remove '{file}', which a server that was killed has left: Permission denied")
    with explicit(models, temporary) as server:
        server.wait_log("which a server that was killed has left")
        assert not list(temporary.iterdir())
