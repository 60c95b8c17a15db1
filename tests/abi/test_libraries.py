# SPDX-License-Identifier: Apache-2.0
"""Backend libraries that fail in each of their functions, lack some, depend on others, or crash; compiled from library.c."""

import json
import pathlib
import signal
import subprocess
import urllib.error
import urllib.request

import pytest

import repository
import server as servers
import triton

SOURCE = pathlib.Path(__file__).with_name("library.c")
FLAGS = ("--exit-on-error=false", "--strict-readiness=false")


def compile_library(path, *options, source=SOURCE):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-g", "-O1", "-Wall", "-fPIC", "-shared", f"-I{servers.ROOT}/include", str(source), "-o",
                    str(path), *options], check=True)
    return path


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


class Place:
    """A folder of backends and one of models."""

    def __init__(self, root):
        self.backends, self.models = root / "backends", root / "models"
        self.models.mkdir()

    def library(self, name, *options, source=SOURCE):
        return compile_library(self.backends / name / f"libtriton_{name}.so", *options, source=source)

    def model(self, name, backend, more=""):
        repository.write_model(self.models, name, (
            f'backend: "{backend}"\n{more}' + repository.tensor("input", "IN", "INT32", [1])
            + repository.tensor("output", "OUT", "BYTES", [1]) + "instance_group [ { count: 1 kind: KIND_CPU } ]\n"))

    def served(self, *flags, which="conch", ready=False, **more):
        if which == "triton" and triton.missing():
            pytest.skip(triton.missing())
        kind = {"conch": servers.Server, "triton": triton.Triton}[which]
        made = kind(self.models, flags=(*FLAGS, *flags), ready=ready, **more)
        ours = f"--backend-directory={self.backends}"
        made.args = [ours if str(arg).startswith("--backend-directory=") else arg for arg in made.args]
        return made


def ask(server, model):
    """Returns OUT, or the status and the error."""
    body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}
    request = urllib.request.Request(f"http://{server.url}/v2/models/{model}/infer", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as got:
            return json.loads(got.read())["outputs"][0]["data"][0]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]


# ---- Errors from each of the nine functions

ON_LOAD = ["Initialize", "ModelInitialize", "ModelInstanceInitialize"]
ON_UNLOAD = ["ModelInstanceFinalize", "ModelFinalize", "Finalize"]


def steps(server):
    """The functions that were called, in order."""
    return [line.split("library: ")[1].split()[0].strip('"') for line in server.log().splitlines() if "library: " in line]


@pytest.mark.parametrize("which", ["conch", "triton"])
@pytest.mark.parametrize("function", ON_LOAD)
def test_an_error_of_a_load_fails_the_model(place, function, which):
    place.library("bad", f"-DFAILS={function}")
    place.model("m", "bad")
    # The genuine one, too, must stop by itself.
    with place.served(which=which, **({"graceful": True} if which == "triton" else {})) as server:
        assert "not today" in server.log()
        assert ask(server, "m")[0] in (400, 404)
    called = steps(server)
    # Each object that was initialised is finalised, also one whose initialisation has failed.
    expected = {"Initialize": ["Finalize"], "ModelInitialize": ["ModelFinalize", "Finalize"],
                "ModelInstanceInitialize": ["ModelInstanceFinalize", "ModelFinalize", "Finalize"]}[function]
    assert called[called.index(function) + 1:] == expected


@pytest.mark.parametrize("which", ["conch", "triton"])
def test_an_error_of_attributes_does_not_fail_the_load(place, which):
    place.library("bad", "-DFAILS=GetBackendAttribute")
    place.model("m", "bad")
    with place.served(which=which, ready=True) as server:
        assert ask(server, "m").startswith("library 1 ")
    if which == "conch":
        assert "failed to get attributes of backend: Unavailable: not today" in server.log()


@pytest.mark.skipif(servers.SANITIZED, reason="a sanitizer keeps the libraries mapped")
def test_the_last_model_unmaps_the_library(place):
    place.library("bad", "-DFAILS=ModelInitialize")
    place.library("good")
    place.model("m", "bad")
    place.model("n", "good")
    with place.served() as server:
        assert ask(server, "n").startswith("library 1 ")
        mapped = pathlib.Path(f"/proc/{server.pid}/maps").read_text()
        assert "libtriton_good.so" in mapped
        assert "libtriton_bad.so" not in mapped


@pytest.mark.parametrize("function", ON_UNLOAD)
def test_an_error_while_it_unloads_is_logged(place, function):
    place.library("bad", f"-DFAILS={function}")
    place.model("m", "bad")
    with place.served() as server:
        assert ask(server, "m").startswith("library 1 ")
    assert "not today" in server.log()
    assert steps(server)[-3:] == ON_UNLOAD


def test_an_error_of_execute_is_the_answer(place):
    place.library("bad", "-DFAILS=ModelInstanceExecute")
    place.model("m", "bad")
    with place.served() as server:
        assert ask(server, "m") == (503, "not today")


def test_an_error_of_ready_says_not_ready(place):
    place.library("bad", "-DFAILS=ModelInstanceReady")
    place.model("m", "bad")
    with place.served() as server:
        assert ask(server, "m").startswith("library 1 ")
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"http://{server.url}/v2/models/m/ready", timeout=60)
        assert error.value.code in (400, 503)


# ---- What is missing

MISSING = {
    "-DNO_EXECUTE": "unable to find required entrypoint 'TRITONBACKEND_ModelInstanceExecute' in shared library: ",
    "-DNEEDS_NOBODY": "undefined symbol: function_that_nobody_has",
    "-DWANTS_MINOR=1000": "Triton backend API version does not support this backend",
}


@pytest.mark.parametrize("which", ["conch", "triton"])
@pytest.mark.parametrize("option", MISSING)
def test_a_missing_function_is_named(place, option, which):
    path = place.library("bad", option)
    place.model("m", "bad")
    with place.served(which=which) as server:
        assert MISSING[option] in server.log()
        if option == "-DNEEDS_NOBODY":
            assert f"unable to load shared library: {path}" in server.log()


def test_a_missing_library_fails_the_load(place):
    (place.backends / "bad").mkdir(parents=True)
    (place.backends / "bad" / "libtriton_bad.so").write_text("not a library")
    place.model("m", "bad")
    with place.served() as server:
        assert "unable to load shared library: " in server.log() and "libtriton_bad.so: " in server.log()


# ---- Where a library is searched

@pytest.mark.parametrize("which", ["conch", "triton"])
def test_libraries_are_searched_in_order(place, which):
    """The version's folder, the model's, the backend's own; `runtime` names another file in the same folders."""
    place.library("here", "-DSAYS=own")
    own = {"plain": "own"}
    for name, where in {"all": ("1", "."), "model": (".",), "version": ("1",)}.items():
        place.model(name, "here")
        for folder in where:
            compile_library(place.models / name / folder / "libtriton_here.so", f"-DSAYS={'version' if folder == '1' else 'model'}")
        own[name] = "version" if "1" in where else "model"
    place.model("plain", "here")
    place.library("other", "-DSAYS=other")
    (place.backends / "other/libtriton_other.so").rename(place.backends / "here/special.so")
    place.model("named", "here", 'runtime: "special.so"\n')
    place.model("named_version", "here", 'runtime: "special.so"\n')
    compile_library(place.models / "named_version/1/special.so", "-DSAYS=own_special")
    own |= {"named": "other", "named_version": "own_special"}
    with place.served(which=which, ready=True) as server:
        assert {name: ask(server, name).split()[0] for name in own} == own


@pytest.mark.parametrize("which", ["conch", "triton"])
@pytest.mark.parametrize("setting", ["backend-directory", "here,backend-directory"])
def test_the_folder_of_all_backends_may_be_a_setting(place, which, setting):
    """A setting for all backends; a setting of that name for one backend is only passed to it."""
    place.library("here", "-DSAYS=near")
    compile_library(place.backends.parent / "far/here/libtriton_here.so", "-DSAYS=far")
    place.model("m", "here")
    with place.served(f"--backend-config={setting}={place.backends.parent / 'far'}", which=which, ready=True) as server:
        assert ask(server, "m").split()[0] == ("far" if setting == "backend-directory" else "near")


# ---- Several libraries

@pytest.mark.parametrize("which", ["conch", "triton"])
def test_two_backends_may_have_the_same_symbols(place, which):
    place.library("one", "-DSAYS=one")
    place.library("two", "-DSAYS=two")
    for model, backend in (("a", "one"), ("b", "two"), ("c", "one")):
        place.model(model, backend)
    with place.served(which=which, ready=True) as server:
        said = [ask(server, model).split()[:2] for model in "abcb"]
        assert said == [["one", "1"], ["two", "1"], ["one", "2"], ["two", "2"]]  # a library is loaded once


def write_beside(folder, name, *options, calls=None):
    """Builds libNAME.so with the function NAME(); it has no path ($ORIGIN) to other libraries."""
    source = folder / f"{name}.c"
    folder.mkdir(parents=True, exist_ok=True)
    source.write_text(f"extern const char *{calls}(void);\nconst char *{name}(void) {{ return {calls}(); }}\n" if calls
                      else f'const char *{name}(void) {{ return "{name}"; }}\n')
    return compile_library(folder / f"lib{name}.so", f"-Wl,-soname,lib{name}.so", *options, source=source)


def test_dependencies_load_from_the_librarys_folder(place):
    """Also the dependencies of a dependency, if they exist."""
    folder = place.backends / "dep"
    write_beside(folder, "deepest")
    write_beside(folder, "beside", f"-L{folder}", "-ldeepest", calls="deepest")
    place.library("dep", "-DBESIDE", f"-L{folder}", "-lbeside", f"-Wl,-rpath-link,{folder}")
    place.model("m", "dep")
    with place.served(ready=True) as server:
        assert ask(server, "m").startswith("deepest 1 ")
    (folder / "libdeepest.so").unlink()
    with place.served() as server:
        assert "libdeepest.so: cannot open shared object file" in server.log()


def test_a_dependency_that_cannot_be_loaded_is_named(place):
    folder = place.backends / "dep"
    library = write_beside(folder, "beside")
    place.library("dep", "-DBESIDE", f"-L{folder}", "-lbeside")
    place.model("m", "dep")
    library.write_text("not a library")
    with place.served() as server:
        assert f"unable to load shared library: {library}: " in server.log()


def test_a_dependency_without_a_soname_is_an_error(place):
    """An opened library without a name is not found again; the linker's error is reported."""
    folder = place.backends / "dep"
    write_beside(folder, "beside")
    place.library("dep", "-DBESIDE", f"-L{folder}", "-lbeside")
    compile_library(folder / "libbeside.so", source=folder / "beside.c")
    place.model("m", "dep")
    with place.served() as server:
        assert "libbeside.so: cannot open shared object file" in server.log()


# ---- Settings

@pytest.mark.parametrize("which", ["conch", "triton"])
def test_settings_reach_their_backend(place, which):
    """Settings for all backends reach every backend. A backend's own settings win, before or after, and reach no other;
    the last of equal ones counts."""
    for name in ("one", "two"):
        place.library(name, f"-DSAYS={name}")
        place.model(name, name)
    flags = ("--backend-config=shared=all", "--backend-config=one,own=1",
             "--backend-config=one,shared=mine", "--backend-config=default-max-batch-size=7", "--backend-config=shared=every",
             "--backend-config=two,default-max-batch-size=8", "--backend-config=default-max-batch-size=9")
    with place.served(*flags, which=which, ready=True) as server:
        settings = {name: json.loads(ask(server, name).split(" ", 2)[2])["cmdline"] for name in ("one", "two")}
    common = {"auto-complete-config": "true", "backend-directory": str(place.backends),
              "min-compute-capability": settings["two"]["min-compute-capability"], "default-max-batch-size": "9"}
    assert settings == {"one": common | {"shared": "mine", "own": "1"},
                        "two": common | {"shared": "every", "default-max-batch-size": "8"}}


# ---- The end of the server

@pytest.mark.parametrize("function", ["Initialize", "ModelInitialize", "ModelInstanceExecute"])
def test_a_crash_ends_the_server_and_names_the_library(place, function):
    """A write to an invalid address is always a crash: the log names the library."""
    place.library("bad", f"-DCRASHES={function}")
    place.model("m", "bad")
    server = place.served(ready=None)
    server.start()
    try:
        if function == "ModelInstanceExecute":
            server._await_start()
            server.wait_log("Loaded 1 of 1 models")
            with pytest.raises(OSError):
                ask(server, "m")
        code = server.wait()
    finally:
        server.kill()
    assert code in ((1, 66) if servers.SANITIZED else (-signal.SIGSEGV,))  # AddressSanitizer ends with 1, ThreadSanitizer with 66
    assert ("library.c" if servers.SANITIZED else "libtriton_bad.so") in server.log()  # a sanitizer names the source
