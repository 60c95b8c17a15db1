# SPDX-License-Identifier: Apache-2.0
"""The rows about a program that embeds the server by the C API (bench/micro/embed.c), with our library and with the genuine one."""

import json
import os
import statistics
import subprocess

from . import servers
from .measure import Failed, say
from .report import figure, met, table

CONFIG = """backend: "identity"
max_batch_size: 64
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
"""
START_END = """
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] } ]
"""
SHARING = 8  # models that share one resource
INSTANCE_WITH_R = "instance_group [ { count: 1 kind: KIND_CPU rate_limiter { resources [ { name: 'R' global: true count: 1 } ] } } ]\n"
LASTS = 'parameters { key: "execute_delay_ms" value { string_value: "1" } }\n'
MODELS = {
    "plain": "instance_group [ { count: 1 kind: KIND_CPU } ]\n",
    "other": "instance_group [ { count: 1 kind: KIND_CPU } ]\n",
    "two": "instance_group [ { count: 2 kind: KIND_CPU } ]\n",
    "dynamic": "instance_group [ { count: 1 kind: KIND_CPU } ]\ndynamic_batching { }\n",
    "direct": f"instance_group [ {{ count: 1 kind: KIND_CPU }} ]\nsequence_batching {{ direct {{ }} {START_END} }}\n",
    "oldest": f"instance_group [ {{ count: 1 kind: KIND_CPU }} ]\n"
              f"sequence_batching {{ oldest {{ max_candidate_sequences: 64 }} {START_END} }}\n",
    "cached": "instance_group [ { count: 1 kind: KIND_CPU } ]\nresponse_cache { enable: true }\n",
    **{f"sharing{i}": INSTANCE_WITH_R for i in range(SHARING)},
    **{f"lasting{i}": INSTANCE_WITH_R + LASTS for i in range(SHARING)},
    "limited": INSTANCE_WITH_R,
    "lasting": INSTANCE_WITH_R + LASTS,
}


DECOUPLED = """backend: "{name}"
model_transaction_policy {{ decoupled: true }}
input [ {{ name: "IN" data_type: TYPE_INT32 dims: [ {n_in} ] }} ]
output [ {{ name: "OUT" data_type: TYPE_{out} dims: [ -1 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""


def write_models(folder, models):
    for name, config in models.items():
        if not (folder / name).exists():
            (folder / name / "1").mkdir(parents=True)
            (folder / name / "config.pbtxt").write_text(config)
    return folder


def _repository(lab):
    """The models, and the folder of their backend."""
    models = {name: CONFIG + more for name, more in MODELS.items()}
    return write_models(lab.folder / "repositories" / "embed", models), lab.build / "backends"


def _decoupled_repository(lab):
    """The decoupled models, and a folder with both of their backends: one of them belongs to the tests."""
    models = {"torrent": DECOUPLED.format(name="torrent", n_in=2, out="UINT8"),
              "square": DECOUPLED.format(name="square", n_in=1, out="INT32")}
    backends = lab.folder / "backends-decoupled"
    backends.mkdir(exist_ok=True)
    for folder in (lab.build / "tests/backends/torrent", lab.build / "backends/square"):
        if not (backends / folder.name).exists():
            (backends / folder.name).symlink_to(folder)
    return write_models(lab.folder / "repositories" / "decoupled", models), backends


def _library(lab, who):
    """(path, environment) of the server's library."""
    if who == "Conch":
        return lab.build / "lib/libtritonserver.so", {}
    if subprocess.run([str(lab.root / "tools/reference")], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        raise servers.Missing("the genuine Triton cannot be set up (tools/reference)")
    folder = next((lab.root / ".deps/reference/venv/lib").glob("python3.*/site-packages/nvidia_pytriton.libs"))
    return next(folder.glob("libtritonserver-*.so")), {"LD_LIBRARY_PATH": str(folder)}


def run(lab, who, models, cpus, *flags, seconds=0.0, of=_repository, more=None):
    library, environment = _library(lab, who)
    argv = [lab.programs / "bench_embed", "--seconds", seconds or lab.settings.seconds, *flags, library, *of(lab), *models]
    lab.bench.wait_quiet()
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment, **(more or {})}, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
    if done.returncode != 0:
        raise Failed(f"bench_embed, {who}, {' '.join(models)}: {done.stderr.strip()[-400:]}")
    seen = json.loads(done.stdout)
    say(f"  {who:7} {' '.join(models):12} {' '.join(map(str, flags)):32} {seen['cpu_us']:8.3f} us CPU  "
        f"p50 {seen['p50_us']:8.2f}  {1 / seen['wall_us']:7.3f} M/s  {seen['switches']:.2f} switches")
    return seen


def _medians(runs):
    return {what: statistics.median(run[what] for run in runs) for what in runs[0]}


# model, requests under way, inline, flags, CPU µs at most
CELLS = [
    ("plain", 1, False, (), 7.5),
    ("plain", 1, True, (), 0.8),
    ("plain", 64, False, (), 0.8),
    ("plain", 64, True, (), 0.6),
    ("dynamic", 64, False, (), 0.7),
    ("direct", 64, False, ("--sequences",), 0.8),
    ("oldest", 64, False, ("--sequences",), 0.8),
]


# Short ones, since the cores of a shared machine change their pace by a fifth for seconds: a few long ones would hold one pace each.
TURN_S = 0.4


def embed(lab):
    """a request of 64 bytes by the C API in process, on one core, against the genuine library"""
    seen = {}
    for _ in range(max(3, round(lab.settings.rounds * lab.settings.seconds / TURN_S / 1.5))):
        for cell in CELLS:
            model, in_flight, inlined, flags, _goal = cell
            for who in ("Conch",) if inlined else ("Conch", "Triton"):
                more = ("--inline",) if inlined else ()
                try:
                    made = run(lab, who, [model], {lab.settings.server_cpu}, "--in-flight", in_flight, *flags, *more,
                               seconds=TURN_S)
                except servers.Missing as missing:
                    say(f"  left out: {missing}")
                    continue
                seen.setdefault((cell, who), []).append(made)
    rows = []
    for cell in CELLS:
        model, in_flight, inlined, _flags, goal = cell
        ours = _medians(seen[cell, "Conch"])
        theirs = _medians(seen[cell, "Triton"]) if (cell, "Triton") in seen else None
        reached = ours["cpu_us"] <= goal
        goals = f"≤ {goal}"
        if in_flight == 1 and theirs:
            goals += ", p50 below"
            reached &= ours["p50_us"] < theirs["p50_us"]
        rows.append([model, in_flight, "inline" if inlined else "threads", figure(ours["cpu_us"]),
                     figure(min(run["cpu_us"] for run in seen[cell, "Conch"])), figure(theirs and theirs["cpu_us"]), goals, met(reached), figure(ours["p50_us"]),
                     figure(theirs and theirs["p50_us"]), f"{ours['switches']:.2f}"])
    return table(["model", "in flight", "executes", "Conch CPU µs", "least", "Triton CPU µs", "goal", "met", "Conch p50 µs",
                  "Triton p50 µs", "switches per request"], rows)


# requests under way, inline
LIMITED_CELLS = [(1, False), (1, True), (64, False), (64, True)]


def limiter(lab):
    """what the rate limiter adds to an execution of a model that shares its resource with nobody, by the C API in process; 8 models that share one"""
    return _uncontended(lab) + "\n\n" + _shared(lab)


def _uncontended(lab):
    seen = {}
    for _ in range(max(5, round(lab.settings.rounds * lab.settings.seconds / TURN_S / 1.5))):
        for cell in LIMITED_CELLS:
            in_flight, inlined = cell
            for limited in (False, True):
                flags = ["--in-flight", in_flight, *["--inline"] * inlined, *["--limited"] * limited]
                made = run(lab, "Conch", ["limited"], {lab.settings.server_cpu}, *flags, seconds=TURN_S)
                seen.setdefault((cell, limited), []).append(made["cpu_us"])
    rows = []
    for cell in LIMITED_CELLS:
        in_flight, inlined = cell
        off, on = seen[cell, False], seen[cell, True]
        added = statistics.median(b - a for a, b in zip(off, on))
        rows.append([in_flight, "inline" if inlined else "threads", f"{statistics.median(off):.3f}", f"{statistics.median(on):.3f}", f"{added:.3f}",
                     "≤ 0.2", met(added <= 0.2)])
    return table(["in flight", "executes", "CPU µs off", "CPU µs on", "added", "goal", "met"], rows)


def _executed(seen):
    """(of each model the executions, and the time that all took in µs), from one reading of the statistics to the other."""
    def of(when):
        return {m["name"]: m for m in seen[when]["model_stats"] if int(m["execution_count"])}
    before, after = of("before"), of("after")

    def took_ns(m):
        return sum(int(m["inference_stats"][part]["ns"]) for part in ("compute_input", "compute_infer", "compute_output")) if m else 0
    counts = [int(m["execution_count"]) - int(before.get(name, m | {"execution_count": 0})["execution_count"]) for name, m in after.items()]
    return counts, sum(took_ns(m) - took_ns(before.get(name)) for name, m in after.items()) / 1e3


def _share_resource(lab, who, kind, n):
    """(part of the time in which the resource is used, executions in a second, the fewest of a model, the most; of their mean)."""
    models = [f"{kind}{i}" for i in range(n)] if n > 1 else [kind]
    cpus = {lab.settings.server_cpu, lab.settings.client_cpu}
    seen = run(lab, who, models, cpus, "--in-flight", 4, "--threads", n, "--limited", "--statistics", seconds=2 * TURN_S)
    counts, took_us = _executed(seen)
    if len(counts) != n:
        raise Failed(f"{n - len(counts)} of {n} models that share a resource have not executed")
    mean = sum(counts) / n
    return took_us / seen["all_us"], sum(counts) / seen["all_us"] * 1e6, min(counts) / mean, max(counts) / mean


LASTING = "executions of 1 ms"


def _shared(lab):
    """Eight models that share one resource: it is idle when the others' turn begins late. One model alone shows how late a turn of its own begins."""
    kinds = {LASTING: "lasting", "executions of nothing": "sharing"}
    cells = [(what, kind, who, n) for what, kind in kinds.items() for who in ("Conch", "Triton") for n in (1, SHARING)]
    seen = {}
    for _ in range(max(3, lab.settings.rounds)):
        for what, kind, who, n in cells:
            try:
                seen.setdefault((what, who, n), []).append(_share_resource(lab, who, "limited" if kind == "sharing" and n == 1 else kind, n))
            except servers.Missing as missing:
                say(f"  left out: {missing}")
    rows = []
    for (what, who, n), tries in seen.items():
        busy, each_s, fewest, most = (statistics.median(column) for column in zip(*tries))
        theirs = seen.get((what, "Triton", n))
        goal, reached = "–", "–"
        if who == "Conch" and n > 1:
            goal, reached = "fair within 10 %", fewest >= 0.9 and most <= 1.1
            if theirs:
                goal += ", not idler"
                reached &= each_s >= statistics.median(one[1] for one in theirs)
            reached = met(reached)
        rows.append([what, who, n, f"{each_s:,.0f}".replace(",", " "), f"{busy * 100:.1f} %" if what == LASTING else "–",
                     f"{fewest:.3f} to {most:.3f}", goal, reached])
    return table(["what", "who", "models", "executions a second", "resource in use", "each model's part of the mean", "goal", "met"], rows)


FULL = ("--before", 300_000)  # as many responses as fill the cache
# what is asked, flags, goal: CPU µs at most (hits), or part of the plain one that is added (misses)
CACHE_CELLS = {
    "hit, 64 B": (("--in-flight", 1), True, 0.4),
    "misses only, 64 B": (("--in-flight", 64, "--new", *FULL), False, 0.03),
    "misses only, 64 B, inline": (("--in-flight", 64, "--new", "--inline", *FULL), False, 0.03),
}


def _caches(lab, who):
    """The folder of the caches of Conch, or of the genuine Triton."""
    if who == "Conch":
        return lab.build / "caches"
    return servers.triton_caches(lab.root)


def cache(lab):
    """the response cache `local`, by the C API in process: hits, against the genuine one, and misses only, against no cache"""
    seen, mallocs, least = {}, {}, {}
    for i in range(max(5, round(lab.settings.rounds * lab.settings.seconds / TURN_S / 1.5))):
        for what, (flags, hits, _goal) in CACHE_CELLS.items():
            for who in ("Conch", "Triton") if hits else ("Conch", "none"):
                try:
                    more = () if who == "none" else ("--cache", _caches(lab, who))
                    ask = {"of": _repository, "seconds": TURN_S}
                    library = "Triton" if who == "Triton" else "Conch"
                    made = run(lab, library, ["cached"], {lab.settings.server_cpu}, *flags, *more, **ask)
                    if i == 0:
                        mallocs[what, who] = run(lab, library, ["cached"], {lab.settings.server_cpu}, *flags, *more,
                                                 more=lab.counting(f"{who}-cached"), **ask)["mallocs"]
                except servers.Missing as missing:
                    say(f"  left out: {missing}")
                    continue
                seen.setdefault((what, who), []).append(made["cpu_us"])
                least.setdefault(what, []).append(made["kept_us"])
    rows = []
    for what, (_flags, hits, goal) in CACHE_CELLS.items():
        other = "Triton" if hits else "none"
        ours, theirs = seen[what, "Conch"], seen.get((what, other))
        cpu = statistics.median(ours)
        base = statistics.median(theirs) if theirs else None
        added = statistics.median((a - b) / b for a, b in zip(ours, theirs)) if theirs and not hits else None
        # The run without a cache says 0.
        bare = "–" if hits else f"{statistics.median(filter(None, least[what])):.3f}"
        rows.append([what, f"{cpu:.3f}", f"{min(ours):.3f}", f"{base:.3f}" if base else "–", other, bare, f"≤ {goal} µs" if hits else f"≤ {goal:.0%} more",
                     met(cpu <= goal) if hits else met(added <= goal), f"{mallocs[what, 'Conch']:.2f}",
                     f"{mallocs[what, other]:.1f}" if theirs else "–"])
    return table(["what", "Conch CPU µs", "least", "other CPU µs", "other", "hash, copy, list µs", "goal", "met", "Conch mallocs", "other mallocs"], rows)


RESPONSES = 10_000
# Model, CPU µs at most: torrent does nothing but respond, square also reads the clock twice and reports each response.
DECOUPLED_GOAL = {"torrent": 0.1, "square": None}


def decoupled(lab):
    """each of 10 000 responses to a decoupled request by the C API in process, on one core, against the genuine library"""
    seen, mallocs = {}, {}
    flags = ("--responses", RESPONSES)
    for i in range(max(3, round(lab.settings.rounds * lab.settings.seconds / TURN_S / 1.5))):
        for model in DECOUPLED_GOAL:
            for who in ("Conch", "Triton"):
                ask = {"of": _decoupled_repository, "seconds": TURN_S}
                try:
                    made = run(lab, who, [model], {lab.settings.server_cpu}, *flags, **ask)
                    if i == 0:
                        mallocs[model, who] = run(lab, who, [model], {lab.settings.server_cpu}, *flags, more=lab.counting(f"{who}-{model}"),
                                                   **ask)["mallocs"]
                except servers.Missing as missing:
                    say(f"  left out: {missing}")
                    continue
                seen.setdefault((model, who), []).append(made["cpu_us"])
    rows = []
    for model, goal in DECOUPLED_GOAL.items():
        ours, theirs = seen[model, "Conch"], seen.get((model, "Triton"))
        ratio = statistics.median(ours) / statistics.median(theirs) if theirs else None
        rows.append([model, f"{statistics.median(ours):.3f}", f"{min(ours):.3f}", f"{statistics.median(theirs):.3f}" if theirs else "–",
                     f"{min(theirs):.3f}" if theirs else "–", figure(ratio), f"≤ {goal}" if goal else "–",
                     met(statistics.median(ours) <= goal) if goal else "–", f"{mallocs[model, 'Conch']:.3f}", "0", met(mallocs[model, "Conch"] < 0.01),
                     f"{mallocs[model, 'Triton']:.1f}" if theirs else "–"])
    return table(["model", "Conch CPU µs", "least", "Triton CPU µs", "least", "ratio", "goal", "met", "Conch mallocs", "goal", "met",
                  "Triton mallocs"], rows)


# what, models, inline
PAIRS = [
    ("two models", ["plain", "other"], True),
    ("one model, two instances", ["two"], True),
    ("one model, one instance", ["plain"], True),
    ("two models", ["plain", "other"], False),
    ("one model, two instances", ["two"], False),
]


def cores(lab):
    """two embedding threads, each on a core of its own, against one: how requests per second grow"""
    both = {lab.settings.server_cpu, lab.settings.client_cpu}
    seen = {}
    for _ in range(lab.settings.rounds):
        for i, (_what, models, inlined) in enumerate(PAIRS):
            more = ("--inline",) if inlined else ()
            for n in (1, 2):
                cpus = {lab.settings.server_cpu} if n == 1 else both
                seen.setdefault((i, n), []).append(
                    run(lab, "Conch", models, cpus, "--in-flight", 64, "--threads", n, *(("--pin",) if n == 2 else ()), *more))
    rows = []
    for i, (what, models, inlined) in enumerate(PAIRS):
        one, two = (_medians(seen[i, n]) for n in (1, 2))
        ratio = one["wall_us"] / two["wall_us"]
        goal = inlined and what != "one model, one instance"
        rows.append([what, "inline" if inlined else "threads", f"{1 / one['wall_us']:.2f}", f"{1 / two['wall_us']:.2f}", f"{ratio:.2f}",
                     "≥ 1.8" if goal else "–", met(ratio >= 1.8) if goal else "–", figure(one["cpu_us"]), figure(two["cpu_us"])])
    return table(["models", "executes", "1 thread, M requests/s", "2 threads, M requests/s", "ratio", "goal", "met",
                  "1 thread CPU µs", "2 threads CPU µs"], rows)
