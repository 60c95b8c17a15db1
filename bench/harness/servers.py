# SPDX-License-Identifier: Apache-2.0
"""Starting and stopping the servers that are measured: Conch, the genuine Triton, nginx."""

import ctypes
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

START_LIMIT_S = 30
PR_SET_PDEATHSIG = 1    # linux/prctl.h
_libc = ctypes.CDLL(None)


class Missing(Exception):
    """A server or program is not installed; the rows that need it are left out with a line."""


class Server:
    """A process pinned to one core, or to a set of cores, that listens on 127.0.0.1:port.

    descriptors: how many it may have open; 0: as many as this process
    grpc_port: 0: the server says it in its log; None: it has none. tls: the protocol that is measured is served with TLS
    """

    def __init__(self, name, argv, log, cpu, env=None, port=None, descriptors=0, grpc_port=None, tls=False):
        self.name = name
        self.grpc_port, self.tls = grpc_port, tls
        self.log = Path(log)
        self.port = port

        benchmark = os.getpid()

        def before_exec():
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)    # it ends with the benchmark, however that ends
            if os.getppid() != benchmark:    # that has ended already, so no signal will come
                os._exit(1)
            os.sched_setaffinity(0, cpu if isinstance(cpu, set) else {cpu})
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})}, start_new_session=True, preexec_fn=before_exec)
        self.pid = self.process.pid
        try:
            self._wait_until_it_listens()
        except BaseException:
            self.stop()
            raise

    def _wait_until_it_listens(self):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Missing(f"{self.name} ended at start: {self._last_line()}")
            if self.port is None:
                said = re.search(r"Started HTTPService at [^\s:]*:(\d+)",
                                 self.log.read_text(errors="replace"))
                self.port = int(said[1]) if said and int(said[1]) else None
            if self.grpc_port == 0:
                said = re.search(r"Started GRPCInferenceService at [^\s:]*:(\d+)|^port (\d+)$",
                                 self.log.read_text(errors="replace"), re.MULTILINE)
                self.grpc_port = int(said[1] or said[2]) if said else 0
            if self.grpc_port != 0 and self.port is not None and self._answers():
                return
            time.sleep(0.02)
        raise Missing(f"{self.name} does not listen after {START_LIMIT_S} s: {self._last_line()}")

    def _answers(self):
        if self.port == 0:      # it has no HTTP
            return True
        try:
            with connect(self) as s:
                s.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return b" 200 " in s.recv(64)
        except OSError:
            return False

    def _last_line(self):
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "(it said nothing)"

    def memory_kb(self, field):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        raise KeyError(field)

    def kill(self):
        """For a server that is too slow to stop by itself."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def connect(server):
    """A connection to a server's HTTP, with TLS where it has that."""
    s = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    if not server.tls or server.grpc_port is not None:
        return s
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(s)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# Both servers do the same work: no gRPC, no metrics.
COMMON_FLAGS = ["--allow-grpc=false", "--allow-metrics=false"]


GRPC_FLAGS = ["--allow-metrics=false"]


def conch_grpc(build, repository, log, cpu, flags=(), **more):
    program = build / "bin" / "conch"
    if not program.exists():
        raise Missing(f"{program} is not built")
    argv = [str(program), f"--model-repository={repository}", f"--backend-directory={build / 'backends'}",
            "--http-address=127.0.0.1", "--http-port=0", "--grpc-address=127.0.0.1", "--grpc-port=0", *GRPC_FLAGS, *flags]
    return Server("Conch", argv, log, cpu, grpc_port=0, **more)


def triton_grpc(root, repository, log, cpu, flags=()):
    program = set_up_triton(root)
    ports = [free_port() for _ in range(3)]
    argv = [str(program), str(repository), *map(str, ports), *GRPC_FLAGS, *flags]
    return Server("Triton", argv, log, cpu, port=ports[0], grpc_port=ports[1])


def grpc_echo(build, log, cpu, allocator=None):
    """allocator: a library that replaces the C library's."""
    program = build / "bench" / "bench_grpc_echo"
    if not program.exists():
        raise Missing("bench_grpc_echo is not built: it needs grpc++ (libgrpc++-dev, protobuf-compiler-grpc)")
    env = {"LD_PRELOAD": allocator} if allocator else None
    return Server("grpc++ echo", [str(program)], log, cpu, env=env, port=0, grpc_port=0)


def conch_argv(build, repository, port, flags=()):
    program = build / "bin" / "conch"
    if not program.exists():
        raise Missing(f"{program} is not built")
    return [str(program), f"--model-repository={repository}",
            f"--backend-directory={build / 'backends'}",
            "--http-address=127.0.0.1", f"--http-port={port}", *COMMON_FLAGS, *flags]


def conch(build, repository, log, cpu, flags=(), env=None, **more):
    return Server("Conch", conch_argv(build, repository, more.get("port") or 0, flags), log, cpu, env=env, **more)


def set_up_triton(root):
    program = root / "tools" / "reference"
    # Without arguments the program only installs itself, which the first time takes longer than a start may.
    if subprocess.run([str(program)], stdout=sys.stderr, check=False).returncode != 0:
        raise Missing("the genuine Triton cannot be set up (tools/reference)")
    return program


def triton(root, repository, log, cpu, flags=(), env=None):
    program = set_up_triton(root)
    ports = [str(free_port()) for _ in range(3)]
    argv = [str(program), str(repository), *ports, *COMMON_FLAGS, *flags]
    return Server("Triton", argv, log, cpu, env=env, port=int(ports[0]))


def triton_caches(root):
    """The folder of the genuine Triton's caches."""
    set_up_triton(root)
    return next((root / ".deps/reference/venv/lib").glob("python3.*/site-packages/pytriton/tritonserver/caches"))


def triton_argv(root, repository, port, flags=()):
    """The program itself, without the script around it, whose time is not its own."""
    set_up_triton(root)
    packages = next((root / ".deps/reference/venv/lib").glob("python3.*/site-packages"))
    return ["env", f"LD_LIBRARY_PATH={packages / 'nvidia_pytriton.libs'}",
            str(packages / "pytriton/tritonserver/bin/tritonserver"), f"--model-repository={repository}",
            "--http-address=127.0.0.1", f"--http-port={port}", *COMMON_FLAGS, *flags]


NGINX = """
daemon off; master_process off; worker_processes 1;
pid {folder}/pid; error_log {folder}/error.log error;
events {{ worker_connections 1024; }}
http {{
    access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; client_max_body_size 0;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; location / {{ return 200 "ok"; }} }}
}}
"""


def nginx(folder, log, cpu):
    program = next((p for p in ("/usr/sbin/nginx", "/usr/bin/nginx") if Path(p).exists()), None)
    if not program:
        raise Missing("nginx is not installed")
    folder.mkdir()
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, port=port))
    return Server("nginx", [program, "-c", str(config)], log, cpu, port=port)
