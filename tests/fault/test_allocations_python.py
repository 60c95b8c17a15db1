# SPDX-License-Identifier: Apache-2.0
"""A model in Python is loaded while the n-th allocation of the Python backend fails, for every n (allocfault.c): it serves, or its
load fails with a clear error. Afterwards it loads as usual, and nothing is left of what failed."""

import pathlib
import re
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import preload  # noqa: E402
import server as servers  # noqa: E402
from allocations import Allocations  # noqa: E402
from faulty import descriptors  # noqa: E402
from python_models import ECHO, NUMBER, children, infer, write_python  # noqa: E402
from wire import ask  # noqa: E402

pytestmark = pytest.mark.skipif(not (pathlib.Path(servers.BACKENDS) / "python/start.py").exists(), reason="the Python backend is not built")

VENV = servers.ROOT / ".deps/venv"    # a Python with NumPy
MODEL = """
@staticmethod
def auto_complete_config(config):
    config.set_max_batch_size(0)
    return config

def initialize(self, args):
    import sys
    assert sys.prefix.endswith("/.deps/venv"), sys.prefix
""" + ECHO
NAMES_ENVIRONMENT = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{VENV}" }} }}\n'


@pytest.mark.parametrize("path,config,goes_on", [
    (f"{VENV}/bin:/usr/bin", "", False), ("/usr/bin:/bin", NAMES_ENVIRONMENT, False), (f"{VENV}/bin:/usr/bin", "", True),
], ids=["one fails", "one fails, with an environment", "all from one on fail"])
def test_a_load_without_memory_fails_clearly(tmp_path, path, config, goes_on):
    allocations = Allocations(tmp_path / "allocations")
    write_python(tmp_path / "models", "m", MODEL, *NUMBER, more=config)
    environment = preload.environment("allocfault", ALLOC_LIBRARY="/libtriton_python.so", ALLOC_COUNTS=str(allocations.path), PATH=path)
    with servers.Server(tmp_path / "models", env=environment, flags=["--model-control-mode=explicit"], grpc=True) as server:
        def load():
            return ask(server, "POST", "/v2/repository/models/m/load")

        def assert_ended():
            servers.wait_for(lambda: not children(server), 60, "its process has ended")

        def serve():
            assert infer(server, "m", {"IN": np.array([7], np.int32)}).as_numpy("OUT")[0] == 7
            assert ask(server, "POST", "/v2/repository/models/m/unload").status == 200
            assert_ended()

        assert load().status == 200
        serve()
        before, n_failed, n, met = descriptors(server), 0, 0, True
        while met:
            n += 1
            allocations.fail(n, goes_on)
            answer = load()
            met = allocations.count() >= n
            allocations.fail(0)
            if answer.status == 200:
                serve()
                continue
            n_failed += 1
            assert re.search("out of memory|Cannot allocate memory", answer.body.decode()), (n, answer.body)
            assert_ended()
        assert n_failed > 20, "the backend's allocations are not seen"
        assert load().status == 200
        serve()
        servers.wait_for(lambda: descriptors(server) <= before, 60, f"{before} descriptors are open again")
