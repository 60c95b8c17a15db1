# SPDX-License-Identifier: Apache-2.0
"""The backend fil: forests of XGBoost, LightGBM and scikit-learn answer what their frameworks answer, in our server and in
the genuine Triton; parameters; configurations that do not fit; files that are no forests."""

import concurrent.futures
import os
import pathlib

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

WHY = "`make test-frameworks` installs treelite, XGBoost and LightGBM"
for _module in ("treelite", "xgboost", "lightgbm", "sklearn"):
    pytest.importorskip(_module, reason=WHY)

import forests  # noqa: E402
import repository  # noqa: E402
import server as servers  # noqa: E402
import triton  # noqa: E402

CLOSE = {"rtol": 2e-5, "atol": 2e-6}
BATCHES = "max_batch_size: 64\ndynamic_batching { max_queue_delay_microseconds: 20000 }\n"


@pytest.fixture(scope="module")
def trained():
    return forests.train()


def write_all(root, trained):
    """Every forest as a model of its name; variants of some."""
    for name, forest in trained.items():
        proba = {"predict_proba": "true"} if forest.classes else {}
        forest.write(root, name, BATCHES, **proba)
    trained["xgb_json"].write(root, "number", output_class="true", threshold="0.2", storage_type="AUTO")
    trained["xgb_classes"].write(root, "numbers", is_classifier="true")
    trained["xgb_json"].write(root, "raw", is_classifier="false", threshold="0.2")
    both = repository.tensor("input", "input__0", "FP32", [8]) + repository.tensor("output", "output__0", "FP32", [2])
    trained["xgb_json"].write(root, "both", "max_batch_size: 8\n" + both, predict_proba="true")
    wide = repository.tensor("input", "input__0", "FP64", [8]) + repository.tensor("output", "output__0", "FP64", [3])
    trained["lgb_classes"].write(root, "wide", "max_batch_size: 8\n" + wide, predict_proba="true")
    open_ = repository.tensor("input", "input__0", "FP32", [-1, -1]) + repository.tensor("output", "output__0", "FP32", [-1, 3])
    trained["xgb_classes"].write(root, "open", open_, predict_proba="true")
    one = repository.tensor("input", "input__0", "FP32", [8]) + repository.tensor("output", "output__0", "FP32", [1])
    trained["xgb_regression"].write(root, "one", one)
    trained["xgb_regression"].write(root, "threads", "max_batch_size: 4096\n", cpu_nthread="2")
    write_configured(root, trained["xgb_regression"])
    return root


FOR_GPUS = {"storage_type": "SPARSE8", "blocks_per_sm": "2", "algo": "BATCH_TREE_REORG", "threads_per_tree": "4", "layout": "depth_first",
            "chunk_size": "8", "transfer_threshold": "3", "use_experimental_optimizations": "true"}
# What configurations of any backend may say, about a forest.
FIELDS = {
    "reshaped": '''input [ { name: "input__0" data_type: TYPE_FP32 dims: [ 2, 4 ] reshape { shape: [ 8 ] } } ]
output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 1, 1 ] reshape { shape: [ ] } } ]
''',
    "optional": '''input [ { name: "input__0" data_type: TYPE_FP32 dims: [ 8 ] optional: true } ]
output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 1 ] } ]
''',
    "ragged": '''input [ { name: "input__0" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]
output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 1 ] } ]
dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 20000 }
''',
    "warm": '''model_warmup [ { name: "first" batch_size: 3 count: 2 inputs { key: "input__0" value { data_type: TYPE_FP32 dims: [ 8 ] random_data: true } } } ]
''',
    "sequence": '''sequence_batching { control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }
''',
    "stateful": '''sequence_batching { state [ { input_name: "before" output_name: "after" data_type: TYPE_FP32 dims: [ 1 ] } ] }
''',
    "counted": '''batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: "COUNT" data_type: TYPE_FP32 source_input: "input__0" } ]
batch_output [ { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "output__0" source_input: "input__0" } ]
''',
}


def write_configured(root, forest):
    both = repository.tensor("input", "input__0", "FP32", [8]) + repository.tensor("output", "output__0", "FP32", [1])
    forest.write(root, "for_gpus", "max_batch_size: 4\n", **FOR_GPUS)
    for name, fields in FIELDS.items():
        forest.write(root, name, "max_batch_size: 4\n" + fields + ("" if "output [" in fields else both))
    folder = forest.write(root, "named", 'max_batch_size: 4\ndefault_model_filename: "my.forest"\nversion_policy { specific { versions: [ 1, 3 ] } }\n')
    for version in "123":
        (folder / version).mkdir(exist_ok=True)
        forest.save(str(folder / version / "xgboost.ubj"))
        (folder / version / "xgboost.ubj").rename(folder / version / "my.forest")


@pytest.fixture(scope="module", params=["conch", "triton"])
def server(request, trained, tmp_path_factory):
    root = write_all(tmp_path_factory.mktemp("forests"), trained)
    if request.param == "conch":
        with servers.Server(root, grpc=True) as running:
            yield running
        return
    if triton.missing():
        pytest.skip(triton.missing())
    # The wheel of Triton finds no Python packages of ours.
    with triton.Triton(root, flags=[f"--backend-config=fil,library-path={library()}"]) as running:
        yield running


def library():
    import treelite

    return str(next((pathlib.Path(treelite.__file__).parent / "lib").glob("libtreelite.so*")))


def predict(server, model, rows):
    with tritonclient.http.InferenceServerClient(server.url) as client:
        return ask(client, tritonclient.http, model, rows)


def ask(client, module, model, rows, **more):
    data = module.InferInput("input__0", rows.shape, np_to_triton_dtype(rows.dtype))
    data.set_data_from_numpy(np.ascontiguousarray(rows))
    return client.infer(model, [data], **more).as_numpy("output__0")


NAMES = ["xgb_json", "xgb_ubj", "xgb_legacy", "xgb_classes", "xgb_regression", "xgb_poisson", "xgb_dart", "xgb_kinds",
         "xgb_targets", "lgb_binary", "lgb_classes", "lgb_each", "lgb_regression", "lgb_kinds", "forest_classes",
         "forest_binary", "forest_regression", "boosting", "histogram", "isolation"]


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_the_frameworks(server, trained, name):
    forest = trained[name]
    np.testing.assert_allclose(predict(server, name, forest.rows[:50]), forest.expected[:50], **CLOSE)
    np.testing.assert_allclose(predict(server, name, forest.rows[50:51]), forest.expected[50:51], **CLOSE)


@pytest.mark.sanitize
def test_requests_become_one_batch(server, trained):
    forest = trained["xgb_classes"]
    sizes = [1, 3, 2, 1, 4, 1, 2, 1]
    begins = np.cumsum([0, *sizes])
    with concurrent.futures.ThreadPoolExecutor(len(sizes)) as pool:
        answers = pool.map(lambda i: predict(server, "xgb_classes", forest.rows[begins[i]:begins[i + 1]]), range(len(sizes)))
        for i, answer in enumerate(answers):
            np.testing.assert_allclose(answer, forest.expected[begins[i]:begins[i + 1]], **CLOSE)


def test_parameters_choose_the_answer(server, trained):
    binary, classes = trained["xgb_json"], trained["xgb_classes"]
    rows = binary.rows[:50]
    np.testing.assert_array_equal(predict(server, "number", rows[:4]), (binary.expected[:4] > 0.2).astype(np.float32))
    np.testing.assert_array_equal(np.concatenate([predict(server, "numbers", rows[i:i + 4]) for i in range(0, 48, 4)]),
                                  classes.expected[:48].argmax(1))
    np.testing.assert_allclose(predict(server, "raw", rows[:4]), binary.expected[:4], **CLOSE)
    both = np.stack([1 - binary.expected[:4], binary.expected[:4]], 1)
    np.testing.assert_allclose(predict(server, "both", rows[:4]), both, **CLOSE)


def test_shapes_and_types(server, trained):
    classes = trained["xgb_classes"]
    np.testing.assert_allclose(predict(server, "open", classes.rows[:7]), classes.expected[:7], **CLOSE)
    one = predict(server, "one", trained["xgb_regression"].rows[0])
    assert one.shape == (1,)
    np.testing.assert_allclose(one, trained["xgb_regression"].expected[:1], **CLOSE)
    wide = predict(server, "wide", trained["lgb_classes"].rows[:5].astype(np.float64))
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, trained["lgb_classes"].expected[:5], rtol=1e-6)
    many = np.tile(trained["xgb_regression"].rows, (10, 1))
    np.testing.assert_allclose(predict(server, "threads", many), np.tile(trained["xgb_regression"].expected, 10), **CLOSE)


def test_rows_of_another_length_are_refused(server, trained):
    with pytest.raises(InferenceServerException, match="input 'input__0' has 7 features in 2 dimensions, the model has 8"):
        predict(server, "open", trained["xgb_classes"].rows[:2, :7])


def test_parameters_for_gpus_have_no_effect(server, trained):
    forest = trained["xgb_regression"]
    np.testing.assert_allclose(predict(server, "for_gpus", forest.rows[:4]), forest.expected[:4], **CLOSE)
    for name in FOR_GPUS:
        assert f"model 'for_gpus': parameter '{name}' has no effect on CPUs" in server.log()


def test_fields_of_any_configuration(server, trained):
    forest = trained["xgb_regression"]
    rows, expected = forest.rows[:3], forest.expected[:3]
    for name in ("optional", "ragged", "warm", "counted"):
        np.testing.assert_allclose(predict(server, name, rows), expected, **CLOSE, err_msg=name)
    reshaped = predict(server, "reshaped", rows.reshape(3, 2, 4))
    assert reshaped.shape == (3, 1, 1)
    np.testing.assert_allclose(reshaped.ravel(), expected, **CLOSE)
    with tritonclient.http.InferenceServerClient(server.url) as client:
        for name in ("sequence", "stateful"):
            np.testing.assert_allclose(ask(client, tritonclient.http, name, rows[:1], sequence_id=7, sequence_start=True), expected[:1], **CLOSE)
        for version in "13":
            np.testing.assert_allclose(ask(client, tritonclient.http, "named", rows, model_version=version), expected, **CLOSE)
        with pytest.raises(InferenceServerException, match="version"):
            ask(client, tritonclient.http, "named", rows, model_version="2")


def test_requests_without_the_only_input(server):
    with tritonclient.http.InferenceServerClient(server.url) as client:
        with pytest.raises(InferenceServerException, match="input__0|at least|expected 1 inputs"):
            client.infer("optional", [])
        with pytest.raises(InferenceServerException, match="expected 1 inputs but got 0"):
            client.infer("warm", [])


def test_ragged_rows_have_all_features(server, trained):
    """Rows of one batch that differ: the whole ones are answered, the short one is not."""
    forest = trained["xgb_regression"]

    def one(n):
        try:
            return predict(server, "ragged", forest.rows[:1, :n])
        except InferenceServerException as error:
            return error.message()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(one, [8, 7, 8, 8]))
    assert "input 'input__0' has 7 features in 2 dimensions, the model has 8" in answers.pop(1)
    for answer in answers:
        np.testing.assert_allclose(answer, forest.expected[:1], **CLOSE)


def test_no_rows(server, trained):
    assert predict(server, "open", trained["xgb_classes"].rows[:0]).shape == (0, 3)


def test_the_default_of_max_batch_size(trained, tmp_path):
    trained["xgb_json"].write(tmp_path, "m")
    for setting, size in (("16", 16), ("1", 1), ("0", 0)):
        with servers.Server(tmp_path, flags=[f"--backend-config=fil,default-max-batch-size={setting}"]) as running:
            with tritonclient.http.InferenceServerClient(running.url) as client:
                config = client.get_model_config("m")
                shape = client.get_model_metadata("m")["inputs"][0]["shape"]
                assert (config["max_batch_size"], shape) == (size, [-1, 8] if size else [8])
                rows = trained["xgb_json"].rows[:1]
                assert ask(client, tritonclient.http, "m", rows if size else rows[0]).shape == (1,)


def test_samples_of_warm_up_are_predicted(trained, tmp_path):
    write_configured(tmp_path, trained["xgb_regression"])
    with servers.Server(tmp_path) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        stats = client.get_inference_statistics("warm")["model_stats"][0]
    assert (stats["inference_count"], stats["execution_count"]) == (6, 2)    # three rows, twice


def test_over_grpc(trained, tmp_path):
    trained["xgb_kinds"].write(tmp_path, "m")
    with servers.Server(tmp_path, grpc=True) as running:
        with tritonclient.grpc.InferenceServerClient(running.grpc_url) as client:
            config = client.get_model_config("m").config
            assert [(t.name, list(t.dims)) for t in (*config.input, *config.output)] == [("input__0", [8]), ("output__0", [1])]
            assert config.max_batch_size == 4 and config.HasField("dynamic_batching")
            answer = ask(client, tritonclient.grpc, "m", trained["xgb_kinds"].rows[:4])
    np.testing.assert_allclose(answer, trained["xgb_kinds"].expected[:4], **CLOSE)


# ---- What is refused


def tensors(n_in=8, n_out=3, in_type="FP32", out_type="FP32", in_name="input__0", out_name="output__0"):
    return (repository.tensor("input", in_name, in_type, n_in if isinstance(n_in, list) else [n_in])
            + repository.tensor("output", out_name, out_type, n_out if isinstance(n_out, list) else [n_out]))


REFUSED = {
    "features": (tensors(n_in=7), {}, "has 8 features but the model configuration specifies 7 in 1 dimensions"),
    "values": (tensors(n_out=2), {"predict_proba": "true"}, "answers a row with 3 values (the forest's scores) but the model configuration specifies 2"),
    "class": (tensors(), {}, "answers a row with 1 values (the number of its class; predict_proba gives probabilities)"),
    "type": (tensors(in_type="INT32"), {}, "configuration expects datatype TYPE_INT32 for input 'input__0'"),
    "types": (tensors(in_type="FP64"), {}, "must have the same datatype"),
    "name": (tensors(in_name="x"), {}, "unexpected inference input 'x', allowed inputs are: input__0"),
    "output": (tensors(out_name="y"), {}, "unexpected inference output 'y', allowed outputs are: output__0"),
    "shapley": (tensors() + repository.tensor("output", "treeshap_output", "FP32", [27]), {}, "treeshap_output (Shapley values) is not supported, because treelite does not compute them"),
    "more": (tensors() + repository.tensor("input", "more", "FP32", [1]), {}, "configuration expects 2 inputs, model provides 1"),
    "format": ("", {"model_type": "catboost"}, "catboost not recognized as a valid serialization format"),
    "flag": ("", {"predict_proba": "1"}, "Expected 'true' or 'false' for parameter 'predict_proba', got: '1'"),
    "threshold": ("", {"threshold": "high"}, "parameter 'threshold' must be a number, got 'high'"),
    "threads": ("", {"cpu_nthread": "many"}, "parameter 'cpu_nthread' must be a whole number"),
}


def log_of_failures(root, *flags, env=None):
    with servers.Server(root, flags=["--exit-on-error=false", "--strict-readiness=false", *flags], env=env, ready=False) as running:
        return running.log()


def test_configurations_that_do_not_fit(trained, tmp_path):
    for name, (config, parameters, _) in REFUSED.items():
        trained["xgb_classes"].write(tmp_path, name, ("max_batch_size: 8\n" if config else "") + config, **parameters)
    log = log_of_failures(tmp_path)
    for name, (_, _, text) in REFUSED.items():
        assert text in log, (name, log)


def test_a_missing_library_fails_only_its_models(trained, tmp_path):
    trained["xgb_json"].write(tmp_path, "m")
    repository.write_identity(tmp_path, "other", [("FP32", [1])])
    missing = str(tmp_path / "libtreelite.so")
    log = log_of_failures(tmp_path, env={"CONCH_TREELITE": missing})
    assert f"treelite's library libtreelite.so cannot be loaded; tried {missing}; get it with `pip install treelite`" in log
    assert "the server starts without some of its models" in log


def damaged(name, data):
    """{what: bytes} of a file that is no forest any more."""
    half = len(data) // 2
    yield "empty", b""
    yield "cut", data[:half]
    yield "zeroes", data[:half] + bytes(len(data) - half)
    yield "noise", np.random.default_rng(3).bytes(5000)
    if name == "lgb_binary":
        yield "loop", data.replace(b"left_child=1 ", b"left_child=0 ", 1)
        yield "leaves", data.replace(b"num_leaves=", b"num_leaves=2147483", 1)
    if name == "xgb_json":
        yield "nodes", data.replace(b'"num_nodes":"', b'"num_nodes":"21474', 1)
        yield "child", data.replace(b'"right_children":[', b'"right_children":[99999', 1)
        yield "key", data.replace(b'"split_type"', b'"split_kind"', 1)
        yield "deep", b"[" * 100000
        yield "features", data.replace(b'"num_feature":"8","num_target"', b'"num_feature":"2000000000","num_target"', 1)
    if name == "xgb_ubj":
        yield "arrays", b"[" * 1000000
        yield "objects", b"{i\x01a" * 300000
        yield "elements", b"{L" + (1).to_bytes(8, "big") + b"a[$T#L" + (1 << 40).to_bytes(8, "big")
    if name == "forest_classes":
        yield "trees", data[:14] + (1 << 40).to_bytes(8, "little") + data[22:]
        yield "release", (9).to_bytes(4, "little") + data[4:]


def test_files_that_are_no_forests(trained, tmp_path):
    """Each is refused with a line that names the file, and the server serves on."""
    bad = []
    for name in ("xgb_json", "xgb_ubj", "xgb_legacy", "lgb_binary", "forest_classes"):
        forest = trained[name]
        path = forest.write(tmp_path, f"{name}_whole") / "1" / forest.file
        data = path.read_bytes()
        for what, content in damaged(name, data):
            assert content != data, (name, what)
            file = forest.write(tmp_path, f"{name}_{what}") / "1" / forest.file
            file.write_bytes(content)
            bad.append(str(file))
    with servers.Server(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false"], ready=False) as running:
        for file in bad:
            assert f"unable to read '{file}': " in running.log() or f"{file}: treelite: " in running.log(), (file, running.log())
        for name in ("xgb_json", "lgb_binary", "forest_classes"):
            answer = predict(running, f"{name}_whole", trained[name].rows[:1])
            assert answer[0] == (trained[name].expected[0].argmax() if trained[name].classes > 1 else trained[name].expected[0] > 0.5)


def chain_of_lightgbm(n):
    """A tree whose every node has a leaf and the next node."""
    def row(numbers):
        return " ".join(map(str, numbers))

    return f"""tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=7
objective=regression
feature_names={row(f"f{i}" for i in range(8))}
feature_infos={row(["[-9:9]"] * 8)}
tree_sizes=1000

Tree=0
num_leaves={n + 1}
num_cat=0
split_feature={row([0] * n)}
split_gain={row([1] * n)}
threshold={row(range(0, -n, -1))}
decision_type={row([2] * n)}
left_child={row([*range(1, n), ~n])}
right_child={row(~i for i in range(n))}
leaf_value={row(range(n + 1))}
leaf_weight={row([1] * (n + 1))}
leaf_count={row([1] * (n + 1))}
internal_value={row([0] * n)}
internal_weight={row([0] * n)}
internal_count={row([1] * n)}
is_linear=0
shrinkage=1


end of trees
"""


def test_a_tree_may_be_deep(tmp_path):
    """Neither our checks nor treelite go down a tree by recursion."""
    n = 100000
    forest = forests.Forest("lightgbm", "model.txt", lambda path: pathlib.Path(path).write_text(chain_of_lightgbm(n)), forests.ROWS, [])
    forest.write(tmp_path, "m", "max_batch_size: 4\n")
    with servers.Server(tmp_path) as running:
        np.testing.assert_array_equal(predict(running, "m", np.full((2, 8), [[-1e9], [1]], np.float32)), [n, 0])


def test_one_base_score_is_that_of_all_classes(tmp_path):
    """As checkpoints of treelite 3.9 have it. treelite 4 by itself reads the scores of further classes from beyond the one."""
    import sklearn.ensemble
    import treelite

    model = sklearn.ensemble.RandomForestClassifier(n_estimators=20, random_state=1).fit(forests.FULL, forests.CLASSES)
    imported = treelite.sklearn.import_model(model)
    imported.get_header_accessor().set_field("base_scores", np.array([0.25]))
    forests.Forest("treelite_checkpoint", "checkpoint.tl", imported.serialize, forests.FULL, []).write(tmp_path, "m", "max_batch_size: 64\n", predict_proba="true")
    with servers.Server(tmp_path) as running:
        np.testing.assert_allclose(predict(running, "m", forests.FULL[:50]), model.predict_proba(forests.FULL[:50]) + 0.25, **CLOSE)


def test_what_is_no_file(trained, tmp_path):
    """A pipe would be waited for."""
    forest = trained["xgb_ubj"]
    for name in ("pipe", "folder", "missing"):
        file = forest.write(tmp_path, name, "max_batch_size: 4\n") / "1" / forest.file
        file.unlink()
        {"pipe": os.mkfifo, "folder": os.mkdir, "missing": str}[name](file)
    log = log_of_failures(tmp_path)
    assert f"unable to read '{tmp_path}/pipe/1/xgboost.ubj' of model 'pipe': it is no regular file" in log
    assert f"unable to read '{tmp_path}/folder/1/xgboost.ubj/xgboost.ubj' of model 'folder': No such file or directory" in log
    assert f"unable to read '{tmp_path}/missing/1/xgboost.ubj' of model 'missing': No such file or directory" in log


def test_unknown_fields_are_allowed_by_a_parameter(trained, tmp_path):
    forest = trained["xgb_json"]
    for name, allow in ({"strict": "false", "open": "true"}).items():
        file = forest.write(tmp_path, name, xgboost_allow_unknown_field=allow, predict_proba="true") / "1" / forest.file
        file.write_bytes(file.read_bytes().replace(b'{"learner":', b'{"novelty":[1,{"a":2}],"learner":', 1))
    with servers.Server(tmp_path, flags=["--exit-on-error=false", "--strict-readiness=false"], ready=False) as running:
        assert 'key "novelty" is not recognized' in running.log()
        np.testing.assert_allclose(predict(running, "open", forest.rows[:4]), forest.expected[:4], **CLOSE)


def test_version_names_the_library():
    code, out, err = servers.run_to_end("--version", env={"CONCH_TREELITE": library()})
    assert (code, err) == (0, "")
    assert out.splitlines()[2] == f"fil: treelite {__import__('treelite').__version__} from {os.path.realpath(library())}"
