# SPDX-License-Identifier: Apache-2.0
"""The Debian package, the systemd unit, and `make install` with `make uninstall`."""

import re
import shutil
import subprocess

import pytest

from server import BUILD, ROOT, SANITIZED

pytestmark = [
    pytest.mark.conch_only("it is about our files"),
    pytest.mark.skipif(SANITIZED, reason="a build with a sanitizer has no manual page, and is not installed"),
]


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, timeout=300, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return run(ROOT / "tools/package-deb", "-z", "none", BUILD, tmp_path_factory.mktemp("deb")).strip()


def test_package_has_a_program_that_runs_where_it_lies(package, tmp_path):
    run("dpkg-deb", "-x", package, tmp_path)
    program = tmp_path / "usr/bin/conch"
    assert "conch" in run(program, "--version")
    # Its own backends are found, so that a check of the examples has no finding.
    examples = tmp_path / "usr/share/doc/conch/examples/models"
    assert re.match(r"\d+ models, 0 errors, 0 warnings, ", run(program, "check", "--strict", examples))
    for path in ("usr/bin/tritonserver", "lib/systemd/system/conch.service", "etc/default/conch", "usr/share/man/man1/conch.1.gz",
                 "usr/share/bash-completion/completions/conch", "usr/share/zsh/vendor-completions/_conch",
                 "usr/share/fish/vendor_completions.d/conch.fish", "usr/share/doc/conch/copyright", "usr/share/doc/conch/deployment.md"):
        assert (tmp_path / path).exists(), path
    assert not (tmp_path / "usr/lib/conch/include").exists()


def test_package_names_its_version_and_what_it_needs(package):
    fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", package).splitlines() if re.match(r"[A-Z][\w-]*: ", line))
    assert fields["Version"] == run(ROOT / "tools/version").strip()
    needed = {entry.split()[0] for entry in fields["Depends"].split(", ")}
    assert {"adduser", "libc6", "libjemalloc2", "libnghttp2-14", "libprotobuf-c1", "libssl3"} <= needed
    assert "conffiles" in run("dpkg-deb", "-I", package)


@pytest.mark.skipif(not shutil.which("lintian"), reason="lintian is not installed (make deb installs it)")
def test_lintian_has_nothing_to_say(package):
    said = run("lintian", "--fail-on", "error,warning", "--suppress-tags",
               "uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball", package)
    assert not re.search(r"^[EW]: ", said, re.MULTILINE), said


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_scripts_of_the_package_can_be_parsed_and_stop_at_errors(script):
    path = ROOT / "deploy/debian" / script
    run("sh", "-n", path)
    assert "\nset -e\n" in path.read_text(encoding="utf-8")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_unit_is_valid_and_hardened(tmp_path):
    unit = tmp_path / "conch.service"
    text = (ROOT / "deploy/systemd/conch.service").read_text(encoding="utf-8")
    assert re.search(r"^Type=notify$", text, re.MULTILINE) and re.search(r"^WatchdogSec=\d+$", text, re.MULTILINE)
    unit.write_text(text.replace("ExecStart=/usr/bin/conch", "ExecStart=/bin/true"), encoding="utf-8")
    said = run("systemd-analyze", "verify", "--man=no", unit, stdin=subprocess.DEVNULL)
    assert said == ""
    score = re.search(r"Overall exposure level for conch.service: ([\d.]+)",
                      run("systemd-analyze", "security", "--offline=true", "--no-pager", unit))
    assert float(score[1]) < 2.5


def test_uninstall_removes_what_was_installed_and_nothing_else(tmp_path):
    other = tmp_path / "usr/local/bin/other"
    other.parent.mkdir(parents=True)
    other.write_text("x")
    kept = BUILD / "install_manifest.txt"
    before = kept.read_bytes() if kept.exists() else None
    try:
        run("cmake", "--install", BUILD, "--prefix", "/usr/local", env={"PATH": "/usr/bin:/bin", "DESTDIR": str(tmp_path)})
        assert (tmp_path / "usr/local/bin/conch").exists()
        assert re.fullmatch(r"uninstall: \d+ files removed\n", run(ROOT / "tools/uninstall", BUILD, tmp_path))
    finally:
        if before is None:
            kept.unlink()
        else:
            kept.write_bytes(before)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == [other]


def test_compose_file_names_files_that_are_there():
    text = (ROOT / "deploy/container/compose.yaml").read_text(encoding="utf-8")
    named = re.findall(r"^ *- (\.\.?/\S+?):", text, re.MULTILINE)
    assert named == ["./prometheus.yml", "../prometheus/conch-rules.yml", "./grafana.yml", "./dashboards.yml",
                     "../grafana/conch.json"]
    assert all((ROOT / "deploy/container" / name).is_file() for name in named)
    assert "conch:8002" in (ROOT / "deploy/container/prometheus.yml").read_text(encoding="utf-8")
    images = re.findall(r"^FROM (\S+)", (ROOT / "deploy/container/Containerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert images == ["debian:12", "debian:12-slim"]
