# SPDX-License-Identifier: Apache-2.0
"""The first hour of a new user: each test does what such a user does, and reads what the user reads.

The users: a data scientist with a model's file, an operator, somebody who comes from Triton, the author of a backend, a
contributor, and a person at a terminal.
"""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

import onnx_models
import repository
from server import BACKENDS, BIN, ROOT, SANITIZED, Server, run_to_end, wait_equal, wait_for
from wire import Connection, ask, given, infer, request_bytes

pytestmark = pytest.mark.conch_only("Triton says less")

PORTS = ["--http-address=127.0.0.1", "--http-port=0", "--allow-grpc=false", "--allow-metrics=false",
         f"--backend-directory={BACKENDS}"]
ONNX = repository.EXAMPLES / "digits/1/model.onnx"


def start(root, *flags):
    """Runs a start that is expected to fail; its lines on stderr, and those on stdout."""
    code, out, err = run_to_end(f"--model-repository={root}", *PORTS, *flags)
    assert code == 1, out + err
    return err.splitlines(), out.splitlines()


def check(root):
    return run_to_end("check", root)[1]


# ---- A failed start ends with its reasons ---------------------------------------------------------------------------


def write_broken(root):
    """Two models that serve, and two that do not."""
    repository.write_identity(root, "fine", [("FP32", [1])])
    repository.write_identity(root, "good", [("FP32", [1])])
    repository.write_model(root, "typo", 'backend: "identity"\ninputt {}\n')
    repository.write_model(root, "broken", 'backend: "onnxruntime"\n')
    (root / "broken/1/model.onnx").write_text("this is no model")


def test_a_failed_start_ends_with_its_reasons(tmp_path):
    write_broken(tmp_path)
    err, out = start(tmp_path)
    at = err.index("error: creating server: Internal - 2 of 4 models failed:")
    broken, typo, rest = err[at + 1:]
    assert broken.startswith("  broken version 1: ") and "Protobuf parsing failed" in broken
    assert typo.startswith("  typo: ") and f"{tmp_path}/typo/config.pbtxt:2:" in typo
    assert typo.endswith('did you mean "input"?')
    assert rest == "With --exit-on-error=false the server starts without them."
    assert not [line for line in err + out if "failed to load all models" in line]


def test_nothing_is_said_after_the_reasons(tmp_path):
    write_broken(tmp_path)
    _, out = start(tmp_path)
    assert not [line for line in out if line.startswith(("+--", "|"))], "a table"
    last = out[-1]
    assert "Waiting for in-flight" not in last and "successfully unloaded" not in "".join(out)
    assert "Timeout" not in "".join(out)


def test_details_of_the_stop_are_there_for_those_who_want_them(tmp_path):
    write_broken(tmp_path)
    _, out = start(tmp_path, "--log-verbose=1")
    assert "successfully unloaded 'fine' version 1" in "\n".join(out)


def test_a_start_without_any_model_says_so_in_the_words_of_triton(tmp_path):
    repository.write_model(tmp_path, "typo", "inputt {}\n")
    err, _ = start(tmp_path)
    at = err.index("error: creating server: Internal - failed to load all models")
    assert err[at + 1] == "1 of 1 models failed:"
    assert len(err) == at + 3, "and nothing serves the rest, since there is none"


def test_a_missing_named_model_is_among_the_reasons(tmp_path):
    repository.write_identity(tmp_path, "fine", [("FP32", [1])])
    err, _ = start(tmp_path, "--model-control-mode=explicit", "--load-model=fine", "--load-model=finr")
    assert err[-3] == "error: creating server: Internal - 1 of 2 models failed:"
    assert err[-2].startswith("  finr: Not found: model not found in any model repository.")


def test_the_rest_serves_as_the_last_line_says(tmp_path):
    write_broken(tmp_path)
    with Server(tmp_path, flags=["--exit-on-error=false"], ready=False) as server:
        assert infer(server, "fine", {"inputs": [given("INPUT0", "FP32", [1], [1])]}).status == 200


# ---- The first five mistakes ----------------------------------------------------------------------------------------


def both_say(root, *words):
    """The last lines of a failed start and `conch check` name the file and its cure."""
    err, _ = start(root)
    reason, found = err[-1], check(root)
    for word in words:
        assert word in reason, reason
        assert word in found, found


def test_1_a_file_beside_the_version_folders(tmp_path):
    (tmp_path / "iris").mkdir()
    shutil.copy(ONNX, tmp_path / "iris/model.onnx")
    both_say(tmp_path, "'iris/model.onnx' must be in a version folder: move it to 'iris/1/model.onnx'")


def test_1_a_file_beside_the_version_folders_with_a_configuration(tmp_path):
    (tmp_path / "iris").mkdir()
    (tmp_path / "iris/config.pbtxt").write_text('backend: "onnxruntime"')
    shutil.copy(ONNX, tmp_path / "iris/iris.onnx")
    both_say(tmp_path, "at least one version must be available",
             "'iris/iris.onnx' must be in a version folder: move it to 'iris/1/model.onnx'")


@pytest.mark.parametrize("config", [None, 'backend: "onnxruntime"'])
def test_2_a_file_of_another_name(tmp_path, config):
    shutil.copy(ONNX, repository.write_model(tmp_path, "iris", config) / "1/iris.onnx")
    both_say(tmp_path, "rename 'iris/1/iris.onnx' to 'model.onnx', or write backend: \"onnxruntime\" and "
                       'default_model_filename: "iris.onnx" in its config.pbtxt')


def test_2_the_second_cure_works(tmp_path):
    config = 'backend: "onnxruntime" default_model_filename: "iris.onnx"'
    shutil.copy(ONNX, repository.write_model(tmp_path, "iris", config) / "1/iris.onnx")
    with Server(tmp_path) as server:
        assert ask(server, "GET", "/v2/models/iris/ready").status == 200


@pytest.mark.parametrize("versions, says", [
    ((), "there is no version folder: make 'iris/1' and put the model's file there"),
    ((7,), "the version folder 'iris/7' is empty: put the model's file there"),
])
def test_2_no_file_at_all(tmp_path, versions, says):
    repository.write_model(tmp_path, "iris", None, versions)
    both_say(tmp_path, says)


def test_3_a_loose_file(tmp_path):
    shutil.copy(ONNX, tmp_path / "iris.onnx")
    (tmp_path / "README.md").write_text("no model")
    says = "'iris.onnx' is not in the folder of a model: move it to 'iris/1/model.onnx'"
    with Server(tmp_path, ready=False) as server:
        assert says in server.log()
        assert "README" not in server.log()
    assert says in check(tmp_path)


def test_4_zipmap(tmp_path):
    onnx_models.sequence(tmp_path / "iris")
    err, _ = start(tmp_path)
    assert "'OUT' is no tensor but another kind of ONNX value" in err[-1]
    assert "export the model with options={'zipmap': False}" in err[-1]


def test_5_a_batch_limit_that_nobody_chose(tmp_path):
    shutil.copy(ONNX, repository.write_model(tmp_path, "digits", None) / "1/model.onnx")
    rows = {"inputs": [given("image", "FP32", [5, 64], [0] * 320)]}
    with Server(tmp_path) as server:
        assert "write max_batch_size: N in its config.pbtxt" in server.log()
        error = json.loads(infer(server, "digits", rows).body)["error"]
    assert "inference request batch-size must be <= 4 for 'digits'" in error
    assert error.endswith("; its config.pbtxt has no max_batch_size, so its backend has chosen 4: write a larger one there")


def test_5_a_batch_limit_of_0_that_the_backend_raises_as_in_triton(tmp_path):
    shutil.copy(ONNX, repository.write_model(tmp_path, "digits", "max_batch_size: 0") / "1/model.onnx")
    rows = {"inputs": [given("image", "FP32", [5, 64], [0] * 320)]}
    with Server(tmp_path) as server:
        assert "its configuration has no max_batch_size, or 0: 4 is used, this backend's default-max-batch-size" in server.log()
        error = json.loads(infer(server, "digits", rows).body)["error"]
    assert error.endswith("; its config.pbtxt has max_batch_size 0, so its backend has chosen 4: write a larger one there")


def test_5_a_batch_limit_that_was_chosen(tmp_path):
    shutil.copy(ONNX, repository.write_model(tmp_path, "digits", "max_batch_size: 4") / "1/model.onnx")
    rows = {"inputs": [given("image", "FP32", [5, 64], [0] * 320)]}
    with Server(tmp_path) as server:
        assert json.loads(infer(server, "digits", rows).body)["error"].endswith("batch-size must be <= 4 for 'digits'")


# ---- Request errors say what is expected ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A server with a model as a data scientist has it, 'iris', and one without a batch, 'four'."""
    root = tmp_path_factory.mktemp("models")
    repository.write_identity(root, "iris", [("FP32", [4])], max_batch_size=8)
    repository.write_identity(root, "four", [("FP32", [4]), ("BYTES", [-1])])
    with Server(root) as server:
        yield server


def refusal(server, body, model="iris", status=400):
    """The error of what is posted as curl -d does."""
    body = body if isinstance(body, (str, bytes)) else json.dumps(body)
    response = ask(server, "POST", f"/v2/models/{model}/infer", body.encode() if isinstance(body, str) else body)
    assert response.status == status, response.body
    return json.loads(response.body)["error"]


def iris(**changed):
    return {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4], **changed}]}


def test_the_right_request_is_served(asked):
    assert infer(asked, "iris", iris()).status == 200


@pytest.mark.parametrize("path", ["infer", "generate", "versions/1/infer"])
def test_an_unknown_model_is_told_a_similar_one(asked, path):
    error = json.loads(ask(asked, "POST", f"/v2/models/irsi/{path}", b"{}").body)["error"]
    assert error == "Request for unknown model: 'irsi' is not found; did you mean 'iris'?"
    error = json.loads(ask(asked, "POST", f"/v2/models/resnet/{path}", b"{}").body)["error"]
    assert error == "Request for unknown model: 'resnet' is not found"


def test_a_model_that_rules_may_hide_is_not_proposed(tmp_path):
    repository.write_identity(tmp_path / "models", "iris", [("FP32", [4])])
    rules = tmp_path / "rules"
    rules.write_text("allow anyone to health\nallow anyone to inference of i*\n")
    with Server(tmp_path / "models", flags=[f"--access-rules={rules}"], ready=False) as server:
        error = json.loads(ask(server, "POST", "/v2/models/irsi/infer", b"{}").body)["error"]
    assert error == "Request for unknown model: 'irsi' is not found"


def test_an_unknown_input_is_told_the_inputs(asked):
    assert refusal(asked, iris(name="x")) == (
        "unexpected inference input 'x' for model 'iris'; it has 'INPUT0' FP32 [-1,4]")
    assert refusal(asked, {"inputs": [given("INPUT0", "FP32", [4], [0] * 4), given("x", "BYTES", [1], ["a"])]}, "four") == (
        "unexpected inference input 'x' for model 'four'; it has 'INPUT0' FP32 [4], 'INPUT1' BYTES [-1]")


def test_an_unknown_output_is_told_the_outputs(asked):
    assert refusal(asked, {**iris(), "outputs": [{"name": "y"}]}) == (
        "unexpected inference output 'y' for model 'iris'; it has 'OUTPUT0' FP32 [-1,4]")


@pytest.mark.parametrize("data, n", [([1, 2, 3], "3"), ([1, 2, 3, 4, 5], "5"), ([[1, 2], [3, 4], [5, 6]], "6"),
                                     ([0] * 70000, "more than 65540"), ([], "0")])
def test_data_of_another_size_gives_both_counts(asked, data, n):
    error = refusal(asked, iris(data=data), status=500)
    assert "shape does not match true shape" in error.lower()
    assert error.endswith(f"; input 'INPUT0' has 4 FP32 values: shape [1,4], but 'data' has {n}")


def test_data_of_another_size_before_the_shape(asked):
    body = '{"inputs":[{"data":[1,2,3],"name":"INPUT0","shape":[1,4],"datatype":"FP32"}]}'
    assert refusal(asked, body, status=500).endswith("; input 'INPUT0' has 4 FP32 values: shape [1,4], but 'data' has 3")


def test_a_value_of_another_type_is_told_the_type(asked):
    error = refusal(asked, iris(data=["1", "2", "3", "4"]), status=500)
    assert error == ("Unable to parse 'data': attempt to access JSON non-number as double; "
                     "input 'INPUT0' has 4 FP32 values: shape [1,4]")


@pytest.mark.parametrize("given_name, meant", [("fp32", "FP32"), ("float32", "FP32"), ("TYPE_FP32", "FP32"), ("FP23", "FP32"),
                                               ("double", "FP64"), ("str", "BYTES"), ("TYPE_STRING", "BYTES"), ("int", "INT32")])
def test_an_unknown_datatype_is_told_the_right_name(asked, given_name, meant):
    assert refusal(asked, iris(datatype=given_name)) == f"invalid datatype for input INPUT0; did you mean {meant}?"


def test_a_hopeless_datatype_is_told_all_names(asked):
    assert refusal(asked, iris(datatype="quaternion")).startswith(
        "invalid datatype for input INPUT0; there are BOOL UINT8 UINT16 ")


def test_a_shape_without_its_batch_dimension_is_told_the_shape(asked):
    advice = "; the model takes a batch: send [1,4]"
    assert refusal(asked, iris(shape=[4])).endswith(advice)
    assert not refusal(asked, iris(shape=[1, 5], data=[0] * 5)).endswith("]")
    assert "send" not in refusal(asked, {"inputs": [given("INPUT0", "FP32", [3], [0] * 3), given("INPUT1", "BYTES", [1], ["a"])]}, "four")


def test_a_large_shape_without_its_batch_dimension_is_told_the_shape(tmp_path):
    repository.write_identity(tmp_path, "wide", [("FP32", [64])], max_batch_size=8)
    with Server(tmp_path) as server:
        error = refusal(server, {"inputs": [given("INPUT0", "FP32", [64], [0] * 64)]}, "wide")
    assert "batch-size must be <= 8 for 'wide'; the model takes a batch: send [1,64]" in error


def test_binary_data_of_another_size_gives_the_count(asked):
    header = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4],
                                     "parameters": {"binary_data_size": 12}}]}).encode()
    response = ask(asked, "POST", "/v2/models/iris/infer", header + bytes(12), [("Inference-Header-Content-Length", str(len(header)))])
    assert json.loads(response.body)["error"].endswith("Expected 16, got 12; its shape has 4 elements FP32 of 4 bytes")


def test_bad_json_has_a_line_and_a_column(asked):
    error = refusal(asked, '{\n  "id": "é", "inputs": [,]\n}', status=500)
    assert error.startswith("failed to parse the request JSON buffer: Invalid value. at ")
    assert error.endswith("(line 2, column 25)")


def test_an_empty_body_is_told_so(asked):
    for model in "iris", "four":
        assert refusal(asked, b"", model).endswith("; the body of the request is empty")
    error = json.loads(ask(asked, "POST", "/v2/models/iris/generate", b"").body)["error"]
    assert error.endswith("(the body is empty)")


def test_a_request_of_another_protocol_is_told_the_form(asked):
    error = refusal(asked, {"instances": [[1, 2, 3, 4]]}, status=500)
    assert error == ("Unable to parse 'inputs': attempt to access non-existing object member 'inputs'; a request is "
                     '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,4],"data":[...]}]}')


# ---- The load API and the index carry the reason --------------------------------------------------------------------


@pytest.fixture(scope="module")
def controlled(tmp_path_factory):
    root = tmp_path_factory.mktemp("controlled")
    write_broken(root)
    with Server(root, flags=["--model-control-mode=explicit", "--load-model=typo", "--load-model=fine", "--exit-on-error=false"],
                ready=False) as server:
        yield server


def load_error(server, name):
    return json.loads(ask(server, "POST", f"/v2/repository/models/{name}/load").body)["error"]


def test_a_load_says_why_it_fails(controlled):
    error = load_error(controlled, "typo")
    assert error.startswith("failed to load 'typo', failed to poll from model repository: failed to read text proto from ")
    assert error.endswith('config.pbtxt:2:1: Message type "inference.ModelConfig" has no field named "inputt", did you mean "input"?')
    assert "Protobuf parsing failed" in load_error(controlled, "broken")


def test_a_load_of_a_missing_model_proposes_a_similar_one(controlled):
    assert load_error(controlled, "finr") == ("failed to load 'finr', failed to poll from model repository: "
                                              "model not found in any model repository; did you mean 'fine'?")
    assert load_error(controlled, "resnet50").endswith(": model not found in any model repository")


def test_the_index_has_the_reason(controlled):
    rows = {row["name"]: row for row in json.loads(ask(controlled, "POST", "/v2/repository/index").body)}
    assert "did you mean" in rows["typo"]["reason"] and "state" not in rows["typo"]
    assert "reason" not in rows["fine"]


# ---- No wrong advice ------------------------------------------------------------------------------------------------


def test_an_object_store_is_not_promised_by_a_build_flag():
    err, _ = start("s3://bucket/models")
    assert err[-1].endswith("s3:// file-system not supported. Repositories are folders: copy this one to a folder, or mount it.")


def test_a_load_in_mode_none_names_the_option(asked):
    assert load_error(asked, "iris").endswith("; the server loads by request with --model-control-mode=explicit")


def test_a_missing_python_backend_is_told_where_it_belongs(tmp_path):
    repository.write_model(tmp_path / "models", "m", 'backend: "python"\n' + repository.tensor("input", "I", "FP32", [1]) +
                           repository.tensor("output", "O", "FP32", [1]))
    err, _ = start(tmp_path / "models", f"--backend-directory={tmp_path}/none")
    assert err[-1].endswith("; install Conch's backend for Python, or put the files of Triton's own (/opt/tritonserver/backends/python) "
                            f"into '{tmp_path}/none/python'"), err[-1]


def test_a_gpu_is_told_what_to_write(tmp_path):
    config = 'backend: "identity"\ninstance_group { kind: KIND_GPU }\n'
    repository.write_model(tmp_path, "m", config + repository.tensor("input", "I", "FP32", [1]) + repository.tensor("output", "O", "FP32", [1]))
    err, _ = start(tmp_path)
    assert err[-1].endswith("config.pbtxt:2:18): write KIND_CPU, or KIND_AUTO for whichever the machine has")


# ---- The command line -----------------------------------------------------------------------------------------------


def conch(*arguments, env=None):
    return run_to_end(*arguments, env=env)


def test_the_bare_program_says_what_it_is_and_how_it_is_used():
    code, out, err = conch()
    assert (code, err) == (1, "")
    assert len(out.splitlines()) == 12
    for use in ("conch models/", "conch iris.onnx", "conch check models/", "conch --help", "conch version"):
        assert f"\n  {use} " in out


@pytest.mark.parametrize("words", [["-h"], ["help"], ["--help"], ["serve", "-h"], ["--http-port=1", "--help"]])
def test_help_shows_what_people_use(words):
    code, out, err = conch(*words)
    assert (code, err) == (0, "")
    flags = re.findall(r"^  (--[a-z0-9-]+)", out, re.MULTILINE)
    assert len(flags) == 20 and {"--model-repository", "--http-port"} <= set(flags)
    assert "(no effect yet)" not in out and "(not yet)" not in out
    assert "--help all" in out


def test_help_of_all_and_of_a_topic():
    everything = set(re.findall(r"^  (--[a-z0-9-]+)", conch("--help", "all")[1], re.MULTILINE))
    assert len(everything) > 100
    grpc = set(re.findall(r"^  (--[a-z0-9-]+)", conch("--help", "grpc")[1], re.MULTILINE))
    assert "--grpc-keepalive-time" in grpc and "--http-port" not in grpc and grpc < everything
    assert re.findall(r"^  (--[a-z0-9-]+)", conch("help", "http-port")[1], re.MULTILINE) == ["--http-port"]


def test_options_without_effect_stand_in_one_paragraph():
    out = conch("--help", "all")[1]
    assert "(no effect yet)" not in out
    paragraph = " ".join(out.split("\nWithout effect yet\n")[1].split())
    assert paragraph.startswith("These are accepted with a warning") and " For copies by threads of their own: --buffer-manager-thread-count." in paragraph
    assert "(no effect yet)" in conch("--help", "buffer-manager-thread-count")[1], "it has its description"


@pytest.mark.parametrize("flag, valid", [
    ("--log-format=xml", "default, ISO8601, json"), ("--model-control-mode=x", "none, poll, explicit"),
    ("--rate-limit=x", "execution_count, off"), ("--grpc-infer-response-compression-level=x", "none, low, medium, high"),
    ("--trace-config=level=x", "off, timestamps, tensors, false, true, on, min, max"), ("--trace-config=mode=x", "triton, opentelemetry"),
    ("--exit-timeout-secs=x", "whole numbers"), ("--exit-timeout-secs=99999999999", "-2147483648 to 2147483647"), ("--http-thread-count=0", "1 and more"), ("--http-port=70000", "0 to 65535"),
])
def test_a_wrong_value_is_told_the_valid_ones(flag, valid):
    code, _, err = conch(flag)
    assert code == 1 and err.splitlines()[0].endswith(f"; valid are {valid}"), err


@pytest.mark.parametrize("flag, values", [("log-format", "default|ISO8601|json"), ("model-control-mode", "none|poll|explicit"),
                                          ("rate-limit", "execution_count|off")])
def test_help_lists_the_valid_values(flag, values):
    assert f"--{flag} <{values}>" in conch("help", flag)[1]


def test_help_of_an_unknown_topic_lists_the_topics():
    code, out, err = conch("--help", "cooking")
    assert (code, out) == (1, "")
    assert err.startswith("conch: there is no topic 'cooking' of --help; there are: all general server ")


@pytest.mark.parametrize("words", [["-V"], ["version"], ["--version"]])
def test_the_version(words):
    code, out, _ = conch(*words)
    assert code == 0 and out.startswith("conch ")


def on_a_terminal(*arguments, columns=100, env=None):
    """What the program writes on a terminal of that width, and its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | (env or {})
    process = subprocess.Popen([BIN, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    text = b""
    try:
        while chunk := os.read(ours, 65536):
            text += chunk
    except OSError:    # the other side is closed
        pass
    os.close(ours)
    return text.decode().replace("\r\n", "\n"), process.wait(60)


def test_headings_are_bold_on_a_terminal_only():
    assert "\n\x1b[1mHTTP\x1b[0m\n" in on_a_terminal("--help")[0]
    assert "\x1b" not in on_a_terminal("--help", env={"NO_COLOR": "1"})[0]
    assert "\x1b" not in conch("--help")[1]


@pytest.mark.parametrize("wrong, says", [
    (["--modelrepository=x"], "unrecognized option '--modelrepository'; did you mean '--model-repository'?"),
    (["--http-prot", "1"], "unrecognized option '--http-prot'; did you mean '--http-port'?"),
    (["--allow-grpc=maybe"], "invalid value for bool option: maybe; valid are true, on, 1, false, off, 0"),
    (["srve", "x"], "Unexpected argument: srve; did you mean 'serve'?"),
    (["nothing"], "Unexpected argument: nothing: it is no folder, no .onnx file and no command (serve, check, config, new, help, version)"),
    (["-x"], "invalid option -- 'x'"),
])
def test_a_slip_is_told_what_was_meant(wrong, says):
    code, out, err = conch(*wrong)
    assert (code, out) == (1, "")
    first, hint = err.splitlines()
    assert first.startswith("conch: ") and first.endswith(says)
    assert hint == "Try 'conch --help'."


@pytest.mark.parametrize("words, help_of, code", [
    (["check"], "conch check", 2), (["check", "--fromat=json", "x"], "conch check", 2), (["check", "--explain", "E-nothing"], "conch check", 2),
    (["config"], "conch config", 2), (["config", "nothing"], "conch config", 2), (["config", "--htp-port=1", "."], "conch config", 2),
    (["new"], "conch new", 2), (["new", "sodel", "x"], "conch new", 2),
    (["help", "cooking"], "conch", 1), (["nothing"], "conch", 1), (["--htp-port=1"], "conch", 1), (["--config=nothing"], "conch", 1),
])
def test_all_commands_tell_wrong_words_in_one_voice(words, help_of, code):
    """Two lines: what is wrong, and where help is, which is there."""
    got, out, err = conch(*words)
    said, hint = err.splitlines()
    assert (got, out) == (code, "")
    assert said.startswith("conch: ") and hint == f"Try '{help_of} --help'."
    assert conch(*help_of.split()[1:], "--help")[0] == 0


class Started(Server):
    """A server whose repository is named by words."""

    def __init__(self, *words, env=None):
        super().__init__(env=env)
        self.args = [self.args[0], *map(str, words), *self.args[1:]]


@pytest.mark.parametrize("before", [[], ["serve"]])
def test_a_folder_is_served_by_its_name(tmp_path, before):
    repository.write_identity(tmp_path, "iris", [("FP32", [4])], max_batch_size=8)
    with Started(*before, tmp_path) as server:
        assert infer(server, "iris", iris()).status == 200


def test_a_file_is_served_as_a_model(tmp_path):
    file = tmp_path / 'my "digits" v1.onnx'
    shutil.copy(ONNX, file)
    (tmp_path / "temporary").mkdir()
    with Started(file, env={"TMPDIR": str(tmp_path / "temporary")}) as server:
        rows = json.loads(ask(server, "POST", "/v2/repository/index").body)
        assert [(row["name"], row["state"]) for row in rows] == [('my "digits" v1', "READY")]
    assert list((tmp_path / "temporary").iterdir()) == [], "the temporary repository is gone"
    assert file.read_bytes() == ONNX.read_bytes()


def test_a_file_that_is_no_model_ends_with_the_reason(tmp_path):
    file = tmp_path / "iris.onnx"
    file.write_text("no model")
    code, _, err = conch(file, *PORTS, env={"TMPDIR": str(tmp_path)})
    assert code == 1 and "  iris version 1: " in err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == [file]


def test_the_name_tritonserver_keeps_its_command_line(tmp_path):
    program = tmp_path / "tritonserver"
    program.symlink_to(os.path.abspath(BIN))
    code, out, err = run_to_end(program=str(program))
    assert code == 1 and "--model-repository must be specified" in err + out
    code, _, err = run_to_end(tmp_path, program=str(program))
    assert code == 1 and f"Unexpected argument: {tmp_path}" in err


# ---- Options elsewhere than on the command line -----------------------------------------------------------------------


def test_options_may_stand_in_a_file_and_in_the_environment(tmp_path):
    file = tmp_path / "conch.conf"
    file.write_text("# ports\nhttp-port = 8100\ngrpc-port = 8101\nmetrics-port = 8102\n")
    code, out, err = conch(f"--config={file}", "--http-port=8200", "--print-config", env={"CONCH_GRPC_PORT": "8201"})
    assert (code, err) == (0, "")
    parts = dict(part.split("\n", 1) for part in out.removeprefix("# ").split("\n\n# "))
    assert parts["from the command line"] == "http-port = 8200"
    assert parts["from the environment"] == "grpc-port = 8201"
    assert parts["from the file of --config"] == "metrics-port = 8102"
    assert "allow-http = true" in parts["defaults"].splitlines() and "backend-directory = /" in parts["defaults"]


def test_a_file_of_options_is_enough_to_serve(tmp_path):
    repository.write_identity(tmp_path / "models", "fine", [("FP32", [1])])
    file = tmp_path / "conch.conf"
    file.write_text(f"model-repository = {tmp_path / 'models'}\nexit-timeout-secs = 77\n")
    with Server(tmp_path / "models", env={"CONCH_CONFIG": str(file)}) as server:
        assert "| exit_timeout             | 77 " in server.log()


def test_a_wrong_line_of_the_file_is_named(tmp_path):
    file = tmp_path / "conch.conf"
    file.write_text("\nhtp-port=3\n")
    code, _, err = conch(f"--config={file}")
    assert code == 1 and err.startswith(f"conch: {file}:2: unrecognized option '--htp-port'; did you mean '--http-port'?")


# ---- The last line of a start ---------------------------------------------------------------------------------------


def test_the_last_line_of_a_start_says_where_to_ask(tmp_path):
    repository.write_identity(tmp_path, "fine", [("FP32", [1])])
    with Server(tmp_path, flags=["--allow-metrics=true", "--metrics-port=0"], grpc=True) as server:
        server.wait_log("] \"Ready: ")
        last = server.out.text().splitlines()[-1]
        assert re.search(rf'Ready: http://127.0.0.1:{server.port}, gRPC {server.grpc_url}, metrics http://\S+:\d+/metrics, '
                         r'1 model in \d+\.\d\d s"$', last), last
        assert last.isascii()


def test_the_last_line_counts_models_and_those_with_batches(tmp_path):
    repository.write_identity(tmp_path, "plain", [("FP32", [1])], max_batch_size=8)
    with open(repository.write_identity(tmp_path, "batched", [("FP32", [1])], max_batch_size=8) / "config.pbtxt", "a") as config:
        config.write("dynamic_batching {}")
    with Server(tmp_path) as server:
        server.wait_log(", 2 models (1 batched) in ")


class OnTerminal:
    """A server on a terminal of that width; `text` is what a user has seen."""

    def __init__(self, *arguments, columns=100):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        self.process = subprocess.Popen([BIN, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.read_until("nothing that a server says")
        assert self.process.wait(60) == 0
        os.close(self.ours)

    def read_until(self, words):
        while words not in self.text:
            try:
                self.text += os.read(self.ours, 65536).decode().replace("\r\n", "\n")
            except OSError:    # the other side is closed
                break
        return self.text


def tables_of(text):
    return [part.strip().splitlines() for part in re.findall(r"^\+-.*?\n\n", text, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_tables_fit_the_terminal(tmp_path, columns):
    write_broken(tmp_path)
    with OnTerminal(f"--model-repository={tmp_path}", *PORTS, "--exit-on-error=false", columns=columns) as server:
        text = server.read_until("Serving, but not ready: ")
    backends, models, options = tables_of(text)
    for lines in backends, models, options:
        assert max(map(len, lines)) <= columns
        assert len({len(line) for line in lines}) == 1, "a frame that is straight"
    assert "Repository Agent" not in text, "an empty table"
    status = models[1].index("Status")
    reason = " ".join(line[status:].rstrip(" |") for line in models)
    assert "Protobuf parsing failed" in reason, "wrapped, but whole"
    assert any("| server_version" in line for line in options)


def test_tables_in_a_pipe_are_those_of_triton(tmp_path):
    repository.write_identity(tmp_path, "fine", [("FP32", [1])])
    with Server(tmp_path) as server:
        server.wait_log("| cache_enabled ")
        assert "| Repository Agent | Path |" in server.log()
        assert "/identity/libtriton_identity.so | {\"cmdline\":" in server.log()


def test_the_last_line_has_dots_on_a_terminal(tmp_path):
    repository.write_identity(tmp_path, "fine", [("FP32", [1])])
    with OnTerminal(f"--model-repository={tmp_path}", *PORTS) as server:
        text = server.read_until(" · 1 model in ")
    assert re.search(r'"Ready: http://127\.0\.0\.1:\d+ · 1 model in ', text), text


# ---- A load that takes long -----------------------------------------------------------------------------------------


SLOW = """
import os, time

class TritonPythonModel:
    def initialize(self, args):
        while not os.path.exists(os.path.join(args["model_repository"], "go")):
            time.sleep(0.01)
    def execute(self, requests):
        return []
"""


def write_slow(root):
    repository.write_identity(root, "fine", [("FP32", [1])])
    model = repository.write_model(root, "slow", 'backend: "python"\n' + repository.tensor("input", "I", "FP32", [1]) +
                                   repository.tensor("output", "O", "FP32", [1]))
    (model / "1/model.py").write_text(SLOW)


def test_a_long_load_says_what_it_waits_for(tmp_path):
    write_slow(tmp_path)
    with Server(tmp_path, flags=["--disable-auto-complete-config"], ready=None) as server:
        server.wait_log("Loading: 'slow' for 2 s; 1 of 2 models are ready")
        (tmp_path / "slow/go").touch()
        server.wait_log("] \"Ready: ")
        assert "\x1b" not in server.log() and "'fine' for" not in server.log()


def test_a_long_load_is_told_in_place_on_a_terminal(tmp_path):
    write_slow(tmp_path)
    with OnTerminal(f"--model-repository={tmp_path}", *PORTS, "--disable-auto-complete-config") as server:
        server.read_until("\r\x1b[KLoading: 'slow' for 3 s; 1 of 2 models are ready")
        (tmp_path / "slow/go").touch()
        text = server.read_until("] \"Ready: ")
    assert re.search(r"are ready\r\x1b\[KI\d{4} .*successfully loaded 'slow'", text), "the next line removes it"


def test_a_start_without_some_models_is_not_called_ready(tmp_path):
    write_broken(tmp_path)
    with Server(tmp_path, flags=["--exit-on-error=false"], ready=False) as server:
        server.wait_log(f"Serving, but not ready: http://127.0.0.1:{server.port}")
        assert "\"Ready: " not in server.log()


# ---- An operator, beyond the start ------------------------------------------------------------------------------------


class Operated(Server):
    """A server as an operator runs it: its log in a file, metrics, models loaded on demand; for this machine alone."""

    def __init__(self, root, file, **more):
        super().__init__(root, flags=["--model-control-mode=explicit", "--load-model=*", "--allow-metrics=true", "--metrics-port=0",
                                      "--metrics-address=127.0.0.1", f"--log-file={file}"], **more)
        self.file = file

    def log(self):
        return self.file.read_text() if self.file.exists() else ""

    def metric(self, name, **labels):
        """The value of the only line of this name with these labels."""
        (port,) = re.findall(r"Started Metrics Service at \S+:(\d+)", self.log())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            lines = [line for line in page.read().decode().splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        (line,) = [line for line in lines if all(f'{key}="{value}"' in line for key, value in labels.items())]
        return float(line.split()[-1])


def count_ok(server, n=1):
    for _ in range(n):
        assert infer(server, "iris", iris()).status == 200


def test_an_operator_replaces_a_model_by_a_broken_one_and_mends_it(tmp_path):
    config = repository.write_identity(tmp_path / "models", "iris", [("FP32", [4])], max_batch_size=8) / "config.pbtxt"
    good = config.read_text()
    with Operated(tmp_path / "models", tmp_path / "conch.log") as server:
        config.write_text(good + "dynamic_batchin {}\n")
        refused = load_error(server, "iris")
        assert f"{config}:7:1: " in refused and refused.endswith('has no field named "dynamic_batchin", did you mean "dynamic_batching"?')
        server.wait_log("Poll failed for model directory 'iris': ")    # a colleague reads it there
        count_ok(server)    # the model as it was serves on, and the pod stays in service
        assert ask(server, "GET", "/v2/health/ready").status == 200
        config.write_text(good.replace("max_batch_size: 8", "max_batch_size: 16"))
        assert ask(server, "POST", "/v2/repository/models/iris/load").status == 200
        rows = {"inputs": [given("INPUT0", "FP32", [16, 4], [0] * 64)]}
        assert infer(server, "iris", rows).status == 200


def test_an_operator_takes_a_model_out_of_service(tmp_path):
    repository.write_identity(tmp_path / "models", "iris", [("FP32", [4])], max_batch_size=8)
    with Operated(tmp_path / "models", tmp_path / "conch.log") as server:
        assert ask(server, "POST", "/v2/repository/models/iris/unload").status == 200
        server.wait_log("successfully unloaded 'iris' version 1")
        assert ask(server, "GET", "/v2/models/iris/ready").status != 200
        refused = infer(server, "iris", iris())
        assert refused.status == 404 and json.loads(refused.body)["error"].endswith("'iris' has no available versions")

        def row():
            (row,) = json.loads(ask(server, "POST", "/v2/repository/index").body)
            return row["state"], row["reason"]

        wait_equal(row, ("UNAVAILABLE", "unloaded"), "the index has it, a moment after the log")


def test_an_operator_sees_in_the_metrics_who_fails_and_why(tmp_path):
    repository.write_identity(tmp_path / "models", "iris", [("FP32", [4])], max_batch_size=8)
    with Operated(tmp_path / "models", tmp_path / "conch.log") as server:
        count_ok(server, 3)
        assert infer(server, "iris", {"inputs": [given("INPUT0", "FP32", [9, 4], [0] * 36)]}).status == 400
        assert ask(server, "POST", "/v2/models/irsi/infer", b"{}").status == 404
        assert server.metric("nv_inference_request_success", model="iris") == 3
        assert server.metric("conch_inference_request_refused", model="iris", reason="invalid") == 1
        assert server.metric("conch_frontend_requests", protocol="http", status="404") == 1
        assert server.metric("conch_batch_size_count", model="iris") == 3


def load_again(server):
    """Returns when the log has that load, too."""
    said = server.log().count("successfully loaded 'iris'")
    for change in "unload", "load":
        assert ask(server, "POST", f"/v2/repository/models/iris/{change}").status == 200
    wait_for(lambda: server.log().count("successfully loaded 'iris'") > said, 60, "the log has the load")


def test_an_operator_raises_the_level_of_the_log_for_a_while(tmp_path):
    repository.write_identity(tmp_path / "models", "iris", [("FP32", [4])], max_batch_size=8)
    with Operated(tmp_path / "models", tmp_path / "conch.log") as server:
        server.wait_log('] "Ready: ')
        quiet = len(server.log())
        count_ok(server)
        assert len(server.log()) == quiet, "a request leaves no line"
        assert ask(server, "POST", "/v2/logging", b'{"log_verbose_level":1}').json()["log_verbose_level"] == 1
        load_again(server)
        assert server.log().count("initializing instance 'iris_0") == 1
        assert ask(server, "POST", "/v2/logging", b'{"log_verbose_level":0}').json()["log_verbose_level"] == 0
        load_again(server)
        assert server.log().count("initializing instance 'iris_0") == 1


def test_an_operator_rotates_the_log(tmp_path):
    repository.write_identity(tmp_path / "models", "iris", [("FP32", [4])], max_batch_size=8)
    with Operated(tmp_path / "models", tmp_path / "conch.log", wrap=["setsid"]) as server:    # a service has no terminal
        old = server.file.rename(tmp_path / "conch.log.1")
        assert ask(server, "POST", "/v2/repository/models/iris/unload").status == 200
        wait_for(lambda: "successfully unloaded 'iris'" in old.read_text(), 60, "the line is in the renamed file")
        server.signal(signal.SIGHUP)
        server.wait_log("the log file has been opened anew")
        assert ask(server, "POST", "/v2/repository/models/iris/load").status == 200
        server.wait_log("successfully loaded 'iris'")
        assert "the log file has been opened anew" not in old.read_text()
    assert "Signal (15) received" in server.out.text() + server.err.text()


def test_an_operator_stops_the_server_and_no_request_is_lost(tmp_path):
    repository.write_identity(tmp_path / "models", "iris", [("FP32", [4])], execute_delay_ms=300)
    with Operated(tmp_path / "models", tmp_path / "conch.log") as server, Connection(server) as connection:
        body = json.dumps({"inputs": [given("INPUT0", "FP32", [4], [1, 2, 3, 4])]}).encode()
        connection.send(request_bytes("POST", "/v2/models/iris/infer", body))
        wait_for(connection.taken, 60, "the server has read the request")
        server.signal(signal.SIGTERM)
        assert connection.response().json()["outputs"][0]["data"] == [1, 2, 3, 4]
        assert server.wait() == 0


# ---- A user who comes from Triton -------------------------------------------------------------------------------------


TRITON_FLAGS = ["--strict-model-config=false", "--pinned-memory-pool-byte-size=268435456", "--cuda-memory-pool-byte-size=0:67108864",
                "--min-supported-compute-capability=6.0", "--backend-config=tensorflow,version=2", "--http-thread-count=8"]


def write_of_triton(root):
    """A repository as Triton users have it: one model that Conch serves, and three that need what it does not have."""
    repository.copy_example(root, "digits")
    tensors = repository.tensor("input", "i", "FP32", [4]) + repository.tensor("output", "o", "FP32", [4])
    for name, kind, file in (("plan", 'platform: "tensorrt_plan"', "model.plan"), ("dali", 'backend: "dali"', "model.dali")):
        (repository.write_model(root, name, f"{kind}\nmax_batch_size: 8\n{tensors}") / "1" / file).touch()
    shutil.copy(ONNX, repository.write_model(root, "gpu", 'backend: "onnxruntime"\ninstance_group [ { kind: KIND_GPU } ]\n') / "1/model.onnx")
    return root


CURES = {"plan": "get TensorRT 10 or 11 (`pip install tensorrt`, or NVIDIA's packages",
         "dali": "Conch does not come with it: put the files of Triton's own (/opt/tritonserver/backends/dali) into",
         "gpu": "write KIND_CPU, or KIND_AUTO for whichever the machine has"}


class AsTriton(Server):
    """Started by the name of Triton's program."""

    def __init__(self, *repositories, **more):
        super().__init__(*repositories, **more)
        self.args[0] = os.path.join(os.path.dirname(os.path.abspath(BIN)), "tritonserver")


def test_a_repository_of_triton_is_checked_first(tmp_path):
    code, out, _ = conch("check", f"--backend-directory={BACKENDS}", write_of_triton(tmp_path))
    assert code == 1 and "4 models, 2 errors, 0 warnings" in out
    for name in ("dali", "gpu"):
        assert CURES[name] in out[out.index(f"/{name}/config.pbtxt"):], out
    assert "/digits/" not in out and "/plan/" not in out, "no library is looked for"


def test_the_command_line_of_triton_says_what_cannot_be_served_and_how_to_go_on(tmp_path):
    done = subprocess.run([*AsTriton(write_of_triton(tmp_path)).args, *TRITON_FLAGS], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    *_, head, dali, gpu, plan, last = done.stderr.splitlines()
    assert head == "error: creating server: Internal - 3 of 4 models failed:"
    assert CURES["gpu"] in gpu and CURES["plan"] in plan and CURES["dali"] in dali
    assert last == "With --exit-on-error=false the server starts without them."


def test_the_command_line_of_triton_serves_the_rest(tmp_path):
    flags = [*TRITON_FLAGS, "--exit-on-error=false"]
    with AsTriton(write_of_triton(tmp_path), flags=flags, ready=False, grpc=True) as server:
        server.await_rest()
        for flag in ("pinned-memory-pool-byte-size", "cuda-memory-pool-byte-size", "min-supported-compute-capability"):
            assert f"--{flag} has no effect yet: it is for GPUs" in server.err.text()
        assert "'--strict-model-config' has been deprecated! Please use '--disable-auto-complete-config' instead." in server.err.text()
        rows = np.zeros((2, 64), np.float32)
        for kind, url in ((triton_http, server.url), (triton_grpc, server.grpc_url)):
            with kind.InferenceServerClient(url) as client:
                assert client.get_server_metadata() and client.is_model_ready("digits")
                given_rows = kind.InferInput("image", rows.shape, "FP32")
                given_rows.set_data_from_numpy(rows)
                assert client.infer("digits", [given_rows]).as_numpy("scores").shape == (2, 10)
                with pytest.raises(InferenceServerException, match="gpu"):
                    client.infer("gpu", [given_rows])
        rows = {row["name"]: row for row in json.loads(ask(server, "POST", "/v2/repository/index").body)}
        assert CURES["gpu"] in rows["gpu"]["reason"] and rows["digits"]["state"] == "READY"


def test_a_dashboard_of_triton_finds_its_metrics(tmp_path):
    """Each metric of a model that Triton's documentation names, with its labels (reference/features, metrics)."""
    repository.copy_example(tmp_path / "models", "digits")
    with Operated(tmp_path / "models", tmp_path / "conch.log") as server:
        rows = {"inputs": [given("image", "FP32", [2, 64], [0] * 128)]}
        assert infer(server, "digits", rows).status == 200
        for name, value in (("request_success", 1), ("count", 2), ("exec_count", 1), ("pending_request_count", 0)):
            assert server.metric(f"nv_inference_{name}", model="digits", version="1") == value
        assert server.metric("nv_inference_request_failure", model="digits", reason="BACKEND", version="1") == 0
        for part in ("request", "compute_infer"):
            assert server.metric(f"nv_inference_{part}_duration_us", model="digits", version="1") > 0


# ---- A contributor ----------------------------------------------------------------------------------------------------


needs_checks = pytest.mark.skipif(not shutil.which("clang-format") or not shutil.which("codespell"),
                                  reason="clang-format and codespell are not installed (make check)")
needs_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a copy without a history is no clone")


class Clone:
    """The sources, or these parts of them, as a contributor has them who has cloned them."""

    def __init__(self, folder, *parts):
        self.folder = folder
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *parts]
        for name in subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0"):
            source, to = ROOT / name, folder / name
            if name and (source.is_file() or source.is_symlink()):
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, to, follow_symlinks=False)
        (folder / ".deps").symlink_to((ROOT / ".deps").resolve())
        for words in (["init", "-q"], ["config", "user.name", "New"], ["config", "user.email", "new@example.com"], ["add", "-A"],
                      ["commit", "-q", "-m", "all: what was cloned"]):
            assert self.run("git", *words)[0] == 0

    def run(self, *words):
        """(exit code, what was printed)"""
        done = subprocess.run(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=300, check=False)
        return done.returncode, done.stdout

    def write(self, name, text):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return Clone(tmp_path_factory.mktemp("clone") / "conch")


def test_each_target_that_pages_name_is_in_make_help():
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    listed = {line.split()[0] for line in done.stdout.splitlines()}
    for page in ("README.md", "CONTRIBUTING.md", "tests/README.md", "docs/getting-started.md"):
        text = (ROOT / page).read_text()
        named = set(re.findall(r"(?:`|^ {4}|\n)make ([a-z-]+)", text))
        assert named and named <= listed, f"{page}: {named - listed}"


@needs_git
def test_make_builds_the_product_alone_and_says_what_to_do_next(clone):
    """Without building: `make -n` prints what it would do."""
    code, out = clone.run("make", "-n")
    assert code == 0
    *_, build, last = out.splitlines()
    assert build == "cmake --build --preset release --target product"
    assert re.match(r'echo "built build/release/bin/conch; next: make run \(', last)


TEST_IN_C = """/* SPDX-License-Identifier: Apache-2.0 */
/* A contributor's first test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"

static void test_that_fails(void **state)
{
    (void)state;
    assert_int_equal(1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
"""


@needs_git
@pytest.mark.skipif(SANITIZED, reason="a configuration of the build is the same under sanitizers")
def test_a_file_in_the_right_place_is_a_test(clone):
    """The list of tests has it without an entry anywhere, and it compiles with what the page says is there."""
    clone.write("tests/unit/base/test_mine.c", TEST_IN_C)
    code, out = clone.run("cmake", "--preset", "release", "--log-level=WARNING")
    assert code == 0, out
    code, out = clone.run("ctest", "--test-dir", "build/release", "-N", "-R", "^base/mine$")
    assert code == 0 and ": base/mine" in out and "Total Tests: 1" in out
    code, out = clone.run("ninja", "-C", "build/release", "tests/CMakeFiles/test-base-mine.dir/unit/base/test_mine.c.o")
    assert code == 0, out


WRONG = "rec" "ieve"    # in two parts, since this file's spelling is checked, too


@needs_git
@needs_checks
def test_slips_of_a_contributor_are_found_by_name_and_mended(tmp_path):
    clone = Clone(tmp_path / "conch", "tools", "src/base", "docs/howto", ".clang-format", ".editorconfig")
    clone.write("src/base/mine.c", "/* SPDX-License-Identifier: Apache-2.0 */\nint  mine ;\n")
    clone.write("docs/mine.md", "# Mine\n\nA line with a blank at its end. \n")
    clone.write("tools/mine", f"#!/bin/sh\necho {WRONG}\n")
    code, out = clone.run("tools/check", "format", "whitespace", "licence", "spelling")
    assert code == 1 and out.splitlines()[-1] == "check: failed: format whitespace licence spelling"
    for told in ("src/base/mine.c:2:", "docs/mine.md:3:", "tools/mine: no licence in the first two lines", f"tools/mine:2: {WRONG} ==> receive"):
        assert told in out, out
    assert clone.run("tools/format")[0] == 0
    code, out = clone.run("tools/check", "format", "whitespace")
    assert code == 0, out


@needs_git
def test_a_test_that_would_never_run_is_found(clone):
    clone.write("tests/system/test_twice.py", '"""Two tests of one name."""\n\n\ndef test_same():\n    pass\n\n\ndef test_same():\n    assert 0\n')
    code, out = clone.run("tools/check", "duplicates")
    assert code == 1 and "tests/system/test_twice.py" in out and "test_same" in out, out
    (clone.folder / "tests/system/test_twice.py").unlink()


@needs_git
@pytest.mark.parametrize("message, says", [
    ("Fixed stuff.", "the subject is not `area: subject`"),
    ("docs: " + "x" * 80, "the subject has 86 characters, 72 at most"),
    ("docs: tell more\nwithout a blank line", "the second line is not blank"),
    ("docs: tell more", None),
])
def test_the_hook_reads_the_message_of_a_commit(clone, message, says):
    assert clone.run("git", "config", "core.hooksPath", "tools/hooks")[0] == 0
    code, out = clone.run("git", "commit", "--allow-empty", "-m", message)
    assert (code == 0) == (says is None), out
    assert says is None or f"commit: {says}" in out
