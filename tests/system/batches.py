# SPDX-License-Identifier: Apache-2.0
"""Models of the backend tests/plugins/batches, which logs the requests that it gets together and ends executions when the
test lets it."""

import pathlib

import repository
import server as servers

BACKENDS = pathlib.Path(servers.BACKENDS).parent / "tests/backends"


def config(batching, *, size=8, tensors=(("IN", [1], ""),), instances=1, more=""):
    inputs = "".join(f'input [ {{ name: "{name}" data_type: TYPE_INT32 dims: {dims} {of} }} ]\n' for name, dims, of in tensors)
    return (f'backend: "batches"\nmax_batch_size: {size}\n{inputs}output [ {{ name: "OUT" data_type: TYPE_INT32 dims: [1] }} ]\n'
            f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ]\ndynamic_batching {{ {batching} }}\n{more}")


def tensor(name="IN", rows=1, columns=1, batching=True):
    shape = [rows, columns] if batching else [columns]
    return f"{name}:INT32:{','.join(map(str, shape))}:{','.join(['0'] * rows * columns)}"


class Model:
    """A model of the backend in a repository, and the executions that it has had."""

    def __init__(self, root, name, text):
        self.name = name
        self.folder = repository.write_model(root, name, text)

    def log(self):
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def _begun(self):
        """In the order of their numbers: instances may write their lines in another order."""
        begun = [line.split(" ", 3) for line in self.log() if line.startswith("begin ")]
        return sorted(begun, key=lambda words: int(words[1]))

    def executions(self):
        """The batches, each as `id:rows id:rows …`."""
        return [words[3] for words in self._begun()]

    def batches(self):
        """… with only the ids."""
        return ["".join(word.split(":")[0] for word in batch.split()) for batch in self.executions()]

    def instances(self):
        """The instances that executed them."""
        return [words[2].rsplit("_", 1)[1] for words in self._begun()]

    def hold(self):
        (self.folder / "hold").touch()

    def let_go(self, *which):
        """Lets these executions (counted from 1) end, or without arguments all of them."""
        for n in which:
            (self.folder / f"go.{n}").touch()
        if not which:
            (self.folder / "hold").unlink(missing_ok=True)

    def await_executions(self, n):
        servers.wait_for(lambda: len(self.executions()) >= n, 60, f"{n} executions of {self.name} have begun: {self.log()}")

    def await_end(self, which):
        servers.wait_for(lambda: f"end {which}" in self.log(), 60, f"execution {which} of {self.name} has ended: {self.log()}")
