#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ask a running server to read handwritten digits, and show what it answers.

Shows a few images as text with the digit the model saw and its score, then sends all the images
that the network has never seen and prints how many of them were right. The client library is
tritonclient as it comes from PyPI; nothing in it knows about Conch.
"""

import argparse
import json
import pathlib
import re
import sys
from http.client import HTTPException

EXAMPLES = pathlib.Path(__file__).resolve().parent
HELD_OUT_FILE = EXAMPLES / "digits" / "held_out.npz"
MODEL_FILE = EXAMPLES / "models" / "digits" / "1" / "model.onnx"
MODEL = "digits"
BATCH = 50  # the model takes up to 64 images in a request

try:
    import numpy
    import tritonclient.http as triton
except ImportError as error:
    sys.exit(f"classify.py: {error}: pip install 'tritonclient[http]'")


def picture(image):
    """An image of 8x8 pixels as 4 lines of text: a character holds two pixels, one above the other."""
    ink = image.reshape(8, 8) >= 6
    for upper, lower in zip(ink[0::2], ink[1::2]):
        yield "".join(" ▀▄█"[a + 2 * b] for a, b in zip(upper, lower))


def ask(client, images):
    """The scores [n,10] that the server gives n images; binary tensors both ways."""
    image = triton.InferInput("image", list(images.shape), "FP32")
    image.set_data_from_numpy(images.astype(numpy.float32))
    answer = client.infer(MODEL, [image], outputs=[triton.InferRequestedOutput("scores")])
    return answer.as_numpy("scores")


def show(images, labels, scores):
    """The images beside each other, and under each what was written and what the model saw."""

    def line(title, cells):
        print(f"{title:<9}" + "".join(f"{cell:<12}" for cell in cells).rstrip())

    for row in zip(*(picture(image) for image in images)):
        line("", row)
    best = scores.argmax(axis=1)
    line("written", labels)
    line("seen", best)
    line("score", [f"{scores[i, digit]:.1%}" for i, digit in enumerate(best)])
    print()


def accuracy(scores, labels):
    right = int((scores.argmax(axis=1) == labels).sum())
    return f"{right} of {len(labels)} right, {right / len(labels):.2%}"


def compare(images, labels, scores):
    """The same images through ONNX Runtime in this process; true when it answers the same."""
    try:
        import onnxruntime
    except ImportError:
        sys.exit("classify.py: --compare needs ONNX Runtime: pip install onnxruntime")
    session = onnxruntime.InferenceSession(MODEL_FILE, providers=["CPUExecutionProvider"])
    alone = session.run(["scores"], {"image": images.astype(numpy.float32)})[0]
    gap = float(abs(alone - scores).max())
    print(f"ONNX Runtime alone: {accuracy(alone, labels)}; largest difference of a score {gap:.1e}")
    return accuracy(alone, labels) == accuracy(scores, labels) and gap < 1e-5


def curl(url, image):
    """The shell command that asks about one image, with the pixels as JSON."""
    body = {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 64], "data": image.tolist()}]}
    return f"curl -s {url}/v2/models/{MODEL}/infer -d '{json.dumps(body, separators=(',', ':'))}'"


def run(args):
    held_out = numpy.load(HELD_OUT_FILE)
    images, labels = held_out["images"], held_out["labels"]
    if args.curl:
        print(curl(args.url, images[0]))
        return
    client = triton.InferenceServerClient(args.url, connection_timeout=5.0, network_timeout=60.0)
    server = client.get_server_metadata()
    print(f"{server['name']} {server['version']} at {args.url}, model '{MODEL}'\n")

    scores = numpy.concatenate([ask(client, images[i : i + BATCH]) for i in range(0, len(images), BATCH)])
    for i in range(0, args.show, 5):
        some = slice(i, min(i + 5, args.show))
        show(images[some], labels[some], scores[some])
    print(f"Held-out images: {accuracy(scores, labels)}")
    if args.compare and not compare(images, labels, scores):
        sys.exit("classify.py: the server does not answer as ONNX Runtime alone does")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="localhost:8000", help="host:port of the server (%(default)s)")
    parser.add_argument("--show", type=int, default=5, metavar="N", help="images to show (%(default)s)")
    parser.add_argument("--curl", action="store_true", help="only print the curl that asks about the first image")
    parser.add_argument("--compare", action="store_true", help="ask ONNX Runtime, without a server, too")
    args = parser.parse_args()
    url = re.fullmatch(r"(?:\[[0-9a-fA-F:.]+\]|[^\s/:]+):(\d{1,5})", args.url)
    if not url or int(url[1]) > 65535:
        parser.error(f"--url takes host:port, not '{args.url}'")
    try:
        run(args)
    except triton.InferenceServerException as error:
        sys.exit(f"classify.py: {args.url} answered: {error.message().splitlines()[0]}")
    except (OSError, EOFError, HTTPException) as error:
        sys.exit(f"classify.py: no inference server answers at {args.url}: {error}")


if __name__ == "__main__":
    main()
