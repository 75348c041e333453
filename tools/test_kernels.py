"""Runs the tests of what a kernel decides once for each kernel of this machine, and prints a table of the results.

    python tools/test_kernels.py                      every kernel that runs here, and none compiled
    python tools/test_kernels.py cpu-avx2 numpy       these alone
    python tools/test_kernels.py -- tests/search -x    other tests, other options of pytest
    python tools/test_kernels.py emulated-amx         the sources for AMX, on a processor without it
    python tools/test_kernels.py aarch64-neondot -- tests/search/test_kernels.py -k cpu-neondot    NEON, under QEMU

A kernel is chosen as a user chooses it, by TAPR_KERNEL. "not compiled" hides the compiled kernel from this and all
processes that a test starts, and leaves the choice open: NumPy takes over. "emulated-..." builds the compiled kernel
with AVX-512 and AMX in plain C++ (tests/search/emulated): slow, but the same computation. It needs g++. "aarch64-..."
builds it for ARM and hands every call to QEMU (tests/search/aarch64): qemu-user and g++-aarch64-linux-gnu of Debian.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from datetime import date
from pathlib import Path

TESTS = ["search", "score", "explain", "methods", "evaluate", "gallery", "cli"]
NOT_COMPILED = "not compiled"
EMULATED = "emulated-"
EMULATED_SETS = ("avx512", "avx512vnni", "avxvnni", "amx", "processor")
AARCH64 = "aarch64-"
AARCH64_COMPILER, QEMU = "aarch64-linux-gnu-g++", "qemu-aarch64"
ROOT = Path(__file__).parents[1]
# What every process that a test starts reads first: the compiled kernel is elsewhere, or not there, as if not built.
ELSEWHERE = """
import importlib.util
import sys

class Elsewhere:
    def find_spec(self, name, path=None, target=None):
        if name == "tapr.search.kernels._kernel":
            if not {file!r}:
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
            return importlib.util.spec_from_file_location(name, {file!r})

sys.meta_path.insert(0, Elsewhere())
"""


def kernels() -> list[str]:
    """As TAPR_KERNEL takes them, the fastest processor's first."""
    found = []
    try:
        from tapr.search.kernels.cpu import isas

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


def build_emulated(folder: Path) -> Path:
    native, file = ROOT / "src/tapr/search/kernels/native", folder / "_kernel.so"
    options = ["-std=c++17", "-O2", "-march=native", "-ffp-contract=fast", "-fPIC", "-w", "-Wno-psabi"]
    includes = [f"-I{sysconfig.get_paths()['include']}"]
    for source in sorted(native.glob("*.cpp")):
        before = [f"-I{ROOT / 'tests/search/emulated'}"] if source.stem in EMULATED_SETS else []
        before += ["-DTAPR_REAL_AVX2"] if source.stem == "avxvnni" else []
        output = str(folder / f"{source.stem}.o")
        subprocess.run(["g++", *options, *before, *includes, "-c", str(source), "-o", output], check=True)
    objects = map(str, folder.glob("*.o"))
    subprocess.run(["g++", "-shared", "-pthread", *objects, "-o", str(file)], check=True)
    return file


def aarch64_missing() -> str:
    """What has to be installed before the kernel can be run for aarch64; "" when nothing."""
    packages = {AARCH64_COMPILER: "g++-aarch64-linux-gnu", QEMU: "qemu-user"}
    return " ".join(package for program, package in packages.items() if not shutil.which(program))


def build_aarch64(folder: Path) -> Path:
    """The driver with the kernel's sources, but for the Python module."""
    native, file = ROOT / "src/tapr/search/kernels/native", folder / "driver"
    sources = [ROOT / "tests/search/aarch64/driver.cpp", *sorted(native.glob("*.cpp"))]
    options = ["-std=c++17", "-O2", "-ffp-contract=fast", "-static", "-pthread", "-w", f"-I{native}"]
    chosen = [str(source) for source in sources if source.stem != "module"]
    subprocess.run([AARCH64_COMPILER, *options, *chosen, "-o", str(file)], check=True)
    return file


def aarch64_command(driver: Path, isa: str) -> list[str]:
    """How the driver is run: on all that QEMU knows, or, for plain NEON, on a processor without SDOT."""
    return [QEMU, "-cpu", "max" if isa == "neondot" else "cortex-a53", str(driver)]


def run(kernel: str, arguments: list[str], folder: Path) -> tuple[bool, str]:
    """-> whether all passed, and pytest's last line"""
    environment = {name: value for name, value in os.environ.items() if name != "TAPR_KERNEL"}
    emulated, aarch64 = kernel.startswith(EMULATED), kernel.startswith(AARCH64)
    if emulated or aarch64 or kernel == NOT_COMPILED:
        file = ""
        if emulated:
            file = str(build_emulated(folder))
        elif aarch64:
            file = str(ROOT / "tests/search/aarch64/_kernel.py")
            command = aarch64_command(build_aarch64(folder), kernel.removeprefix(AARCH64))
            environment["TAPR_AARCH64"] = json.dumps(command)
        (folder / "sitecustomize.py").write_text(ELSEWHERE.format(file=file))
        paths = [str(folder), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    if kernel != NOT_COMPILED:
        environment["TAPR_KERNEL"] = kernel.replace(EMULATED, "cpu-").replace(AARCH64, "cpu-")
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
    tests = rest or [str(ROOT / "tests" / name) for name in TESTS]
    rows, good = [], True
    for kernel in chosen or kernels():
        print(f"{kernel} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            passed, said = run(kernel, tests, Path(folder))
        good &= passed
        rows.append(f"| `{kernel}` | {'pass' if passed else '**fail**'} | {said} |")
    print(f"{date.today()}, {processor()}\n\n| kernel | result | tests |\n|---|---|---|")
    print("\n".join(rows))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
