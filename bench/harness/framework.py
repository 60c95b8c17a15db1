# SPDX-License-Identifier: Apache-2.0
"""The rows about what a backend adds to its framework, measured in one process by a program of bench/micro: small requests (added.h), and
large ones and two instances (large.h)."""

import json

from . import micro
from .report import added_row, copied_row, pair_row, table
from .servers import Missing

HEAD = ["request", "backend CPU µs", "bare CPU µs", "figure", "goal", "met"]


def written_repository(lab, name):
    """The folder that bench/micro/NAME_models.py writes."""
    folder = lab.folder / "repositories" / name
    python, program = lab.root / ".deps/venv/bin/python", lab.root / f"bench/micro/{name}_models.py"
    if not folder.exists():
        if not python.exists():
            raise Missing("no Python in .deps/venv (make deps)")
        folder.mkdir(parents=True)
        micro.run(lab, [python, program, folder], program.name, pinned=False)
    return folder


def measured_rows(lab, name, repository, arguments, small, image_copies):
    """The table of bench_NAME_backend. small: {member of its JSON object: name of the row}. image_copies: how often 602 kB may be copied; 1 where
    the framework allocates what it returns, which is copied into the answer."""
    argv = [lab.programs / f"bench_{name}_backend", repository, lab.build / "backends", *arguments, max(3, lab.settings.rounds)]
    what = f"{name}_backend"
    got = json.loads(micro.run(lab, argv, what, pinned=False))
    copies = json.loads(micro.run(lab, argv, what, preload=lab.programs / "copy_count.so"))
    return table(HEAD, [*(added_row(row, got[member]) for member, row in small.items()),
                        copied_row("602 kB", got["image"], copies["image"], image_copies),
                        copied_row("batch of 8 × 602 kB", got["batch"], copies["batch"], 2),
                        pair_row(got["pair"])])
