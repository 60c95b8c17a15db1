# SPDX-License-Identifier: Apache-2.0
"""The how-to pages of docs/howto do what they say: a test follows each page from its top to its end, as a reader would.

- A block of code below a line with a file's name is that file.
- A block of bash that begins with `conch` starts the server; it runs until the page starts another one, or ends.
- Any other block of bash or Python is run. A block of json or text right behind it is what it prints, where … stands for
  anything within a line.
- A comment `<!-- the test … otherwise -->` and the like stands in front of a block that needs what a test cannot have. Its
  page has a function below that does the block's work; it is an error if one of the two is missing.

Ports of the page become those that the test has.
"""

import ast
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import server as servers

HOWTO = servers.ROOT / "docs/howto"
STEP = re.compile(
    r"^(?:<!-- (?P<otherwise>the test .*?) -->\n\n)?(?:`(?P<file>[\w./-]+)`:\n\n)?"
    r"```(?P<language>\w+)\n(?P<text>.*?)^```(?:\n\n```(?:json|text)\n(?P<output>.*?)^```)?$",
    re.DOTALL | re.MULTILINE,
)
TRITON_BACKEND = servers.ROOT / ".deps/reference/backends/python"
TRITON_PYTHON = servers.ROOT / ".deps/reference/venv/bin"    # has a NumPy below version 2

pytestmark = [
    pytest.mark.conch_only("it is Conch's documentation"),
    pytest.mark.skipif(servers.SANITIZED, reason="a sanitizer has to be the first library of a process, and Python is that of a user"),
]


# ---- What stands for blocks that a test cannot run


def small_network(path, inputs, output, width, kind=TensorProto.FLOAT):
    """An ONNX file whose inputs are [batch, n] and whose output is [batch, width]."""
    if len(inputs) == 1:    # scores of features
        nodes = [helper.make_node("MatMul", [inputs[0], "weights"], ["sums"]), helper.make_node("Softmax", ["sums"], [output], axis=-1)]
        weights = np.arange(4 * width, dtype=np.float32).reshape(4, width) / 10
        columns = 4
    else:    # the sum of a row of the table for each token that the mask leaves
        nodes = [
            helper.make_node("Gather", ["weights", inputs[0]], ["rows"]),
            helper.make_node("Cast", [inputs[1]], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
            helper.make_node("Mul", ["rows", "column"], ["kept"]),
            helper.make_node("ReduceSum", ["kept", "token"], [output], keepdims=0),
        ]
        weights = np.array([[0, 0], [0, 0], [-2, 2], [2, -2]], np.float32)
        columns = "length"
    constants = {"weights": weights, "last": np.array([2], np.int64), "token": np.array([1], np.int64)}
    graph = helper.make_graph(
        nodes, "network",
        [helper.make_tensor_value_info(name, kind, ["batch", columns]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", width])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items() if any(name in node.input for node in nodes)],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


def pytorch_exports(folder):
    """PyTorch is too large for a test. Its program is read, and its names are those of the file that stands for its own."""
    calls = [node for node in ast.walk(ast.parse((folder / "export.py").read_text())) if isinstance(node, ast.Call)]
    (export,) = [call for call in calls if ast.unparse(call.func) == "torch.onnx.export"]
    names = {keyword.arg: keyword.value for keyword in export.keywords}
    small_network(folder / "models/flowers/1/model.onnx", ast.literal_eval(names["input_names"]), *ast.literal_eval(names["output_names"]), 3)


def hugging_face_exports(folder):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    (folder / "export").mkdir()
    words.save(str(folder / "export/tokenizer.json"))
    small_network(folder / "export/model.onnx", ["input_ids", "attention_mask"], "logits", 2, TensorProto.INT64)


def triton_is_unpacked(folder):
    shutil.copytree(TRITON_BACKEND, folder / "triton-python", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "triton-libs").mkdir()
    for library in next((servers.ROOT / ".deps/reference/venv/lib").glob("python3.*/site-packages/nvidia_pytriton.libs")).iterdir():
        (folder / "triton-libs" / library.name).symlink_to(library)


def backends_of_the_build(folder):
    (block,) = [step["text"] for step in STEP.finditer((HOWTO / "triton-python-backend.md").read_text()) if "ln -s" in step["text"]]
    run(block.replace("/usr/local/lib/conch/backends", str(pathlib.Path(servers.BACKENDS).resolve())), folder)


# page: (what is in the folder before its first line, functions in the order of the blocks that they stand for)
PAGES = {
    "scikit-learn": (),
    "pytorch": (pytorch_exports,),
    "hugging-face": (hugging_face_exports,),
    "triton-python-backend": (triton_is_unpacked, backends_of_the_build),
    "prometheus": (),
    "kubernetes": (),
    "browsers": (),
}
WITH_EXAMPLES = {"prometheus", "kubernetes", "browsers"}    # the reader has models; here they are those of examples/


# ---- Following a page


def environment(*first):
    """The reader's PATH begins with the build, and with a Python that has the packages that the page names."""
    path = [str(pathlib.Path(servers.BIN).parent), *first, str(pathlib.Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]
    return {**os.environ, "PATH": ":".join(path), "LC_ALL": "C.UTF-8"}


def run(command, folder):
    done = subprocess.run(["bash", "-ec", command], cwd=folder, env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Reader:
    """Follows the steps of a page in a folder, and ends what it has started."""

    def __init__(self, folder):
        self.folder = folder
        self.server = self.proxy = None
        self.ports = {"8080": str(servers.free_port())}

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.proxy:
            self.proxy.terminate()
            self.proxy.wait(30)
        if self.server:
            self.server.__exit__(kind, value, trace)

    def with_ports(self, text):
        return re.sub(r"(localhost:|listen )(80\d\d)\b", lambda m: m[1] + self.ports.get(m[2], m[2]), text)

    def serve(self, command):
        if self.server:
            before, self.server = self.server, None
            before.__exit__(None, None, None)
        settings, _, rest = command.rpartition("conch ")
        env = environment(*([str(TRITON_PYTHON)] if settings else [])) | dict(text.replace("$PWD", str(self.folder)).split("=") for text in settings.split())
        flags = shlex.split(self.with_ports(rest))
        repositories = [self.folder / flag.partition("=")[2] for flag in flags if flag.startswith("--model-repository=")]
        flags = [re.sub("=backends$", f"={self.folder}/backends", flag) for flag in flags if not flag.startswith("--model-repository=")]
        started = servers.Server(*repositories, flags=["--allow-metrics=true", "--metrics-port=0", *flags], env=env)
        self.server = started.__enter__()
        metrics = re.search(r"Started Metrics Service at \S*:(\d+)", started.log())
        self.ports |= {"8000": str(started.port), "8002": metrics[1]}

    def serve_files(self, command):
        """The page's web server of Python."""
        self.proxy = subprocess.Popen(["bash", "-ec", "exec " + command.replace("8080", self.ports["8080"])], cwd=self.folder, env=environment(),
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.await_page()

    def await_page(self):
        url = f"http://localhost:{self.ports['8080']}/index.html"
        servers.wait_for(lambda: subprocess.run(["curl", "-sfo", "/dev/null", url], check=False).returncode == 0, 30, "the web server answers")

    def start_proxy(self, command):
        if self.proxy:
            self.proxy.terminate()
            self.proxy.wait(30)
        if not shutil.which("nginx", path=environment()["PATH"]):
            pytest.skip("nginx is not installed: make test")
        (self.folder / "nginx.conf").write_text(self.with_ports((self.folder / "nginx.conf").read_text()))
        as_root = " user root;" if os.geteuid() == 0 else ""    # its workers may not be others: the folder is ours
        command = ["bash", "-ec", "exec " + command.replace("stderr;", f"stderr; daemon off;{as_root}")]
        self.proxy = subprocess.Popen(command, cwd=self.folder, env=environment())
        self.await_page()

    def take(self, step):
        text = step["text"]
        if step["file"]:
            path = self.folder / step["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if path.suffix == ".py":
                compile(text, step["file"], "exec")
            return
        if step["language"] not in ("bash", "python"):
            return
        if re.match(r"(LD_LIBRARY_PATH=\S+ )?conch --", text):
            self.serve(text)
        elif text.startswith("python3 -m http.server "):
            self.serve_files(text)
        elif text.startswith("nginx "):
            self.start_proxy(text)
        else:
            text = self.with_ports(text)
            printed = run(text if step["language"] == "bash" else f"exec python3 -c {shlex.quote(text)}", self.folder)
            if step["output"]:
                wanted = ".*".join(map(re.escape, self.with_ports(step["output"]).rstrip("\n").split("…")))
                assert re.fullmatch(wanted, printed.rstrip("\n")), f"{printed}\nis not\n{step['output']}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page, tmp_path):
    if page == "triton-python-backend" and (not (TRITON_BACKEND / "triton_python_backend_stub").exists() or "CONCH_WITHOUT_TRITON" in os.environ):
        pytest.skip("Triton's Python backend is not installed: make reference")
    if page == "scikit-learn":
        pytest.importorskip("skl2onnx")
    if page in WITH_EXAMPLES:
        shutil.copytree(servers.ROOT / "examples/models", tmp_path / "models")
    functions = list(PAGES[page])
    with Reader(tmp_path) as reader:
        for step in STEP.finditer((HOWTO / f"{page}.md").read_text()):
            if step["otherwise"]:
                functions.pop(0)(tmp_path)
            else:
                reader.take(step)
        assert not functions
        assert reader.server is not None


def test_each_page_is_followed():
    assert {path.stem for path in HOWTO.glob("*.md")} == set(PAGES)


def test_the_steps_have_all_blocks():
    """No block escapes the reader, because a line in front of it has another form."""
    for path in HOWTO.glob("*.md"):
        text = path.read_text()
        fences = len(re.findall(r"^```", text, re.MULTILINE)) // 2
        found = sum(2 if step["output"] else 1 for step in STEP.finditer(text))
        assert fences == found, path.name


def test_probes_of_the_kubernetes_page_get_200(tmp_path):
    """Its container's arguments start a server, and the paths of its probes answer."""
    (deployment,) = [step["text"] for step in STEP.finditer((HOWTO / "kubernetes.md").read_text()) if step["file"]]
    args = re.findall(r"^ +- (--\S+)$", deployment, re.MULTILINE)
    paths = re.findall(r"path: (/\S+), port: http", deployment)
    assert len(paths) == 2
    grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", deployment)[1])
    assert grace > int(dict(flag.split("=") for flag in args)["--exit-timeout-secs"])
    shutil.copytree(servers.ROOT / "examples/models", tmp_path / "models")
    with Reader(tmp_path) as reader:
        reader.serve(" ".join(["conch", *args]))
        for path in paths:
            code = run(f"curl -s -o /dev/null -w '%{{http_code}}' localhost:{reader.server.port}{path}", tmp_path)
            assert code == "200", path


def test_queries_of_the_prometheus_page_name_metrics_that_are_there(tmp_path):
    page = (HOWTO / "prometheus.md").read_text()
    names = set(re.findall(r"\b(?:nv|conch)_[a-z_]+\b(?=[\[{)])", page))
    assert len(names) >= 6
    shutil.copytree(servers.ROOT / "examples/models/identity", tmp_path / "models/identity")
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}
    with Reader(tmp_path) as reader:
        reader.serve("conch --model-repository=models")
        run(f"curl -sf localhost:{reader.server.port}/v2/models/identity/infer -d {shlex.quote(json.dumps(body))}", tmp_path)
        metrics = run(f"curl -sf localhost:{reader.ports['8002']}/metrics", tmp_path)
    assert {name for name in names if f"\n{name}{{" not in metrics} == set()
