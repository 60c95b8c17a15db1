# SPDX-License-Identifier: Apache-2.0
"""The findings of `conch check` by repository: for each code a repository that provokes it, with all that is printed, and
one that is nearly the same and does not.

A repository is {path: content}; content None makes a folder, a Link a symbolic link. Where a test needs only the
configuration of a model "m", Case.of() writes the rest.
"""

import dataclasses
import pathlib

IDENTITY = 'backend: "identity"\n'
TENSORS = """input [ { name: "I" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "O" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
BATCHED = IDENTITY + "max_batch_size: 8\n" + TENSORS
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345678\n"


@dataclasses.dataclass
class Link:
    to: str


@dataclasses.dataclass
class Case:
    code: str
    bad: dict
    said: list
    fine: dict
    flags: list = dataclasses.field(default_factory=list)

    @staticmethod
    def of(code, bad, said, fine, **more):
        return Case(code, model(bad), [f"models/m/config.pbtxt:{line}".replace(":NOWHERE", ":") for line in said], model(fine), **more)


def model(config, name="m", **files):
    return {f"{name}/config.pbtxt": config, f"{name}/1": None, **{f"{name}/{path}": text for path, text in files.items()}}


def onnx(file, config=None):
    """A model of one of the files of FILES, whose tensors are x and y, FP32 [n,3]."""
    return {**model(config or ONNX), "m/1/model.onnx": (FILES / file).read_bytes()}


def ensemble(step, inputs='{ name: "X" data_type: TYPE_FP32 dims: [ 4 ] }'):
    return model(
        f"""platform: "ensemble"
input [ {inputs} ]
output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ 4 ] }} ]
ensemble_scheduling {{ step [
{step}
] }}
""",
        "ens",
    )


STEP = '{ model_name: "m" model_version: -1 input_map { key: "I" value: "X" } output_map { key: "O" value: "Y" } }'
FLAGGED = '{ name: "X" data_type: TYPE_FP32 dims: [ 4 ] }, { name: "C" data_type: TYPE_BOOL dims: [ 1 ] }'
CONDITIONAL = """{ model_name: "m" model_version: -1 input_map { key: "CONCH_IF" value: "C" } input_map { key: "I" value: "X" }
  output_map { key: "O" value: "B" } },
{ model_name: "m" model_version: -1 input_map { key: "I" value: "B" } output_map { key: "O" value: "Y" } }"""
DYNAMIC = BATCHED + "dynamic_batching {\n"
WARMUP = """model_warmup [ { name: "w" batch_size: 1 inputs { key: "I" value: {
data_type: TYPE_FP32 dims: [ 4 ] input_data_file: "data" } } } ]
"""
SAMPLE = 'model_warmup [ {{ name: "w" batch_size: 8 inputs {{ key: "I" value: {{\n{} }} }} }} ]\n'
STRINGS = WARMUP.replace("TYPE_FP32", "TYPE_STRING")
ONNX = 'backend: "onnxruntime"\n'
FOREST = 'backend: "fil"\nparameters {{ key: "model_type" value {{ string_value: "{}" }} }}\n'
FILES = pathlib.Path(__file__).resolve().parents[1] / "fuzz/corpus/onnx_head"
XY = """input [ { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]
"""
TORCH = ('backend: "pytorch"\nparameters {{ key: "INFERENCE_MODE" value {{ string_value: "{}" }} }}\n'
         'parameters {{ key: "INTRA_OP_THREAD_COUNT" value {{ string_value: "{}" }} }}\n')
SEQUENCE = IDENTITY + TENSORS
LIBRARY = 'parameters {{ key: "TRITON_BATCH_STRATEGY_PATH" value: {{ string_value: "{}" }} }}\n'
SAME = 'input [ { name: "I" data_type: TYPE_FP32 dims: [ 4 ] } ]\noutput [ { name: "O" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'

CASES = [
    # ---- errors
    Case(
        "E-read",
        {"m/config.pbtxt": None, "m/1": None},
        ["models/m/config.pbtxt: error: failed to read text proto from models/m/config.pbtxt: 'models/m/config.pbtxt' "
         "is a folder, not a regular file [E-read]",
         "models/m/config.pbtxt: warning: ignore version directory 'config.pbtxt' which fails to convert to integral number "
         "[W-version-name]"],
        model(IDENTITY + TENSORS),
    ),
    Case(
        "E-link",
        {**model(IDENTITY + TENSORS), "m/2": Link("/usr/share")},
        ["models/m/2: error: link 'models/m/2' leads to '/usr/share', out of the model repository; "
         "--repository-follow-symlinks=true permits that [E-link]"],
        {**model(IDENTITY + TENSORS), "m/2": Link("1")},
    ),
    Case(
        "E-duplicate",
        {**model(IDENTITY + TENSORS), "../more/m/1": None, "../more/m/config.pbtxt": IDENTITY + TENSORS},
        ["more/m: error: model appears in two or more repositories: 'models' and 'more' [E-duplicate]"],
        {**model(IDENTITY + TENSORS), "../more/n/1": None, "../more/n/config.pbtxt": IDENTITY + TENSORS},
        flags=["more"],
    ),
    Case.of(
        "E-syntax",
        'naem: "m"\n' + IDENTITY + 'inputs [ { name: "I" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
        'output [ { name: "O" data_type: FP32 dims: [ 4, "x" ] } ]\nmax_batch_size: 1 max_batch_size: 2\n',
        ['1:1: error: Message type "inference.ModelConfig" has no field named "naem"; did you mean "name"? [E-syntax]',
         '3:1: error: Message type "inference.ModelConfig" has no field named "inputs"; did you mean "input"? [E-syntax]',
         '4:33: error: Unknown enumeration value of "FP32" for field "data_type"; did you mean "TYPE_FP32"? [E-syntax]',
         '4:49: error: Expected integer, got: "x" [E-syntax]',
         '5:19: error: Non-repeated field "max_batch_size" is specified multiple times, first at 5:1 [E-syntax]'],
        'name: "m"\n' + IDENTITY + TENSORS,
    ),
    Case.of(
        "E-syntax",
        IDENTITY + "input [ { name: \"I\"\n",
        ['3:1: error: Expected "}", found end of text; the message "input" that begins at 2:9 is not closed [E-syntax]'],
        IDENTITY + TENSORS,
    ),
    Case.of(
        "E-config",
        'name: "other"\n' + IDENTITY + TENSORS.replace("[ 4 ]", "[ 0 ]")
        + "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 8, 2, -1 ] }\n",
        ["1:1: error: unexpected directory name 'm' for model 'other', directory name must equal model name [E-config]",
         "3:50: error: model input 'I' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for "
         "other [E-config]",
         "4:51: error: model output 'O' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for "
         "other [E-config]",
         "5:62: error: dynamic batching preferred size must be <= max batch size for other; max_batch_size is 4 [E-config]",
         "5:68: error: dynamic batching preferred size must be positive for other [E-config]"],
        BATCHED + "dynamic_batching { preferred_batch_size: [ 8, 2 ] }\n",
    ),
    Case.of(
        "E-config",
        'platform: "onnxruntime_onx"\n' + TENSORS,
        ["1:1: error: unexpected platform type 'onnxruntime_onx' for m; did you mean \"onnxruntime_onnx\"? [E-config]"],
        'platform: ""\n' + IDENTITY + TENSORS,
    ),
    Case(
        "E-config",
        {"m/1": None},
        ["models/m: error: Invalid model name: Could not determine backend for model 'm' with no backend in model "
         "configuration. Expected model name of the form 'model.<backend_name>'.; the version folder 'm/1' is empty: put the "
         "model's file there, or give its 'backend' [E-config]"],
        model(IDENTITY + TENSORS),
    ),
    Case(
        "E-config",
        {"m.identity/1": None},
        ["models/m.identity: error: model configuration is not provided for model 'm.identity' [E-config]"],
        {"m.identity/1": None, "m.identity/config.pbtxt": TENSORS},
    ),
    Case.of(
        "E-config",
        IDENTITY + 'runtime: "../../lib.so"\n' + TENSORS,
        ["2:1: error: backend library name '../../lib.so' escapes backend directory 'BACKENDS/identity', for model 'm', "
         "check model config runtime field [E-config]"],
        IDENTITY + 'runtime: "libtriton_identity.so"\n' + TENSORS,
    ),
    Case.of(
        "E-unsupported",
        IDENTITY + TENSORS + 'max_batch_size: 8 sequence_batching { state { input_name: "A" output_name: "B" data_type: TYPE_FP32 dims: 1 use_growable_memory: true } }\n',
        ["4:109: error: model 'm': field 'sequence_batching.state.use_growable_memory' is not supported yet by Conch [E-unsupported]"],
        IDENTITY + TENSORS + "optimization { graph { level: 1 } }\n",
    ),
    Case(
        "E-unsupported",
        {**model(ONNX + 'optimization { execution_accelerators { cpu_execution_accelerator { name: "cuda" } } }\n'), "m/1/model.onnx": (FILES / "identity").read_bytes()},
        ["models/m/config.pbtxt:2:69: error: unknown Execution Accelerator 'cuda' is requested [E-unsupported]"],
        onnx("identity", ONNX + "optimization { graph { level: 1 } }\n"),
    ),
    Case.of(
        "E-parameter",
        IDENTITY + TENSORS + 'parameters { key: "execute_delay_ms" value: { string_value: "soon" } }\n'
        'parameters { key: "CONCH_EXECUTION" value: { string_value: "outside" } }\n',
        ["4:38: error: parameter 'execute_delay_ms' must be a whole number from 0 to 3600000, got 'soon' [E-parameter]",
         "5:37: error: parameter 'CONCH_EXECUTION' is 'outside', expected 'auto', 'inline' or 'thread' [E-parameter]"],
        IDENTITY + TENSORS + 'parameters { key: "execute_delay_ms" value: { string_value: "1" } }\n'
        'parameters { key: "CONCH_EXECUTION" value: { string_value: "inline" } }\n',
    ),
    Case(
        "E-parameter",
        {**model(FOREST.format("catboost") + 'parameters { key: "predict_proba" value { string_value: "1" } }\n'), "m/1/model.txt": ""},
        ["models/m/config.pbtxt:2:32: error: parameter 'model_type' must be xgboost_ubj, xgboost_json, xgboost, lightgbm or "
         "treelite_checkpoint, got 'catboost' [E-parameter]",
         "models/m/config.pbtxt:3:35: error: parameter 'predict_proba' must be true or false, got '1' [E-parameter]"],
        {**model(FOREST.format("lightgbm") + 'parameters { key: "predict_proba" value { string_value: "true" } }\n'), "m/1/model.txt": ""},
    ),
    Case(
        "E-parameter",
        {**model(TORCH.format("maybe", 0) + XY), "m/1/model.pt": ""},
        ["models/m/config.pbtxt:2:36: error: parameter 'INFERENCE_MODE' must be true, false, 1, 0, on, off, True, False, TRUE, FALSE, On, Off, ON or OFF, "
         "got 'maybe' [E-parameter]",
         "models/m/config.pbtxt:3:43: error: parameter 'INTRA_OP_THREAD_COUNT' must be a whole number from 1 to 4096, got '0' [E-parameter]"],
        {**model(TORCH.format("True", 1) + XY), "m/1/model.pt": ""},
    ),
    Case(
        "E-version",
        {"m/config.pbtxt": IDENTITY + TENSORS},
        ["models/m/config.pbtxt: error: at least one version must be available under the version policy of model 'm'; "
         "there is no version folder: make 'm/1' and put the model's file there [E-version]"],
        model(IDENTITY + TENSORS),
    ),
    Case(
        "E-file",
        model(ONNX),
        ["models/m/config.pbtxt: error: the model file 'models/m/1/model.onnx' of backend 'onnxruntime' is missing; "
         "the version folder 'm/1' is empty: put the model's file there [E-file]"],
        onnx("identity"),
    ),
    Case(
        "E-file",
        model(FOREST.format("xgboost_json")),
        ["models/m/config.pbtxt: error: the model file 'models/m/1/xgboost.json' of backend 'fil' is missing; "
         "the version folder 'm/1' is empty: put the model's file there [E-file]"],
        {**model(FOREST.format("xgboost_json")), "m/1/xgboost.json": "{}"},
    ),
    Case.of(
        "E-file",
        IDENTITY + TENSORS.replace('name: "O"', 'name: "O" label_filename: "labels.txt"'),
        ["3:22: error: failed to open text file for read models/m/labels.txt: No such file or directory (labels of output 'O' of model 'm') "
         "[E-file]"],
        IDENTITY + TENSORS,
    ),
    Case.of(
        "E-config",
        IDENTITY + TENSORS.replace('name: "O"', 'name: "O" label_filename: "../../secret"'),
        ["3:22: error: label file path '../../secret' for output 'O' in model 'm' is outside model directory [E-config]"],
        IDENTITY + TENSORS,
    ),
    Case.of(
        "E-file",
        BATCHED + LIBRARY.format("/etc/passwd"),
        ["5:48: error: Batching library path escapes model repository. [E-file]"],
        BATCHED,
    ),
    *(Case(
        "E-link",
        {**model(BATCHED), f"m/{folder}batchstrategy.so": Link("/etc/passwd")},
        [f"models/m/{folder}batchstrategy.so: error: link 'models/m/{folder}batchstrategy.so' leads to '/etc/passwd', out of the "
         "model repository; --repository-follow-symlinks=true permits that [E-link]"],
        {**model(BATCHED), f"m/{folder}notes.so": "x"},
    ) for folder in ("", "1/")),
    Case(
        "E-ensemble",
        {**model(IDENTITY + TENSORS, "encoder"), **ensemble(STEP.replace('"m"', '"encoders"'))},
        ["models/ens/config.pbtxt:5:3: error: ensemble ens contains models that are not available or ambiguous: encoders; did "
         'you mean "encoder"? [E-ensemble]'],
        {**model(IDENTITY + TENSORS), **ensemble(STEP)},
    ),
    Case(
        "E-ensemble",
        {**model(IDENTITY + TENSORS.replace("FP32", "INT32").replace("[ 4 ]", "[ 5 ]")), **ensemble(STEP)},
        ["models/ens/config.pbtxt:5:37: error: in ensemble ens, ensemble tensor X: inconsistent data type: TYPE_FP32 is "
         "inferred from model ens while TYPE_INT32 is inferred from model m [E-ensemble]",
         "models/ens/config.pbtxt:5:71: error: in ensemble ens, ensemble tensor Y: inconsistent data type: TYPE_FP32 is "
         "inferred from model ens while TYPE_INT32 is inferred from model m [E-ensemble]"],
        {**model(IDENTITY + TENSORS.replace("[ 4 ]", "[ -1 ]")), **ensemble(STEP)},
    ),
    Case(
        "E-ensemble",
        {**model(IDENTITY + TENSORS), **ensemble(STEP.replace("output_map", 'input_map { key: "conch_if" value: "X" } output_map'))},
        ["models/ens/config.pbtxt:5:71: error: in ensemble ens, ensemble tensor X is mapping to non-existing input conch_if in "
         'model m; did you mean "CONCH_IF"? [E-ensemble]'],
        {**model(IDENTITY + TENSORS), **ensemble(STEP)},
    ),
    Case(
        "E-config",
        {**model(IDENTITY + TENSORS), **ensemble(STEP.replace("output_map", 'input_map { key: "CONCH_IF" value: "C" } output_map'))},
        ["models/ens/config.pbtxt:5:71: error: ensemble tensor 'C', the CONCH_IF of step 0 of ensemble 'ens', is neither an input "
         "of the ensemble nor an output of a step [E-config]"],
        {**model(IDENTITY + TENSORS), **ensemble(STEP)},
    ),
    # ---- ONNX files, alone and beside their configuration
    Case("E-onnx", {**model(ONNX), "m/1/model.onnx": ""}, ["models/m/1/model.onnx: error: the file is empty [E-onnx]"],
         onnx("identity")),
    Case(
        "E-onnx", onnx("cut"),
        ["models/m/1/model.onnx: error: the file is cut short: it has 55 bytes, and what it has begun goes on to byte 69 [E-onnx]"],
        onnx("group"),
    ),
    Case(
        "E-onnx", onnx("external"),
        ["models/m/1/model.onnx: error: external data of 'c' is in 'weights.bin', which cannot be opened: No such file or "
         "directory; put the file there; the exporter has written it, too [E-onnx]"],
        {**onnx("external"), "m/1/weights.bin": "x" * 12},
    ),
    Case(
        "E-onnx", onnx("external_inside"),
        ["models/m/1/model.onnx: error: external data of 'd' is in 'sub/weights.bin', which cannot be opened: No such file or "
         "directory; put the file there; the exporter has written it, too [E-onnx]"],
        {**onnx("external_inside"), "m/1/sub/weights.bin": "x" * 12},
    ),
    Case(
        "E-onnx", onnx("zipmap"),
        ["models/m/1/model.onnx: error: model 'm': 'p' is no tensor but another kind of ONNX value, which is not supported; "
         "export the model with zipmap=False (skl2onnx: options={'zipmap': False}), which makes it a tensor [E-onnx]"],
        onnx("scalar"),
    ),
    Case(
        "E-onnx", onnx("complex"),
        [f"models/m/1/model.onnx: error: model 'm', tensor '{name}': ONNX element type 14 is not supported [E-onnx]" for name in "xy"],
        onnx("default"),
    ),
    Case(
        "E-onnx-version", onnx("opset_99"),
        ["models/m/1/model.onnx: error: the ONNX file needs opset 99, ONNX Runtime 1.31 has 26; export the model with an older "
         "opset [E-onnx-version]"],
        onnx("old_default"),
    ),
    Case(
        "E-onnx-config", onnx("identity", ONNX + XY.replace('"x"', '"X"')),
        ["models/m/config.pbtxt:2:11: error: unexpected inference input 'X', allowed inputs are: x; name: \"x\" [E-onnx-config]"],
        onnx("identity", ONNX + XY),
    ),
    Case(
        "E-onnx-config", onnx("default", ONNX + XY.replace("} ]\no", '}, { name: "b" data_type: TYPE_FP32 dims: [ 3 ] } ]\no')),
        ["models/m/config.pbtxt:2:63: error: unexpected inference input 'b', allowed inputs are: c, x [E-onnx-config]"],
        onnx("default", ONNX + XY.replace("} ]\no", '}, { name: "c" data_type: TYPE_FP32 dims: [ 3 ] } ]\no')),
    ),
    Case(
        "E-onnx-config", onnx("identity", ONNX + XY.replace("} ]\no", '}, { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]\no')),
        ["models/m/config.pbtxt:2:9: error: unable to load model 'm', configuration expects 2 inputs, model provides 1 [E-onnx-config]",
         "models/m/config.pbtxt:2:63: warning: there are two inputs 'x' [W-same-tensor]"],
        onnx("identity", ONNX + XY),
    ),
    Case(
        "E-onnx-config", onnx("identity", ONNX + XY.replace("FP32", "FP64", 1)),
        ["models/m/config.pbtxt:2:21: error: unable to load model 'm', configuration expects datatype TYPE_FP64 for input 'x', "
         "model provides TYPE_FP32; data_type: TYPE_FP32 [E-onnx-config]"],
        onnx("identity", ONNX + XY),
    ),
    Case(
        "E-onnx-config", onnx("identity", ONNX + XY.replace("[ -1, 3 ]", "[ 3 ]", 1)),
        ["models/m/config.pbtxt:2:50: error: model 'm', tensor 'x': the model expects 2 dimensions (shape [-1,3]) but the model "
         "configuration specifies 1 dimensions (shape [3]); dims: [ -1, 3 ] [E-onnx-config]"],
        onnx("identity", ONNX + XY.replace("[ -1, 3 ]", "[ 3 ]").replace("input", "max_batch_size: 8 input")),
    ),
    Case(
        "E-onnx-config", onnx("identity", ONNX + XY.replace("output", "max_batch_size: 8 output").replace("[ -1, 3 ]", "[ 4 ]", 1)
                              .replace("[ -1, 3 ]", "[ 3 ]")),
        ["models/m/config.pbtxt:2:50: error: model 'm', tensor 'x': the model expects 2 dimensions (shape [-1,3]) but the model "
         "configuration specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit "
         "tensor shape, making complete shape [-1,4]); dims: [ 3 ] [E-onnx-config]"],
        onnx("identity", ONNX + XY.replace("input", "max_batch_size: 8 input").replace("[ -1, 3 ]", "[ -1 ]")),
    ),
    Case(
        "E-onnx-config", onnx("scalar", ONNX + "max_batch_size: 4\n"),
        ["models/m/config.pbtxt:2:1: error: autofill failed for model 'm': model does not support batching while non-zero "
         "max_batch_size is specified; max_batch_size: 0 [E-onnx-config]"],
        onnx("scalar"),
    ),
    Case(
        "E-onnx-config", onnx("scalar", ONNX + XY.replace("FP32", "FP64").replace("[ -1, 3 ]", "[ 2 ]", 1).replace("[ -1, 3 ]", "[ 1 ]")),
        ["models/m/config.pbtxt:2:50: error: unable to load model 'm', scalar tensor 'x', should only provide 1 in the model "
         "configuration when the model doesn't support batching. Model configuration provided: [2].; dims: [ 1 ] [E-onnx-config]"],
        onnx("scalar", ONNX + XY.replace("FP32", "FP64").replace("[ -1, 3 ]", "[ 1, 1 ]")),
    ),
    Case(
        "E-onnx-config", onnx("identity", ONNX + 'output [ { name: "z" data_type: TYPE_FP32 dims: [ 3 ] } ]\n'),
        ["models/m/config.pbtxt:2:12: error: unexpected inference output 'z', allowed outputs are: y; name: \"y\" [E-onnx-config]"],
        onnx("identity", ONNX + 'output [ { name: "y" data_type: TYPE_FP32 dims: [ 3 ] } ]\n'),
    ),
    # ---- warnings
    Case.of(
        "W-batch-dim",
        IDENTITY + "max_batch_size: 8\ninput [ { name: \"I\" data_type: TYPE_FP32\ndims: [ 1, 3, 224, 224 ] } ]\n"
        'output [ { name: "O" data_type: TYPE_FP32 dims: [ 10 ] } ]\n',
        ["4:9: warning: dims [1,3,224,224] of input 'I' seem to include the batch dimension, which max_batch_size 8 puts in "
         "front already: requests have the shape [-1,1,3,224,224]; dims: [3,224,224], or max_batch_size: 0 [W-batch-dim]"],
        IDENTITY + "max_batch_size: 8\ninput [ { name: \"I\" data_type: TYPE_FP32\ndims: [ 3, 224, 224 ] } ]\n"
        'output [ { name: "O" data_type: TYPE_FP32 dims: [ 10 ] } ]\n',
    ),
    Case.of(
        "W-batch-dim",
        IDENTITY + "max_batch_size: 16\n" + TENSORS.replace("[ 4 ]", "[ 16, 4 ]"),
        ["3:50: warning: dims [16,4] of input 'I' seem to include the batch dimension, which max_batch_size 16 puts in front "
         "already: requests have the shape [-1,16,4]; dims: [4], or max_batch_size: 0 [W-batch-dim]",
         "4:51: warning: dims [16,4] of output 'O' seem to include the batch dimension, which max_batch_size 16 puts in "
         "front already: requests have the shape [-1,16,4]; dims: [4], or max_batch_size: 0 [W-batch-dim]"],
        IDENTITY + "max_batch_size: 16\n" + TENSORS.replace("[ 4 ]", "[ -1, 4 ]"),  # sequences of any length
    ),
    Case.of(
        "W-no-batching",
        IDENTITY + TENSORS + "dynamic_batching { }\n",
        ["4:1: warning: dynamic_batching with max_batch_size 0 makes no batches; raise max_batch_size [W-no-batching]"],
        BATCHED + "dynamic_batching { }\n",
    ),
    Case.of(
        "W-delay",
        DYNAMIC + "max_queue_delay_microseconds: 1000 }\n",
        ["6:1: warning: without preferred_batch_size each request waits 1000 µs, unless a batch of max_batch_size 8 comes "
         "together sooner; shorten the delay (Triton's guide begins with 100), or leave it out: what waits while an instance works becomes a batch anyway [W-delay]"],
        DYNAMIC + "max_queue_delay_microseconds: 1000 preferred_batch_size: 4 }\n",
    ),
    Case.of(
        "W-delay",
        DYNAMIC + "max_queue_delay_microseconds: 1000 }\n",
        ["6:1: warning: without preferred_batch_size each request waits 1000 µs, unless a batch of max_batch_size 8 comes "
         "together sooner; shorten the delay (Triton's guide begins with 100), or leave it out: what waits while an instance works becomes a batch anyway [W-delay]"],
        DYNAMIC + "max_queue_delay_microseconds: 999 }\n",
    ),
    Case.of(
        "W-delay",
        DYNAMIC + "max_queue_delay_microseconds: 500 preferred_batch_size: 4 default_queue_policy { max_queue_size: 2 } }\n",
        ["6:1: warning: each request waits 500 µs: no preferred_batch_size, from 4, can come together where max_queue_size 2 "
         "requests may wait [W-delay]"],
        DYNAMIC + "max_queue_delay_microseconds: 500 preferred_batch_size: 4 default_queue_policy { max_queue_size: 9 } }\n",
    ),
    Case.of(
        "W-ordering",
        DYNAMIC + "preserve_ordering: true }\nmodel_transaction_policy { decoupled: true }\n",
        ["6:1: warning: preserve_ordering of a decoupled model: a request that goes on sending responses holds back "
         "those of all later ones [W-ordering]"],
        DYNAMIC + "preserve_ordering: true }\n",
    ),
    Case.of(
        "W-priority",
        DYNAMIC + "default_priority_level: 1 }\n",
        ["6:1: warning: default_priority_level has no effect without priority_levels; set priority_levels [W-priority]"],
        DYNAMIC + "default_priority_level: 1 priority_levels: 2 }\n",
    ),
    Case.of(
        "W-timeout",
        DYNAMIC + "default_queue_policy {\nallow_timeout_override: true } }\n",
        ["7:1: warning: allow_timeout_override has no effect: requests may only shorten default_timeout_microseconds, which is "
         "0; set default_timeout_microseconds [W-timeout]"],
        DYNAMIC + "default_queue_policy {\nallow_timeout_override: true default_timeout_microseconds: 9 } }\n",
    ),
    Case.of(
        "W-sequence-slots",
        SEQUENCE + "sequence_batching { direct { } }\n",
        ["4:1: warning: direct sequence batching has max_batch_size slots in each instance; with 0 each serves one sequence "
         "at a time; raise max_batch_size, or choose the strategy oldest [W-sequence-slots]"],
        SEQUENCE + "sequence_batching { oldest { max_candidate_sequences: 4 } }\n",
    ),
    Case.of(
        "W-instances",
        IDENTITY + TENSORS + "instance_group [ { kind: KIND_CPU\ncount: 4000 } ]\n",
        ["5:1: warning: 4000 instances on CPUs, of which this machine has CPUS [W-instances]"],
        IDENTITY + TENSORS + "instance_group [ { kind: KIND_MODEL\ncount: 4000 } ]\n",
    ),
    Case.of(
        "W-parameter",
        IDENTITY + TENSORS + 'parameters { key: "execute_delay_sm" value: { string_value: "1" } }\n'
        'parameters { key: "color" value: { string_value: "1" } }\nparameters { key: "CONCH_SPEED" value: { string_value: "1" } }\n',
        ["4:14: warning: parameter 'execute_delay_sm' has no effect: backend 'identity' does not know it; did you mean "
         '"execute_delay_ms"? [W-parameter]',
         "5:14: warning: parameter 'color' has no effect: backend 'identity' does not know it [W-parameter]",
         "6:14: warning: the server does not know the parameter 'CONCH_SPEED' [W-parameter]"],
        IDENTITY + TENSORS + 'parameters { key: "execute_delay_ms" value: { string_value: "1" } }\n',
    ),
    Case.of(
        "W-parameter",
        BATCHED + "sequence_batching { direct { } }\n" + LIBRARY.format("models/m/library.so"),
        ["6:48: warning: parameter 'TRITON_BATCH_STRATEGY_PATH' has no effect: a sequence batcher makes its batches without a "
         "library [W-parameter]"],
        BATCHED + "sequence_batching { direct { } }\n",
    ),
    Case.of(
        "W-no-tensors",
        IDENTITY,
        ["NOWHERE warning: the model has no inputs and no outputs, and its backend will not find out about them [W-no-tensors]"],
        IDENTITY + TENSORS,
    ),
    Case.of(
        "W-same-tensor",
        IDENTITY + TENSORS + SAME,
        ["4:11: warning: there are two inputs 'I' [W-same-tensor]", "5:12: warning: there are two outputs 'O' [W-same-tensor]"],
        IDENTITY + TENSORS,
    ),
    Case(
        "W-optional",
        {**model(IDENTITY + TENSORS), **ensemble(STEP, '{ name: "X" data_type: TYPE_FP32 dims: [ 4 ] optional: true }')},
        ["models/ens/config.pbtxt:2:54: warning: input 'X' is optional, but input 'I' of model 'm', to which it leads, is not "
         "[W-optional]"],
        {**model(IDENTITY + TENSORS.replace('"I"', '"I" optional: true')),
         **ensemble(STEP, '{ name: "X" data_type: TYPE_FP32 dims: [ 4 ] optional: true }')},
    ),
    Case(
        "W-optional",
        {**model(IDENTITY + TENSORS), **ensemble(CONDITIONAL, FLAGGED)},
        ["models/ens/config.pbtxt:7:37: warning: tensor 'B' is absent when CONCH_IF 'C' skips its step, but input 'I' of model "
         "'m', to which it leads, is not optional [W-optional]"],
        {**model(IDENTITY + TENSORS),
         **ensemble(CONDITIONAL.replace('"B" } output', '"B" } input_map { key: "CONCH_IF" value: "C" } output'), FLAGGED)},
    ),
    Case(
        "W-labels",
        {**model(IDENTITY + TENSORS.replace('name: "O"', 'name: "O" label_filename: "labels"')), "m/labels": "cat\ndog\n"},
        ["models/m/config.pbtxt:3:22: warning: label file 'labels' has labels for 2 of the 4 classes of output 'O' [W-labels]"],
        {**model(IDENTITY + TENSORS.replace('name: "O"', 'name: "O" label_filename: "labels"')), "m/labels": "a\nb\nc\nd"},
    ),
    Case(
        "W-labels",
        {**model(IDENTITY + TENSORS.replace('name: "O"', 'name: "O" label_filename: "labels"')), "m/labels": ""},
        ["models/m/config.pbtxt:3:22: warning: label file 'labels' of output 'O' is empty [W-labels]"],
        {**model(IDENTITY + TENSORS.replace('name: "O"', 'name: "O" label_filename: "labels"')), "m/labels": "a\nb\nc\nd\ne"},
    ),
    Case(
        "E-backend",
        {**model('backend: "idenity"\n' + TENSORS), "m/1/weights": "x"},
        ["models/m/config.pbtxt:1:1: error: unable to find backend library for backend 'idenity', try specifying runtime on "
         "the model configuration. Searched for libtriton_idenity.so: 'models/m/1' 'models/m' 'BACKENDS/idenity'; did you "
         'mean "identity"? [E-backend]'],
        model(IDENTITY + TENSORS),
    ),
    Case(
        "E-batch-library",
        model(BATCHED + LIBRARY.format("models/m/library.so")),
        ["models/m/config.pbtxt:5:48: error: Batching library path not found: models/m/library.so [E-batch-library]"],
        {**model(BATCHED + LIBRARY.format("models/m/library.so")), "m/library.so": "x"},
    ),
    Case(
        "W-model-file",
        {**model(IDENTITY + 'default_model_filename: "weights.bin"\n' + TENSORS), "m/1/weight.bin": "x"},
        ["models/m/config.pbtxt:2:1: warning: the model file 'models/m/1/weights.bin' of backend 'identity' is missing "
         "[W-model-file]"],
        {**model(IDENTITY + 'default_model_filename: "weights.bin"\n' + TENSORS), "m/1/weights.bin": "x"},
    ),
    Case(
        "E-config",
        {**model(IDENTITY + 'default_model_filename: "../2/weights.bin"\n' + TENSORS), "m/1/weights.bin": "x"},
        ["models/m/config.pbtxt:2:1: error: default_model_filename '../2/weights.bin' of model 'm' is outside the version folder [E-config]"],
        {**model(IDENTITY + 'default_model_filename: "..weights.bin"\n' + TENSORS), "m/1/..weights.bin": "x"},
    ),
    Case(
        "W-lfs-pointer",
        {**model(ONNX), "m/1/model.onnx": LFS},
        ["models/m/1/model.onnx: warning: this is a pointer of git-lfs, not the file that it stands for; get the content: git "
         "lfs pull [W-lfs-pointer]",
         "models/m/1/model.onnx: error: the file is no ONNX model: at byte 1 of 73 there is no field of a protobuf message [E-onnx]"],
        {**onnx("identity"), "m/1/notes": "version 2 of the model"},
    ),
    Case(
        "W-empty-version",
        model('backend: "mine"\n' + TENSORS),
        ["models/m/1: warning: the version folder is empty [W-empty-version]"],
        {**model('backend: "mine"\n' + TENSORS), "m/1/weights": "x"},
        flags=["--ignore=E-backend"],
    ),
    Case(
        "W-version-name",
        {**model(IDENTITY + TENSORS), "m/007": None, "m/2-old": None, "m/old": None},
        ["models/m/007: warning: ignore version directory '007' which contains leading zeros in its directory name; rename "
         "it to 7 [W-version-name]",
         "models/m/2-old: warning: ignore version directory '2-old' which fails to convert to integral number; rename it to 2 "
         "[W-version-name]",
         "models/m/old: warning: ignore version directory 'old' which fails to convert to integral number [W-version-name]"],
        {**model(IDENTITY + TENSORS), "m/7": None, "m/warmup": None, "m/configs": None},
    ),
    Case(
        "W-no-models",
        {"README": "nothing yet"},
        ["models: warning: there are no models in this repository [W-no-models]"],
        model(IDENTITY + TENSORS),
    ),
    Case(
        "W-loose-file",
        {**model(IDENTITY + TENSORS), "net.v2.onnx": "x", "notes.py.txt": ""},
        ["models/net.v2.onnx: warning: 'net.v2.onnx' is not in the folder of a model: move it to 'net.v2/1/model.onnx' "
         "[W-loose-file]"],
        {**model(IDENTITY + TENSORS), "notes.txt": "", ".onnx": ""},
    ),
    Case(
        "W-no-models",
        {"config.pbtxt": IDENTITY + TENSORS, ".git/config": "", **model(IDENTITY + TENSORS)},
        ["models: warning: this is the folder of a model, not of models: it has a config.pbtxt [W-no-models]"],
        {**model(IDENTITY + TENSORS), "notes": "config.pbtxt"},
    ),
    Case(
        "W-no-models",
        {**model(IDENTITY + TENSORS, "beside"),
         **{f"inner/{path}": text for path, text in {**model(IDENTITY + TENSORS), **model(IDENTITY + TENSORS, "n")}.items()}},
        ["models/inner: warning: this is a folder of models, not a model: 'm' has a config.pbtxt; name 'models/inner' to have "
         "them checked [W-no-models]",
         "models/inner: error: Invalid model name: Could not determine backend for model 'inner' with no backend in model "
         "configuration. Expected model name of the form 'model.<backend_name>'.; there is no version folder: make 'inner/1' "
         "and put the model's file there, or give its 'backend' [E-config]",
         "models/inner: error: at least one version must be available under the version policy of model 'inner'; there is no "
         "version folder: make 'inner/1' and put the model's file there [E-version]",
         "models/inner/m: warning: ignore version directory 'm' which fails to convert to integral number [W-version-name]",
         "models/inner/n: warning: ignore version directory 'n' which fails to convert to integral number [W-version-name]"],
        {**model(IDENTITY + TENSORS), "m/old/config.pbtxt": IDENTITY},
    ),
    Case.of(
        "W-version-missing",
        IDENTITY + TENSORS + "version_policy { specific { versions: [ 1, 5 ] } }\n",
        ["4:44: warning: version 5 is specified for model 'm', but the version directory is not present [W-version-missing]"],
        IDENTITY + TENSORS + "version_policy { specific { versions: [ 1 ] } }\n",
    ),
    Case(
        "W-config-unread",
        {**model(IDENTITY + TENSORS), "m/config.json": "{}"},
        ["models/m/config.json: warning: 'config.json' is not read: the configuration's name is config.pbtxt; a configuration "
         "in JSON comes with a load request only [W-config-unread]"],
        {**model(IDENTITY + TENSORS), "m/README": "{}"},
    ),
    Case(
        "W-config-unread",
        {"m.onnxruntime/1/model.onnx": (FILES / "identity").read_bytes(), "m.onnxruntime/config.pbtx": ONNX},
        ["models/m.onnxruntime/config.pbtx: warning: 'config.pbtx' is not read: the configuration's name is config.pbtxt; "
         "rename it [W-config-unread]"],
        {"m.onnxruntime/1/model.onnx": (FILES / "identity").read_bytes(), "m.onnxruntime/config.pbtxt": ONNX,
         "m.onnxruntime/config.pbtx": ONNX},
    ),
    Case(
        "W-name-case",
        {**model(IDENTITY + TENSORS, "Net"), **model(IDENTITY + TENSORS, "net")},
        ["models/net: warning: only the case of letters tells these models apart: 'Net' and 'net' [W-name-case]"],
        {**model(IDENTITY + TENSORS, "Net"), **model(IDENTITY + TENSORS, "net2")},
    ),
    Case(
        "W-dangling-link",
        {**model(IDENTITY + TENSORS), "m/notes": Link("nothing"), "gone": Link("nothing")},
        ["models/gone: warning: link 'models/gone' leads to 'nothing', which does not exist [W-dangling-link]",
         "models/m/notes: warning: link 'models/m/notes' leads to 'nothing', which does not exist [W-dangling-link]"],
        {**model(IDENTITY + TENSORS), "m/notes": Link("config.pbtxt"), "m/out": Link("/usr/share")},
    ),
    Case(
        "E-link",
        {**model(IDENTITY + TENSORS), "m/1/weights": Link("nothing")},
        ["models/m/1/weights: error: link 'models/m/1/weights' leads to 'nothing', which does not exist [E-link]"],
        {**model(IDENTITY + TENSORS), "m/1/weights": Link("../config.pbtxt")},
    ),
    # ---- data of warm-up and initial states
    Case(
        "E-file",
        model(BATCHED + WARMUP),
        ["models/m/config.pbtxt:6:34: error: failed to open text file for read models/m/warmup/data: No such file or directory "
         "[E-file]"],
        {**model(BATCHED + WARMUP), "m/warmup/data": "x" * 16},
    ),
    Case(
        "E-file",
        {**model(BATCHED + WARMUP), "m/warmup/data": "x" * 15},
        ["models/m/config.pbtxt:6:34: error: warmup setting expects 16 bytes, but the data provided from data only has 15 "
         "bytes [E-file]"],
        {**model(BATCHED + WARMUP), "m/warmup/data": "x" * 16},
    ),
    Case(
        "W-data-size",
        {**model(BATCHED + WARMUP), "m/warmup/data": "x" * 17},
        ["models/m/config.pbtxt:6:34: warning: warmup setting expects 16 bytes, but the data provided from data has 17 bytes: "
         "the rest is not used [W-data-size]"],
        {**model(BATCHED + WARMUP), "m/warmup/data": "x" * 16},
    ),
    Case(
        "E-file",
        {**model(BATCHED.replace("FP32", "STRING") + STRINGS), "m/warmup/data": "\1\0\0\0a" * 3},
        ["models/m/config.pbtxt:6:36: error: warmup setting expects 4 strings, but the data provided from data has 3 [E-file]"],
        {**model(BATCHED.replace("FP32", "STRING") + STRINGS), "m/warmup/data": "\1\0\0\0a" * 4},
    ),
    Case(
        "E-file",
        {**model(BATCHED.replace("FP32", "STRING") + STRINGS), "m/warmup/data": "\1\0\0\0a" * 3 + "\2\0\0\0a"},
        ["models/m/config.pbtxt:6:36: error: warmup setting: in data the last string is not whole; each string follows its "
         "length, four bytes with the lowest first [E-file]"],
        {**model(BATCHED.replace("FP32", "STRING") + STRINGS), "m/warmup/data": "\0\0\0\0" * 4},
    ),
    Case(
        "E-file",
        {**model(SEQUENCE + """sequence_batching { oldest { max_candidate_sequences: 2 } state [ {
input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ] initial_state {
name: "zero" data_type: TYPE_INT32 dims: [ 2 ] data_file: "zero" } } ] }
"""), "m/initial_state/zero": "1234567"},
        ["models/m/config.pbtxt:6:48: error: initial_state setting expects 8 bytes, but the data provided from zero only has 7 "
         "bytes [E-file]"],
        {**model(SEQUENCE + """sequence_batching { oldest { max_candidate_sequences: 2 } state [ {
input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: [ 2 ] initial_state {
name: "zero" data_type: TYPE_INT32 dims: [ 2 ] data_file: "zero" } } ] }
"""), "m/initial_state/zero": "12345678"},
    ),
    Case.of(
        "E-sample",
        BATCHED + SAMPLE.format('data_type: TYPE_INT32 dims: [ 5 ] zero_data: true')
        + SAMPLE.format('data_type: TYPE_FP32 dims: [ 4, 1 ] zero_data: true')
        + 'model_warmup [ { name: "none" batch_size: 1 } ]\n',
        ["6:1: error: warmup sample 'w': the data type of input 'I' is TYPE_INT32, but the model expects TYPE_FP32 [E-sample]",
         "6:31: error: warmup sample 'w': the dims of input 'I' are [5], but the model expects [4] [E-sample]",
         "8:30: error: warmup sample 'w': the dims of input 'I' are [4,1], but the model expects [4] [E-sample]",
         "9:16: error: warmup sample 'none' lacks the required input 'I' [E-sample]"],
        BATCHED.replace("[ 4 ]", "[ -1 ]") + SAMPLE.format('data_type: TYPE_FP32 dims: [ 4 ] zero_data: true'),
    ),
    Case.of(
        "W-sample",
        BATCHED + 'model_warmup [ { name: "w" batch_size: 9 inputs { key: "I" value: {\n'
        'data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } inputs { key: "K" value: {\n'
        'data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } }, { name: "never" } ]\n',
        ["5:28: warning: warmup sample 'w' runs a batch of 9, more than a client can bring about (8) [W-sample]",
         "6:63: warning: warmup sample 'w' has an input 'K' that the model does not declare [W-sample]",
         "7:57: warning: warmup sample 'never' is passed over: its batch_size is 0; set batch_size: 1 [W-sample]"],
        BATCHED + SAMPLE.format('data_type: TYPE_FP32 dims: [ 4 ] zero_data: true'),
    ),
]
