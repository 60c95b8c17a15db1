# SPDX-License-Identifier: Apache-2.0
"""Cells, rounds and medians.

A cell is one server, one request, one number of connections. The cells of a row are measured in turn, round after
round, so that a drift of the machine affects all of them alike.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

# More CPU time of other processes than this share of one core spoils a cell (study, 2.0).
FOREIGN_LIMIT = 0.06

# The length of a turn, and of its warm-up.
TURN_S, TURN_WARMUP_S = 0.25, 0.05

# As FOREIGN_LIMIT, for a turn, whose figure has ticks of 10 ms in it.
TURN_FOREIGN_LIMIT = 0.15

# This many requests precede the counting of calls, or as many as ten cells have.
STEADY_REQUESTS = 1000


@dataclass
class Settings:
    seconds: float = 2.0
    warmup: float = 0.3
    rounds: int = 3
    retries: int = 4
    server_cpu: int = 0
    client_cpu: int = 1
    spare_s: float = 240.0      # how long the whole run may wait for quiet and repeat cells


@dataclass
class Cell:
    server: object
    request: object
    connections: int
    pipeline: int = 1           # gRPC: calls or streams of each connection
    depth: int = 1              # gRPC: messages outstanding in each stream
    seconds: float = 0.0        # 0: as in the settings
    warmup: float = 0.0         # 0: as in the settings
    samples: list = field(default_factory=list)
    disturbed: bool = False     # a round was kept although others used the cores
    excluded: Path = None       # a file with a 64-bit count of ns that the process took for what is not the server's work

    def median(self, what):
        return statistics.median(s[what] for s in self.samples)

    @property
    def cpu_us(self):
        return self.median("cpu_us")

    @property
    def p50_us(self):
        return self.median("p50_us")

    @property
    def p99_us(self):
        return self.median("p99_us")

    @property
    def per_second(self):
        return self.median("per_second")


@dataclass
class Ratio:
    """The cost of one cell relative to another, turn by turn; each turn is compared with its neighbour in time."""
    turns: list

    @property
    def median(self):
        return statistics.median(self.turns)

    @property
    def spread(self):
        """Half of the range that holds the middle half of the turns."""
        low, _middle, high = statistics.quantiles(self.turns, n=4)
        return (high - low) / 2

    def __str__(self):
        return f"{self.median:.2f} ± {self.spread:.2f}"


class Failed(Exception):
    """A measurement is worthless: wrong answers, or the load generator failed."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def pin(cpu):
    return lambda: os.sched_setaffinity(0, {cpu})


def busy_us(cpus):
    """The time these cores were not idle since the machine started."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *values = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cpus:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, values[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks * 1e6 / os.sysconf("SC_CLK_TCK")


def process_us(pid):
    """utime + stime of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


class Bench:
    """Runs the load generator; keeps the request files."""

    def __init__(self, load, folder, settings):
        self.load = load
        self.folder = Path(folder)
        self.settings = settings
        self.files = {}
        self.checked = set()

    def request_file(self, request):
        if id(request) not in self.files:
            path = self.folder / f"request-{len(self.files)}"
            path.write_bytes(request.wire)
            self.files[id(request)] = (path, request)   # keeps the request, so that its id is not reused
        return self.files[id(request)][0]

    def wait_quiet(self):
        """Waits until the two cores are idle, or for five seconds; counts as spare time."""
        cpus = {self.settings.server_cpu, self.settings.client_cpu}
        for _ in range(50):
            before = busy_us(cpus)
            time.sleep(0.1)
            if (busy_us(cpus) - before) / 1e5 <= FOREIGN_LIMIT + 0.1:   # one tick is 0.1 here
                return
            self.settings.spare_s -= 0.1
            if self.settings.spare_s <= 0:
                return

    def http_arguments(self, cell):
        more = ["--tls"] if getattr(cell.server, "tls", False) else []
        more += ["--fresh", "--verify", "64"] if cell.request.is_fresh else []
        return [str(self.load), "--port", str(cell.server.port), "--request", str(self.request_file(cell.request)),
                "--pipeline", str(cell.pipeline), "--answers", str(cell.request.answers), *more]

    def grpc_arguments(self, cell):
        more = ["--stream", str(cell.depth)] if cell.request.stream else []
        more += ["--tls"] if cell.server.tls else []
        return [str(self.load.parent / "bench_grpc_load"), "--port", str(cell.server.grpc_port),
                "--message", str(self.request_file(cell.request)), "--calls", str(cell.pipeline), *more,
                *cell.request.arguments()]

    def once(self, cell, counters=None):
        """Runs the load generator once; returns a dict of its figures.

        counters: a file of 64-bit counts, whose growth during the run is reported, too.
        """
        s = self.settings
        first = self.folder / "first-reply"
        argv = [*(self.grpc_arguments(cell) if hasattr(cell.request, "arguments") else self.http_arguments(cell)),
                "--connections", str(cell.connections), "--warmup", str(cell.warmup or s.warmup), "--seconds", str(cell.seconds or s.seconds),
                "--pid", str(cell.server.pid), "--first", str(first),
                "--cpus", str(1 << s.server_cpu | 1 << s.client_cpu)]
        if counters or cell.excluded:
            argv += ["--counters", str(counters or cell.excluded)]
        done = subprocess.run(argv, capture_output=True, text=True, preexec_fn=pin(s.client_cpu),
                              check=False)
        what = f"{cell.server.name}, {cell.request.name}, {cell.connections} connections"
        if done.returncode != 0:
            raise Failed(f"{what}: {done.stderr.strip() or 'the load generator failed'}")
        seen = json.loads(done.stdout)
        if not seen["requests"] or seen["non_2xx"] or seen["mismatched"]:
            raise Failed(f"{what}: {seen['requests']} answers, {seen['non_2xx']} not 2xx, "
                         f"{seen['mismatched']} unlike the first: {done.stderr.strip()}")
        if (cell.server.name, cell.request.name) not in self.checked and cell.server.name != "nginx":
            wrong = cell.request.check(first.read_bytes())
            if wrong:
                raise Failed(f"{what}: {wrong}")
            self.checked.add((cell.server.name, cell.request.name))
        own_us = seen["server_us"] - (seen["counters"][0] / 1000 if cell.excluded and not counters else 0)
        foreign = seen["busy_us"] - seen["server_us"] - seen["client_us"]
        seen["foreign"] = max(0.0, foreign / 1e6 / seen["elapsed_s"])
        seen["cpu_us"] = own_us / seen["messages"]
        seen["per_second"] = seen["requests"] / seen["elapsed_s"]
        return seen

    def sample(self, cell):
        """Repeats a run until others did not disturb it; returns it, or the least disturbed one."""
        best = None
        for attempt in range(1 + self.settings.retries):
            if self.settings.spare_s > 0:
                self.wait_quiet()
            started = time.monotonic()
            seen = self.once(cell)
            if best is None or seen["foreign"] < best["foreign"]:
                best = seen
            if attempt > 0:
                self.settings.spare_s -= time.monotonic() - started
            if best["foreign"] <= FOREIGN_LIMIT or self.settings.spare_s <= 0:
                break
        cell.disturbed |= best["foreign"] > FOREIGN_LIMIT
        cell.samples.append(best)

    def count(self, server, request, counters):
        """Returns the growth of the counters in the file while requests were answered, 16 at a time."""
        cell = Cell(server, request, 16, seconds=min(1.0, self.settings.seconds))
        # Steady state: a pool grows to the largest number of requests that overlap, by chance.
        asked = 0
        for _ in range(10):
            asked += self.once(cell)["requests"]
            if asked >= STEADY_REQUESTS:
                break
        return self.once(cell, counters)

    def measure(self, cells):
        for turn in range(self.settings.rounds):
            for cell in cells:
                self.sample(cell)
                last = cell.samples[-1]
                say(f"  round {turn + 1}  {cell.server.name:7} {cell.request.name:20} "
                    f"c={cell.connections:<3} {last['cpu_us']:10.2f} us CPU  "
                    f"p50 {last['p50_us']:9.1f}  p99 {last['p99_us']:9.1f}  "
                    f"{last['requests']:7} requests  foreign {100 * last['foreign']:.0f} %")

    def turns(self, cells):
        """Measures the cells in many short turns, in random order within each, as long in all as the rounds of measure().
        No turn is repeated. Disturbed turns are left out if enough others remain, and otherwise fall out of the
        medians.

        cells: whose costs are to be compared, by ratio()
        """
        s = self.settings
        n_turns = max(4, round(s.rounds * (s.warmup + s.seconds) / (TURN_WARMUP_S + TURN_S + 0.2)))
        for cell in cells:
            cell.seconds, cell.warmup = TURN_S, TURN_WARMUP_S
        order = random.Random(1)
        for turn in range(n_turns):
            if s.spare_s > 0:
                self.wait_quiet()
            for cell in order.sample(cells, len(cells)):
                cell.samples.append(self.once(cell))
            say(f"  turn {turn + 1:2}  " + "  ".join(
                f"{cell.server.name} c={cell.connections} {cell.samples[-1]['cpu_us']:.2f} us, "
                f"foreign {100 * cell.samples[-1]['foreign']:.0f} %" for cell in cells))
        quiet = [i for i in range(n_turns) if all(cell.samples[i]["foreign"] <= TURN_FOREIGN_LIMIT for cell in cells)]
        for cell in cells:
            cell.disturbed = len(quiet) < max(2, n_turns / 3)
            if not cell.disturbed:
                cell.samples = [cell.samples[i] for i in quiet]


def ratio(cell, other):
    """Compares two cells that Bench.turns() has measured together."""
    return Ratio([a["cpu_us"] / b["cpu_us"] for a, b in zip(cell.samples, other.samples)])
