# SPDX-License-Identifier: Apache-2.0
"""A client's socket with TLS on which one thread may send while another one receives, as Python's ssl.SSLSocket does not allow."""

import socket
import ssl
import threading


class TlsSocket:
    """Over a connected socket, whose other methods it has, too. An end that TLS does not announce is an EOFError. It is a
    ConnectionAbortedError before the first bytes have come: the server may have ended before the handshake was over on its side."""

    def __init__(self, connected, context, name):
        self._raw = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._using = threading.Lock()      # the three above
        self._sending = threading.Lock()    # taken before _using: bytes leave in the order in which they were made
        self._has_received = False
        self._call(self._tls.do_handshake)

    def __getattr__(self, name):
        return getattr(self._raw, name)

    def _flush(self, write=lambda: None):
        with self._sending:
            with self._using:
                write()
                made = self._outgoing.read()
            self._raw.sendall(made)

    def _call(self, function):
        """What the function returns, once enough has been received for it."""
        while True:
            with self._using:
                try:
                    result, wants_more = function(), False
                except ssl.SSLWantReadError:
                    wants_more = True
                has_made = self._outgoing.pending
            if has_made:
                self._flush()
            if not wants_more:
                return result
            received = self._raw.recv(1 << 18)
            if not received:
                kind = EOFError if self._has_received else ConnectionAbortedError
                raise kind("the connection ended without an alert of TLS")
            with self._using:
                self._incoming.write(received)

    def sendall(self, data):
        if data:
            self._flush(lambda: self._tls.write(data))

    def recv(self, size):
        """b"" at the end that the other side has announced."""
        try:
            received = self._call(lambda: self._tls.read(size))
            self._has_received = True
            return received
        except ssl.SSLZeroReturnError:    # after an end of our own
            return b""

    def _announce_end(self):
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:    # for the other side's alert
            pass

    def shutdown(self, how):
        """Nothing is received before it that would be lost by it: TLS reads on to find the other side's end."""
        if how == socket.SHUT_WR:
            self._flush(self._announce_end)
        self._raw.shutdown(how)
