# SPDX-License-Identifier: Apache-2.0
"""build_engine.py ONNX PLAN: an engine of TensorRT for this machine's GPU, for batches of 1 to 8. For a Python that has NVIDIA's
package `tensorrt`, 10 or 11."""

import sys

import tensorrt

source, target = sys.argv[1:]
logger = tensorrt.Logger(tensorrt.Logger.WARNING)
builder = tensorrt.Builder(logger)
network = builder.create_network(0)
parser = tensorrt.OnnxParser(network, logger)
if not parser.parse_from_file(source):
    sys.exit("\n".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
config = builder.create_builder_config()
config.set_flag(tensorrt.BuilderFlag.DISABLE_TIMING_CACHE)
profile = builder.create_optimization_profile()
for i in range(network.num_inputs):
    tensor = network.get_input(i)
    dims = tuple(tensor.shape)
    shapes = [tuple(rows if d == -1 else d for d in dims) for rows in (1, 4, 8)]
    profile.set_shape(tensor.name, *shapes)
config.add_optimization_profile(profile)
plan = builder.build_serialized_network(network, config)
if plan is None:
    sys.exit("TensorRT has built no engine")
with open(target, "wb") as file:
    file.write(plan)
