# SPDX-License-Identifier: Apache-2.0
"""What threads of a test leave in the process that runs the tests (tests/conftest.py)."""

import concurrent.futures
import os
import socket

import pytest
import tritonclient.http


def test_threads_that_used_the_http_client_leave_no_descriptors():
    def ask(_):
        with socket.create_server(("127.0.0.1", 0)) as listener:    # nobody listens where this was
            address = "127.0.0.1:%d" % listener.getsockname()[1]
        with tritonclient.http.InferenceServerClient(address) as client, pytest.raises(ConnectionRefusedError):
            client.is_server_live()

    ask(0)    # the loop of this thread stays
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, range(4)))
    assert len(os.listdir("/proc/self/fd")) == before
