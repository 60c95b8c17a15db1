# SPDX-License-Identifier: Apache-2.0
"""Starting: what is printed, and the one clear line for each fault, with exit code 1."""

import os
import re
import socket

import pytest
import tritonclient.http

import preload
import repository
import triton as genuine
from server import BACKENDS, BIN, REFERENCE, ROOT, Server, free_port, run_to_end, wait_for
from wire import ask, given, infer

OURS = pytest.mark.conch_only("it is how Conch does it")
ONE = {"inputs": [given("INPUT0", "FP32", [1], [1])]}


def start(root, *flags, env=None):
    """Runs on a repository where the start is expected to fail: (code, all that was printed)."""
    code, out, err = run_to_end(
        f"--model-repository={root}",
        f"--backend-directory={BACKENDS}",
        "--http-address=127.0.0.1",
        f"--http-port={free_port()}",
        *([] if any("grpc" in flag for flag in flags) else ["--allow-grpc=false"]),
        "--allow-metrics=false",
        *flags,
        env=env,
    )
    return code, out + err


def names(log, *words):
    """The lines of a log that have all these words."""
    return [line for line in log.splitlines() if all(word in line for word in words)]


@OURS
def test_port_0_prints_the_port_that_it_got(models):
    repository.write_identity(models, "m", [("FP32", [-1])])
    with Server(models) as server:
        assert server.port != 0
        assert ask(server, "GET", "/v2/models/m/ready").status == 200


def test_tables_name_models_backends_and_options(models):
    repository.write_identity(models, "first", [("FP32", [-1])], versions=(1, 4))
    with Server(models) as server:
        log = server.log()
    assert re.search(r"\| first +\| 4 +\| READY +\|", log)
    assert re.search(r"\| identity +\| \S+", log)
    assert re.search(r"\| model_repository_path\[0\] +\| " + re.escape(str(models)), log)


def test_models_of_two_repositories_are_served(models, tmp_path):
    repository.write_identity(models, "here", [("FP32", [-1])])
    repository.write_identity(tmp_path / "others", "there", [("FP32", [-1])])
    with Server(models, tmp_path / "others") as server:
        assert infer(server, "here", ONE).status == 200
        assert infer(server, "there", ONE).status == 200


def test_files_beside_models_and_odd_version_names_are_ignored(models):
    repository.write_identity(models, "m", [("FP32", [-1])], versions=(2,))
    (models / "README").write_text("not a model")
    (models / "m" / "abc").mkdir()
    (models / "m" / "007").mkdir()
    with Server(models) as server:
        assert ask(server, "GET", "/v2/models/m").json()["versions"] == ["2"]


def test_a_start_needs_a_repository():
    code, out, err = run_to_end("--allow-grpc=false")
    assert code == 1
    assert names(out + err, "--model-repository must be specified")


def test_a_missing_repository_ends_the_start(tmp_path):
    code, log = start(tmp_path / "nowhere")
    assert code == 1
    assert names(log, str(tmp_path / "nowhere"))


@OURS
def test_a_repository_that_is_a_file_ends_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    code, log = start(tmp_path / "file")
    assert code == 1
    assert names(log, str(tmp_path / "file"))


def test_a_port_in_use_ends_the_start(models):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, log = start(models, f"--http-port={port}")
    assert code == 1
    assert names(log, f"failed to start HTTP service: Unavailable - Socket '127.0.0.1:{port}' already in use")


def test_a_port_of_grpc_in_use_ends_the_start(models):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, log = start(models, "--grpc-address=127.0.0.1", f"--grpc-port={port}")
    assert code == 1
    assert names(log, f"failed to start GRPC service: Unavailable - Socket '127.0.0.1:{port}' already in use")


@OURS
def test_an_invalid_address_ends_the_start(models):
    code, log = start(models, "--http-address=nobody.invalid")
    assert code == 1
    assert names(log, "nobody.invalid")


@OURS
def test_a_name_is_served_at_all_its_addresses(models):
    """All addresses of the name on this machine: at least 127.0.0.1, which a listener on ::1 alone would not serve."""
    with Server(models, address="localhost") as server:
        found = {at[4][0]: at for at in socket.getaddrinfo("localhost", server.port, type=socket.SOCK_STREAM)}
        assert found
        for family, kind, _, _, address in found.values():
            with socket.socket(family, kind) as client:
                client.settimeout(60)
                client.connect(address)
                client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.1 200 ")


GOOD = 'name: "m"\nbackend: "identity"\n' + repository.tensor("input", "INPUT0", "FP32", [1]) + repository.tensor("output", "OUTPUT0", "FP32", [1])
FORMAT = 'input { name: "S" data_type: TYPE_INT32 dims: [ 1, 1, 1 ] is_non_linear_format_io: true }'

# config.pbtxt -> words of the one line with the fault
CONFIGS = {
    "no text format": ("name = m {", ["config.pbtxt"]),
    "unknown field": (GOOD + "colour: 1\n", ["config.pbtxt", "colour"]),
    "wrong type": (GOOD + 'max_batch_size: "many"\n', ["config.pbtxt:5:17", "integer", "many"]),
    "other name": (GOOD.replace('name: "m"', 'name: "other"'), ["other", "m"]),
    "negative batch": (GOOD + "max_batch_size: -1\n", ["'max_batch_size' must be non-negative value for m"]),
    "input without dims": (GOOD.replace("dims: [ 1 ]", "", 1), ["model input 'INPUT0' must specify 'dims'"]),
    "dimension 0": (GOOD.replace("dims: [ 1 ]", "dims: [ 0 ]"), ["dimension must be integer >= 1, or -1"]),
    "no such backend": (GOOD.replace("identity", "nonesuch"), ["nonesuch", "'m'"]),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_wrong_configuration_ends_the_start(models, case):
    text, words = CONFIGS[case]
    repository.write_model(models, "m", text)
    code, log = start(models)
    assert code == 1, log
    if not REFERENCE:
        assert names(log, *words), log


@OURS
@pytest.mark.parametrize(
    "field, text",
    [
        ("is_non_linear_format_io", FORMAT),
    ],
)
def test_a_field_that_is_not_honoured_yet_is_refused_by_name(models, field, text):
    repository.write_model(models, "m", GOOD + text + "\n")
    code, log = start(models)
    assert code == 1
    assert names(log, field), log


@OURS
def test_configuration_errors_are_as_the_documentation_shows(models):
    page = (ROOT / "docs/model-repository.md").read_text()
    for line, word in ((FORMAT, "is_non_linear_format_io"), ("colour: 1", "colour")):
        shown = next(row for row in page.splitlines() if row.startswith("Poll failed") and word in row)
        folder = models / word.strip("'")
        repository.write_model(folder, "m", GOOD + line + "\n")
        code, log = start(folder)
        assert code == 1
        assert names(log.replace('\\"', '"').replace(str(folder), "models"), shown), log


@OURS
def test_an_unreadable_configuration_ends_the_start(models):
    if os.geteuid() == 0:
        # Root can read every file; but a folder in its place can never be read as a file.
        (models / "m" / "config.pbtxt").mkdir(parents=True)
        (models / "m" / "1").mkdir()
    else:
        folder = repository.write_model(models, "m", GOOD)
        (folder / "config.pbtxt").chmod(0)
    code, log = start(models)
    assert code == 1
    assert names(log, "m"), log


def test_a_model_without_a_version_ends_the_start(models):
    repository.write_model(models, "m", GOOD, versions=())
    code, log = start(models)
    assert code == 1
    assert names(log, "m", "version"), log


@OURS
@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x08\x12"])
def test_a_corrupt_onnx_model_ends_the_start(models, content):
    repository.copy_example(models, "add_sub")
    (models / "add_sub" / "1" / "model.onnx").write_bytes(content)
    code, log = start(models)
    assert code == 1
    assert names(log, "add_sub", "model.onnx"), log


@OURS
def test_a_missing_onnx_model_ends_the_start(models):
    repository.copy_example(models, "add_sub")
    (models / "add_sub" / "1" / "model.onnx").unlink()
    code, log = start(models)
    assert code == 1
    assert names(log, "add_sub", "model.onnx"), log


@OURS
def test_a_missing_onnx_runtime_ends_the_start(models, tmp_path):
    repository.copy_example(models, "add_sub")
    library = str(tmp_path / "libonnxruntime.so")
    code, log = start(models, env={"CONCH_ONNXRUNTIME": library})
    assert code == 1
    # Which library, where it was searched, and how to install it.
    assert names(log, "add_sub", library, "pip install onnxruntime"), log


@OURS
def test_a_failed_load_is_retried_as_configured(models):
    repository.write_model(models, "bad", GOOD.replace('"m"', '"bad"').replace("identity", "nonesuch"))
    code, log = start(models, "--model-load-retry-count=2")
    assert code == 1
    assert len(names(log, "failed to load 'bad' version 1", "2 retries left")) == 1
    assert len(names(log, "failed to load 'bad' version 1", "1 retries left")) == 1
    assert len(names(log, "failed to load 'bad' version 1")) == 3


@pytest.mark.skipif(REFERENCE, reason="is about our log")
def test_changes_are_possible_once_the_log_says_that_models_are_loaded(models, tmp_path):
    """The line is there, and whoever has read it asks, before the thread that has written it goes on."""
    repository.write_identity(models, "m", [("FP32", [1])])
    path = tmp_path / "log"
    server = Server(models, flags=["--model-control-mode=explicit", f"--log-file={path}"], ready=None,
                    env=preload.environment("pauses", PAUSES="1,100000", PAUSES_WRITES="1"))
    server.log = lambda: path.read_text() if path.exists() else ""
    with server:
        server.wait_log("Loaded 0 of ")
        assert ask(server, "POST", "/v2/repository/models/m/load").status == 200


def test_one_broken_model_need_not_stop_the_others(models):
    repository.write_identity(models, "good", [("FP32", [-1])])
    repository.write_model(models, "bad", GOOD.replace('"m"', '"bad"').replace("identity", "nonesuch"))
    with Server(models, flags=["--exit-on-error=false"], ready=False) as server:
        assert infer(server, "good", ONE).status == 200
        assert infer(server, "bad", ONE).status in (404, 503)
        assert ask(server, "GET", "/v2/health/live").status == 200
        assert ask(server, "GET", "/v2/health/ready").status == 400


def listens(server):
    with socket.socket() as probe:
        return probe.connect_ex((server.address, server.port)) == 0


@pytest.mark.parametrize("kind", [Server, pytest.param(genuine.Triton, marks=genuine.needed)], ids=["ours", "theirs"])
@pytest.mark.parametrize("flags", [[], ["--strict-readiness=false"], ["--model-control-mode=poll", "--repository-poll-secs=1"]], ids=str)
def test_with_a_missing_repository_the_server_may_start(models, tmp_path, kind, flags):
    repository.write_identity(models, "m", [("FP32", [-1])])
    with kind(models, flags=[f"--model-repository={tmp_path / 'nowhere'}", "--exit-on-error=false", *flags], ready=None) as server:
        wait_for(lambda: listens(server), 60, "the port is open")  # the genuine one logs that before
        with tritonclient.http.InferenceServerClient(server.url) as client:
            assert not client.is_server_live() and not client.is_server_ready()
            assert not client.is_model_ready("m")
            assert client.get_server_metadata()["name"] == "triton"
            for what in (client.get_model_repository_index, lambda: client.load_model("m"), lambda: client.get_model_metadata("m")):
                with pytest.raises(tritonclient.utils.InferenceServerException, match="Server not ready"):
                    what()
        server.wait_log("nowhere")
        if kind is Server:
            assert ask(server, "GET", "/v2/health/ready", headers={"Accept": "application/json"}).json()["state"] == "failed"


@OURS
def test_help_is_readable():
    code, out, err = run_to_end("--help")
    assert (code, err) == (0, "")
    assert "--model-repository" in out
    assert "--http-port" in out


def test_help_works_under_the_name_tritonserver(tmp_path):
    if REFERENCE:
        program = BIN
    else:
        program = str(tmp_path / "tritonserver")
        os.symlink(os.path.abspath(BIN), program)
    code, out, err = run_to_end("--help", program=program)
    assert (code, out) == (1, "")
    assert "--model-repository" in err


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--no-such-flag"], ["no-such-flag"]),
        (["--http-port=many"], ["http-port", "many"]),
        (["--http-thread-count=x"], ["http-thread-count"]),
        (["--exit-on-error=maybe"], ["exit-on-error"]),
        (["--http-max-input-size=0"], ["--http-max-input-size must be greater than 0"]),
        (["stray"], ["stray"]),
        (["--model-repository"], ["model-repository"]),
    ],
)
def test_wrong_flags_end_the_start(models, flags, words):
    code, out, err = run_to_end(f"--model-repository={models}", "--allow-grpc=false", "--allow-metrics=false", *flags)
    assert code == 1
    assert out == ""
    if not REFERENCE:
        assert names(err, *words), err


def test_flags_may_be_two_words_and_abbreviated(models):
    repository.write_identity(models, "m", [("FP32", [-1])])
    with Server(models, flags=["--http-thread", "2", "--log-info", "TRUE", "--exit-timeout", "5"]) as server:
        assert infer(server, "m", ONE).status == 200
