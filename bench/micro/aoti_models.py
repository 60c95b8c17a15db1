# SPDX-License-Identifier: Apache-2.0
"""aoti_models.py FOLDER: writes the packages of AOTInductor that bench/micro/aoti_backend.c asks, all FP32, compiled for one thread by the
PyTorch of .deps/torch-wheel."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/system"))

import torch_wheel  # noqa: E402

ROOT = pathlib.Path(sys.argv[1])
COMPILE = """
import sys
import torch

class AddSub(torch.nn.Module):
    def forward(self, a, b):
        return a + b, a - b

class Image(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(128, 128) / 64)

    def forward(self, x):
        for i in range(3):
            x = torch.matmul(x, self.weight)
        return x

def compile(name, module, most, *examples):
    shapes = tuple({0: torch.export.Dim("batch", min=2, max=most)} if most else {} for _ in examples)
    with torch.no_grad():
        program = torch.export.export(module.eval(), examples, dynamic_shapes=shapes)
    torch._inductor.aoti_compile_and_package(program, package_path=f"{sys.argv[1]}/{name}/1/model.pt2",
                                             inductor_configs={"aot_inductor.check_lowerbound": False})

torch.set_num_threads(1)
compile("add_sub", AddSub(), 64, torch.rand(2, 16), torch.rand(2, 16))
compile("image", Image(), 8, torch.rand(2, 3 * 224 * 224))
compile("pair", Pair(), None, torch.rand(32, 128))
"""


def write(name, n_inputs, n_outputs, dims, head="", instances=1):
    tensors = [("input", "INPUT", i) for i in range(n_inputs)] + [("output", "OUTPUT", i) for i in range(n_outputs)]
    (ROOT / name / "1").mkdir(parents=True)
    (ROOT / name / "config.pbtxt").write_text(
        f'platform: "torch_aoti"\n{head}instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\n'
        + "".join(f'{side} [ {{ name: "{kind}__{i}" data_type: TYPE_FP32 dims: {dims} }} ]\n' for side, kind, i in tensors))


write("add_sub", 2, 2, [16], "max_batch_size: 64\n")
write("image", 1, 1, [3 * 224 * 224], "max_batch_size: 8\n")
write("pair", 1, 1, [32, 128], instances=2)
torch_wheel.run_python(ROOT, COMPILE, ROOT)
(ROOT / "program.py").unlink()
