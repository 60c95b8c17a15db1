# SPDX-License-Identifier: Apache-2.0
"""The functions of the public ABI: which ones the headers declare, and which ones a library has or needs."""

import pathlib
import re
import subprocess

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
FAMILIES = r"(?:TRITONSERVER|TRITONBACKEND|TRITONCACHE|TRITONREPOAGENT|conch)_\w+"

# Declared in our headers, but defined by plugins: the server looks these up in them.
BY_PLUGINS = {
    "conch_backend_version",  # of our own, src/version.h
    "conch_cache_never_waits",  # include/conch/cache.h
    "TRITONBACKEND_Initialize",
    "TRITONBACKEND_Finalize",
    "TRITONBACKEND_GetBackendAttribute",
    "TRITONBACKEND_ModelInitialize",
    "TRITONBACKEND_ModelFinalize",
    "TRITONBACKEND_ModelInstanceInitialize",
    "TRITONBACKEND_ModelInstanceFinalize",
    "TRITONBACKEND_ModelInstanceExecute",
    "TRITONBACKEND_ModelInstanceReady",
    "TRITONBACKEND_ModelBatcherInitialize",
    "TRITONBACKEND_ModelBatcherFinalize",
    "TRITONBACKEND_ModelBatchIncludeRequest",
    "TRITONBACKEND_ModelBatchInitialize",
    "TRITONBACKEND_ModelBatchFinalize",
    "TRITONCACHE_CacheInitialize",
    "TRITONCACHE_CacheFinalize",
    "TRITONCACHE_CacheLookup",
    "TRITONCACHE_CacheInsert",
    "TRITONREPOAGENT_Initialize",
    "TRITONREPOAGENT_Finalize",
    "TRITONREPOAGENT_ModelInitialize",
    "TRITONREPOAGENT_ModelFinalize",
    "TRITONREPOAGENT_ModelAction",
}


def dynamic(path):
    """The symbols that a shared object defines and those that it needs, without sanitizers' and compilers' own."""
    lines = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = [line.split()[-2:] for line in lines]
    ours = re.compile("(?:TRITON|conch_|CONCH_)")
    defined = {n.split("@")[0] for kind, n in symbols if kind not in "Uwv"}
    wanted = {n.split("@")[0] for kind, n in symbols if kind == "U" and ours.match(n)}
    return defined, wanted


def declared():
    """The functions that all public headers declare, those of plugins included."""
    headers = "".join(f'#include "{p.relative_to(INCLUDE)}"\n' for p in sorted(INCLUDE.rglob("*.h")))
    text = subprocess.run(["gcc", "-E", "-P", f"-I{INCLUDE}", "-"], input=headers, capture_output=True, text=True,
                          check=True).stdout
    return set(re.findall(rf"\b({FAMILIES})\s*\(", text))
