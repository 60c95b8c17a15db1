# SPDX-License-Identifier: Apache-2.0
"""Where repositories lie, and what in them is a model."""

import pytest

import repository
from server import Server, run_to_end


@pytest.mark.parametrize(("scheme", "option"), [("s3", "S3"), ("gs", "GCS"), ("as", "AZURE_STORAGE")])
def test_object_stores_are_refused_by_name(scheme, option):
    code, _, err = run_to_end(f"--model-repository={scheme}://somewhere/models", "--allow-grpc=false", "--allow-metrics=false")
    assert code == 1
    text = f"{scheme}:// file-system not supported. To enable, build with -DTRITON_ENABLE_{option}=ON."
    assert f"error: creating server: Internal - {text}" in err


def test_links_within_the_repository_are_followed(models):
    repository.write_identity(models, "real", [("FP32", [-1])])
    (models / "real" / "1").rename(models / "real" / "data")
    (models / "real" / "1").symlink_to("data")
    (models / "real" / "config.pbtxt").rename(models / "config of real")
    (models / "real" / "config.pbtxt").symlink_to(models / "config of real")
    with Server(models) as server:
        assert "loading: real:1" in server.log()
