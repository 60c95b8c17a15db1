# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests of TLS, made by the program openssl."""

import pathlib
import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


def make_key(path, kind="ec"):
    arguments = {"ec": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
                 "rsa": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]}[kind]
    openssl("genpkey", *arguments, "-out", path)
    return path


class Authority:
    """An authority in a folder: root.pem, and what it issues."""

    def __init__(self, folder, name="root", kind="ec"):
        self.folder = pathlib.Path(folder)
        self.kind = kind
        self.key = make_key(self.folder / f"{name}.key", kind)
        self.certificate = self.folder / f"{name}.pem"
        openssl("req", "-x509", "-new", "-key", self.key, "-days", 2, "-subj", f"/CN={name}", "-out", self.certificate,
                "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")

    def issue(self, name, is_authority=False, names="DNS:localhost,IP:127.0.0.1"):
        """Makes NAME.key and NAME.pem, with the common name NAME and these alternative names. Returns both paths, the
        certificate's first."""
        key = make_key(self.folder / f"{name}.key", self.kind)
        certificate, request, settings = (self.folder / f"{name}.{end}" for end in ("pem", "csr", "settings"))
        what = "basicConstraints=critical,CA:TRUE\n" if is_authority else f"subjectAltName={names}\n" if names else ""
        settings.write_text(what, encoding="ascii")
        openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-days", 2, "-out", certificate,
                "-extfile", settings)
        return certificate, key
