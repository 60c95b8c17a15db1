# SPDX-License-Identifier: Apache-2.0
"""bench/run leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys

import pytest

import server as servers


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="bench/run needs two processors")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_it(tmp_path, number):
    mark = f"CONCH_TEST_MARK={tmp_path}"
    name, value = mark.split("=")
    command = [sys.executable, servers.ROOT / "bench/run", "--no-build", "--build", servers.BUILD, "small"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                          env={**os.environ, name: value, "TMPDIR": str(tmp_path)}) as process:
        out, said = servers.Output(process.stdout), servers.Output(process.stderr)
        servers.wait_for(lambda: "  conch: process" in said.text() or process.poll() is not None, 120, "a server runs")
        assert process.poll() is None, said.text()
        for _ in range(2):    # as `timeout` does
            process.send_signal(number)
        code = process.wait(60)
        servers.wait_for(lambda: not servers.processes_with(mark), 60, "its servers have ended")
        out.join()
        said.join()
    assert code == (-number if number == signal.SIGKILL else 128 + number), said.text()
    if number != signal.SIGKILL:
        assert not list(tmp_path.iterdir())
