#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ask the ensembles of examples/models: `read_digit` for the names of digits, `add_digits` for the total of a sequence.

The client library is tritonclient as it comes from PyPI: an ensemble is a model like any other.
"""

import argparse
import pathlib
import sys

HELD_OUT_FILE = pathlib.Path(__file__).resolve().parent / "digits" / "held_out.npz"
SEQUENCE = 1    # any number that no other sequence has at the same time

try:
    import numpy
    import tritonclient.http as triton
    from tritonclient.utils import InferenceServerException
except ImportError as error:
    sys.exit(f"read_digits.py: {error}: pip install 'tritonclient[http]'")


def photos_of(images):
    """Photos as a camera would take them: 255 is white paper, 0 is black ink."""
    ink = images.reshape(-1, 8, 8).astype(numpy.float32) / 16
    return numpy.round(255 * (1 - ink)).astype(numpy.uint8)


def ask(client, model, photos, **sequence):
    photo = triton.InferInput("photo", list(photos.shape), "UINT8")
    photo.set_data_from_numpy(photos)
    return client.infer(model, [photo], **sequence)


def read(client, photos, digits):
    answer = ask(client, "read_digit", photos)
    print("written", *digits)
    print("read   ", *(name.decode() for name in answer.as_numpy("name")[:, 0]))
    print("score  ", *(f"{score:.1%}" for score in answer.as_numpy("score")[:, 0]))


def add(client, photos):
    """One request a photo: the last step of the ensemble keeps the total of the sequence."""
    for i, photo in enumerate(photos):
        answer = ask(client, "add_digits", photo[None], sequence_id=SEQUENCE, sequence_start=i == 0,
                     sequence_end=i == len(photos) - 1)
        print(f"+ {answer.as_numpy('digit')[0, 0]} = {answer.as_numpy('total')[0, 0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="localhost:8000")
    args = parser.parse_args()
    held_out = numpy.load(HELD_OUT_FILE)
    photos, digits = photos_of(held_out["images"][:5]), held_out["labels"][:5]
    try:
        with triton.InferenceServerClient(args.url) as client:
            read(client, photos, digits)
            print()
            add(client, photos)
    except (InferenceServerException, OSError) as error:
        sys.exit(f"read_digits.py: {args.url} answered: {error}")


if __name__ == "__main__":
    main()
