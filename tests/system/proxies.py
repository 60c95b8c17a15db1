# SPDX-License-Identifier: Apache-2.0
"""Proxies before a server under test: nginx and HAProxy. A test derives a class with its `site`, which says what the proxy
listens to and how it passes it on to 127.0.0.1:{upstream}."""

import contextlib
import shutil
import socket
import subprocess

import pytest

from server import free_port, wait_for

WITHIN_S = 60


class Proxy:
    address = "127.0.0.1"
    program: str
    config: str    # with {site} where a test's own part comes
    site: str

    def __init__(self, folder, upstream):
        self.port = free_port()
        self._file = folder / "proxy.conf"
        names = {"folder": folder, "port": self.port, "upstream": upstream}
        self._file.write_text(self.config.format(site=self.site.format(**names), **names))
        self._process = None

    @classmethod
    def find(cls):
        return shutil.which(cls.program, path="/usr/sbin:/usr/bin")

    def argv(self):
        raise NotImplementedError

    def __enter__(self):
        self._process = subprocess.Popen(self.argv(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self._listens, WITHIN_S, f"{self.program} listens")
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def _listens(self):
        assert self._process.poll() is None, f"{self.program} ended"
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((self.address, self.port)):
            return True
        return False


class Nginx(Proxy):
    program = "nginx"
    config = """
daemon off; master_process off; worker_processes 1;
pid {folder}/pid; error_log {folder}/error.log info;
events {{ worker_connections 256; }}
http {{
    access_log off; client_max_body_size 0;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    upstream conch {{ server 127.0.0.1:{upstream} max_fails=0; keepalive 4; }}
    {site}
}}
"""

    def argv(self):
        return [self.find(), "-c", str(self._file)]


class Haproxy(Proxy):
    program = "haproxy"
    config = """
global
    nbthread 1
    maxconn 256
defaults
    mode http
    retries 0
    http-reuse always
    timeout connect 60s
    timeout client 600s
    timeout server 600s
{site}
"""

    def argv(self):
        return [self.find(), "-db", "-f", str(self._file)]


def installed(kind):
    return pytest.param(kind, id=kind.program,
                        marks=pytest.mark.skipif(kind.find() is None, reason=f"{kind.program} is not installed (make deps)"))
