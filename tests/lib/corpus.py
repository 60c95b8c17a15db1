# SPDX-License-Identifier: Apache-2.0
"""Model repositories written down as text, a model in a block:

    == name                             the model, and its folder
    @no config                          there is no config.pbtxt
    @no version                         no version folder is made; otherwise 1/ is, unless files make others
    @newer                              has fields that Triton 2.51 does not know
    @kills                              it kills Triton 2.51
    @may kill                           it kills Triton 2.51 now and then
    the config.pbtxt, line by line
    --- 1/weights                       a file with the lines that follow
    --- 2/                              a folder
    --- 1/model.onnx = identity FP32 b,3    a model of onnx_models.py: the function, its arguments
"""

import dataclasses
import pathlib
import re
import shutil
import tempfile

import onnx_models

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDER = TOP / "tests/conformance/corpus"
WRONG = TOP / "tests/unit/core/config/wrong.txt"


@dataclasses.dataclass
class Model:
    name: str
    source: str                     # the file that it comes from
    title: str
    marks: set = dataclasses.field(default_factory=set)
    config: str = ""
    files: list = dataclasses.field(default_factory=list)    # (path, how it is made or None, content)

    def write(self, root):
        folder = pathlib.Path(root, self.name)
        folder.mkdir(parents=True)
        if "no config" not in self.marks:
            (folder / "config.pbtxt").write_text(self.config, encoding="utf-8", newline="")
        for path, recipe, content in self.files:
            target = folder / path
            if path.endswith("/"):
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if recipe:
                make_onnx(recipe, target)
            else:
                target.write_text(content, encoding="utf-8")
        if "no version" not in self.marks and not any(re.match(r"[-\w]+/", path) and path[0].isdigit()
                                                      for path, _, _ in self.files):
            (folder / "1").mkdir()


def make_onnx(recipe, target):
    """Once per recipe and process: many cases have the same model."""
    made = make_onnx.cache.get(recipe)
    if made is None:
        function, *words = recipe.split()
        arguments = []
        for word in words:
            dims = [int(d) if d.lstrip("-").isdigit() else d for d in word.split(",")]
            arguments.append(dims if "," in word else int(word) if word.isdigit() else word)
        with tempfile.TemporaryDirectory() as folder:
            getattr(onnx_models, function)(folder, *arguments)
            made = pathlib.Path(folder, "1/model.onnx").read_bytes()
        make_onnx.cache[recipe] = made
    target.write_bytes(made)


make_onnx.cache = {}


def read(path):
    """The blocks of one file."""
    models = []
    for block in ("\n" + path.read_text(encoding="utf-8")).split("\n== ")[1:]:
        title, _, rest = block.partition("\n")
        model = Model(title, path.stem, title)
        config, *files = re.split(r"^--- ", rest, flags=re.MULTILINE)
        lines = config.splitlines(keepends=True)
        while lines and re.match(r"@(no config|no version|newer|kills|may kill)$", lines[0].rstrip("\n")):
            model.marks.add(lines.pop(0)[1:].rstrip("\n"))
        model.config = "".join(lines)
        for file in files:
            head, _, content = file.partition("\n")
            name, _, recipe = head.partition(" = ")
            model.files.append((name, recipe, content))
        models.append(model)
    return models


def read_wrong():
    """The wrong configurations of the unit test, as models."""
    models = []
    for number, block in enumerate(WRONG.read_text(encoding="utf-8").split("\n== ")[1:]):
        title, rest = block.split("\n", 1)
        text = re.sub(r"^@(strict|all)\n", "", rest.split("-- ", 1)[0], flags=re.MULTILINE)
        marks = {"newer"} if "model_metrics" in text else set()
        # It uses freed memory, allocates without end, or does not catch what std::stoi() throws.
        if any(words in title for words in ("initial state", "batch of billions", "beyond all integers", "metric tag")):
            marks.add("may kill")
        models.append(Model(f"wrong_{number:03}", "wrong", title, marks, text))
    return models


def read_all():
    models = [model for path in sorted(FOLDER.glob("*.txt")) for model in read(path)] + read_wrong()
    names = [model.name for model in models]
    assert len(names) == len(set(names)), {name for name in names if names.count(name) > 1}
    return models


# Frameworks that configurations name, and other names of tests/plugins/accept, which replaces all of them.
STAND_INS = ["accept", "dali", "fil", "openvino", "python", "pytorch", "tensorflow", "tensorrt", "tensorrtllm", "vllm",
             "with.accept", "accept.v2", "fp32.nofile.accept"]


def make_backends(folder, build):
    """Makes a backend directory with our own backends, and with stand-ins for the frameworks."""
    folder.mkdir()
    for name in ("identity", "onnxruntime"):
        (folder / name).symlink_to(build / "backends" / name)
    for name in STAND_INS:
        (folder / name).mkdir()
        shutil.copy(build / "tests/backends/accept/libtriton_accept.so", folder / name / f"libtriton_{name}.so")
    return folder
