# SPDX-License-Identifier: Apache-2.0
"""What a newcomer sees first: the examples answer as their pages show, and the demonstration cleans up."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import numpy
import pytest

import repository
from repository import EXAMPLES
from server import BACKENDS, BIN, ROOT, Server, free_port, wait_for
from wire import ask

FOLDER = EXAMPLES.parent


def run(*command, env=None, within_s=300):
    """Runs a program of examples/ or tools/: (exit code, stdout, stderr)."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def demo_env(tmp_path, port):
    return {"CONCH_BIN": BIN, "CONCH_BACKENDS": BACKENDS, "PYTHON": os.path.relpath(sys.executable, ROOT), "PORT": str(port), "GRPC_PORT": "0", "LOG": str(tmp_path / "log")}


@pytest.fixture(scope="module")
def examples():
    with Server(EXAMPLES, grpc=True) as server:
        yield server


@pytest.mark.skipif("CONCH_WITHOUT_TRITON" in os.environ, reason="no program of the build is run (CONCH_WITHOUT_TRITON)")
def test_the_models_file_is_what_train_makes():
    pytest.importorskip("sklearn")
    pytest.importorskip("onnx")
    # With more OpenMP threads than free processors the threads wait for each other, busily.
    code, out, err = run(sys.executable, FOLDER / "digits/train.py", "--check", env={"OMP_NUM_THREADS": "1"})
    assert code == 0, out + err


def test_classify_is_as_good_as_onnx_runtime_alone(examples):
    pytest.importorskip("onnxruntime")
    code, out, err = run(sys.executable, FOLDER / "classify.py", "--url", examples.url, "--compare")
    assert code == 0, out + err
    served = re.search(r"^Held-out images: (.*)$", out, re.MULTILINE)[1]
    alone = re.search(r"^ONNX Runtime alone: (.*);", out, re.MULTILINE)[1]
    assert served == alone
    right, of = map(int, re.match(r"(\d+) of (\d+) right", served).groups())
    assert of == 450
    assert right / of > 0.97
    assert any(block in out for block in "▀▄█")


def test_classify_prints_a_curl_that_works(examples):
    code, command, err = run(sys.executable, FOLDER / "classify.py", "--url", examples.url, "--curl")
    assert code == 0, err
    code, out, err = run("bash", "-c", command)
    assert code == 0, err
    output = json.loads(out)["outputs"][0]
    label = numpy.load(FOLDER / "digits/held_out.npz")["labels"][0]
    assert (output["name"], output["shape"]) == ("scores", [1, 10])
    assert numpy.argmax(output["data"]) == label
    assert abs(sum(output["data"]) - 1) < 1e-5


def test_classify_reports_a_missing_server():
    code, out, err = run(sys.executable, FOLDER / "classify.py", "--url", f"localhost:{free_port()}")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "no inference server answers at localhost:" in err


def test_classify_reports_a_missing_model(server):
    code, _, err = run(sys.executable, FOLDER / "classify.py", "--url", server.url)
    assert code == 1
    assert err.splitlines() == [
        f"classify.py: {server.url} answered: Request for unknown model: 'digits' is not found"
    ]


def test_a_stream_classifies_as_http_does(examples):
    code, out, err = run(sys.executable, FOLDER / "stream.py", "--url", examples.grpc_url)
    assert code == 0, out + err
    assert out == "450 images over one stream: 443 right, 98.44%\n"


def test_the_stream_reports_a_missing_model(tmp_path):
    repository.write_identity(tmp_path, "other", [("FP32", [-1])])
    with Server(tmp_path, grpc=True) as server:
        code, out, err = run(sys.executable, FOLDER / "stream.py", "--url", server.grpc_url)
        assert (code, out) == (1, "")
        assert err == f"stream.py: {server.grpc_url} answered: Request for unknown model: 'digits' is not found\n"


def test_the_stream_reports_a_missing_server():
    url = f"localhost:{free_port()}"
    code, out, err = run(sys.executable, FOLDER / "stream.py", "--url", url)
    assert (code, out) == (1, "")
    assert err.startswith(f"stream.py: {url} answered: ") and len(err.splitlines()) == 1, err


def test_the_add_sub_example_prints_its_sums(examples):
    code, out, err = run(sys.executable, FOLDER / "add_sub/client.py", "--url", examples.url)
    assert code == 0, err
    rows = {line.split()[0]: [int(n) for n in line.split()[1:]] for line in out.splitlines()}
    assert rows["INPUT0"] == list(range(16))
    assert rows["OUTPUT0"] == [a + b for a, b in zip(rows["INPUT0"], rows["INPUT1"])]
    assert rows["OUTPUT1"] == [a - b for a, b in zip(rows["INPUT0"], rows["INPUT1"])]


def test_the_ensembles_answer_as_their_page_shows(examples):
    page = (ROOT / "docs/ensembles.md").read_text(encoding="utf-8")
    shown = re.search(r"^\$ examples/read_digits.py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    for _ in range(2):    # the total of a new sequence begins at 0
        code, out, err = run(sys.executable, FOLDER / "read_digits.py", "--url", examples.url)
        assert (code, out) == (0, shown), err


def test_an_ensemble_reads_all_digits_as_its_model_does(examples):
    held_out = numpy.load(FOLDER / "digits/held_out.npz")
    light = numpy.round(255 * (1 - held_out["images"].reshape(-1, 8, 8) / 16)).astype(int)
    names, all_scores = [], []
    for at in range(0, len(light), 50):
        photos = light[at:at + 50]
        body = {"inputs": [{"name": "photo", "datatype": "UINT8", "shape": list(photos.shape), "data": photos.ravel().tolist()}]}
        outputs = {output["name"]: output for output in ask(examples, "POST", "/v2/models/read_digit/infer", body).json()["outputs"]}
        names += outputs["name"]["data"]
        scores = numpy.array(outputs["scores"]["data"]).reshape(outputs["scores"]["shape"])
        assert numpy.array_equal(numpy.array(outputs["score"]["data"]), scores.max(axis=1))
        all_scores.append(scores)
    seen = numpy.concatenate(all_scores).argmax(axis=1)
    words = "zero one two three four five six seven eight nine".split()
    assert names == [words[digit] for digit in seen]
    assert (seen == held_out["labels"]).mean() > 0.97


def test_read_digits_reports_a_missing_server_and_a_missing_model(server):
    for url in (f"localhost:{free_port()}", server.url):
        code, out, err = run(sys.executable, FOLDER / "read_digits.py", "--url", url)
        assert (code, out) == (1, "") and err.startswith(f"read_digits.py: {url} answered: ") and len(err.splitlines()) == 1, err


def test_the_models_of_the_ensembles_are_what_their_script_makes(tmp_path):
    pytest.importorskip("onnx")
    script = tmp_path / "examples/ensembles/make_models.py"
    script.parent.mkdir(parents=True)
    script.write_text((FOLDER / "ensembles/make_models.py").read_text())
    code, _, err = run(sys.executable, script)
    assert code == 0, err
    made = sorted(path.relative_to(tmp_path / "examples/models") for path in tmp_path.glob("examples/models/*/1/model.onnx"))
    assert [str(path.parts[0]) for path in made] == ["digits_name", "digits_prepare", "digits_total"]
    for path in made:
        assert (tmp_path / "examples/models" / path).read_bytes() == (EXAMPLES / path).read_bytes()


def test_identity_answers_as_the_readme_shows(examples):
    readme = (FOLDER / "README.md").read_text()
    command = re.search(r"^    (curl localhost:8000.*\n.*)$", readme, re.MULTILINE)[1]
    code, out, err = run("bash", "-c", command.replace("curl", "curl -s").replace("localhost:8000", examples.url))
    assert code == 0, err
    assert json.loads(out)["outputs"][0]["data"] == [1.0, 2.5, -3.0]


def test_the_digits_model_has_labels_and_a_batch_dimension(examples):
    assert ask(examples, "GET", "/v2/models/digits").json()["inputs"] == [
        {"name": "image", "datatype": "FP32", "shape": [-1, 64]}
    ]
    output = ask(examples, "GET", "/v2/models/digits/config").json()["output"][0]
    assert output["label_filename"] == "labels.txt"


def test_the_demo_runs_once_and_cleans_up(tmp_path):
    code, out, err = run("tools/run-demo", env={**demo_env(tmp_path, free_port()), "ONCE": "1"})
    assert code == 0, out + err
    assert "Held-out images: 443 of 450 right" in out
    assert '{"model_name":"digits","model_version":"1","outputs":[{"name":"scores"' in out
    assert "read    four seven nine six six\n" in out and "+ 6 = 32\n" in out


def test_the_demo_reports_a_port_in_use(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = run("tools/run-demo", env={**demo_env(tmp_path, port), "ONCE": "1"})
    assert code == 1, out
    assert err.splitlines()[-1].startswith(f"run-demo: port {port} is taken")


def test_the_demo_reports_a_grpc_port_in_use(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = run("tools/run-demo", env={**demo_env(tmp_path, free_port()), "ONCE": "1", "GRPC_PORT": str(port)})
    assert code == 1, out
    assert err.splitlines()[-1].startswith(f"run-demo: port {port} is taken; choose another one: GRPC_PORT=")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_serves_until_it_is_stopped(tmp_path, number):
    port = free_port()
    demo = subprocess.Popen(
        ["tools/run-demo"],
        cwd=ROOT,
        env={**os.environ, **demo_env(tmp_path, port)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        lines = []
        for line in demo.stdout:
            lines.append(line)
            if line.startswith("Serving"):
                break
        assert lines and lines[-1].startswith("Serving examples/models at http://127.0.0.1:"), "".join(lines)
        # A terminal sends Ctrl-C to the whole group, a supervisor sends a signal to the one process.
        (os.killpg if number == signal.SIGINT else os.kill)(demo.pid, number)
        assert demo.wait(60) == 0
    finally:
        demo.stdout.close()
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
            demo.wait()
    wait_for(lambda: not members(demo.pid), 60, "no process of the demonstration is left")


def members(group):
    """The processes of a process group, by their command lines."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                state, _, its_group = stat.read().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            found.append(name)
    return found
