# SPDX-License-Identifier: Apache-2.0
"""The order of the tests in Python, how several processes divide them, and which of them get a second chance.

--shuffle=SEED   files in random order, and the tests of each: a test that depends on its position fails
CONCH_CLAIMS     a folder where processes that got the same tests claim files: each file is run
                 whole by one of them, since tests of a file share servers

The genuine Triton has races of its own: now and then a stream of it hangs, or it crashes. So a test runs up to three
times until it passes, if it asks the genuine Triton alone (its parameter is "triton"), or if one that is shared by
several tests crashed in it: that one is started again first. Any other test of Conch runs once.
"""

import itertools
import os
import pathlib
import random
import signal
import sys
import threading

import pytest

import triton

HERE = pathlib.Path(__file__).parent
FIRST = ("fault", "stress")    # folders whose tests are few and take long

sys.dont_write_bytecode = False    # the next process starts in a third of the time: pytest keeps what it makes of each test file

# A shell without job control starts a job in the background with SIGINT ignored, and so would every server that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def by_file(items):
    """{path: its tests}, all of them, wherever they are."""
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    return files


def pytest_ignore_collect(collection_path, config):
    """With -m MARK, files that do not have the mark are not imported, which would take longer than the tests."""
    mark = config.option.markexpr
    if mark.isidentifier() and collection_path.match("test_*.py") and f"pytest.mark.{mark}" not in collection_path.read_text(encoding="utf-8"):
        return True
    return None


def pytest_configure(config):
    config.addinivalue_line("markers", "long: few tests that take long, so their file is among the first that are begun")


def pytest_addoption(parser):
    parser.addoption("--shuffle", metavar="SEED", help="run files, and the tests of each, in the random order of this seed")


def asks_triton_alone(item):
    return hasattr(item, "callspec") and any(isinstance(value, str) and value == "triton" for value in item.callspec.params.values())


_crashed = pytest.StashKey()    # whether a genuine Triton ended in the last run of this test


def repeat_on_crash(item):
    """Marks a test to be repeated if a genuine Triton ended in it."""
    item.add_marker(pytest.mark.flaky(reruns=2, condition=lambda: item.stash.get(_crashed, False)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    finally:
        item.stash[_crashed] = triton.start_ended_again() > 0


@pytest.hookimpl(tryfirst=True)    # pytest then groups tests that share a costly fixture
def pytest_collection_modifyitems(config, items):
    for item in items:
        if asks_triton_alone(item):
            item.add_marker(pytest.mark.flaky(reruns=2))
        else:
            repeat_on_crash(item)
    seed = config.getoption("shuffle")
    if seed is None:
        return
    chance = random.Random(seed)
    files = list(by_file(items).values())
    chance.shuffle(files)
    for tests in files:
        chance.shuffle(tests)
    items[:] = itertools.chain(*files)


def longest_first(files):
    """The same files. A long one that is begun last would be waited for by the other processes."""
    def rank(file):
        path, tests = file
        return path.relative_to(HERE).parts[0] not in FIRST and not tests[0].get_closest_marker("long"), -len(tests)

    return dict(sorted(files.items(), key=rank))


def claimed(items, folder, in_their_order):
    """The tests of files that no other process has begun, file by file."""
    files = by_file(items)
    for path, tests in (files if in_their_order else longest_first(files)).items():
        try:
            pathlib.Path(folder, str(path.relative_to(HERE)).replace("/", "+")).touch(exist_ok=False)
        except FileExistsError:
            continue
        yield from tests


def free_loops_of_threads():
    """tritonclient's HTTP client runs on gevent, whose event loop of a thread, two descriptors, outlives the thread. A process
    that runs the tests of many files would keep a thousand of them."""
    run = threading.Thread.run

    def run_and_free(thread):
        try:
            run(thread)
        finally:
            hubs = sys.modules.get("gevent._hub_local")
            hub = hubs and hubs.get_hub_if_exists()
            if hub:
                hub.destroy(destroy_loop=True)

    threading.Thread.run = run_and_free


free_loops_of_threads()


def pytest_runtestloop(session):
    folder = os.environ.get("CONCH_CLAIMS")
    if not folder or session.testsfailed or session.config.option.collectonly:
        return None    # as pytest does it
    mine = claimed(session.items, folder, in_their_order=session.config.getoption("shuffle") is not None)
    item = next(mine, None)
    while item:
        following = next(mine, None)    # whose fixtures the end of this test keeps
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True
