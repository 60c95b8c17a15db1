# SPDX-License-Identifier: Apache-2.0
"""Models that others have trained and published in packages, served as their packages use them, by ONNX Runtime and by OpenVINO: what
text a picture has (a detector, a classifier of its orientation, a reader), what kind of file some bytes are, and whether sound is speech.

`make test-frameworks` installs them. What goes in and what comes out is as the documentation and the configuration of each package say.
"""

import json

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import np_to_triton_dtype

import repository
import server as servers

WHY = "`make test-frameworks` installs models of packages"
Image = pytest.importorskip("PIL.Image", reason=WHY)
for _module in ("onnx", "onnxruntime", "openvino"):
    pytest.importorskip(_module, reason=WHY)

import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from PIL import ImageDraw, ImageFont  # noqa: E402

import framework_models  # noqa: E402

DEPS = servers.ROOT / ".deps"
OCR, MAGIKA, SILERO = DEPS / "rapidocr-onnxruntime", DEPS / "magika", DEPS / "silero-vad"
FILES = {
    "detector": OCR / "ch_PP-OCRv4_det_infer.onnx",
    "classifier": OCR / "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "reader": OCR / "ch_PP-OCRv4_rec_infer.onnx",
    "kinds": MAGIKA / "model.onnx",
    "speech": SILERO / "silero_vad_openvino_16k.onnx",
}
pytestmark = pytest.mark.skipif(not all(file.exists() for file in FILES.values()), reason=WHY)

BATCHES = "max_batch_size: 8\ndynamic_batching { }\n"
IMAGE = ("input", "x", "FP32")
# 576 samples at 16 kHz, and what the network remembers of those before: a tensor whose second dimension is the batch.
SPEECH = """sequence_batching { max_sequence_idle_microseconds: 60000000
  state [ { input_name: "state" output_name: "stateN" data_type: TYPE_FP32 dims: [ 2, 1, 128 ]
            initial_state: { name: "silence" data_type: TYPE_FP32 dims: [ 2, 1, 128 ] zero_data: true } } ] }
"""
CONFIGS = {
    "detector": (BATCHES, [(*IMAGE, [3, -1, -1]), ("output", "sigmoid_0.tmp_0", "FP32", [1, -1, -1])]),
    "classifier": (BATCHES, [(*IMAGE, [3, 48, 192]), ("output", "save_infer_model/scale_0.tmp_1", "FP32", [2])]),
    "reader": (BATCHES, [(*IMAGE, [3, 48, -1]), ("output", "softmax_11.tmp_0", "FP32", [-1, 6625])]),
    "kinds": (BATCHES, [("input", "bytes", "INT32", [2048]), ("output", "target_label", "FP32", [214])]),
    "speech": (SPEECH, [("input", "input", "FP32", [1, 576]), ("output", "output", "FP32", [1, 1])]),
}


@pytest.fixture(scope="module", params=["onnxruntime", "openvino"])
def client(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("real")
    for name, (head, tensors) in CONFIGS.items():
        config = f'backend: "{request.param}"\ndefault_model_filename: "{FILES[name].name}"\n{head}'
        config += "".join(repository.tensor(*tensor) for tensor in tensors)
        if request.param == "openvino":
            config += framework_models.EXACT
        (repository.write_model(root, name, config) / "1" / FILES[name].name).write_bytes(FILES[name].read_bytes())
    with servers.Server(root) as running, tritonclient.http.InferenceServerClient(running.url, network_timeout=120) as client:
        yield client


def ask(client, model, array, **more):
    """The model's only output."""
    side, name, *_ = CONFIGS[model][1][0]
    given = tritonclient.http.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    given.set_data_from_numpy(np.ascontiguousarray(array))
    return client.infer(model, [given], **more).as_numpy(CONFIGS[model][1][1][1])


# ---- Text in pictures


def picture(text, width=None, height=48, at=(6, 4)):
    font = ImageFont.load_default(32)
    image = Image.new("RGB", (width or int(font.getlength(text)) + 12, height), "white")
    ImageDraw.Draw(image).text(at, text, fill="black", font=font)
    return image


def pixels(image):
    """FP32 [1,3,height,width] from -1 to 1, as all three models have it."""
    return ((np.asarray(image, np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None]


TEXTS = ["inference server", "Conch 2026", "Hello, world!", "42 models"]


@pytest.mark.parametrize("text", TEXTS)
def test_the_reader_reads(client, text):
    """The file has the characters; the first class is none, the last one a blank. A character that is seen twice in a row counts once."""
    characters = {p.key: p.value for p in onnx.load(FILES["reader"]).metadata_props}["character"].splitlines()
    characters = ["", *characters, " "]
    best = ask(client, "reader", pixels(picture(text)))[0].argmax(1)
    assert "".join(characters[c] for i, c in enumerate(best) if i == 0 or c != best[i - 1]) == text


def test_the_classifier_knows_which_way_is_up(client):
    """Its labels are 0 and 180 degrees."""
    upright = [picture(text).resize((192, 48)) for text in TEXTS]
    images = np.concatenate([pixels(image) for image in (*upright, *(image.rotate(180) for image in upright))])
    scores = ask(client, "classifier", images)
    assert scores.argmax(1).tolist() == [0] * 4 + [1] * 4 and scores.max(1).min() > 0.9


@pytest.mark.parametrize("place", [(20, 30), (150, 100), (300, 250)])
def test_the_detector_finds_text(client, place):
    """Where the map is above 0.3, as the package has it, there is text: all of it lies where it was drawn, and so does its middle."""
    page = picture("inference server", 640, 320, place)
    found = ask(client, "detector", pixels(page))[0, 0] > 0.3
    ink = np.asarray(page.convert("L")) < 128
    (top, bottom), (left, right) = ((where.min(), where.max()) for where in np.nonzero(found))
    (ink_top, ink_bottom), (ink_left, ink_right) = ((where.min(), where.max()) for where in np.nonzero(ink))
    assert abs(top + bottom - ink_top - ink_bottom) < 16 and abs(left + right - ink_left - ink_right) < 16
    assert ink_left - 16 < left and right < ink_right + 16 and right - left > 0.8 * (ink_right - ink_left)


# ---- Kinds of files


KINDS = {"README.md": "markdown", "src/base/buf.c": "c", "tests/conftest.py": "python", "Makefile": "makefile", "tools/run-demo": "shell",
         "bench/CMakeLists.txt": "cmake", "src/proto/inference.proto": "proto", "examples/models/digits/1/model.onnx": "onnx", "mkdocs.yml": "yaml",
         "CMakePresets.json": "json"}


def ends_of(file):
    """The first 1024 bytes and the last, without blanks at the ends; 256 is none."""
    data = file.read_bytes()
    first, last = data[:4096].lstrip()[:1024], data[-4096:].rstrip()[-1024:]
    return [*first, *[256] * (2048 - len(first) - len(last)), *last]


def test_kinds_of_our_own_files(client):
    labels = json.loads((MAGIKA / "config.min.json").read_text())["target_labels_space"]
    files = np.array([ends_of(servers.ROOT / file) for file in KINDS], np.int32)
    scores = np.concatenate([ask(client, "kinds", files[i:i + 5]) for i in range(0, len(files), 5)])
    assert dict(zip(KINDS, (labels[i] for i in scores.argmax(1)))) == KINDS


# ---- Speech


def sounds():
    """Half a second each of silence, noise, and a tone."""
    rng = np.random.default_rng(1)
    time = np.arange(16 * 576) / 16000
    return {"silence": 0 * time, "noise": 0.1 * rng.standard_normal(len(time)), "tone": 0.5 * np.sin(2 * np.pi * 220 * time)}


@pytest.mark.parametrize("sound", sounds())
def test_what_is_no_speech(client, sound):
    """The server keeps the state of each sequence; ONNX Runtime alone, whose state the test keeps, gives the same scores."""
    session = onnxruntime.InferenceSession(FILES["speech"])
    state, scores = np.zeros((2, 1, 128), np.float32), []
    parts = sounds()[sound].astype(np.float32).reshape(16, 1, 576)
    for i, part in enumerate(parts):
        expected, state = session.run(None, {"input": part, "state": state})
        scores.append(ask(client, "speech", part, sequence_id=7, sequence_start=i == 0, sequence_end=i == 15))
        np.testing.assert_allclose(scores[-1], expected, rtol=1e-3, atol=1e-5)
    assert np.max(scores) < 0.5, "speech is above 0.5, the package says"
