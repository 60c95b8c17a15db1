#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ask every model of a server that reads digits, whatever its format, about the same images, and show what each answers.

A model reads digits if its name begins with `digits` and if it has one input of 64 numbers. The client library is tritonclient as
it comes from PyPI.
"""

import argparse
import json
import pathlib
import sys

HELD_OUT_FILE = pathlib.Path(__file__).resolve().parent / "digits" / "held_out.npz"
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
BATCH = 50  # the models take up to 64 images in a request

try:
    import numpy
    import tritonclient.http as triton
except ImportError as error:
    sys.exit(f"formats.py: {error}: pip install 'tritonclient[http]'")


def readers(client):
    """(name, input) of the models that read digits, sorted by name."""
    for model in sorted({m["name"] for m in client.get_model_repository_index() if m.get("state") == "READY"}):
        if model.startswith("digits"):
            inputs = client.get_model_metadata(model)["inputs"]
            if [(i["datatype"], i["shape"][-1]) for i in inputs] == [("FP32", 64)]:
                yield model, inputs[0]["name"]


def read(client, model, name, images):
    """The digits [n] that the model sees: the highest score, or the name of a digit."""
    image = triton.InferInput(name, list(images.shape), "FP32")
    image.set_data_from_numpy(images)
    answer = client.infer(model, [image])
    outputs = {o["name"]: answer.as_numpy(o["name"]) for o in answer.get_response()["outputs"]}
    if "name" in outputs:
        return numpy.array([NAMES.index(n.decode()) for n in outputs["name"][:, 0]])
    return next(iter(outputs.values())).argmax(axis=1)


def curl(url, model, name, image):
    body = {"inputs": [{"name": name, "datatype": "FP32", "shape": [1, 64], "data": image.tolist()}]}
    return f"curl -s {url}/v2/models/{model}/infer -d '{json.dumps(body, separators=(',', ':'))}'"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("--curl", metavar="MODEL", help="only print the curl that asks this model about the first image")
    args = parser.parse_args()
    held_out = numpy.load(HELD_OUT_FILE)
    images, labels = held_out["images"].astype(numpy.float32), held_out["labels"]
    try:
        with triton.InferenceServerClient(args.url, connection_timeout=5.0, network_timeout=60.0) as client:
            if args.curl:
                print(curl(args.url, args.curl, dict(readers(client))[args.curl], held_out["images"][0]))
                return
            print(f"{'model':<20} {'backend':<12} the first ten, written {' '.join(map(str, labels[:10]))}")
            for model, name in readers(client):
                digits = numpy.concatenate([read(client, model, name, images[i : i + BATCH]) for i in range(0, len(images), BATCH)])
                config = client.get_model_config(model)
                right = int((digits == labels).sum())
                print(f"{model:<20} {config.get('backend') or config['platform']:<12} {' '.join(map(str, digits[:10]))}   {right} of {len(labels)} right")
    except KeyError:
        sys.exit(f"formats.py: no model '{args.curl}' reads digits at {args.url}")
    except (OSError, triton.InferenceServerException) as error:
        sys.exit(f"formats.py: {args.url} answered: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
