# SPDX-License-Identifier: Apache-2.0
"""What the server tells the service manager by sd_notify(3): that it is ready, that it stops, and that its loops turn."""

import os
import signal
import socket
import threading
import urllib.request

import pytest

from server import Server

pytestmark = pytest.mark.conch_only("Triton knows no service manager")

CONFIG = """backend: "identity"
input [ { name: "I" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "O" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
SLOW = CONFIG + """parameters { key: "execute_delay_ms" value { string_value: "2500" } }
parameters { key: "CONCH_EXECUTION" value { string_value: "inline" } }
"""
REQUEST = b'{"inputs":[{"name":"I","datatype":"FP32","shape":[1],"data":[1]}]}'


class Manager:
    """The socket of a service manager."""

    def __init__(self, path, **environment):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path.replace("@", "\0", 1))
        self.socket.settimeout(60)
        self.environment = {"NOTIFY_SOCKET": path, **environment}

    def said(self):
        return self.socket.recv(4096).decode()

    def said_until(self, line):
        """The messages up to the one that has this line."""
        found = [self.said()]
        while line not in found[-1].splitlines():
            found.append(self.said())
        return found

    def pending(self):
        """What has come already."""
        found = []
        self.socket.setblocking(False)
        try:
            while True:
                found.append(self.said())
        except BlockingIOError:
            self.socket.settimeout(60)
        return found


def repository(tmp_path, config):
    (tmp_path / "models/m/1").mkdir(parents=True)
    (tmp_path / "models/m/config.pbtxt").write_text(config)
    return tmp_path / "models"


@pytest.mark.parametrize("place", ["path", "abstract"])
def test_ready_comes_after_the_load_and_stopping_with_the_signal(tmp_path, place):
    manager = Manager(str(tmp_path / "notify") if place == "path" else f"@conch-{os.getpid()}-notify")
    with Server(repository(tmp_path, CONFIG), env=manager.environment) as server:
        assert manager.said_until("READY=1") == ["STATUS=Loading models", "READY=1\nSTATUS=Serving"]
        with urllib.request.urlopen(f"http://{server.url}/v2/health/ready") as answer:
            assert answer.status == 200
        server.signal(signal.SIGTERM)
        assert manager.said_until("STOPPING=1") == ["STOPPING=1\nSTATUS=Answering the last requests"]


def test_a_start_that_fails_is_never_ready(tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    with pytest.raises(AssertionError, match="ended with 1"):
        with Server(repository(tmp_path, "nope: 1"), env=manager.environment):
            pass
    assert manager.said() == "STATUS=Loading models"
    assert all("READY=1" not in message for message in manager.pending())


def test_signs_of_life_go_on_while_all_loops_turn(tmp_path):
    manager = Manager(str(tmp_path / "notify"), WATCHDOG_USEC="300000")
    with Server(repository(tmp_path, SLOW), flags=["--http-thread-count=1"], env=manager.environment) as server:
        manager.said_until("READY=1")
        assert [manager.said() for _ in range(5)] == ["WATCHDOG=1"] * 5
        # A loop that does not come round for 2.5 s: one sign may be on its way, of the 25 that would come.
        manager.pending()
        request = urllib.request.Request(f"http://{server.url}/v2/models/m/infer", REQUEST)
        asked = threading.Thread(target=lambda: urllib.request.urlopen(request).read())
        asked.start()
        asked.join(60)
        assert len(manager.pending()) <= 8
        assert [manager.said() for _ in range(3)] == ["WATCHDOG=1"] * 3


@pytest.mark.parametrize("environment", [{"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "300000", "WATCHDOG_PID": "1"}, {}])
def test_no_sign_of_life_that_nobody_waits_for(tmp_path, environment):
    manager = Manager(str(tmp_path / "notify"), **environment)
    with Server(repository(tmp_path, CONFIG), env=manager.environment) as server:
        manager.said_until("READY=1")
        server.signal(signal.SIGTERM)
        assert len(manager.said_until("STOPPING=1")) == 1
