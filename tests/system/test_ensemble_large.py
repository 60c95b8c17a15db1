# SPDX-License-Identifier: Apache-2.0
"""Tensors of megabytes on their way through an ensemble. In Conch the next step of a thread gets the memory that a step has just
freed: no step and no client may see another one's values there."""

import concurrent.futures

import numpy
import pytest
import tritonclient.http

import pipelines
import repository
from pipelines import step

CLIENTS, REQUESTS = 4, 10
X, Z = "X", "Z"
OUTPUTS = {"A": X, "B": Z, "C": X, "D": Z}    # what each output is equal to


def write_models(root):
    """`inline` has each step follow the one before on its thread, `auto` mostly not."""
    for how in ("inline", "auto"):
        for name, n in (("one", 1), ("two", 2)):
            repository.write_identity(root, f"{name}_{how}", [("FP32", [-1])] * n, CONCH_EXECUTION=how)
        one, two = f"one_{how}", f"two_{how}"
        steps = [step(two, "INPUT0=X INPUT1=Z", "OUTPUT0=x1 OUTPUT1=z1"), step(two, "INPUT0=z1 INPUT1=x1", "OUTPUT0=z2 OUTPUT1=x2"),
                 step(one, "INPUT0=z2", "OUTPUT0=z3"), step(two, "INPUT0=x2 INPUT1=z3", "OUTPUT0=A OUTPUT1=B"),
                 step(two, "INPUT0=x1 INPUT1=z3", "OUTPUT0=C OUTPUT1=D")]    # the last one reads what the first one has made
        text = "".join(repository.tensor("input", name, "FP32", [-1]) for name in (X, Z))
        text += "".join(repository.tensor("output", name, "FP32", [-1]) for name in OUTPUTS)
        repository.write_model(root, how, f'platform: "ensemble"\n{text}ensemble_scheduling {{ step [ {", ".join(steps)} ] }}\n')


def ask(client, model, chance):
    """One request, with values and sizes of its own."""
    sent = {name: chance.random(int(chance.integers(1, 1 << 20)), dtype=numpy.float32) for name in (X, Z)}
    inputs = []
    for name, values in sent.items():
        inputs.append(tritonclient.http.InferInput(name, values.shape, "FP32"))
        inputs[-1].set_data_from_numpy(values)
    wanted = [name for name in OUTPUTS if chance.random() < 0.8] or ["C"]
    got = client.infer(model, inputs, outputs=[tritonclient.http.InferRequestedOutput(name) for name in wanted])
    for name in wanted:
        assert numpy.array_equal(got.as_numpy(name), sent[OUTPUTS[name]]), (model, name)


@pytest.mark.sanitize
@pytest.mark.parametrize("which", pipelines.EITHER)
def test_large_tensors_do_not_mix(which, tmp_path):
    write_models(tmp_path)

    def be_a_client(number):
        chance = numpy.random.default_rng(number)
        with tritonclient.http.InferenceServerClient(server.url, network_timeout=300) as client:
            for i in range(REQUESTS):
                ask(client, ("inline", "auto")[i % 2], chance)

    with pipelines.start(which, tmp_path) as server, concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for one in [pool.submit(be_a_client, i) for i in range(CLIENTS)]:
            one.result()
