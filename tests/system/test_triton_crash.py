# SPDX-License-Identifier: Apache-2.0
"""A crash of the genuine Triton repeats the test in which it happens, with a new process."""

import signal
import urllib.request

import pytest

import repository
import triton

pytestmark = triton.needed
_processes = []    # those that test_a_crash_repeats_the_test has met
_own = []          # those of test_a_crash_of_its_own_…


def check_ready(server):
    with urllib.request.urlopen(f"http://{server.url}/v2/health/ready", timeout=60) as answer:
        assert answer.status == 200


@pytest.fixture(name="genuine", scope="module")
def genuine_(tmp_path_factory):
    with triton.Triton(repository.write_standard(tmp_path_factory.mktemp("models"))) as server:
        yield server


def test_a_crash_repeats_the_test(genuine):
    _processes.append(genuine.process)
    if len(_processes) == 1:
        genuine.signal(signal.SIGSEGV)
        genuine.process.wait()
    check_ready(genuine)
    assert len(_processes) == 2


def test_a_crash_of_its_own_process_repeats_a_test(tmp_path):
    with triton.Triton(repository.write_standard(tmp_path)) as server:
        _own.append(server)
        if len(_own) == 1:
            server.signal(signal.SIGSEGV)
            server.process.wait()
        check_ready(server)
    assert len(_own) == 2
