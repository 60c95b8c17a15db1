# SPDX-License-Identifier: Apache-2.0
"""Random clients of all kinds against one server: each accepted request has exactly one right answer.

Each request carries values, and mostly an id, of its own, and its answer must have them. The last answer of a
connection is followed by that of a question with a name of its own, so that a missing or an additional answer is
noticed. At the end the server's statistics must agree with the clients' counts, and exactly for models whose clients
all wait. Then the server is stopped under load: what it still answers is right and whole, and its exit code is 0, which
a sanitizer's report prevents.

CONCH_STRESS_SECONDS=n  how long (`make stress SECONDS=n`); 5
CONCH_STRESS_SEED=n     the same choices again, though not the same times; otherwise random, and printed
"""

import os
import random
import threading
import time

import pytest

import clients
import server as servers

SECONDS = float(os.environ.get("CONCH_STRESS_SECONDS", "5"))
CLIENTS = 12


def start_clients(run):
    threads = [threading.Thread(target=clients.be_a_client, args=(run, number)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    return threads


def let_it_run(run, seconds):
    """For this time, and until each of the models has answered."""
    until = time.monotonic() + seconds

    def enough():
        run.server.assert_alive()
        return run.failures or (time.monotonic() > until and all(run.answered[model] for model in clients.STEADY))

    servers.wait_for(enough, seconds + 120, "all models have been asked")


@pytest.mark.skipif(servers.REFERENCE, reason="the genuine Triton answers only the first of several requests")
def test_each_request_has_one_right_answer(tmp_path):
    seed = os.environ.get("CONCH_STRESS_SEED") or str(random.SystemRandom().randrange(10**9))
    print(f"CONCH_STRESS_SEED={seed}")
    with servers.Server(clients.write_models(tmp_path / "models"), flags=["--http-thread-count=3"]) as server:
        run = clients.Run(server, seed)
        threads = start_clients(run)
        let_it_run(run, SECONDS)
        run.over = True
        for thread in threads:
            thread.join()
        assert not run.failures, "\n".join(run.failures)
        clients.assert_all_is_counted(run)
        print(f"answered: {dict(run.answered)}, left: {dict(run.left)}")

        run = clients.Run(server, f"{seed} end")
        threads = start_clients(run)
        servers.wait_for(lambda: sum(run.answered.values()) > 20 * CLIENTS or run.failures, 60, "all clients are at work")
        run.stopping = True
        server.signal(servers.signal.SIGTERM)
        assert server.wait() == 0, server.story("ended otherwise than with 0")
        run.over = True
        for thread in threads:
            thread.join()
        assert not run.failures, "\n".join(run.failures)
