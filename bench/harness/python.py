# SPDX-License-Identifier: Apache-2.0
"""The rows of models in Python: our backend in Conch against the genuine one in the genuine Triton, with the same models, the
same Python and the same NumPy. CPU time is that of the server and of its children.
"""

import json
import os
import re
import statistics
import struct
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from . import embed, grpc_requests, loading, requests, servers
from .measure import Cell, say
from .report import cpu, figure, met, table

HEAD = "import numpy as np\nimport triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n"

IDENTITY = """    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())])
                for r in requests]
"""

# Answers with the time of a call, in µs.
CALLS = """    def execute(self, requests):
        import time
        responses = []
        for request in requests:
            n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
            tensor = pb_utils.Tensor("INPUT0", np.zeros(16, np.float32))
            began = time.perf_counter()
            for _ in range(n):
                inner = pb_utils.InferenceRequest(model_name="c_small", requested_output_names=["OUTPUT0"], inputs=[tensor])
                response = inner.exec()
            took = (time.perf_counter() - began) / n * 1e6
            assert not response.has_error(), response.error().message()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([took], np.float64))]))
        return responses
"""

MANY = """    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            n = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
            tensor = pb_utils.Tensor("OUT", np.array([1], np.int32))
            for _ in range(n):
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

# Each input becomes an array by DLPack, and each output comes from one. (An array from DLPack is read-only in NumPy 1, and then no producer.)
N_TENSORS = 24
DLPACK = f"""    def initialize(self, args):
        self.made = [np.arange(16, dtype=np.float32) for _ in range({N_TENSORS})]

    def execute(self, requests):
        responses = []
        for request in requests:
            arrays = [np.from_dlpack(tensor) for tensor in request.inputs()]
            assert len(arrays) == {N_TENSORS}
            responses.append(pb_utils.InferenceResponse(
                [pb_utils.Tensor.from_dlpack(f"OUTPUT{{i}}", array) for i, array in enumerate(self.made)]))
        return responses
"""

N_STRINGS = 100_000


def _tensors(inputs, outputs):
    """Lines of a configuration; each of them {name: (type, dims)}"""
    return "".join(f'{kind} [ {{ name: "{name}" data_type: TYPE_{datatype} dims: {dims} }} ]\n'
                   for kind, tensors in (("input", inputs), ("output", outputs)) for name, (datatype, dims) in tensors.items())


def _write(folder, name, config, body=None):
    model = folder / name
    (model / "1").mkdir(parents=True)
    backend = "python" if body else "identity"
    (model / "config.pbtxt").write_text(f'backend: "{backend}"\n{config}instance_group [ {{ count: 1 kind: KIND_CPU }} ]\n')
    if body:
        (model / "1/model.py").write_text(HEAD + body)
    return model


MODELS = {
    "small": (_tensors({"INPUT0": ("FP32", requests.SMALL_SHAPE)}, {"OUTPUT0": ("FP32", requests.SMALL_SHAPE)}), IDENTITY),
    "image": (_tensors({"INPUT0": ("FP32", requests.IMAGE_SHAPE)}, {"OUTPUT0": ("FP32", requests.IMAGE_SHAPE)}), IDENTITY),
    "c_small": (_tensors({"INPUT0": ("FP32", [16])}, {"OUTPUT0": ("FP32", [16])}), None),
    "calls": (_tensors({"IN": ("INT32", [1])}, {"OUT": ("FP64", [1])}), CALLS),
    "strings": (_tensors({"INPUT0": ("STRING", [-1])}, {"OUTPUT0": ("STRING", [-1])}), IDENTITY),
    "dlpack": (_tensors({f"INPUT{i}": ("FP32", [16]) for i in range(N_TENSORS)}, {f"OUTPUT{i}": ("FP32", [16]) for i in range(N_TENSORS)}),
               DLPACK),
}
STARTED = ("small", "image")    # the two models of the row python-start


def _backends(lab, genuine):
    """A folder with the Python backend of one of them, and with identity. The genuine Triton finds either there."""
    folder = lab.folder / ("backends-python-genuine" if genuine else "backends-python")
    if not folder.exists():
        folder.mkdir()
        (folder / "identity").symlink_to(lab.build / "backends/identity")
        theirs = lab.root / ".deps/reference/backends/python"
        if not (theirs if genuine else lab.build / "backends/python").exists():
            raise servers.Missing("the Python backend is not there")
        (folder / "python").symlink_to(theirs if genuine else lab.build / "backends/python")
    return folder


def _repository(lab, names=tuple(MODELS)):
    folder = lab.folder / "repositories" / f"python-{len(names)}"
    if not folder.exists():
        for name in names:
            _write(folder, name, *MODELS[name])
    return folder


def _path(lab):
    """The PATH with the Python that both use."""
    return f"{lab.root}/.deps/reference/venv/bin:{os.environ['PATH']}"


def _conch(lab):
    def start(log, cpu_):
        servers.set_up_triton(lab.root)    # its Python, and its NumPy
        return servers.conch_grpc(lab.build, _repository(lab), log, cpu_, [f"--backend-directory={_backends(lab, False)}"],
                                  env={"PATH": _path(lab)})
    return lab.once("conch-python", start)


def _triton(lab):
    return lab.once("triton-python", lambda log, cpu_: servers.triton_grpc(
        lab.root, _repository(lab), log, cpu_, [f"--backend-directory={_backends(lab, True)}"]))


def _both(lab):
    """(ours, the genuine one or None)"""
    return _conch(lab), lab.optional(lambda: _triton(lab))


def _less(ours, theirs):
    return theirs / ours if theirs else 0


def small(lab):
    """a model in Python, identity of 64 bytes: what it adds to the C backend identity, against the genuine backend in the genuine Triton"""
    ours, theirs = _both(lab)
    plain = lab.conch_grpc()
    plain_theirs = lab.optional(lab.triton_grpc) if theirs else None
    rows = []
    goals = {("http", 1): (None, 90, 25), ("http", 16): (33, None, None), ("grpc", 1): (None, 90, 25), ("grpc", 16): (None, None, 25)}
    for (protocol, n), (most_cpu, most_p50, most_added) in goals.items():
        request = requests.small() if protocol == "http" else grpc_requests.small()
        cells = {name: Cell(server, request, n) for name, server in
                 (("ours", ours), ("theirs", theirs), ("plain", plain), ("plain theirs", plain_theirs)) if server}
        lab.bench.measure(list(cells.values()))
        a, b = cells["ours"], cells.get("theirs")
        added = a.cpu_us - cells["plain"].cpu_us
        added_theirs = b.cpu_us - cells["plain theirs"].cpu_us if b else None
        goal = ", ".join(filter(None, (most_cpu and f"CPU ≤ {most_cpu}", most_added and f"added ≤ {most_added}",
                                       most_p50 and f"p50 ≤ {most_p50}")))
        reached = (not most_cpu or a.cpu_us <= most_cpu) and (not most_added or added <= most_added) and (not most_p50 or a.p50_us <= most_p50)
        rows.append([f"{protocol}, {n}", cpu(a), cpu(b) if b else "–", f"{_less(a.cpu_us, b.cpu_us if b else 0):.1f} ×", figure(added),
                     figure(added_theirs), figure(a.p50_us), figure(b and b.p50_us), goal, met(reached)])
    return table(["protocol, connections", "Conch CPU µs", "Triton CPU µs", "less", "added here µs", "added there µs", "Conch p50 µs",
                  "Triton p50 µs", "goal", "met"], rows)


def image(lab):
    """a model in Python, identity of 602 kB, against the genuine backend in the genuine Triton"""
    ours, theirs = _both(lab)
    rows = []
    for protocol, request in (("http", requests.image()), ("grpc", grpc_requests.image())):
        for n in (1, 8):
            a = Cell(ours, request, n)
            b = Cell(theirs, request, n) if theirs else None
            lab.bench.measure([cell for cell in (a, b) if cell])
            less = _less(a.cpu_us, b.cpu_us if b else 0)
            rows.append([f"{protocol}, {n}", cpu(a), cpu(b) if b else "–", f"{less:.1f} ×", "≥ 1.5 ×", met(less >= 1.5), figure(a.p50_us),
                         figure(b and b.p50_us)])
    return table(["protocol, connections", "Conch CPU µs", "Triton CPU µs", "less", "goal", "met", "Conch p50 µs", "Triton p50 µs"], rows)


def ask(server, model, head, tail=b""):
    """The time of one request over HTTP in ms, and its answer."""
    text = json.dumps(head).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))} if tail else {}
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/v2/models/{model}/infer", text + tail, headers)
    began = time.perf_counter()
    with urllib.request.urlopen(asked, timeout=60) as reply:
        body = reply.read()
    return (time.perf_counter() - began) * 1e3, body


def _median_ms(server, model, head, tail, times=20):
    """None if the model cannot do it."""
    try:
        return statistics.median(ask(server, model, head, tail)[0] for _ in range(times))
    except urllib.error.HTTPError as e:
        say(f"  {server.name}, {model}: {e.read().decode()[:500]}")
        return None


def _call_us(server, n):
    body = ask(server, "calls", {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [n]}]})[1]
    return json.loads(body)["outputs"][0]["data"][0]


def _strings():
    tail = b"".join(struct.pack("<I", i % 37) + bytes(i % 37) for i in range(N_STRINGS))
    head = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [N_STRINGS], "parameters": {"binary_data_size": len(tail)}}],
            "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}
    return head, tail


def _dlpack():
    tail = struct.pack(f"<{16 * N_TENSORS}f", *range(16 * N_TENSORS))
    head = {"inputs": [{"name": f"INPUT{i}", "datatype": "FP32", "shape": [16], "parameters": {"binary_data_size": 64}} for i in range(N_TENSORS)],
            "outputs": [{"name": f"OUTPUT{i}", "parameters": {"binary_data": True}} for i in range(N_TENSORS)]}
    return head, tail


def work(lab):
    """what models in Python do: a call to a C model, 100 000 strings in and out, 24 DLPack tensors, against the genuine backend"""
    ours, theirs = _both(lab)
    rows = []
    for what, goal, unit, measure in (
            ("a call to a C model", 30, "µs", lambda server: statistics.median(_call_us(server, 2000) for _ in range(5))),
            (f"{N_STRINGS} strings in and out", 20, "ms", lambda server: _median_ms(server, "strings", *_strings())),
            (f"{N_TENSORS} DLPack tensors", 0.5, "ms", lambda server: _median_ms(server, "dlpack", *_dlpack(), times=200))):
        seen = [measure(server) if server else None for server in (ours, theirs)]
        say(f"  {what}: {seen}")
        rows.append([what, unit, figure(seen[0]), figure(seen[1]), f"≤ {goal}", met(seen[0] is not None and seen[0] <= goal)])
    return table(["what", "unit", "Conch", "Triton", "goal", "met"], rows)


MANY_RESPONSES = 1000


def many(lab):
    """each of 1 000 responses to a decoupled request of a model in Python, by the C API in process, against the genuine library"""
    def of(genuine):
        def repository(lab_):
            models = lab_.folder / "repositories/python-many"
            if not models.exists():
                _write(models, "square", "model_transaction_policy { decoupled: true }\n"
                       + _tensors({"IN": ("INT32", [1])}, {"OUT": ("INT32", [1])}), MANY)
            return models, _backends(lab_, genuine)
        return repository

    both = {lab.settings.server_cpu, lab.settings.client_cpu}
    rows = {}
    for _ in range(lab.settings.rounds):
        for who in ("Conch", "Triton"):
            try:
                seen = embed.run(lab, who, ["square"], both, "--responses", MANY_RESPONSES, of=of(who == "Triton"),
                                 more={"PATH": _path(lab)})
            except servers.Missing as missing:
                say(f"  left out: {missing}")
                continue
            rows.setdefault(who, []).append(seen["wall_us"])
    ours, theirs = (statistics.median(rows[who]) if who in rows else None for who in ("Conch", "Triton"))
    return table(["", "Conch µs", "Triton µs", "goal", "met"],
                 [["time of a response", figure(ours), figure(theirs), "≤ 10", met(ours <= 10)]])


# ---- The start, and rest


def _children(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def status_of(pid, name):
    return int(re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1])


def count_switches(pids):
    """How often their threads have slept."""
    total = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/status"):
            total += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", path.read_text(), re.MULTILINE)[1])
    return total


IMPORT = "import numpy, os; print(open('/proc/self/status').read())"
REST_S = 5
# For half a minute after a health check Conch asks models whether they are ready.
AFTER_CHECK_S = 35


def _bare(lab):
    """(ms, kB of private memory) of a Python that imports NumPy"""
    python = f"{lab.root}/.deps/reference/venv/bin/python3"
    times, memory = [], 0
    for _ in range(5):
        began = time.perf_counter()
        told = subprocess.run([python, "-c", IMPORT], capture_output=True, text=True, check=True).stdout
        times.append((time.perf_counter() - began) * 1e3)
        memory = int(re.search(r"^RssAnon:\s+(\d+)", told, re.MULTILINE)[1])
    return statistics.median(times), memory


def _rest(lab, server, name):
    """What two models hold, and how often anything wakes up while nobody asks."""
    for model in STARTED:
        shape = requests.SMALL_SHAPE if model == "small" else requests.IMAGE_SHAPE
        n = 1
        for dim in shape:
            n *= dim
        head = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": 4 * n}}],
                "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}
        ask(server, model, head, bytes(4 * n))
    pids = _children(server.pid)
    threads, memory = status_of(server.pid, "Threads"), max(status_of(pid, "RssAnon") for pid in pids)
    time.sleep(AFTER_CHECK_S)
    before = count_switches([server.pid, *pids])
    time.sleep(REST_S)
    woken = (count_switches([server.pid, *pids]) - before) / REST_S
    say(f"  {name}: {threads} threads, {len(pids)} children, {memory} kB, {woken} wake-ups/s")
    return threads, memory, woken


def start(lab):
    """two models in Python: exec to ready, threads, memory of a child above a bare Python with NumPy, wake-ups at rest"""
    servers.set_up_triton(lab.root)    # its Python, and its NumPy
    folder, (bare_ms, bare_kb) = _repository(lab, STARTED), _bare(lab)
    rows = []
    for name in ("Conch", "Triton"):
        backends = _backends(lab, name == "Triton")
        more = [f"--backend-directory={backends}"]

        def argv(port, name=name, more=more):
            made = servers.conch_argv(lab.build, folder, port, more) if name == "Conch" else servers.triton_argv(lab.root, folder, port, more)
            return ["env", f"PATH={_path(lab)}", *made]

        seen = []
        for _ in range(lab.settings.rounds):
            port = servers.free_port()
            seen.append(loading.start_once(lab, argv(port), port, f"{name} with two models"))
        ready = statistics.median(run["ready_ms"] for run in seen)
        port = servers.free_port()
        server = servers.Server(name, argv(port), lab.folder / f"rest-{name}.log", {lab.settings.server_cpu, lab.settings.client_cpu}, port=port)
        try:
            threads, memory, woken = _rest(lab, server, name)
        finally:
            server.stop()
        ours = name == "Conch"
        reached = ready <= bare_ms + 50 and memory - bare_kb <= 3 * 1024 and woken == 0
        rows.append([name, figure(ready), figure(bare_ms), threads, f"{(memory - bare_kb) / 1024:.1f}", figure(woken),
                     "ready ≤ import + 50 ms, ≤ 3 MB, 0" if ours else "–", met(reached) if ours else "–"])
    return table(["server", "ready ms", "import of NumPy ms", "threads", "MB of a child above bare NumPy", "wake-ups/s at rest", "goal", "met"], rows)
