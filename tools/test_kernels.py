"""Runs the tests of what a kernel decides once for each kernel of this machine, and prints a table of the results.

    python tools/test_kernels.py                      every kernel that runs here, and none compiled
    python tools/test_kernels.py cpu-avx2 numpy       these alone
    python tools/test_kernels.py -- tests/match -x    other tests, other options of pytest

A kernel is chosen as a user chooses it, by TAPR_KERNEL. "not compiled" hides the compiled kernel from this and all
processes that a test starts, and leaves the choice open: NumPy takes over.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

TESTS = ["match", "methods", "evaluate", "gallery", "commands", "test_search.py", "test_explain.py"]
NOT_COMPILED = "not compiled"
HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "tapr.match._kernel":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""  # as if it had not been built


def kernels() -> list[str]:
    """As TAPR_KERNEL takes them, the fastest processor's first."""
    found = []
    try:
        from tapr.match.cpu import isas

        found += [f"cpu-{isa}" for isa in isas()]
    except ImportError:
        print("no compiled kernel here: install a C++17 compiler and reinstall to test it", file=sys.stderr)
    found.append("numpy")
    try:
        import torch

        found += ["torch", "cuda"] if torch.cuda.is_available() else ["torch"]
    except ImportError:
        print("no torch here: its kernels are left out", file=sys.stderr)
    return [*found, NOT_COMPILED]


def run(kernel: str, arguments: list[str], hiding: Path) -> tuple[bool, str]:
    """-> whether all passed, and pytest's last line"""
    environment = {name: value for name, value in os.environ.items() if name != "TAPR_KERNEL"}
    if kernel == NOT_COMPILED:
        paths = [str(hiding), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        environment["TAPR_KERNEL"] = kernel
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(done.stdout)
    counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?)", done.stdout.strip().rpartition("\n")[2])
    return done.returncode == 0, ", ".join(counts) or f"pytest ended with {done.returncode}"


def processor() -> str:
    try:
        names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def main(arguments: list[str]) -> int:
    chosen, rest = arguments, []
    if "--" in arguments:
        chosen, rest = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    root = Path(__file__).parents[1]
    tests = rest or [str(root / "tests" / name) for name in TESTS]
    rows, good = [], True
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(HIDE)
        for kernel in chosen or kernels():
            print(f"{kernel} ...", file=sys.stderr, flush=True)
            passed, said = run(kernel, tests, Path(folder))
            good &= passed
            rows.append(f"| `{kernel}` | {'pass' if passed else '**fail**'} | {said} |")
    print(f"{date.today()}, {processor()}\n\n| kernel | result | tests |\n|---|---|---|")
    print("\n".join(rows))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
