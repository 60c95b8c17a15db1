# SPDX-License-Identifier: Apache-2.0
"""Markdown: tables, figures, and whether a goal is met."""

import platform
import subprocess
import time
from pathlib import Path


def figure(value):
    """A number with three significant digits."""
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def met(yes):
    return "yes" if yes else "**no**"


# Rows about what a backend adds to its framework (bench/micro/added.h, load_rate.h).


def added_row(name, cell, most=1.0):
    return [name, figure(cell["backend_us"] - cell["made_us"]), figure(cell["bare_us"]), f"{cell['added_us']:.2f} µs more than the bare call",
            f"≤ {most}", met(cell["added_us"] <= most)]


def copied_row(name, cell, copies, most):
    """most: copies of the inputs' bytes"""
    times = copies["copied_bytes"] / copies["input_bytes"]
    return [name, figure(cell["backend_us"] - cell["made_us"]), figure(cell["bare_us"]), f"{times:.2f} copies of its bytes", f"≤ {most}",
            met(times <= most)]


def pair_row(cell, what="two instances"):
    return [what, figure(cell["served_us"]), figure(cell["bare_us"]),
            f"{cell['ratio']:.2f} × the requests per second of two bare threads ({figure(cell['served_per_s'])}); by CPU time {cell['cpu_ratio']:.2f} ×",
            "≥ 0.95", met(cell["ratio"] >= 0.95)]


def cpu(cell):
    """CPU per request; a tilde if others used the cores meanwhile."""
    return ("~" if cell.disturbed else "") + figure(cell.cpu_us)


def _first(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "absent"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"


def conditions(root, settings):
    model = next((line.split(":", 1)[1].strip()
                  for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    commit = _first(["git", "-C", str(root), "describe", "--always", "--dirty"])
    return (f"{time.strftime('%Y-%m-%d %H:%M')}, commit {commit}, {model}, "
            f"Linux {platform.release()}. {_first(['nginx', '-v'])}. "
            f"Server on core {settings.server_cpu}, client on core {settings.client_cpu}; "
            f"{settings.rounds} rounds of {settings.seconds:g} s, medians.\n")
