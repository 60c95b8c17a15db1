# SPDX-License-Identifier: Apache-2.0
"""Symbolic links in a repository: links inside it are followed, links out of it only if that is permitted."""

import os
import pathlib
import re
import shutil

import pytest

import repository
from server import BACKENDS, REFERENCE, Server, run_to_end
from wire import ask, infer

pytestmark = pytest.mark.skipif(REFERENCE, reason="the genuine Triton follows every link")

FLAGS = ["--allow-grpc=false", "--allow-metrics=false", "--http-port=0"]
FOLLOW = "--repository-follow-symlinks=true"
ONE = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}


def whole_folder(models, outside):
    return "m", outside / "m"


def version_folder(models, outside):
    return "m/1", outside / "m" / "1"


def configuration(models, outside):
    return "m/config.pbtxt", outside / "m" / "config.pbtxt"


def file_of_a_version(models, outside):
    (outside / "m" / "1" / "model.bin").write_text("x")
    return "m/1/model.bin", outside / "m" / "1" / "model.bin"


def folder_of_configurations(models, outside):
    (outside / "m" / "configs").mkdir()
    shutil.copy(outside / "m" / "config.pbtxt", outside / "m" / "configs" / "mine.pbtxt")
    return "m/configs", outside / "m" / "configs"


def library_beside_the_versions(models, outside):
    shutil.copy(pathlib.Path(BACKENDS, "identity", "libtriton_identity.so"), outside / "m")
    return "m/libtriton_identity.so", outside / "m" / "libtriton_identity.so"


PLACES = [whole_folder, version_folder, configuration, file_of_a_version, folder_of_configurations, library_beside_the_versions]


@pytest.fixture
def outside(tmp_path):
    """A folder beside the repository whose name begins like the repository's."""
    root = tmp_path / "models and more"
    repository.write_identity(root, "m", [("FP32", [-1])])
    return root


def put_link(models, outside, place):
    """Writes the model with one link in it that leads out: (link, target)."""
    name, target = place(models, outside)
    shutil.copytree(outside / "m", models / "m")
    link = models / name
    if link.is_dir():
        shutil.rmtree(link)
    else:
        link.unlink()
    link.symlink_to(target)
    return link, target


@pytest.mark.parametrize("place", PLACES)
def test_a_link_that_leads_out_is_refused_by_name(models, outside, place):
    link, target = put_link(models, outside, place)
    code, _, err = run_to_end(f"--model-repository={models}", *FLAGS, "--model-config-name=mine")
    assert code == 1
    assert re.search("(Poll failed for model directory 'm'|failed to load 'm' version 1): (Invalid argument: )?link", err)
    assert (
        f"link '{link}' leads to '{target}', out of the model repository; "
        "--repository-follow-symlinks=true permits that"
    ) in err


@pytest.mark.parametrize("place", PLACES)
def test_a_link_that_leads_out_is_followed_when_that_is_permitted(models, outside, place):
    put_link(models, outside, place)
    with Server(models, flags=[FOLLOW, "--model-config-name=mine"]) as server:
        assert infer(server, "m", ONE).status == 200


def test_a_relative_link_that_leads_out_and_one_behind_a_good_one(models, outside):
    repository.write_identity(models, "m", [("FP32", [-1])])
    (models / "m" / "1").rmdir()
    (models / "m" / "1").symlink_to("first")
    (models / "m" / "first").symlink_to("../../models and more/m/1")
    code, _, err = run_to_end(f"--model-repository={models}", *FLAGS)
    assert code == 1
    assert f"link '{models}/m/1' leads to '{outside}/m/1', out of the model repository" in err


def test_links_within_the_repository_are_followed(models):
    repository.write_identity(models, "real", [("FP32", [-1])])
    real = models / "real"
    (real / "1").rename(real / "data")
    (real / "1").symlink_to("data")
    (real / "data" / "model.bin").symlink_to(models / "shared.bin")  # absolute
    (models / "shared.bin").write_text("x")
    (real / "config.pbtxt").rename(models / "config of real")
    (real / "config.pbtxt").symlink_to("../config of real")
    (real / "config.pbtxt").chmod(0o644)
    (models / "again").symlink_to("real")
    config = (models / "config of real").read_text().replace('name: "real"\n', "")
    (models / "config of real").write_text(config)
    with Server(models) as server:
        assert infer(server, "real", ONE).status == infer(server, "again", ONE).status == 200


def test_the_repository_itself_may_be_a_link(models, tmp_path):
    repository.write_identity(models, "m", [("FP32", [-1])])
    (tmp_path / "link").symlink_to(models)
    with Server(tmp_path / "link") as server:
        assert infer(server, "m", ONE).status == 200
    here = os.getcwd()
    with Server(os.path.relpath(tmp_path / "link", here)) as server:
        assert infer(server, "m", ONE).status == 200


def mount_config_map(folder, files):
    """Makes a folder as Kubernetes makes it of a ConfigMap: each name is a link through ..data, which is a link itself."""
    folder.mkdir(exist_ok=True)
    real = folder / "..2026_11_20_18_00_00.123456789"
    for name, content in files.items():
        (real / name).parent.mkdir(parents=True, exist_ok=True)
        (real / name).write_text(content)
    (folder / "..data").symlink_to(real.name)
    for top in {name.split("/")[0] for name in files}:
        (folder / top).symlink_to(f"..data/{top}")


def test_a_config_map_may_be_a_model(models, tmp_path):
    config = repository.write_identity(tmp_path / "other", "m", [("FP32", [-1])]) / "config.pbtxt"
    mount_config_map(models / "m", {"config.pbtxt": config.read_text()})
    (models / "m" / "1").mkdir()
    with Server(models) as server:
        assert infer(server, "m", ONE).status == 200
        assert "ignore version directory" not in server.log()


def test_a_config_map_may_be_a_repository(models, tmp_path):
    config = repository.write_identity(tmp_path / "other", "m", [("FP32", [-1])]) / "config.pbtxt"
    mount_config_map(models, {"m/config.pbtxt": config.read_text(), "m/1/model.bin": "x"})
    with Server(models) as server:
        assert infer(server, "m", ONE).status == 200
        assert "..data" not in server.log()


def test_broken_links_are_left_out_or_fail_the_load(models):
    """A broken link beside the models is left out with a warning. A broken link in a model fails its load."""
    for name in ("good", "config", "version"):
        repository.write_identity(models, name, [("FP32", [-1])])
    (models / "nowhere").symlink_to("not there")
    (models / "itself").symlink_to("itself")
    (models / "config" / "config.pbtxt").unlink()
    (models / "config" / "config.pbtxt").symlink_to("gone")
    (models / "version" / "2").symlink_to("/gone/too")
    with Server(models, flags=["--exit-on-error=false"], ready=False) as server:
        server.await_rest()
        assert infer(server, "good", ONE).status == 200
        log = server.log()
        assert f"left out: Not found: link '{models}/nowhere' leads to 'not there', which does not exist" in log
        assert f"Poll failed for model directory 'itself': failed to open '{models}/itself': Too many levels" in log
        assert f"Poll failed for model directory 'config': link '{models}/config/config.pbtxt' leads to 'gone', which does not exist" in log
        assert f"Poll failed for model directory 'version': link '{models}/version/2' leads to '/gone/too', which does not exist" in log


def test_unused_links_do_no_harm(models, tmp_path):
    repository.write_identity(models, "m", [("FP32", [-1])])
    (tmp_path / "notes").write_text("x")
    (models / "README").symlink_to(tmp_path / "notes")
    (models / "m" / "notes").symlink_to(tmp_path)
    (models / "m" / "nothing").symlink_to("nothing at all")
    with Server(models) as server:
        assert infer(server, "m", ONE).status == 200
        assert ask(server, "GET", "/v2/models/README").status == 404


def test_a_device_is_not_read_even_if_links_may_lead_to_it(models):
    folder = repository.write_identity(models, "m", [("FP32", [-1])])
    (folder / "config.pbtxt").unlink()
    (folder / "config.pbtxt").symlink_to("/dev/zero")
    code, _, err = run_to_end(f"--model-repository={models}", *FLAGS, FOLLOW)
    assert code == 1
    assert f"'{folder}/config.pbtxt' is something special, not a regular file" in err


def test_the_links_of_every_served_version_are_examined(models, tmp_path):
    folder = repository.write_identity(models, "m", [("FP32", [-1])], versions=("1", "2", "10"))
    (tmp_path / "model.bin").write_text("x")
    (folder / "2" / "model.bin").symlink_to(tmp_path / "model.bin")
    with Server(models) as server:  # version 10 only
        assert infer(server, "m", ONE).status == 200
    with (folder / "config.pbtxt").open("a") as config:
        config.write("version_policy { all { } }\n")
    code, _, err = run_to_end(f"--model-repository={models}", *FLAGS)
    assert code == 1
    assert f"Poll failed for model directory 'm': link '{folder}/2/model.bin' leads to" in err
