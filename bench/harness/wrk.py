# SPDX-License-Identifier: Apache-2.0
"""wrk as a second measurement of the small requests."""

import re
import shutil
import statistics
import subprocess

from .measure import Failed, pin, process_us
from .servers import Missing


def _script(lab, request):
    """A Lua script that sends the request; its bytes are escaped one by one."""
    def quote(data):
        return '"' + "".join(f"\\{byte:03d}" for byte in data) + '"'

    lines = [f'wrk.method = "{request.method}"', f"wrk.body = {quote(request.body)}"]
    lines += [f"wrk.headers[{quote(name.encode())}] = {quote(value.encode())}"
              for name, value in request.headers.items() if name != "Content-Length"]
    path = lab.folder / "wrk.lua"
    path.write_text("\n".join(lines if request.body else lines[:1]) + "\n")
    return path


def _once(lab, server, request, connections, script):
    # wrk takes whole seconds only.
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(lab.settings.seconds))}",
            "-s", str(script), f"http://127.0.0.1:{server.port}{request.path}"]
    if lab.settings.spare_s > 0:
        lab.bench.wait_quiet()
    before = process_us(server.pid)
    done = subprocess.run(argv, capture_output=True, text=True, check=False,
                          preexec_fn=pin(lab.settings.client_cpu))
    used = process_us(server.pid) - before
    counted = re.search(r"(\d+) requests in", done.stdout)
    if done.returncode != 0 or not counted or "Non-2xx" in done.stdout:
        raise Failed(f"wrk on {server.name}: {done.stdout}{done.stderr}")
    return used / int(counted[1])


def measure(lab, servers, request, connections):
    """Median CPU per request of each server, their runs interleaved."""
    if not shutil.which("wrk"):
        raise Missing("wrk is not installed")
    script = _script(lab, request)
    seen = [[] for _ in servers]
    for _ in range(lab.settings.rounds):
        for server, list_of_one in zip(servers, seen):
            list_of_one.append(_once(lab, server, request, connections, script))
    return [statistics.median(one) for one in seen]
