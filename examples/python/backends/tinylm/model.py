# SPDX-License-Identifier: Apache-2.0
"""A backend that is written in Python, made like those of large language models, for a very small one.

It is decoupled and asynchronous, and has one engine on a thread of its own. The engine advances all texts under way by a
character at a time (continuous batching), so that a short answer does not wait for a long one. Clients see characters as they
come, or the whole text. Metrics tell what goes on.

The "model" counts which character follows which four others in the text below.
"""

import asyncio
import collections
import json
import random
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
TEXT = """
The server has many models, and each model has many requests. A request is a small thing: it comes, it waits in a queue, it is
executed, and it is answered. The queue is short when the models are fast. A model that is slow makes the queue long, and a
queue that is long makes the clients wait. So the server counts what it does. It counts the requests that come, and the requests
that wait, and the requests that are answered. A request that is answered once is never answered twice. The server is a shell in
the sea, and the waves are the requests: each wave comes, each wave goes, and the shell sounds when the wind is right.
"""


class Sequence:
    """A text under way."""

    def __init__(self, sender, prompt, streams, max_tokens, seed):
        self.sender, self.text, self.streams = sender, prompt, streams
        self.new = ""
        self.left = max_tokens
        self.chance = random.Random(seed)
        self.began = time.monotonic()


class Engine:
    """Advances all sequences, on a thread of its own. Others reach it by submit() alone."""

    def __init__(self, order, metrics):
        self.order, self.metrics = order, metrics
        self.follows = collections.defaultdict(collections.Counter)
        text = " ".join(TEXT.split()) + " "
        for n in range(1, order + 1):
            for i in range(len(text) - n):
                self.follows[text[i:i + n]][text[i + n]] += 1
        self.loop = asyncio.new_event_loop()
        self.running = []
        self.work = asyncio.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self.run(),))
        self.stops = False
        self.thread.start()

    def submit(self, sequence):
        self.loop.call_soon_threadsafe(self.add, sequence)

    def add(self, sequence):
        self.running.append(sequence)
        self.work.set()

    def stop(self):
        def leave():
            self.stops = True
            self.work.set()

        self.loop.call_soon_threadsafe(leave)
        self.thread.join()

    def next(self, sequence):
        for n in range(self.order, 0, -1):
            counts = self.follows.get(sequence.text[-n:])
            if counts:
                return sequence.chance.choices(list(counts), list(counts.values()))[0]
        return " "

    async def run(self):
        while not self.stops:
            self.metrics["running"].set(len(self.running))
            if not self.running:
                self.work.clear()
                await self.work.wait()
                continue
            for sequence in self.running:
                self.step(sequence)
            self.running = [sequence for sequence in self.running if sequence.left > 0]
            await asyncio.sleep(0)    # whoever has come meanwhile takes part

    def step(self, sequence):
        if sequence.sender.is_cancelled():
            sequence.left = 0
            sequence.sender.send(flags=FINAL)
            return
        if not sequence.new:
            self.metrics["first"].observe(time.monotonic() - sequence.began)
        character = self.next(sequence)
        sequence.text += character
        sequence.new += character
        sequence.left -= 1
        self.metrics["tokens"].increment(1)
        last = sequence.left == 0
        if sequence.streams or last:
            sequence.sender.send(answer(character if sequence.streams else sequence.new), flags=FINAL if last else 0)


def answer(text):
    return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([text.encode()], dtype=np.object_))])


def value_of(request, name, otherwise):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return otherwise if tensor is None else tensor.as_numpy().reshape(-1)[0]


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "text_input", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_input({"name": "stream", "data_type": "TYPE_BOOL", "dims": [1], "optional": True})
        config.add_input({"name": "sampling_parameters", "data_type": "TYPE_STRING", "dims": [1], "optional": True})
        config.add_output({"name": "text_output", "data_type": "TYPE_STRING", "dims": [-1]})
        config.set_max_batch_size(0)
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def initialize(self, args):
        config = json.loads(args["model_config"])
        order = int(config["parameters"].get("order", {}).get("string_value", "3"))
        labels = {"model": args["model_name"], "version": args["model_version"]}
        family = pb_utils.MetricFamily
        self.families = {
            "tokens": family(name="tinylm_tokens_total", description="Characters made", kind=family.COUNTER),
            "running": family(name="tinylm_running", description="Texts under way", kind=family.GAUGE),
            "first": family(name="tinylm_first_token_seconds", description="Until the first character", kind=family.HISTOGRAM),
        }
        metrics = {name: self.families[name].Metric(labels=labels) for name in ("tokens", "running")}
        metrics["first"] = self.families["first"].Metric(labels=labels, buckets=[0.001, 0.01, 0.1, 1.0])
        self.engine = Engine(order, metrics)

    async def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                self.engine.submit(self.sequence_of(request, sender))
            except (ValueError, TypeError) as e:
                error = pb_utils.TritonError(f"sampling_parameters: {e}", pb_utils.TritonError.INVALID_ARG)
                sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)

    def sequence_of(self, request, sender):
        parameters = json.loads(value_of(request, "sampling_parameters", b"{}"))
        max_tokens = int(parameters.get("max_tokens", 16))
        if not 1 <= max_tokens <= 4096:
            raise ValueError(f"max_tokens {max_tokens} is not from 1 to 4096")
        return Sequence(sender, value_of(request, "text_input", b"").decode(), bool(value_of(request, "stream", False)),
                        max_tokens, parameters.get("seed"))

    def finalize(self):
        self.engine.stop()
