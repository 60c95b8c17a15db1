# SPDX-License-Identifier: Apache-2.0
"""The row about the cost that the backend fil adds to treelite, measured in one process
(bench/micro/forest_backend.c)."""

import json
import statistics

from . import micro
from .framework import HEAD, written_repository
from .report import added_row, pair_row, table
from .servers import Missing

# Where a process has its memory makes a prediction of 64 rows faster or slower by some tenths of a µs, for as long as the process lives.
PROCESSES = 7
WHERE = ".deps/venv/lib/python3*/site-packages"


def _library(lab):
    found = sorted(lab.root.glob(f"{WHERE}/treelite/lib/libtreelite.so*"))
    if not found or not list(lab.root.glob(f"{WHERE}/xgboost")):
        raise Missing("no treelite or no XGBoost in .deps/venv (make test-frameworks)")
    return found[-1]


def repository(lab):
    return written_repository(lab, "forest")


def _medians(all_):
    """Of objects with the same fields, which are numbers or such objects."""
    first = all_[0]
    if not isinstance(first, dict):
        return statistics.median(all_)
    return {key: _medians([one[key] for one in all_]) for key in first}


def forest(lab):
    """the backend fil around treelite's prediction of 20 trees: one row, 64 rows, two instances; CPU µs"""
    library = _library(lab)
    argv = [lab.programs / "bench_forest_backend", repository(lab), lab.build / "backends", library, 1]
    got = _medians([json.loads(micro.run(lab, argv, "forest_backend", pinned=False)) for _ in range(PROCESSES)])
    return table(HEAD,
                 [added_row("one row", got["rows_1"]), added_row("64 rows", got["rows_64"]), pair_row(got["pair"], "64 rows, two instances")])
