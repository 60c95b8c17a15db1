# SPDX-License-Identifier: Apache-2.0
"""stand_ins TORCH FOLDER: makes empty libraries, by the names of those of CUDA that a PyTorch package for GPUs needs to be
imported and that are not there. So Python's PyTorch runs on CPUs without 3 GB of libraries: LD_LIBRARY_PATH=FOLDER. TORCH is
the folder `torch` of the package. Their functions are data; no code for CPUs calls one."""

import collections
import pathlib
import re
import subprocess
import sys

SYSTEM = [pathlib.Path("/usr/lib/x86_64-linux-gnu"), pathlib.Path("/lib64")]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_needs(libraries):
    """{library: {version: symbols}} of what these files want from others; the version of symbols without one is ""."""
    needed, versions, symbols = set(), collections.defaultdict(set), collections.defaultdict(set)
    for file in libraries:
        headers = output("objdump", "-p", str(file))
        needed.update(re.findall(r"NEEDED +(\S+)", headers))
        for block in re.finditer(r"required from (\S+):\n((?:    0x.*\n)*)", headers):
            versions[block[1]].update(re.findall(r"(\S+)\n", block[2]))
        for name, version in re.findall(r" [Uw] ([^@\s]+)@*(\S*)", output("nm", "-D", "--undefined-only", str(file))):
            symbols[version].add(name)
    return {name: {version: symbols[version] for version in versions[name]} for name in needed}, symbols[""]


def write_stand_in(folder, name, versions, plain):
    """plain: symbols without a version, of which those with the library's prefix are its own."""
    prefix = re.match(r"lib([a-z]+)", name.lower())[1]
    versions = versions or {"": {s for s in plain if s.lower().startswith(prefix)}}
    (folder / "names.c").write_text("static char unused;\n" + "".join(f"void *{s}[64];\n" for v in versions.values() for s in sorted(v)))
    (folder / "versions").write_text("".join(f"{v} {{ global: {'; '.join(sorted(s))}; }};\n" for v, s in versions.items() if v))
    command = ["cc", "-w", "-shared", f"-Wl,-soname,{name}", "-o", str(folder / name), str(folder / "names.c")]
    subprocess.run(command + ([f"-Wl,--version-script={folder / 'versions'}"] if any(versions) else []), check=True)


def write_stand_ins(torch, folder):
    libraries = [*torch.glob("lib/*.so*")]
    there = {file.name for file in [*libraries, *torch.parent.glob("nvidia/*/lib/*")]}
    needs, plain = read_needs(libraries)
    for name, versions in needs.items():
        if name not in there and not any((where / name).exists() for where in SYSTEM):
            write_stand_in(folder, name, versions, plain)


if __name__ == "__main__":
    write_stand_ins(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
