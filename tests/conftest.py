# SPDX-License-Identifier: Apache-2.0
"""The order of the tests in Python, and how several processes share them out.

--shuffle=SEED   files in random order, and the tests of each: what depends on its place fails
CONCH_CLAIMS     a folder where processes that have been given the same tests say what is theirs: each file is run by
                 one of them, who runs all of it, since tests of a file have servers in common
"""

import itertools
import os
import pathlib
import random

import pytest

HERE = pathlib.Path(__file__).parent


def by_file(items):
    """{path: its tests}, all of them, wherever they stand."""
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    return files


def pytest_addoption(parser):
    parser.addoption("--shuffle", metavar="SEED", help="run files, and the tests of each, in the random order of this seed")


@pytest.hookimpl(tryfirst=True)    # pytest then brings together what has a costly fixture in common
def pytest_collection_modifyitems(config, items):
    seed = config.getoption("shuffle")
    if seed is None:
        return
    chance = random.Random(seed)
    files = list(by_file(items).values())
    chance.shuffle(files)
    for tests in files:
        chance.shuffle(tests)
    items[:] = itertools.chain(*files)


def claimed(items, folder):
    """The tests of files that no other process has begun, file by file."""
    for path, tests in by_file(items).items():
        try:
            pathlib.Path(folder, str(path.relative_to(HERE)).replace("/", "+")).touch(exist_ok=False)
        except FileExistsError:
            continue
        yield from tests


def pytest_runtestloop(session):
    folder = os.environ.get("CONCH_CLAIMS")
    if not folder or session.testsfailed or session.config.option.collectonly:
        return None    # as pytest does it
    mine = claimed(session.items, folder)
    item = next(mine, None)
    while item:
        following = next(mine, None)    # whose fixtures the end of this one leaves standing
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True
