# SPDX-License-Identifier: Apache-2.0
"""The contract of SageMaker: /ping, /invocations and the models of a multi-model endpoint. The genuine Triton is asked the
same where it can answer: its 2.51 ends at a body that is not JSON, and reads the length in a MIME type by atoi()."""

import gzip
import json
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

import platforms
import repository
from server import run_to_end, wait_for

STARTED = "Started Sagemaker HTTPService at "
TYPE = "application/vnd.sagemaker-triton.binary+json;json-header-size="
REQUEST = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}).encode()
BINARY = json.dumps(
    {
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
).encode()
NUMBERS = b"\x00\x00\x80\x3f\x00\x00\x00\x40"
EMPTY = (200, "text/plain", b"")


def conch_only(kind, why):
    if kind != "conch":
        pytest.skip(why)


def sagemaker(kind, root, flags=(), ready=True, **env):
    names = {f"SAGEMAKER_TRITON_{name.upper()}": value for name, value in env.items()}
    flags = ["--model-control-mode=explicit", "--load-model=*", "--allow-sagemaker=true", "--sagemaker-port={port}", *flags]
    return platforms.serving(kind, root, STARTED, flags, names, ready)


def write_fp32(root, name, **more):
    return repository.write_identity(root, name, [("FP32", [-1])], **more)


def outputs_of(answer):
    status, kind, body = answer
    assert (status, kind) == (200, "application/json"), answer
    return json.loads(body)


@pytest.fixture(scope="module", params=platforms.BOTH)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def asked(kind, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fp32(root, "default")
    write_fp32(root, "other")
    with sagemaker(kind, root, default_model_name="default") as endpoint:
        yield endpoint


def test_ping_is_the_health(asked):
    assert asked.ask("GET", "/ping") == EMPTY
    assert asked.ask("GET", "/ping?x=1") == EMPTY
    assert asked.error("POST", "/ping", b"") == (405, "Method Not Allowed")


@pytest.mark.parametrize("path", ["/", "/ping/", "/invocation", "/v2/health/ready", "/models/m/infer", "/models/m/invoke/"])
def test_another_path_is_400_without_a_body(asked, path):
    assert asked.ask("GET", path) == (400, "text/plain", b"")


@pytest.mark.parametrize("path", ["/models", "/models/x"])
def test_another_method_at_models_is_400(asked, path):
    assert asked.ask("PUT", path, b"") == (400, "text/plain", b"")


def test_invocations_ask_the_default_model(asked):
    answer = outputs_of(asked.ask("POST", "/invocations", REQUEST))
    assert answer["model_name"] == "default"
    assert answer["outputs"][0]["data"] == [1.0, 2.0]
    assert asked.error("GET", "/invocations") == (405, "Method Not Allowed")


def test_binary_tensors_have_a_mime_type(asked):
    status, kind, body = asked.ask("POST", "/invocations", BINARY + NUMBERS, Content_Type=f"{TYPE}{len(BINARY)}")
    assert status == 200
    assert kind.startswith(TYPE)
    length = int(kind[len(TYPE) :])
    assert json.loads(body[:length])["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert body[length:] == NUMBERS


def test_a_remembered_reply_has_its_own_length(kind, tmp_path):
    """The head of the last reply is remembered, with the number at the end of its type."""
    conch_only(kind, "about a cache of Conch")
    write_fp32(tmp_path, "default")
    with sagemaker(kind, tmp_path, default_model_name="default") as endpoint:
        for count in (3, 2, 3, 3):
            text = BINARY.replace(b"[2]", b"[%d]" % count).replace(b": 8", b": %d" % (4 * count))
            answer = endpoint.ask("POST", "/invocations", text + b"abcd" * count, Content_Type=f"{TYPE}{len(text)}")
            length = int(answer[1][len(TYPE) :])
            assert json.loads(answer[2][:length])["outputs"][0]["shape"] == [count]
            assert answer[2][length:] == b"abcd" * count


def test_encodings_are_not_known(asked):
    """Compression has no form at this endpoint: the header changes nothing, in both directions."""
    for encoding in ("gzip", "zstd", "identity"):
        answer = asked.ask("POST", "/invocations", REQUEST, Content_Encoding=encoding, Accept_Encoding="gzip")
        assert outputs_of(answer)["outputs"][0]["data"] == [1.0, 2.0]


WRONG_TYPES = [
    (f"x{TYPE}1", f"expect MIME type for binary data starts with '{TYPE}', got: x{TYPE}1"),
    (f"{TYPE}9999", f"inference header size should be in range (0, {len(REQUEST)}), got: 9999"),
    (f"{TYPE}-3", f"inference header size should be in range (0, {len(REQUEST)}), got: -3"),
]


@pytest.mark.parametrize(("kind_of_body", "text"), WRONG_TYPES)
def test_a_wrong_mime_type_is_400(asked, kind_of_body, text):
    assert asked.error("POST", "/invocations", REQUEST, Content_Type=kind_of_body) == (400, text)


LATER_TYPES = [
    (f"{TYPE}two", "Unable to parse inference header size, got: two"),
    (TYPE, "Unable to parse inference header size, got: "),
    (f"{TYPE}99999999999", "Unable to parse inference header size, value is out of range, got: 99999999999"),
]


@pytest.mark.parametrize(("kind_of_body", "text"), LATER_TYPES)
def test_a_length_that_is_no_number_is_400(kind, asked, kind_of_body, text):
    conch_only(kind, "2.51 reads the length by atoi(), the release we follow by stoi()")
    assert asked.error("POST", "/invocations", REQUEST, Content_Type=kind_of_body) == (400, text)
    assert asked.ask("GET", "/ping") == EMPTY


def test_errors_of_invocations_are_those_of_http(asked):
    status, text = asked.error("POST", "/invocations", b"{")
    assert (status, text) == (500, "failed to parse the request JSON buffer: Missing a name for object member. at 1")


def test_there_are_no_models_at_first(asked):
    assert asked.ask("GET", "/models") == (200, "text/plain", b'{"models":[]}')
    assert asked.ask("GET", "/models/") == (200, "text/plain", b'{"models":[]}')
    assert asked.ask("GET", "/models/default") == (404, "text/plain", b"")
    assert asked.ask("DELETE", "/models/default") == (404, "text/plain", b"")
    assert asked.ask("DELETE", "/models") == (404, "text/plain", b"")
    assert asked.ask("POST", "/models/default/invoke", REQUEST) == (404, "text/plain", b"")


def load(endpoint, name, folder, **headers):
    body = json.dumps({"model_name": name, "url": str(folder)}).encode()
    return endpoint.ask("POST", "/models", body, **headers)


def test_a_model_is_loaded_invoked_and_deleted(asked):
    with platforms.archive() as folder:
        write_fp32(folder, "packed")
        entry = {"modelName": "m1", "modelUrl": str(folder)}
        assert load(asked, "m1", folder) == EMPTY
        assert json.loads(asked.ask("GET", "/models/m1")[2]) == entry
        assert json.loads(asked.ask("GET", "/models")[2]) == {"models": [entry]}
        answer = outputs_of(asked.ask("POST", "/models/m1/invoke", REQUEST))
        assert answer["model_name"] == "m1"
        assert asked.ask("DELETE", "/models/m1") == EMPTY
        assert asked.ask("GET", "/models/m1")[0] == 404
        assert asked.ask("POST", "/models/m1/invoke", REQUEST)[0] == 404
        assert load(asked, "m1", folder) == EMPTY    # nothing was left
        assert asked.ask("DELETE", "/models/m1") == EMPTY


def test_a_model_may_be_the_folder_itself(asked):
    with platforms.archive() as folder:
        folder.rmdir()
        write_fp32(folder.parent, "model")
        (folder / "config.pbtxt").write_text((folder / "config.pbtxt").read_text().replace('name: "model"\n', ""))
        assert load(asked, "itself", folder) == EMPTY
        assert json.loads(asked.ask("GET", "/models/itself")[2])["modelUrl"] == str(folder.parent)
        assert outputs_of(asked.ask("POST", "/models/itself/invoke", REQUEST))["model_name"] == "itself"
        assert asked.ask("DELETE", "/models/itself") == EMPTY


def test_a_loaded_model_knows_no_encodings_either(asked):
    with platforms.archive() as folder:
        write_fp32(folder, "packed")
        assert load(asked, "plain", folder) == EMPTY
        for encoding in ("gzip", "zstd", "identity"):
            answer = asked.ask("POST", "/models/plain/invoke", REQUEST, Content_Encoding=encoding, Accept_Encoding="gzip")
            assert outputs_of(answer)["outputs"][0]["data"] == [1.0, 2.0]
        assert asked.ask("DELETE", "/models/plain") == EMPTY


def test_a_packed_body_is_no_json(kind, asked):
    conch_only(kind, "2.51 ends at a body that is not JSON")
    status, text = asked.error("POST", "/invocations", gzip.compress(REQUEST), Content_Encoding="gzip")
    assert (status, text.startswith("failed to parse the request JSON buffer: ")) == (500, True)


def test_errors_of_invoke_are_400(asked):
    with platforms.archive() as folder:
        write_fp32(folder, "packed")
        assert load(asked, "m2", folder) == EMPTY
        text = "failed to parse the request JSON buffer: Missing a name for object member. at 1"
        assert asked.error("POST", "/models/m2/invoke", b"{") == (400, text)
        answer = asked.ask("POST", "/models/m2/invoke", REQUEST, X_Amzn_SageMaker_Target_Model="other")
        assert outputs_of(answer)["model_name"] == "other"
        answer = asked.ask("POST", "/models/m2/invoke", REQUEST, X_Amzn_SageMaker_Target_Model="nobody")
        assert answer == (400, "application/json", b'{"error":"Request for unknown model: \'nobody\' is not found"}')
        assert asked.ask("DELETE", "/models/m2") == EMPTY


def test_a_load_names_its_target(asked):
    with platforms.archive() as folder:
        write_fp32(folder, "packed")
        assert load(asked, "hash", folder, X_Amzn_SageMaker_Target_Model="target") == EMPTY
        answer = asked.ask("POST", "/models/hash/invoke", REQUEST, X_Amzn_SageMaker_Target_Model="target")
        assert outputs_of(answer)["model_name"] == "target"
        assert asked.ask("DELETE", "/models/hash", X_Amzn_SageMaker_Target_Model="target") == EMPTY


def test_a_model_is_found_by_the_name_of_its_load(kind, asked):
    conch_only(kind, "the genuine server needs the header in each request, and lists such a model as {}")
    with platforms.archive() as folder:
        write_fp32(folder, "packed", versions=(3,))
        assert load(asked, "hash", folder, X_Amzn_SageMaker_Target_Model="target") == EMPTY
        assert outputs_of(asked.ask("POST", "/models/hash/invoke", REQUEST))["model_name"] == "target"
        assert json.loads(asked.ask("GET", "/models")[2]) == {"models": [{"modelName": "hash", "modelUrl": str(folder)}]}
        assert asked.ask("DELETE", "/models/hash") == EMPTY


def test_a_second_load_is_409(asked):
    with platforms.archive() as folder:
        write_fp32(folder, "packed")
        assert load(asked, "m3", folder) == EMPTY
        text = f"model repository '{folder}' has already been registered"
        for name in ("m3", "m4"):
            body = json.dumps({"model_name": name, "url": str(folder)}).encode()
            assert asked.error("POST", "/models", body) == (409, text)
        assert asked.ask("GET", "/models/m4")[0] == 404
        with platforms.archive() as second:
            write_fp32(second, "packed")
            assert load(asked, "m3", second)[0] == 409
        assert outputs_of(asked.ask("POST", "/models/m3/invoke", REQUEST))["model_name"] == "m3"
        assert asked.ask("DELETE", "/models/m3") == EMPTY


def test_an_ensemble_is_found_among_its_members(asked):
    with platforms.archive() as folder:
        write_fp32(folder, "member_of_sagemaker")
        steps = 'step [ { model_name: "member_of_sagemaker" model_version: -1 input_map { key: "INPUT0" value: "IN" } '
        config = 'platform:  "ensemble"\n' + repository.tensor("input", "IN", "FP32", [-1])
        config += repository.tensor("output", "OUT", "FP32", [-1]) + "ensemble_scheduling { " + steps
        repository.write_model(folder, "pipeline", config + 'output_map { key: "OUTPUT0" value: "OUT" } } ] }')
        assert load(asked, "both", folder) == EMPTY
        answer = outputs_of(asked.ask("POST", "/models/both/invoke", REQUEST.replace(b"INPUT0", b"IN")))
        assert answer["outputs"][0]["data"] == [1.0, 2.0]
        assert asked.ask("DELETE", "/models/both") == EMPTY


def test_a_failed_load_leaves_nothing(asked):
    with platforms.archive() as folder:
        wrong = write_fp32(folder, "packed")
        config = (wrong / "config.pbtxt").read_text()
        (wrong / "config.pbtxt").write_text(config.replace("identity", "nobody"))
        status, _, body = load(asked, "m5", folder)
        assert status == 400
        assert b"unable to find backend library for backend 'nobody'" in body
        assert asked.ask("GET", "/models/m5")[0] == 404
        (wrong / "config.pbtxt").write_text(config)
        assert load(asked, "m5", folder) == EMPTY
        assert asked.ask("DELETE", "/models/m5") == EMPTY


def test_memory_that_ran_out_is_507(kind, asked):
    conch_only(kind, "the message is made by a model that Conch's tests have")
    with platforms.archive() as folder:
        wrong = write_fp32(folder, "packed")
        config = (wrong / "config.pbtxt").read_text()
        (wrong / "config.pbtxt").write_text(config.replace("identity", "CUDA out of memory"))
        assert load(asked, "m6", folder)[0] == 507


WRONG_URLS = ["", "/tmp/x", "/opt/ml/models/h/models", "/opt/ml/models/h", "/opt/ml/models/h/model/a/b", "/opt/ml/models/h-h/model",
              "/opt/ml/models/h/../../x", "/opt/ml/models//model"]


@pytest.mark.parametrize("url", WRONG_URLS)
def test_a_url_has_one_form(kind, asked, url):
    conch_only(kind, "2.51 takes any path")
    body = json.dumps({"model_name": "m", "url": url}).encode()
    text = f"Invalid \"url\" '{url}': expected a path of the form /opt/ml/models/<hash>/model[/<subdir>]"
    assert asked.error("POST", "/models", body) == (400, text)


@pytest.mark.parametrize("url", ["/proc/self/root", "/opt/ml/models/../../../dev/shm", "/sys/./x"])
def test_folders_of_the_system_are_refused_without_a_text(kind, asked, url):
    conch_only(kind, "2.51 takes any path")
    assert load(asked, "m", url) == (400, "text/plain", b"")


def test_an_archive_that_is_not_there_is_400(asked):
    text = "failed to register '/opt/ml/models/nobody/model', repository not found"
    body = json.dumps({"model_name": "m", "url": "/opt/ml/models/nobody/model"}).encode()
    assert asked.error("POST", "/models", body) == (400, text)


def test_several_models_without_an_ensemble_are_refused(kind, asked):
    conch_only(kind, "the genuine server takes the folder that it happens to read last")
    with platforms.archive() as folder:
        write_fp32(folder, "one")
        write_fp32(folder, "two")
        status, _, body = load(asked, "m", folder)
        assert status == 400
        assert b"of several models one must be the ensemble" in body
        (folder / "two" / "config.pbtxt").unlink()    # a folder of the model's own
        assert load(asked, "m", folder) == EMPTY
        assert asked.ask("DELETE", "/models/m") == EMPTY


BAD_BODIES = [
    (b"{", "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
    (b'{"model_name":3}', "attempt to access JSON non-string as string"),
    (b'{"model_name":"m","url":["a"]}', "attempt to access JSON non-string as string"),
]


@pytest.mark.parametrize(("body", "text"), BAD_BODIES)
def test_a_body_that_is_wrong_is_400(kind, asked, body, text):
    conch_only(kind, "2.51 crashes at such a body")
    assert asked.error("POST", "/models", body) == (400, text)


# ---- Processes of their own ----------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "status"), [("live", 200), ("ready", 400), ("other", 400)])
def test_ping_may_ask_for_life(tmp_path, mode, status):
    """Of Conch only: the genuine server opens its port when all models are loaded."""
    gated = repository.Gated(tmp_path, "gated").shut("hold.load")
    env = {"SAGEMAKER_TRITON_PING_MODE": mode}
    flags = ["--allow-sagemaker=true", "--sagemaker-port={port}"]
    with platforms.serving("conch", tmp_path, STARTED, flags, env, ready=None) as endpoint:
        gated.await_reached("hold.load")
        assert endpoint.ask("GET", "/ping") == (status, "text/plain", b"")
        gated.open("hold.load")
        wait_for(lambda: endpoint.ask("GET", "/ping") == EMPTY, 60, "the model is ready")


GATED = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()


@pytest.mark.sanitize
def test_a_delete_waits_for_the_last_request(tmp_path):
    write_fp32(tmp_path, "default")
    with sagemaker("conch", tmp_path) as endpoint, platforms.archive() as folder, ThreadPoolExecutor(2) as threads:
        gated = repository.Gated(folder, "packed")
        assert load(endpoint, "m", folder) == EMPTY
        gated.shut("hold.execute")
        invoked = threads.submit(endpoint.ask, "POST", "/models/m/invoke", GATED)
        gated.await_reached("hold.execute")
        deleted = threads.submit(endpoint.ask, "DELETE", "/models/m")
        wait_for(lambda: endpoint.ask("GET", "/models")[2] == b'{"models":[{}]}', 60, "the model is not ready any more")
        assert load(endpoint, "m", folder)[0] == 409    # its repository is registered still
        assert endpoint.ask("GET", "/models/m")[0] == 200
        assert not deleted.done()
        gated.open("hold.execute")
        assert outputs_of(invoked.result(60))["outputs"][0]["data"] == [7]
        assert deleted.result(60) == EMPTY
        assert endpoint.ask("GET", "/models/m")[0] == 404


@pytest.mark.sanitize
def test_a_stop_during_a_load_answers_it(tmp_path):
    write_fp32(tmp_path, "default")
    with sagemaker("conch", tmp_path) as endpoint, platforms.archive() as folder, ThreadPoolExecutor(1) as threads:
        gated = repository.Gated(folder, "packed").shut("hold.load")
        loaded = threads.submit(load, endpoint, "m", folder)
        gated.await_reached("hold.load")
        endpoint.server.signal(signal.SIGTERM)
        endpoint.server.wait_log("Signal (15) received.")
        gated.open("hold.load")
        assert loaded.result(60)[0] in (200, 400)    # the server may have ended the load
        assert endpoint.server.wait() == 0


@pytest.mark.sanitize
def test_a_stop_during_a_delete_answers_it(tmp_path):
    write_fp32(tmp_path, "default")
    with sagemaker("conch", tmp_path) as endpoint, platforms.archive() as folder, ThreadPoolExecutor(2) as threads:
        gated = repository.Gated(folder, "packed")
        assert load(endpoint, "m", folder) == EMPTY
        gated.shut("hold.execute")
        invoked = threads.submit(endpoint.ask, "POST", "/models/m/invoke", GATED)
        gated.await_reached("hold.execute")
        deleted = threads.submit(endpoint.ask, "DELETE", "/models/m")
        wait_for(lambda: endpoint.ask("GET", "/models")[2] == b'{"models":[{}]}', 60, "the model is not ready any more")
        endpoint.server.signal(signal.SIGTERM)
        endpoint.server.wait_log("Signal (15) received.")
        gated.open("hold.execute")
        assert outputs_of(invoked.result(60))["outputs"][0]["data"] == [7]
        assert deleted.result(60)[0] in (200, 400)
        assert endpoint.server.wait() == 0


def test_categories_are_restricted_here_too(kind, tmp_path):
    conch_only(kind, "2.51 has no restrictions at this endpoint")
    write_fp32(tmp_path, "default")
    flags = ["--http-restricted-api=health,inference,model-repository:key=secret"]
    with sagemaker(kind, tmp_path, flags, None, default_model_name="default") as endpoint:
        wait_for(lambda: endpoint.ask("GET", "/ping", key="secret") == EMPTY, 60, "the models are loaded")
        text = "This API is restricted, expecting header 'key'"
        asked = [("GET", "/ping", None), ("POST", "/invocations", REQUEST), ("GET", "/models", None), ("GET", "/models/", None)]
        asked += [("GET", "/models/x", None), ("POST", "/models", b"{}"), ("DELETE", "/models/x", None)]
        asked += [("POST", "/models/x/invoke", REQUEST), ("DELETE", "/models/x/invoke", None), ("POST", "/models/x", b"{}")]
        for method, path, body in asked:
            assert endpoint.error(method, path, body) == (403, text), (method, path)
        assert outputs_of(endpoint.ask("POST", "/invocations", REQUEST, key="secret"))["model_name"] == "default"


def test_a_wrong_inference_type_fails_the_start(tmp_path):
    env = {"SAGEMAKER_TRITON_INFERENCE_TYPE": "train"}
    args = [f"--model-repository={tmp_path}", "--http-port=0", "--allow-grpc=false", "--allow-metrics=false"]
    code, out, err = run_to_end(*args, "--allow-sagemaker=true", "--sagemaker-port=0", env=env)
    assert code == 1
    text = "Server has invalid inference type 'train'. Must be one of: infer, generate, generate_stream."
    assert f"failed to start Sagemaker service: Invalid argument - {text}" in out + err


def test_a_default_model_that_is_not_named_is_not_found(kind, tmp_path):
    write_fp32(tmp_path, "default")
    with sagemaker(kind, tmp_path) as endpoint:
        text = "Request for unknown model: 'unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME' is not found"
        assert endpoint.error("POST", "/invocations", REQUEST) == (404, text)


def test_loads_need_the_mode_explicit(kind, tmp_path):
    write_fp32(tmp_path, "default")
    flags = ["--allow-sagemaker=true", "--sagemaker-port={port}"]
    with platforms.serving(kind, tmp_path, STARTED, flags) as endpoint, platforms.archive() as folder:
        write_fp32(folder, "packed")
        text = "repository registration is not allowed if model control mode is not EXPLICIT"
        body = json.dumps({"model_name": "m", "url": str(folder)}).encode()
        assert endpoint.error("POST", "/models", body) == (400, text)


@pytest.mark.parametrize("kind_of_inference", ["generate", "generate_stream"])
def test_invocations_may_generate(tmp_path, kind_of_inference):
    """Of Conch only: 2.51 has inferences alone."""
    repository.write_identity(tmp_path, "default", [("BYTES", [-1])])
    with sagemaker("conch", tmp_path, default_model_name="default", inference_type=kind_of_inference) as endpoint:
        request = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}/invocations", b'{"INPUT0":"hello"}')
        for name, value in (("Content-Type", f"{TYPE}3"), ("Content-Encoding", "gzip"), ("Accept-Encoding", "gzip")):
            request.add_header(name, value)    # they mean nothing here
        with urllib.request.urlopen(request, timeout=60) as answer:
            body = answer.read().decode()
        if kind_of_inference == "generate_stream":
            assert body.startswith("data: ")
            assert body.endswith("\n\n")
            body = body.removeprefix("data: ")
        assert json.loads(body)["OUTPUT0"] == "hello"
