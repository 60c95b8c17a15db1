# SPDX-License-Identifier: Apache-2.0
"""Huge configurations, from a file and with a load request: refused soon, with short texts."""

import json
import pathlib
import re

import pytest

import repository
from server import REFERENCE, SANITIZED, Server, run_to_end
from wire import ask

pytestmark = pytest.mark.skipif(REFERENCE, reason="is about our server")

MB = 1 << 20
QUIET = ["--allow-grpc=false", "--allow-metrics=false", "--http-port=0"]
IO = 'backend: "identity"\n' + repository.tensor("input", "IN", "FP32", [1]) + repository.tensor("output", "OUT", "FP32", [1])


def peak_bytes(server):
    status = pathlib.Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


@pytest.mark.parametrize("text, said", [
    ("instance_group{}" * (23 * MB // 16), "bytes, the maximum is 16777216"),
    ("instance_group{}" * 5000, "model 'm' has 5000 instance groups, at most 4096 ("),
    ("model_warmup{}" * 300_000, "its lists have more than 262144 elements together"),
    (f'name:"{"x" * 15 * MB}"', "…("),
])
def test_a_huge_configuration_file_is_refused(models, text, said):
    repository.write_model(models, "m", IO + text)
    code, out, err = run_to_end(f"--model-repository={models}", *QUIET)
    assert code == 1 and said in err
    assert max(map(len, (out + err).splitlines())) < 50_000


def test_a_huge_configuration_of_a_load_request_is_refused(models):
    """Each of these is cheap for the client that sends it."""
    repository.write_identity(models, "m", [("FP32", [1])])
    with Server(models, flags=["--model-control-mode=explicit"]) as server:
        before = peak_bytes(server)
        for config in ('{"instance_group":[{}' + ",{}" * (23 * MB // 3) + "]}",
                       '{"instance_group":[{}' + ",{}" * 300_000 + "]}",
                       '{"input":[{"dims":[1' + ",1" * (7 * MB) + "]}]}",
                       json.dumps({"name": "x" * 15 * MB, "backend": "identity"})):
            answer = ask(server, "POST", "/v2/repository/models/m/load", {"parameters": {"config": config}})
            assert answer.status >= 400 and len(answer.body) < 50_000
        log = server.log()
        for said in ("bytes of text, at most 16777216 are read", "its lists have more than 262144 elements together",
                     "the message is larger than 67108864 bytes in memory", "…("):
            assert said in log
        assert max(map(len, log.splitlines())) < 50_000
        assert SANITIZED or peak_bytes(server) - before < 300 * MB
