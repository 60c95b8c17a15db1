# SPDX-License-Identifier: Apache-2.0
"""The backend pytorch with packages of AOTInductor, model.pt2: what runs, what is refused before it runs, what stays in memory. The
package and PyTorch's library are stand-ins in C; test_pytorch_wheel.py has genuine ones."""

import concurrent.futures
import re
import struct
import zipfile

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import aoti_packages
import repository
import server as servers

ALLOW = ["--backend-config=pytorch,allow-native-code=1"]
LENIENT = ["--exit-on-error=false", "--strict-readiness=false"]


def config(inputs=("INPUT__0", "INPUT__1"), columns=16, more="max_batch_size: 8\n"):
    tensors = "".join(repository.tensor("input", name, "FP32", [columns]) for name in inputs)
    tensors += repository.tensor("output", "sum", "FP32", [16]) + repository.tensor("output", "difference", "FP32", [16])
    tensors += repository.tensor("output", "live", "INT64", [1]) + repository.tensor("output", "threads", "INT64", [1])
    return 'platform: "torch_aoti"\n' + more + tensors


ONE_INSTANCE = "max_batch_size: 8\ninstance_group [ { count: 1 kind: KIND_CPU } ]\n"


def write_model(root, name, content, text=None, **package):
    folder = repository.write_model(root, name, text or config(more=ONE_INSTANCE))
    aoti_packages.write_package(folder / "1" / "model.pt2", content, **package)
    return folder


def serve(root, *flags, library=None, **options):
    return servers.Server(root, flags=[*ALLOW, *flags], env={"CONCH_TORCH": str(library or aoti_packages.library())}, **options)


def ask(client, model, **tensors):
    inputs = []
    for name, value in tensors.items():
        inputs.append(tritonclient.http.InferInput(name, value.shape, np_to_triton_dtype(value.dtype)))
        inputs[-1].set_data_from_numpy(value)
    return client.infer(model, inputs)


def rows(n, seed=1):
    return np.random.default_rng(seed).integers(-9, 9, (n, 16)).astype(np.float32)


# ---- What runs


@pytest.mark.parametrize("names", [("INPUT__0", "INPUT__1"), ("arg0_1", "arg1_1"), ("left", "right")])
def test_a_package_answers(tmp_path, names):
    write_model(tmp_path, "m", aoti_packages.code(tmp_path / "mark"), config(names, more=ONE_INSTANCE))
    with serve(tmp_path) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        for n in (1, 5, 8, 1):
            x, y = rows(n), rows(n, 2)
            answer = ask(client, "m", **{names[0]: x, names[1]: y})
            np.testing.assert_array_equal(answer.as_numpy("sum"), x + y)
            np.testing.assert_array_equal(answer.as_numpy("difference"), x - y)
        # Two inputs and four outputs of this run live, and the two inputs that are kept for the next; nothing of an earlier run.
        assert answer.as_numpy("live").tolist() == [[8]]
        assert "libtorch.so" not in open(f"/proc/{running.pid}/maps").read()


def test_code_that_does_not_name_pytorch_finds_it(tmp_path):
    write_model(tmp_path, "m", aoti_packages.code(tmp_path / "mark", needs=(), names_torch=False))
    with serve(tmp_path) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        np.testing.assert_array_equal(ask(client, "m", INPUT__0=rows(1), INPUT__1=rows(1)).as_numpy("sum"), rows(1) * 2)


def test_a_pytorch_that_makes_no_second_handle_of_a_tensor(tmp_path):
    write_model(tmp_path / "models", "m", aoti_packages.code(tmp_path / "mark"))
    with serve(tmp_path / "models", library=aoti_packages.old_library(tmp_path)) as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            for n in (1, 1, 3):
                answer = ask(client, "m", INPUT__0=rows(n), INPUT__1=rows(n))
                np.testing.assert_array_equal(answer.as_numpy("sum"), rows(n) * 2)
            assert answer.as_numpy("live").tolist() == [[6]] * 3


def test_inputs_at_the_same_place_are_read_anew(tmp_path):
    """One connection's requests lie where the one before lay: the tensors of that one serve again, but not its values, and not its shapes."""
    write_model(tmp_path, "m", aoti_packages.code(tmp_path / "mark"))
    with serve(tmp_path) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        for i in range(30):
            x, y = rows(1 + i // 3 % 2, i), rows(1 + i // 3 % 2, i + 100)
            answer = ask(client, "m", INPUT__0=x, INPUT__1=y)
            np.testing.assert_array_equal(answer.as_numpy("sum"), x + y)
            np.testing.assert_array_equal(answer.as_numpy("difference"), x - y)


def test_operators_use_as_many_threads_as_the_parameter_says(tmp_path):
    """Models that run on the same thread each have their own number, and one without the parameter has PyTorch's, 77."""
    numbers = {"one": 1, "five": 5, "without": None}
    for name, n in numbers.items():
        parameters = {"CONCH_EXECUTION": "inline", **({"INTRA_OP_THREAD_COUNT": n} if n else {})}
        text = "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in parameters.items())
        write_model(tmp_path / "models", name, aoti_packages.code(tmp_path / "mark"), config(more=ONE_INSTANCE + text))
    old = aoti_packages.old_library(tmp_path)
    for library, expected in ((None, numbers), (old, dict.fromkeys(numbers))):
        with serve(tmp_path / "models", library=library) as running, tritonclient.http.InferenceServerClient(running.url) as client:
            for _ in range(3):
                for name, n in expected.items():
                    assert ask(client, name, INPUT__0=rows(1), INPUT__1=rows(1)).as_numpy("threads").tolist() == [[n or 77]], (name, library)
            warning = "model 'five': INTRA_OP_THREAD_COUNT has no effect: this PyTorch is without OpenMP"
            assert (warning in running.log()) == (library is not None), running.log()
            assert "model 'without': INTRA_OP_THREAD_COUNT" not in running.log()


def test_the_order_of_names_decides(tmp_path):
    write_model(tmp_path, "m", aoti_packages.code(tmp_path / "mark"), config(("IN__1", "IN__0"), more=ONE_INSTANCE))
    with serve(tmp_path) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        x, y = rows(2), rows(2, 2)
        np.testing.assert_array_equal(ask(client, "m", IN__1=y, IN__0=x).as_numpy("difference"), x - y)


def test_a_file_named_by_the_configuration_without_a_platform(tmp_path):
    text = config(more=ONE_INSTANCE).replace('platform: "torch_aoti"', 'backend: "pytorch"\ndefault_model_filename: "other.pt2"')
    folder = write_model(tmp_path, "m", aoti_packages.code(tmp_path / "mark"), text)
    (folder / "1" / "model.pt2").rename(folder / "1" / "other.pt2")
    with serve(tmp_path) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        np.testing.assert_array_equal(ask(client, "m", INPUT__0=rows(1), INPUT__1=rows(1)).as_numpy("sum"), rows(1) * 2)


def test_requests_become_batches_on_several_instances(tmp_path):
    """The code was made for as many runs at once as there are instances."""
    more = "max_batch_size: 8\ndynamic_batching { }\ninstance_group [ { count: 2 kind: KIND_CPU }, { count: 1 kind: KIND_CPU } ]\n"
    write_model(tmp_path, "m", aoti_packages.code(tmp_path / "mark", n_models=3), config(more=more))

    def request(i):
        with tritonclient.http.InferenceServerClient(running.url) as client:
            x, y = rows(1 + i % 3, i), rows(1 + i % 3, i + 100)
            answer = ask(client, "m", INPUT__0=x, INPUT__1=y)
            return np.array_equal(answer.as_numpy("sum"), x + y) and np.array_equal(answer.as_numpy("difference"), x - y)

    with serve(tmp_path) as running, concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(request, range(200)))


def test_inputs_that_the_code_was_not_compiled_for_are_refused(tmp_path):
    """The code would read beyond them. The refusal frees what it was given, and the next request is answered."""
    write_model(tmp_path, "m", aoti_packages.code(tmp_path / "mark"), config(columns=-1, more=ONE_INSTANCE))
    with serve(tmp_path) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        for _ in range(5):
            with pytest.raises(InferenceServerException, match=r"PyTorch execute failure: the compiled model has failed: "
                                                               r"input_handles\[0\]: unmatched dim value$"):
                ask(client, "m", INPUT__0=rows(1)[:, :3].copy(), INPUT__1=rows(1))
        assert ask(client, "m", INPUT__0=rows(1), INPUT__1=rows(1)).as_numpy("live").tolist() == [[8]]


def test_a_run_that_fails_after_it_has_taken_its_inputs(tmp_path):
    """Nothing of it stays, and the next requests are answered."""
    text = config(more="instance_group [ { count: 1 kind: KIND_CPU } ]\n").replace("dims: [ ", "dims: [ -1, ")
    write_model(tmp_path, "m", aoti_packages.code(tmp_path / "mark"), text)
    with serve(tmp_path) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        for n in (3, 3, 2):
            with pytest.raises(InferenceServerException, match=f"the compiled model has failed: expected size 4=={n} at dim=0$"):
                ask(client, "m", INPUT__0=rows(n), INPUT__1=rows(4))
            answer = ask(client, "m", INPUT__0=rows(n, n), INPUT__1=rows(n))
            np.testing.assert_array_equal(answer.as_numpy("sum"), rows(n, n) + rows(n))
            assert answer.as_numpy("live").tolist() == [[8]] * n


def test_loads_of_the_same_package_take_no_more_memory(tmp_path):
    write_model(tmp_path, "m", aoti_packages.code(tmp_path / "mark"))
    write_model(tmp_path, "same", aoti_packages.code(tmp_path / "mark"))
    with serve(tmp_path, "--model-control-mode=explicit", "--load-model=m") as running:
        with tritonclient.http.InferenceServerClient(running.url) as client:
            def count():
                return sum("memfd:conch-pt2" in line and " r-xp " in line for line in open(f"/proc/{running.pid}/maps"))

            assert count() == 1
            # The server unloads the backend with its last model.
            for _ in range(10):
                client.unload_model("m")
                servers.wait_for(lambda: not client.is_model_ready("m"), 20, "it is unloaded")
                client.load_model("m")
            client.load_model("same")
            np.testing.assert_array_equal(ask(client, "m", INPUT__0=rows(1), INPUT__1=rows(1)).as_numpy("sum"), rows(1) * 2)
            assert count() == 1
            # Another package is other code.
            aoti_packages.write_package(tmp_path / "m" / "1" / "model.pt2", aoti_packages.code(tmp_path / "mark2"))
            client.load_model("m")
            assert count() == 2 and (tmp_path / "mark2").exists()


# ---- What is refused


def test_native_code_must_be_allowed(tmp_path):
    write_model(tmp_path, "m", aoti_packages.code(tmp_path / "mark"))
    for value in ([], ["--backend-config=pytorch,allow-native-code=0"]):
        with servers.Server(tmp_path, flags=[*LENIENT, *value], env={"CONCH_TORCH": str(aoti_packages.library())}, ready=False) as running:
            assert ("model 'm': a package is native code, which has all the rights of the server; "
                    "--backend-config=pytorch,allow-native-code=1 permits that") in running.log()
    assert not (tmp_path / "mark").exists()


def test_a_library_that_is_no_models_does_not_stand_in_for_the_next(tmp_path):
    """The loader knows files by their names: the next package's would have had the same, and would have been taken for this one."""
    write_model(tmp_path, "m", aoti_packages.other_library(tmp_path))
    with serve(tmp_path, "--model-control-mode=explicit") as running, tritonclient.http.InferenceServerClient(running.url) as client:
        for _ in range(3):
            with pytest.raises(InferenceServerException, match=r"its code has no AOTInductorModelContainer\w+\(\)"):
                client.load_model("m")
        assert sum("memfd:conch-pt2" in line and " r-xp " in line for line in open(f"/proc/{running.pid}/maps")) == 1
        aoti_packages.write_package(tmp_path / "m" / "1" / "model.pt2", aoti_packages.code(tmp_path / "mark"))
        client.load_model("m")
        np.testing.assert_array_equal(ask(client, "m", INPUT__0=rows(1), INPUT__1=rows(1)).as_numpy("sum"), rows(1) * 2)


def metadata(**changes):
    return {**aoti_packages.METADATA, **changes}


def changed(content, at, value):
    return content[:at] + value + content[at + len(value):]


def refused_packages(root, good):
    """{model: text of its error}"""
    def write(name, content, **package):
        return write_model(root, name, content, **package) / "1" / "model.pt2"

    write("device", good, metadata=metadata(AOTI_DEVICE_KEY="cuda"))
    write("platform", good, metadata=metadata(AOTI_PLATFORM="windows"))
    write("machine", good, metadata=metadata(AOTI_MACHINE="z80"))
    write("unknown", good, metadata=metadata(AOTI_CPU_ISA="AVX4096"))
    write("text", good, metadata=b"{")
    write("long", good, metadata=b" " * (65 << 10) + b"{}")
    write("none", None)
    write("two", good, more=[(aoti_packages.MODEL + "def.wrapper.so", good)])
    write("blob", good, more=[("model/data/weights/weight_0", b"1")])
    write("short", good[:40])
    write("words", b"words " * 1000)
    write("half", good[:len(good) // 2])
    write("other", changed(good, 18, struct.pack("<H", 243)))
    write("order", changed(good, 5, b"\2"))
    write("bits", changed(good, 4, b"\1"))
    write("headers", changed(good, 32, struct.pack("<Q", 1 << 63)))
    write("bomb", bytes(64 << 20), compression=zipfile.ZIP_DEFLATED)
    write("gpu", aoti_packages.code(root / "mark", needs=("libcudart.so.13",)))
    file = write("crc", good)
    data = file.read_bytes()
    at = data.index(good[:64]) + len(good) // 2
    file.write_bytes(changed(data, at, bytes([data[at] ^ 255])))
    file = write("cut", good)
    file.write_bytes(file.read_bytes()[:-200])
    write("noise", good).write_bytes(np.random.default_rng(1).bytes(3000))
    write("empty", good).write_bytes(b"")
    write("foreign", b"", metadata=None, more=[("model/data/aotinductor/../model/x.so", good), ("/data/aotinductor/model/a/b.so", good)])
    return {
        "device": "it is compiled for AOTI_DEVICE_KEY 'cuda', not 'cpu'",
        "platform": "it is compiled for AOTI_PLATFORM 'windows', not 'linux'",
        "machine": "it is compiled for AOTI_MACHINE 'z80', not '",
        "unknown": "it is compiled for processors with 'AVX4096', which is unknown here",
        "text": "its metadata is no JSON: ",
        "long": "its metadata has more than 65536 bytes",
        "none": "it has no compiled model of the name 'model' for Linux",
        "two": "it has the code of two models",
        "blob": "it has weights outside of its code ('model/data/weights/weight_0')",
        "short": "its code is no shared library: it is too short",
        "words": "its code is no shared library: it does not begin as one",
        "half": "its code is no shared library: a segment lies outside of it",
        "other": "its code is for the processors with ELF's number 243, and this is ",
        "order": "its code is not for processors of 64 bits that have the lowest byte of a number first",
        "bits": "its code is not for processors of 64 bits that have the lowest byte of a number first",
        "headers": "its code is no shared library: its headers lie outside of it",
        "bomb": "its code has more than ",
        "gpu": "its code needs 'libcudart.so.13', a library for GPUs",
        "crc": "it is no whole package: ",
        "cut": "it is no whole package: ",
        "noise": "it is no whole package: ",
        "empty": "it is no whole package: ",
        "foreign": "it has no compiled model of the name 'model' for Linux",
    }


def test_packages_are_refused_before_they_run(tmp_path):
    """Each with one line that names the file; none has been loaded, and the server serves on."""
    good = aoti_packages.code(tmp_path / "mark")
    expected = refused_packages(tmp_path / "models", good)
    write_model(tmp_path / "models", "good", aoti_packages.code(tmp_path / "loaded"))
    with serve(tmp_path / "models", *LENIENT, ready=False) as running:
        log = running.log()
        for name, message in expected.items():
            file = tmp_path / "models" / name / "1" / "model.pt2"
            assert f"failed to load model '{name}' from '{file}': {message}" in log, (name, log)
        assert (tmp_path / "loaded").exists() and not (tmp_path / "mark").exists()
        with tritonclient.http.InferenceServerClient(running.url) as client:
            np.testing.assert_array_equal(ask(client, "good", INPUT__0=rows(1), INPUT__1=rows(1)).as_numpy("sum"), rows(1) * 2)


SETS = {"AVX2": {"avx2", "fma", "f16c"}, "AVX512": {"avx512f", "avx512dq", "avx512vl", "avx512bw"}, "AVX512_VNNI": {"avx512_vnni"},
        "AMX_TILE": {"amx_tile"}, "SVE256": {"sve"}}


def test_instruction_sets_are_those_of_this_processor(tmp_path):
    features = set(re.search(r"^(?:flags|Features)\s*:(.*)$", open("/proc/cpuinfo").read(), re.M)[1].split())
    code = aoti_packages.code(tmp_path / "mark")
    for name in SETS:
        write_model(tmp_path / "models", name.lower(), code, metadata=metadata(AOTI_CPU_ISA=f" {name.lower()}  {name}"))
    with serve(tmp_path / "models", *LENIENT, ready=False) as running, tritonclient.http.InferenceServerClient(running.url) as client:
        for name, needed in SETS.items():
            assert client.is_model_ready(name.lower()) == (needed <= features), name
            assert (f"it is compiled for processors with {name.lower()}, and this one lacks " in running.log()) == (not needed <= features)


def test_a_package_that_names_no_instruction_sets_runs_with_a_warning(tmp_path):
    without = {key: value for key, value in aoti_packages.METADATA.items() if key != "AOTI_CPU_ISA"}
    silent = {"nothing": None, "lacking": without, "empty": metadata(AOTI_CPU_ISA=" "), "number": metadata(AOTI_CPU_ISA=2)}
    for name, about in {**silent, "told": metadata(AOTI_CPU_ISA="INVALID_VEC_ISA")}.items():
        write_model(tmp_path / "models", name, aoti_packages.code(tmp_path / "mark"), metadata=about)
    with serve(tmp_path / "models") as running, tritonclient.http.InferenceServerClient(running.url) as client:
        for name in (*silent, "told"):
            warning = f"'{tmp_path / 'models' / name / '1' / 'model.pt2'}' does not tell for which processors it is compiled"
            assert (warning in running.log()) == (name in silent), (name, running.log())
            np.testing.assert_array_equal(ask(client, name, INPUT__0=rows(1), INPUT__1=rows(1)).as_numpy("sum"), rows(1) * 2)


def test_a_pytorch_without_these_functions_is_refused(tmp_path):
    """Debian's is of 2022."""
    write_model(tmp_path / "models", "m", aoti_packages.code(tmp_path / "mark"))
    old = aoti_packages.compile_library(tmp_path / "libtorch_cpu.so", "/dev/null", "-x", "c", "/dev/null")
    with servers.Server(tmp_path / "models", flags=[*LENIENT, *ALLOW], env={"CONCH_TORCH": str(old)}, ready=False) as running:
        assert "packages need PyTorch 2.6 or newer: this one has no aoti_torch_device_type_cpu()" in running.log()
    assert not (tmp_path / "mark").exists()


def test_tensors_that_do_not_fit(tmp_path):
    code = aoti_packages.code(tmp_path / "mark")
    one = config(("INPUT__0",), more=ONE_INSTANCE)
    write_model(tmp_path / "models", "lacking", code, one)
    write_model(tmp_path / "models", "texts", code, config(more="instance_group [ { count: 1 kind: KIND_CPU } ]\n").replace("TYPE_FP32", "TYPE_STRING", 1))
    with serve(tmp_path / "models", *LENIENT, ready=False) as running:
        assert "configuration expects 1 inputs, model provides 2: none is the argument 'arg1_1'" in running.log()
        assert "configuration expects datatype TYPE_STRING for input 'INPUT__0', model provides Tensor" in running.log()
