#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Send handwritten digits over one stream of gRPC, and count the right answers as they come.

A stream has many requests under way at a time, and needs no connection or call for each. The client
library is tritonclient as it comes from PyPI; nothing in it knows about Conch.
"""

import argparse
import pathlib
import queue
import sys

HELD_OUT_FILE = pathlib.Path(__file__).resolve().parent / "digits" / "held_out.npz"
MODEL = "digits"

try:
    import numpy
    import tritonclient.grpc as triton
except ImportError as error:
    sys.exit(f"stream.py: {error}: pip install 'tritonclient[grpc]'")


def tensor_of(image):
    """One image as a batch of one."""
    tensor = triton.InferInput("image", [1, image.size], "FP32")
    tensor.set_data_from_numpy(image.astype(numpy.float32).reshape(1, -1))
    return tensor


def classify(client, images, within_s):
    """The digit that the model sees in each image. Answers have the ids of their requests."""
    answers = queue.Queue()
    seen = numpy.full(len(images), -1)
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for i, image in enumerate(images):
        client.async_stream_infer(MODEL, [tensor_of(image)], request_id=str(i))
    for _ in images:
        result, error = answers.get(timeout=within_s)
        if error:
            raise error
        seen[int(result.get_response().id)] = result.as_numpy("scores").argmax()
    client.stop_stream()
    return seen


def run(args):
    held_out = numpy.load(HELD_OUT_FILE)
    images, labels = held_out["images"], held_out["labels"]
    with triton.InferenceServerClient(args.url) as client:
        seen = classify(client, images, args.timeout)
    right = int((seen == labels).sum())
    print(f"{len(images)} images over one stream: {right} right, {right / len(images):.2%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="localhost:8001", help="host:port of the server's gRPC, or unix:PATH (%(default)s)")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="wait so long for an answer (%(default)s)")
    args = parser.parse_args()
    try:
        run(args)
    except triton.InferenceServerException as error:
        sys.exit(f"stream.py: {args.url} answered: {error.message()}")
    except queue.Empty:
        sys.exit(f"stream.py: no answer from {args.url} within {args.timeout:g} s")


if __name__ == "__main__":
    main()
