# SPDX-License-Identifier: Apache-2.0
"""The row about ensembles: in process by the C API (bench/micro/embed.c), over HTTP, and with tensors of 100 MB."""

import shutil
import statistics

from . import embed, micro, requests, servers
from .measure import Cell, say
from .report import cpu, figure, met, table

MODEL = """backend: "{backend}"
max_batch_size: 64
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""
ENSEMBLE = """platform: "ensemble"
max_batch_size: 64
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
ensemble_scheduling {{ step [ {steps} ] }}
"""
STEP = """{{ model_name: "{model}" model_version: -1
  input_map {{ key: "INPUT0" value: "{before}" }} output_map {{ key: "OUTPUT0" value: "{behind}" }} }}"""
LARGE_BYTES = 100_000_000


def _chain(models, dims):
    """An ensemble in which each of the models has what the one before made."""
    names = ["INPUT0", *(f"t{i}" for i in range(1, len(models))), "OUTPUT0"]
    steps = [STEP.format(model=model, before=before, behind=behind) for model, before, behind in zip(models, names, names[1:])]
    return ENSEMBLE.format(dims=dims, steps=",\n".join(steps))


def _models():
    small = {name: MODEL.format(backend="identity", dims=16) for name in ("plain", "a", "b", "c")}
    large = {f"hollow{i}": MODEL.format(backend="hollow", dims=-1) for i in range(10)}
    return {**small, "three": _chain(["a", "b", "c"], 16), **large, "ten": _chain(list(large), -1)}


def _repository(lab):
    """The models, and a folder with their backends, of which one belongs to the tests."""
    backends = lab.folder / "backends-ensemble"
    backends.mkdir(exist_ok=True)
    for folder in (lab.build / "tests/backends/hollow", lab.build / "backends/identity"):
        if not (backends / folder.name).exists():
            (backends / folder.name).symlink_to(folder)
    return embed.write_models(lab.folder / "repositories" / "ensemble", _models()), backends


def _try(lab, seen, cell, who, *flags, **more):
    """Runs bench_embed and keeps what it measured; None without the genuine library."""
    try:
        run = embed.run(lab, who, [cell], {lab.settings.server_cpu}, *flags, of=_repository, **more)
    except servers.Missing as missing:
        say(f"  left out: {missing}")
        return None
    seen.setdefault((cell, who, flags), []).append(run)
    return run


def _median(runs, what):
    return statistics.median(run[what] for run in runs) if runs else None


# requests in flight, may they execute on the embedding program's thread (Conch alone)?, CPU µs at most
IN_PROCESS = [(64, False, 2.5), (64, True, 2.5), (1, False, None), (1, True, 3.5)]


def _in_process(lab):
    seen, mallocs = {}, {}
    for i in range(max(3, round(lab.settings.rounds * lab.settings.seconds / embed.TURN_S / 1.5))):
        for n, inline, _goal in IN_PROCESS:
            flags = ("--in-flight", n, *(("--inline",) if inline else ()))
            for who in ("Conch",) if inline else ("Conch", "Triton"):
                for model in ("three", "plain"):
                    _try(lab, seen, model, who, *flags, seconds=embed.TURN_S)
                if i == 0:
                    counted = _try(lab, {}, "three", who, *flags, seconds=embed.TURN_S, more=lab.counting(f"{who}-{n}-{inline}"))
                    mallocs[who, flags] = counted and counted["mallocs"]
    rows = []
    for n, inline, goal in IN_PROCESS:
        flags, bare = ("--in-flight", n, *(("--inline",) if inline else ())), ("--in-flight", n)
        ours, alone = seen["three", "Conch", flags], seen["plain", "Conch", flags]
        theirs, alone_there = (seen.get((model, "Triton", bare), []) for model in ("three", "plain"))
        us, counted = _median(ours, "cpu_us"), mallocs["Conch", flags]
        counted_there = mallocs.get(("Triton", bare))
        rows.append([n, "inline" if inline else "threads", figure(us), figure(min(run["cpu_us"] for run in ours)),
                     figure(_median(ours, "kernel_us")), f"{_median(ours, 'switches'):.2f}", figure(_median(alone, "cpu_us")),
                     figure(_median(theirs, "cpu_us")), figure(_median(alone_there, "cpu_us")),
                     f"{_median(theirs, 'cpu_us') / us:.1f} ×" if theirs else "–", f"≤ {goal}" if goal else "–", met(us <= goal) if goal else "–",
                     figure(_median(ours, "p50_us")), figure(_median(theirs, "p50_us")), f"{counted:.3f}", "0", met(counted < 0.01),
                     figure(counted_there)])
    return table(["in flight", "executes", "Conch CPU µs", "least", "of it the kernel", "changes of thread", "Conch, one step alone", "Triton CPU µs", "Triton, one step alone", "less", "goal",
                  "met", "Conch p50 µs", "Triton p50 µs", "Conch mallocs", "goal", "met", "Triton mallocs"], rows)


def _http_servers(lab, counted=False):
    """Both servers with the small models; the library of the backend beside each, where the genuine one finds it."""
    folder = lab.folder / "repositories" / "ensemble-http"
    if not folder.exists():
        embed.write_models(folder, {name: text for name, text in _models().items() if "hollow" not in text})
        for name in ("plain", "a", "b", "c"):
            shutil.copy(lab.build / "backends/identity/libtriton_identity.so", folder / name)
    env = lab.counting("Conch") if counted else None
    name = "ensemble-counted" if counted else "ensemble"
    ours = lab.once(f"conch-{name}", lambda log, cpu_: servers.conch(lab.build, folder, log, cpu_, env=env))
    theirs = None if counted else lab.optional(
        lambda: lab.once(f"triton-{name}", lambda log, cpu_: servers.triton(lab.root, folder, log, cpu_)))
    return ours, theirs


def _over_http(lab):
    values = requests.floats(16)
    plain, three = (requests.binary(model, model, {"INPUT0": ([1, 16], values)}, ["OUTPUT0"], values) for model in ("plain", "three"))
    ours, theirs = _http_servers(lab)
    rows = []
    for n in (16, 64):
        cells = [Cell(server, request, n) for server in (ours, theirs) if server for request in (three, plain)]
        lab.bench.measure(cells)
        a, same, *others = cells
        beyond = a.cpu_us - same.cpu_us
        goal = n == 16
        rows.append([n, cpu(a), cpu(same), f"{beyond:.2f}", "≤ 2" if goal else "–", met(beyond <= 2) if goal else "–",
                     *([cpu(cell) for cell in others] or ["–", "–"]), figure(a.p50_us), figure(others[0].p50_us if others else None)])
    counted, _ = _http_servers(lab, counted=True)
    per_request = micro.count_mallocs(lab, counted, three)
    counted.stop()
    say(f"  mallocs per request: {per_request:.3f}")
    return table(["connections", "Conch CPU µs", "Conch, plain identity", "beyond it µs", "goal", "met", "Triton CPU µs", "Triton, plain identity",
                  "Conch p50 µs", "Triton p50 µs"], rows) + f"\n\nCalls of the allocator per request: {per_request:.3f} (goal 0, {met(per_request < 0.01)})."


# server, more flags, CPU µs of a step at most
LARGE = [("Conch", (), None), ("Conch", ("--inline",), 5), ("Triton", (), None)]


def _large(lab):
    seen, copied = {}, {}
    copy_count = {"LD_PRELOAD": str(lab.programs / "copy_count.so"), "COPY_COUNT_ALL": "1"}
    for i in range(max(3, lab.settings.rounds)):
        for who, more, _goal in LARGE:
            flags = ("--bytes", LARGE_BYTES, *more)
            for model in ("ten", "hollow0"):
                _try(lab, seen, model, who, *flags, seconds=embed.TURN_S)
            if i == 0:
                counted = _try(lab, {}, "ten", who, *flags, seconds=embed.TURN_S, more=copy_count)
                copied[who, more] = counted and counted["copied"]
    rows = []
    for who, more, goal in LARGE:
        runs = seen.get(("ten", who, ("--bytes", LARGE_BYTES, *more)), [])
        ten, one = _median(runs, "cpu_us"), _median(seen.get(("hollow0", who, ("--bytes", LARGE_BYTES, *more)), []), "cpu_us")
        if ten is None:
            continue
        bytes_copied = copied[who, more]
        rows.append([who, "inline" if more else "threads", figure(ten), figure(one), f"{_median(runs, 'switches'):.1f}",
                     figure(_median(runs, "fresh_us")), figure(ten / 10), f"≤ {goal}" if goal else "–",
                     met(ten / 10 <= goal) if goal else "–", f"{bytes_copied:.0f}", "0" if who == "Conch" else "–",
                     met(bytes_copied == 0) if who == "Conch" else "–"])
    return table(["server", "executes", "ten steps CPU µs", "one step alone", "changes of thread", "a fresh block", "per step", "goal", "met", "bytes copied", "goal", "met"], rows)


def ensemble(lab):
    """three steps of identity in process and over HTTP, ten steps of 100 MB, against the genuine library and server"""
    parts = [("Three steps in process, 64 bytes:", _in_process), ("Three steps over HTTP, 64 bytes:", _over_http),
             ("Ten steps of 100 MB in process, one request at a time:", _large)]
    return "\n\n".join(f"{title}\n\n{part(lab)}" for title, part in parts)
