# SPDX-License-Identifier: Apache-2.0
"""The response cache `redis` with a real redis-server: shared, stopped, started again, paused, full, or something else."""

import concurrent.futures
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import repository
import server as servers
import triton
from server import wait_for
from test_response_cache import CACHED, counts, grown, identity, make, OURS
from wire import given, infer

PROGRAM = shutil.which("redis-server") or "/usr/bin/redis-server"
ID = 'parameters { key: "CONCH_CACHE_ID" value { string_value: "v1" } }\n'


class Redis:
    def __init__(self, folder, *flags, port=None):
        self.port = port or servers.free_port()
        self.args = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), *flags]

    def __enter__(self):
        self.process = subprocess.Popen(self.args, stdout=subprocess.DEVNULL)
        wait_for(self.answers, 60, "redis-server is there")
        return self

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as conn:
                conn.sendall(b"PING\r\n")
                return conn.recv(64)[:1] in (b"+", b"-")
        except OSError:
            return False

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    @property
    def flags(self):
        """It answers in time, however busy the machine is."""
        settings = {"host": "127.0.0.1", "port": self.port, "connect_timeout": 30_000, "socket_timeout": 30_000, "wait_timeout": 30_000}
        return [f"--cache-config=redis,{name}={value}" for name, value in settings.items()]


def write_models(root, more=""):
    repository.write_identity(root, "m", [("FP32", [-1])], max_batch_size=8)
    with open(root / "m" / "config.pbtxt", "a") as config:
        config.write(CACHED + more)
    return root


@pytest.fixture
def redis(tmp_path):
    with Redis(tmp_path) as running:
        yield running


def serve(redis, root, *flags, which="conch"):
    return make(which, root, OURS.resolve(), *redis.flags, *flags)


def until_found(server, values):
    """Asks until the response is found: what Redis has is kept a moment after it was sent."""
    def is_found():
        hits = counts(server, "m")["cache_hit"]
        identity(server, values)
        return counts(server, "m")["cache_hit"] > hits
    wait_for(is_found, 60, "a hit")


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_a_response_that_was_computed_is_found(which, redis, models):
    with serve(redis, write_models(models), which=which) as server:
        identity(server, [1.0, 2.0])
        until_found(server, [1.0, 2.0])
        before = counts(server, "m")
        for _ in range(5):
            identity(server, [1.0, 2.0])
        assert grown(before, counts(server, "m")) == {
            "success": 5, "queue": 5, "compute_infer": 0, "cache_hit": 5, "cache_miss": 0, "executions": 0, "inferences": 0}


def test_servers_with_the_same_id_share_it(redis, models):
    write_models(models, ID)
    with serve(redis, models) as one, serve(redis, models) as other:
        identity(one, [3.0])
        until_found(one, [3.0])
        identity(other, [3.0])
        assert counts(other, "m")["executions"] == 0


def test_without_the_id_they_do_not(redis, models):
    write_models(models)
    with serve(redis, models) as one, serve(redis, models) as other:
        identity(one, [3.0])
        until_found(one, [3.0])
        identity(other, [3.0])
        assert counts(other, "m")["executions"] == 1


def test_a_large_response_is_found_in_full(redis, models):
    with serve(redis, write_models(models)) as server:
        values = [float(i) for i in range(100_000)]
        until_found(server, values)


@pytest.mark.sanitize
def test_redis_may_end_and_come_back(redis, models, tmp_path):
    with serve(redis, write_models(models)) as server:
        until_found(server, [1.0])
        redis.__exit__()
        began = time.monotonic()
        for i in range(50):
            identity(server, [1.0, float(i)])
        assert counts(server, "m")["success"] >= 51
        assert time.monotonic() - began < 20
        assert "has lost, and does without, 127.0.0.1" in server.log()
        with Redis(tmp_path, port=redis.port):
            until_found(server, [1.0])
            assert "is connected again to 127.0.0.1" in server.log()


def test_a_start_without_redis_serves(models):
    port = servers.free_port()
    with make("conch", write_models(models), OURS.resolve(), "--cache-config=redis,host=127.0.0.1", f"--cache-config=redis,port={port}") as server:
        for _ in range(3):
            identity(server, [1.0])
        assert counts(server, "m")["executions"] == 3


def test_while_redis_is_paused_requests_are_answered(redis, models):
    with serve(redis, write_models(models), "--cache-config=redis,socket_timeout=100") as server:
        until_found(server, [1.0])
        redis.process.send_signal(signal.SIGSTOP)
        try:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                for done in [pool.submit(identity, server, [1.0, float(i)]) for i in range(100)]:
                    done.result(timeout=60)
        finally:
            redis.process.send_signal(signal.SIGCONT)
        until_found(server, [1.0])


def test_a_full_redis_costs_no_answer(tmp_path, models):
    with Redis(tmp_path, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction") as redis, serve(redis, write_models(models)) as server:
        for i in range(20):
            values = [float(i)] * 100_000
            answer = infer(server, "m", {"inputs": [given("INPUT0", "FP32", [1, len(values)], values)]})
            assert answer.status == 200
        wait_for(lambda: "into response cache: Redis answers to SET: OOM" in server.log(), 60, "the log")


def test_what_is_no_redis_costs_no_answer(models):
    """A server that answers each line with another one of HTTP."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer_all():
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            with conn:
                conn.recv(4096)
                conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    threading.Thread(target=answer_all, daemon=True).start()
    port = listener.getsockname()[1]
    with make("conch", write_models(models), OURS.resolve(), "--cache-config=redis,host=127.0.0.1", f"--cache-config=redis,port={port}") as server:
        for _ in range(5):
            identity(server, [1.0])
        assert counts(server, "m")["executions"] == 5
    listener.close()


def test_what_another_program_keeps_under_the_key_is_a_miss(redis, models):
    """Every value is replaced by others: cut off, of another form, no string."""
    with serve(redis, write_models(models)) as server:
        until_found(server, [1.0])
        for value in (b"", b"x", b"\x01" + 7 * b"\0" + b"\xff" * 8 + b"abc", b"\xff" * 8, b"\x01" + 15 * b"\0", b"\x01" + 7 * b"\0" + b"\x04" + 7 * b"\0" + b"abcd"):
            with socket.create_connection(("127.0.0.1", redis.port)) as conn:
                conn.sendall(b"KEYS *\r\n")
                key = conn.recv(4096).split(b"\r\n")[2]
                conn.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value))
                assert conn.recv(64) == b"+OK\r\n"
            before = counts(server, "m")
            identity(server, [1.0])
            assert grown(before, counts(server, "m"))["executions"] == 1
        assert "failed to look up a response in cache 'redis'" in server.log()


def test_user_password_and_database(tmp_path, models):
    with Redis(tmp_path, "--requirepass", "secret") as redis:
        with serve(redis, write_models(models), "--cache-config=redis,password=secret", "--cache-config=redis,db=3") as server:
            until_found(server, [1.0])
            assert "secret" not in server.log()
        for flags, text in ((["--cache-config=redis,password=wrong"], "Redis answers to AUTH: "), ([], "Redis answers to PING: NOAUTH")):
            assert text in failure(redis, models, *flags)


def failure(redis, models, *flags):
    server = serve(redis, models, *flags)
    done = subprocess.run(server.args, env=server.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    return done.stderr + done.stdout


@pytest.mark.parametrize("flag, text", [
    ("tls_enabled=true", "TLS is not supported, which the setting 'tls_enabled' is for"),
    ("cert=/x", "TLS is not supported, which the setting 'cert' is for"),
    ("port=0", "'port' is '0', expected a number from 1 to 65535"),
    ("pool_size=many", "'pool_size' is 'many', expected a number"),
    ("db=99", "Redis answers to SELECT: "),
    ("socket_timeout=-1", "'socket_timeout' is '-1', expected a number"),
])
def test_a_wrong_setting_is_named(flag, text, redis, models):
    assert text in failure(redis, write_models(models), f"--cache-config=redis,{flag}")
