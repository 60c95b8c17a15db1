#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train the network of examples/models/digits and write it as ONNX.

The data are the 1797 handwritten digits of 8x8 pixels that come with scikit-learn, so nothing is
downloaded. 450 of them are held out: the network never sees them, and classify.py asks about them.

    train.py            train and write the files
    train.py --check    train again in memory and hold the files in the repository against that
"""

import argparse
import pathlib
import sys
import warnings

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

HERE = pathlib.Path(__file__).resolve().parent
MODEL_DIR = HERE.parent / "models" / "digits"
MODEL_FILE = MODEL_DIR / "1" / "model.onnx"
LABELS_FILE = MODEL_DIR / "labels.txt"
HELD_OUT_FILE = HERE / "held_out.npz"

SEED = 1
N_HELD_OUT = 450
N_HIDDEN = 128
EPOCHS = 80
PIXEL_MAX = 16.0  # scikit-learn's digits count ink from 0 to 16
# Two BLAS libraries add in different orders, so retraining elsewhere ends close by, not at the same bits.
SCORE_TOLERANCE = 0.05


def load_data():
    """Images as uint8 [n,64], labels as uint8 [n], split the same way every time."""
    digits = load_digits()
    return train_test_split(
        digits.data.astype(numpy.uint8),
        digits.target.astype(numpy.uint8),
        test_size=N_HELD_OUT,
        random_state=SEED,
        stratify=digits.target,
    )


def shifted(images, rows):
    """The images moved down by some rows (up when negative); what enters at the edge is empty."""
    moved = numpy.roll(images.reshape(-1, 8, 8), rows, axis=1)
    if rows > 0:
        moved[:, :rows] = 0
    elif rows < 0:
        moved[:, rows:] = 0
    return moved.reshape(-1, 64)


def train(images, labels):
    """A network 64 -> 128 (ReLU) -> 10, taught with each image in place, a row lower and a row higher."""
    moves = [0, 1, -1]
    x = numpy.concatenate([shifted(images, rows) for rows in moves]) / PIXEL_MAX
    y = numpy.tile(labels, len(moves))
    network = MLPClassifier((N_HIDDEN,), batch_size=64, max_iter=EPOCHS, random_state=SEED)
    with warnings.catch_warnings():
        # The number of epochs is chosen; that the optimiser could go on is no news.
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(x, y)
    return network


def to_onnx(network):
    """image FP32 [batch,64] with pixels 0..16 -> scores FP32 [batch,10], which add up to one."""

    def weights(name, array):
        return numpy_helper.from_array(numpy.asarray(array, numpy.float32), name)

    graph = helper.make_graph(
        [
            helper.make_node("Div", ["image", "pixel_max"], ["ink"]),
            helper.make_node("Gemm", ["ink", "w1", "b1"], ["sum1"]),
            helper.make_node("Relu", ["sum1"], ["hidden"]),
            helper.make_node("Gemm", ["hidden", "w2", "b2"], ["sum2"]),
            helper.make_node("Softmax", ["sum2"], ["scores"], axis=-1),
        ],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])],
        [
            weights("pixel_max", PIXEL_MAX),
            weights("w1", network.coefs_[0]),
            weights("b1", network.intercepts_[0]),
            weights("w2", network.coefs_[1]),
            weights("b2", network.intercepts_[1]),
        ],
    )
    model = helper.make_model(
        graph, producer_name="conch-examples", opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8  # old enough for every ONNX Runtime that a user is likely to have
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model, images):
    """The scores of a model, by ONNX Runtime or, where that is not installed, by onnx itself."""
    feed = {"image": images.astype(numpy.float32)}
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(model).run(None, feed)[0]
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feed)[0]


def accuracy(scores, labels):
    return float((scores.argmax(axis=1) == labels).mean())


def check(model, images, labels):
    """Complaints about the files in the repository, as lines of text."""
    held_out = numpy.load(HELD_OUT_FILE)
    if not (
        numpy.array_equal(held_out["images"], images)
        and numpy.array_equal(held_out["labels"], labels)
    ):
        yield f"{HELD_OUT_FILE}: not the {N_HELD_OUT} images that this script holds out"
    if LABELS_FILE.read_text().split() != [str(i) for i in range(10)]:
        yield f"{LABELS_FILE}: not the ten digits"

    kept = run(onnx.load(MODEL_FILE), images)
    again = run(model, images)
    gap = float(abs(kept - again).max())
    print(f"kept model {accuracy(kept, labels):.2%}, trained again {accuracy(again, labels):.2%}, largest gap of a score {gap:.6f}")
    if gap > SCORE_TOLERANCE:
        yield f"{MODEL_FILE}: scores differ by up to {gap:.6f} from those of a network trained now"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, compare with what is there")
    args = parser.parse_args()

    train_images, test_images, train_labels, test_labels = load_data()
    model = to_onnx(train(train_images, train_labels))
    if args.check:
        complaints = list(check(model, test_images, test_labels))
        for line in complaints:
            print(line, file=sys.stderr)
        return 1 if complaints else 0

    MODEL_FILE.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, MODEL_FILE)
    LABELS_FILE.write_text("".join(f"{i}\n" for i in range(10)))
    numpy.savez_compressed(HELD_OUT_FILE, images=test_images, labels=test_labels)
    print(f"{MODEL_FILE}: {accuracy(run(model, test_images), test_labels):.2%} of {N_HELD_OUT} held-out images right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
