#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The smallest client: two vectors go to the model add_sub, their sum and difference come back."""

import argparse

import numpy
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--url", default="localhost:8000", help="host:port of the server (%(default)s)")
args = parser.parse_args()

left = numpy.arange(16, dtype=numpy.int32).reshape(1, 16)
right = numpy.full((1, 16), 3, dtype=numpy.int32)

inputs = [triton.InferInput("INPUT0", left.shape, "INT32"), triton.InferInput("INPUT1", right.shape, "INT32")]
inputs[0].set_data_from_numpy(left)
inputs[1].set_data_from_numpy(right)

with triton.InferenceServerClient(args.url) as client:
    answer = client.infer("add_sub", inputs)

print("INPUT0 ", *left[0])
print("INPUT1 ", *right[0])
print("OUTPUT0", *answer.as_numpy("OUTPUT0")[0])
print("OUTPUT1", *answer.as_numpy("OUTPUT1")[0])
