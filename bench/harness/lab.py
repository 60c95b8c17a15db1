# SPDX-License-Identifier: Apache-2.0
"""The workplace of one run: a temporary folder, the servers, the load generator."""

import shutil
import tempfile
from pathlib import Path

from . import grpc, repository, servers
from .measure import Bench, say


class Lab:
    """Starts a server when a row first asks for it; `close()` stops them all."""

    def __init__(self, root, build, settings):
        self.root = root
        self.build = build
        self.programs = build / "bench"
        self.settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="conch-bench-"))
        self.bench = Bench(self.programs / "bench_load", self.folder, settings)
        self.running = {}

    def close(self):
        for server in self.running.values():
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def optional(self, make):
        """Starts a server by `make`; None, with a line on stderr, if it is not installed."""
        try:
            return make()
        except servers.Missing as missing:
            say(f"  left out: {missing}")
            return None

    def once(self, name, start):
        if name not in self.running:
            log = self.folder / f"{name}.log"
            self.running[name] = start(log, self.settings.server_cpu)
            say(f"  {name}: process {self.running[name].pid}, port {self.running[name].port}")
        return self.running[name]

    def _repository(self, name, models=True, backend=None):
        folder = self.folder / "repositories" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            if models:
                repository.write(folder, backend)
        return folder

    def _identity_backend(self):
        file = self.build / "backends" / "identity" / "libtriton_identity.so"
        if not file.exists():
            raise servers.Missing(f"{file} is not built")
        return file

    def malloc_file(self, server):
        return self.folder / f"mallocs-{server.name}"

    def counting(self, name):
        return {"LD_PRELOAD": str(self.programs / "malloc_count.so"),
                "MALLOC_COUNT_FILE": str(self.folder / f"mallocs-{name}")}

    # The servers that rows ask for.

    def nginx(self):
        return self.once("nginx", lambda log, cpu: servers.nginx(self.folder / "nginx", log, cpu))

    def conch(self):
        return self.once("conch", lambda log, cpu: servers.conch(
            self.build, self._repository("conch"), log, cpu))

    def conch_examples(self):
        """The same program with the ONNX model `digits`."""
        def start(log, cpu):
            folder = self._repository("examples", models=False)
            if not (folder / "digits").exists():
                shutil.copytree(self.root / "examples" / "models" / "digits", folder / "digits")
            return servers.conch(self.build, folder, log, cpu)
        return self.once("conch-examples", start)

    def conch_empty(self):
        return self.once("conch-empty", lambda log, cpu: servers.conch(
            self.build, self._repository("empty", models=False), log, cpu))

    def _conch_grpc(self, name, flags=(), cpu=None, **more):
        return self.once(name, lambda log, cpu_: servers.conch_grpc(
            self.build, self._repository("conch"), log, cpu or cpu_, flags, **more))

    def conch_grpc(self):
        return self._conch_grpc("conch-grpc")

    def conch_grpc_fresh(self):
        return self._conch_grpc("conch-grpc-fresh")

    def conch_grpc_two(self):
        """With two event loops, on both cores, which it shares with the client."""
        s = self.settings
        return self._conch_grpc("conch-grpc-two", ["--http-thread-count=2"], {s.server_cpu, s.client_cpu})

    def conch_grpc_tls(self):
        key, certificate = grpc.make_certificate(self.folder)
        return self._conch_grpc("conch-grpc-tls", ["--grpc-use-ssl=true", f"--grpc-server-cert={certificate}",
                                                   f"--grpc-server-key={key}"], tls=True)

    def _conch_more(self, name, flags, counted=False, **more):
        """counted: a server of its own, whose calls of the allocator are counted."""
        env = self.counting("Conch") if counted else None
        return self.once(name + ("-counted" if counted else ""), lambda log, cpu: servers.conch(
            self.build, self._repository("conch"), log, cpu, flags, env, **more))

    def conch_cached(self):
        folder = self._repository("cached", models=False)
        if not list(folder.iterdir()):
            repository.write_cached(folder)
        flags = ["--cache-config=local,size=67108864", f"--cache-directory={self.build / 'caches'}"]
        return self.once("conch-cached", lambda log, cpu: servers.conch(self.build, folder, log, cpu, flags))

    def triton_cached(self):
        """The genuine one with its own cache `local`."""
        folder = self._repository("triton-cached", models=False)
        if not list(folder.iterdir()):
            repository.write_cached(folder, self._identity_backend())
        flags = ["--cache-config=local,size=67108864", f"--cache-directory={servers.triton_caches(self.root)}"]
        return self.once("triton-cached", lambda log, cpu: servers.triton(self.root, folder, log, cpu, flags))

    def conch_regions(self):
        """With gRPC, too."""
        return self._conch_grpc("conch-regions", ["--allow-client-shm=true"])

    def conch_copying(self, files, n_bytes):
        """With gRPC, too; each request takes what a copy from one of the files to the other takes (micro/copy_added.c)."""
        env = {"LD_PRELOAD": str(self.programs / "copy_added.so"), "COPY_ADDED_BYTES": str(n_bytes),
               "COPY_ADDED_FROM": str(files[0]), "COPY_ADDED_TO": str(files[1])}
        return self._conch_grpc("conch-copying", env=env)

    def conch_regions_counted(self):
        return self._conch_more("conch-regions", ["--allow-client-shm=true"], counted=True)

    def conch_tls(self, name="conch-tls", **more):
        """more: as of _conch_more"""
        key, certificate = grpc.make_certificate(self.folder)
        flags = ["--http-use-ssl=true", f"--http-server-cert={certificate}", f"--http-server-key={key}"]
        return self._conch_more(name, flags, tls=True, **more)

    def openssl_file(self, server):
        """The excluded time of a server of _with_openssl()."""
        return self.folder / f"openssl-{server.name}"

    def _with_openssl(self):
        """Without TLS, but each request takes what OpenSSL takes for its records (micro/tls_added.c)."""
        return {"LD_PRELOAD": str(self.programs / "tls_added.so"), "TLS_ADDED_FILE": str(self.folder / "openssl-Conch")}

    def conch_openssl(self):
        return self.once("conch-openssl", lambda log, cpu: servers.conch(
            self.build, self._repository("conch"), log, cpu, env=self._with_openssl()))

    def conch_grpc_openssl(self):
        return self._conch_grpc("conch-grpc-openssl", env=self._with_openssl())

    def conch_traced(self):
        flags = ["triton,file=" + str(self.folder / "trace.json"), "level=TIMESTAMPS", "rate=1000"]
        return self._conch_more("conch-traced", [f"--trace-config={flag}" for flag in flags])

    def conch_spans(self, rate, url):
        """One of so many requests is traced, and sent to that collector."""
        flags = ["mode=opentelemetry", f"opentelemetry,url={url}", "level=TIMESTAMPS", f"rate={rate}"]
        return self._conch_more(f"conch-spans-{rate}", [f"--trace-config={flag}" for flag in flags])

    def conch_metrics(self, histograms):
        """Plain servers have the metrics switched off."""
        flags = ["--allow-metrics=true", "--metrics-port=0", f"--metrics-histograms={str(histograms).lower()}"]
        return self._conch_more(f"conch-histograms-{histograms}", flags)

    def conch_idle(self, descriptors):
        return self._conch_more("conch-idle", [], descriptors=descriptors)

    def conch_grpc_counted(self):
        return self._conch_grpc("conch-grpc-counted", env=self.counting("Conch"))

    def triton_grpc(self):
        return self.once("triton-grpc", lambda log, cpu: servers.triton_grpc(
            self.root, self._triton_repository(), log, cpu))

    def grpc_echo(self):
        return self.once("grpc-echo", lambda log, cpu: servers.grpc_echo(self.build, log, cpu))

    def grpc_echo_jemalloc(self):
        found = sorted(Path("/usr/lib").glob("*/libjemalloc.so.2"))
        if not found:
            raise servers.Missing("libjemalloc.so.2 is not installed")
        return self.once("grpc-echo-jemalloc", lambda log, cpu: servers.grpc_echo(self.build, log, cpu, str(found[0])))

    def conch_counted(self):
        return self.once("conch-counted", lambda log, cpu: servers.conch(
            self.build, self._repository("conch"), log, cpu, env=self.counting("Conch")))

    def _triton_repository(self):
        folder = self._repository("triton", backend=self._identity_backend())
        repeat = self.build / "backends" / "repeat" / "libtriton_repeat.so"
        if repeat.exists():
            shutil.copy(repeat, folder / "many" / repeat.name)
        return folder

    def triton(self):
        return self.once("triton", lambda log, cpu: servers.triton(
            self.root, self._triton_repository(), log, cpu))

    def triton_empty(self):
        return self.once("triton-empty", lambda log, cpu: servers.triton(
            self.root, self._repository("empty", models=False), log, cpu))

    def triton_counted(self):
        return self.once("triton-counted", lambda log, cpu: servers.triton(
            self.root, self._triton_repository(), log, cpu, env=self.counting("Triton")))
