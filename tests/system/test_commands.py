# SPDX-License-Identifier: Apache-2.0
"""The commands beside serving: `conch config`, `conch new`, and the completions of shells, which know them."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import repository
from server import BACKENDS, BIN, ROOT, Server, run_to_end
from wire import ask, given, infer

pytestmark = pytest.mark.conch_only("Triton has no commands")

ONNX = repository.EXAMPLES / "digits/1/model.onnx"
BUILD = pathlib.Path(BIN).resolve().parent.parent
FOUND = f"--backend-directory={BACKENDS}"


def config(*arguments, **options):
    return run_to_end("config", FOUND, *arguments, **options)


# ---- conch config ---------------------------------------------------------------------------------------------------


def test_the_configuration_of_a_file(tmp_path):
    file = tmp_path / "iris.onnx"
    shutil.copy(ONNX, file)
    (tmp_path / "temporary").mkdir()
    code, out, err = config(file, env={"TMPDIR": str(tmp_path / "temporary")})
    assert (code, err) == (0, "")
    assert out.startswith('name: "iris"\n') and 'backend: "onnxruntime"\n' in out
    assert re.search(r'input {\n  name: "image"\n  data_type: TYPE_FP32\n  dims: \[64\]\n}', out), out
    assert not list((tmp_path / "temporary").iterdir()), "the temporary repository is gone"


def test_the_printed_configuration_is_complete(tmp_path):
    """A server that completes nothing takes it, and has the same configuration."""
    model = repository.write_model(tmp_path, "digits", None)
    shutil.copy(ONNX, model / "1/model.onnx")
    code, out, _ = config(model)
    assert code == 0 and "dynamic_batching" in out
    (model / "config.pbtxt").write_text(out)
    assert config("--disable-auto-complete-config", model / "config.pbtxt") == (0, out, "")
    with Server(tmp_path, flags=["--disable-auto-complete-config"]) as server:
        assert infer(server, "digits", {"inputs": [given("image", "FP32", [1, 64], [0] * 64)]}).status == 200


def test_an_ensemble_has_its_members(tmp_path):
    code, out, _ = config(repository.EXAMPLES / "read_digit")
    assert code == 0 and 'platform: "ensemble"' in out


def test_options_of_the_server_count(tmp_path):
    model = repository.write_model(tmp_path, "digits", None)
    shutil.copy(ONNX, model / "1/model.onnx")
    assert "max_batch_size: 9\n" in config("--backend-config=default-max-batch-size=9", model)[1]


def test_a_model_that_cannot_be_loaded_has_its_reason_on_one_line(tmp_path):
    repository.write_model(tmp_path, "typo", 'backend: "identity"\ninputt {}\n')
    code, out, err = config(tmp_path / "typo")
    assert (code, out) == (1, "")
    assert err.startswith("conch: typo: ") and err.endswith('did you mean "input"?\n') and err.count("\n") == 1


@pytest.mark.parametrize("arguments, says", [
    ([], "no model is named"),
    (["a", "b"], "one model is shown at a time: 'a' and 'b'"),
    (["nowhere"], "nowhere: No such file or directory"),
    ([BIN], f"'{BIN}' is no .onnx file and no model's folder"),
    (["--htp-port=1", "."], "unrecognized option '--htp-port'; did you mean '--http-port'?"),
])
def test_wrong_arguments_of_config(arguments, says):
    assert config(*arguments) == (2, "", f"conch: {says}\nTry 'conch config --help'.\n")


# ---- conch new ------------------------------------------------------------------------------------------------------


def new(*arguments):
    return run_to_end("new", *arguments)


def made(out):
    return out.split("\n\nNext:\n")[0].splitlines()


def test_a_new_model_passes_the_check_and_serves(tmp_path):
    code, out, err = new("model", f"{tmp_path}/models/greet")
    assert (code, err) == (0, "")
    assert made(out) == [f"{tmp_path}/models/greet/config.pbtxt", f"{tmp_path}/models/greet/1/model.py"]
    assert "@" not in "".join(pathlib.Path(path).read_text() for path in made(out))
    code, out, _ = run_to_end("check", "--strict", FOUND, tmp_path / "models")
    assert code == 0 and "0 errors, 0 warnings" in out
    with Server(tmp_path / "models", env={"PATH": f"{ROOT / '.deps/venv/bin'}:{os.environ['PATH']}"}) as server:
        body = json.loads(infer(server, "greet", {"inputs": [given("X", "FP32", [2, 4], list(range(8)))]}).body)
    assert body["outputs"][0]["data"] == [2 * i for i in range(8)]


def test_a_new_backend_is_built_checked_and_served(tmp_path):
    code, out, err = new("backend", f"{tmp_path}/twice")
    assert (code, err) == (0, "")
    assert "scale" not in "".join(pathlib.Path(path).read_text() for path in made(out))
    assert "are not installed" not in out
    built = subprocess.run(["make", "-C", tmp_path / "twice", "check", "CFLAGS=-Werror"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "0 errors, 0 warnings" in built.stdout
    with Server(tmp_path / "twice/models", flags=[f"--backend-directory={tmp_path}/twice/backends"]) as server:
        body = json.loads(infer(server, "twice", {"inputs": [given("IN", "FP32", [3], [1, 2, 3])]}).body)
    assert body["outputs"][0]["data"] == [2, 4, 6]


def test_what_exists_is_not_changed(tmp_path):
    (tmp_path / "iris").mkdir()
    assert new("model", f"{tmp_path}/iris/") == (1, "", f"conch: '{tmp_path}/iris' exists already\n")
    assert not list((tmp_path / "iris").iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    code, out, err = new("model", f"{tmp_path}/file/iris")
    assert (code, out) == (1, "") and err.startswith(f"conch: {tmp_path}/file/iris/config.pbtxt: Not a directory")


@pytest.mark.parametrize("kind, name", [("backend", "a.b"), ("backend", "-a"), ("model", ".."), ("model", "a\nb"), ("model", "")])
def test_a_name_that_cannot_be_one(tmp_path, kind, name):
    code, out, err = new(kind, f"{tmp_path}/{name}" if name else name)
    assert (code, out) == (1, "") and " cannot be the name of a " in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[], ["model"], ["house", "x"], ["model", "x", "y"]])
def test_wrong_arguments_of_new(arguments):
    assert new(*arguments) == (2, "", "conch: 'new' makes a 'model' or a 'backend' in a folder\nTry 'conch new --help'.\n")


@pytest.mark.parametrize("command", ["config", "new", "check"])
def test_each_command_has_help(command):
    code, out, err = run_to_end(command, "--help")
    assert (code, err) == (0, "") and out.startswith(f"Usage: conch {command} ")


# ---- Completions ----------------------------------------------------------------------------------------------------


def needs_shell(name):
    return pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not installed"))


def bash_completes(line):
    words = re.findall(r"=|[^ =]+", line) + ([""] if line.endswith(" ") else [])
    script = (f"source {BUILD}/share/bash-completion/completions/conch; COMP_WORDS=({' '.join(w if w else chr(39) * 2 for w in words)}); "
              f"COMP_CWORD={len(words) - 1}; _conch; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd="/var/empty" if os.path.isdir("/var/empty") else "/").stdout.split()


@pytest.mark.parametrize("line, offers", [
    ("conch --http-po", {"--http-port"}),
    ("conch --log-format=", {"default", "ISO8601", "json"}),
    ("conch --log-format j", {"json"}),
    ("conch --model-control-mode=e", {"explicit"}),
    ("conch --repoagent-d", {"--repoagent-directory"}),
    ("conch check --exp", {"--explain"}),
    ("conch new ", {"model", "backend"}),
    ("conch conf", {"config"}),
])
def test_bash_completes(line, offers):
    assert set(bash_completes(line)) == offers


@pytest.mark.parametrize("shell", [needs_shell("zsh"), needs_shell("fish")])
def test_other_shells_take_the_file(shell):
    path = {"zsh": "zsh/site-functions/_conch", "fish": "fish/vendor_completions.d/conch.fish"}[shell]
    subprocess.run([shell, "-n", BUILD / "share" / path], check=True)


@pytest.mark.parametrize("line, offers", [("conch --log-format=j", "--log-format=json"), ("conch conf", "config")])
@pytest.mark.parametrize("shell", [needs_shell("fish")])
def test_fish_completes(shell, line, offers):
    script = f"source {BUILD}/share/fish/vendor_completions.d/conch.fish; complete -C {line!r}"
    out = subprocess.run([shell, "-c", script], capture_output=True, text=True, check=True).stdout
    assert offers in [row.split("\t")[0] for row in out.splitlines()]


def test_completions_have_each_option_and_command():
    flags = set(re.findall(r"^  (--[a-z0-9-]+)", run_to_end("--help", "all")[1], re.MULTILINE))
    for path, form in [("bash-completion/completions/conch", "{}"), ("zsh/site-functions/_conch", "{}"),
                       ("fish/vendor_completions.d/conch.fish", "-l {}")]:
        text = (BUILD / "share" / path).read_text()
        words = set(re.findall(r"[\w-]+", text))
        for flag in flags:
            assert (flag if form == "{}" else flag[2:]) in words, (path, flag)
        assert {"check", "config", "new"} <= words
