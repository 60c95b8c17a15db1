# SPDX-License-Identifier: Apache-2.0
"""Random clients of all kinds, of SageMaker and Vertex AI, too, against one server: each accepted request has exactly one right answer.

In the server without TLS an agent checks the files of models that clients load and unload, and some requests leave a trace in a file; a rate limiter
has some of the models take turns. In the server with TLS some requests become spans for a collector that is slow, refuses and lies.

Each request carries values, and mostly an id, of its own, and its answer must have them. The last answer of a
connection is followed by that of a question with a name of its own, so that a missing or an additional answer is
noticed. At the end the server's statistics must agree with the clients' counts, and exactly for models whose clients
all wait. Then the server is stopped under load: what it still answers is right and whole, and its exit code is 0, which
a sanitizer's report prevents.

CONCH_STRESS_SECONDS=n  how long (`make stress SECONDS=n`), half of it with TLS; 5
CONCH_STRESS_SEED=n     the same choices again, though not the same times; otherwise random, and printed
"""

import os
import random
import ssl
import threading
import time

import pytest

import clients
import platform_clients
import server as servers
import spans
from certificates import Authority
from otlp_collector import Collector

SECONDS = float(os.environ.get("CONCH_STRESS_SECONDS", "5"))
CLIENTS = 12
KINDS = [*clients.KINDS, *[clients.by_regions] * 2, *platform_clients.KINDS]


def flags(folder):
    """All clients have the right that a rule asks for."""
    rules = folder / "rules"
    rules.write_text("allow header X-Key=right to all\nallow anyone to health\n")
    return [*clients.cache_flags(), *platform_clients.flags(), "--http-thread-count=3", "--allow-client-shm=true", f"--access-rules={rules}"]


def agent_flags(folder):
    """Models are loaded by clients, and some requests leave a trace in a file."""
    return [*clients.agent_flags(), f"--trace-config=triton,file={folder}/traces", "--trace-config=rate=20", "--trace-config=level=TIMESTAMPS"]


def served(folder, with_tls, collector):
    """The server, ready, and its clients' context of TLS or None."""
    models = clients.write_models(folder / "models")
    if not with_tls:
        clients.write_checked(models)
        clients.share_seats(models)
        return servers.Server(models, flags=[*flags(folder), *agent_flags(folder), *clients.limiter_flags()], env=platform_clients.environment()), None
    root = Authority(folder)
    certificate, key = root.issue("server")
    tls = ["--http-use-ssl=true", f"--http-server-cert={certificate}", f"--http-server-key={key}"]
    traces = [*collector.flags(rate=2), "--allow-metrics=true", "--metrics-port=0"]
    env = {**platform_clients.environment(), **spans.ENVIRONMENT}
    return (servers.Server(models, flags=[*flags(folder), *tls, *traces], ready=None, env=env),
            ssl.create_default_context(cafile=root.certificate))


def start_clients(run):
    kinds = [*KINDS, *([] if run.server.tls else [clients.reload_checked] * 3)]
    threads = [threading.Thread(target=clients.be_a_client, args=(run, number, kinds)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    return threads


def let_it_run(run, seconds):
    """For this time, and until each of the models has answered, and loads have succeeded and failed where clients load."""
    wanted = [*((run.answered, model) for model in clients.STEADY), *((run.reached, name) for name in platform_clients.NAMES)]
    if not run.server.tls:
        wanted += [(run.loads, "True"), (run.loads, "False")]
    until = time.monotonic() + seconds

    def enough():
        run.server.assert_alive()
        return run.failures or (time.monotonic() > until and all(counter[of] for counter, of in wanted))

    servers.wait_for(enough, seconds + 120, "all models and endpoints have been asked")


@pytest.mark.skipif(servers.REFERENCE, reason="the genuine Triton answers only the first of several requests")
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
def test_each_request_has_one_right_answer(tmp_path, with_tls):
    seed = os.environ.get("CONCH_STRESS_SEED") or str(random.SystemRandom().randrange(10**9))
    print(f"CONCH_STRESS_SEED={seed}")
    collector = Collector(whims=random.Random(seed))
    made, tls = served(tmp_path, with_tls, collector)
    with collector, made as server:
        server.tls = tls
        server.wait_log("Loaded ")
        platform_clients.find_endpoints(server)
        run = clients.Run(server, seed, tmp_path / "models")
        threads = start_clients(run)
        let_it_run(run, SECONDS / 2)
        run.over = True
        for thread in threads:
            thread.join()
        assert not run.failures, "\n".join(run.failures)
        clients.assert_all_is_counted(run)
        if with_tls:
            spans.assert_counted(server, collector)
        print(f"answered: {dict(run.answered)}, left: {dict(run.left)}, reached: {dict(run.reached)}, loads: {dict(run.loads)}")

        run = clients.Run(server, f"{seed} end", tmp_path / "models")
        threads = start_clients(run)
        servers.wait_for(lambda: sum(run.answered.values()) > 20 * CLIENTS or run.failures, 60, "all clients are at work")
        run.stopping = True
        server.signal(servers.signal.SIGTERM)
        assert server.wait() == 0, server.story("ended otherwise than with 0")
        run.over = True
        for thread in threads:
            thread.join()
        assert not run.failures, "\n".join(run.failures)
