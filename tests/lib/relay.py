# SPDX-License-Identifier: Apache-2.0
"""A relay between one client and a server on this machine: it counts the bytes each way, for tests about what is sent."""

import contextlib
import socket
import threading


class Relay:
    """Passes the first connection on to a port; later ones are not accepted."""

    def __init__(self, port):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"127.0.0.1:{self.port}"
        self._target = port
        self.n_asked = self.n_answered = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._listener.close()

    def _accept(self):
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._target))
        threading.Thread(target=self._pass, args=(client, server, "n_asked"), daemon=True).start()
        self._pass(server, client, "n_answered")

    def _pass(self, source, target, count):
        with contextlib.suppress(OSError):
            while (got := source.recv(65536)):
                setattr(self, count, getattr(self, count) + len(got))    # before the receiver has them
                target.sendall(got)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
