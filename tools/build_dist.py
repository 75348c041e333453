"""Builds the sdist and the wheel twice, in two folders, and compares every byte; then installs and tries them.

    python tools/build_dist.py                  into dist/
    python tools/build_dist.py --out FOLDER --no-try

Needs the package `build`; `make dist` sets it up. The sources are what git tracks, and their date is that of the last
commit (or SOURCE_DATE_EPOCH). Tried are, each in an empty environment with dependencies from the package index,
the wheel, the sdist with a compiler, and the sdist without one: there NumPy has to take over and say so.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
NO_COMPILER = {"CC": "/usr/bin/false", "CXX": "/usr/bin/false"}


def epoch() -> int:
    """Seconds: the date of everything in the archives."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    return int(subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT, text=True))


def copy_tracked(folder: Path) -> None:
    """What git tracks, as it lies in the work tree: a file that lies about cannot slip into a release."""
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def build_sdist(source: Path, folder: Path, date: int) -> Path:
    shutil.copytree(source, folder / "source")
    _python("build", "--sdist", "--outdir", str(folder / "raw"), str(folder / "source"), date=date)
    (raw,) = (folder / "raw").iterdir()
    return write_plain(raw, folder / "dist" / raw.name, date)


def write_plain(raw: Path, to: Path, date: int) -> Path:
    """The same archive in one order, with one date and one owner, which setuptools leaves to chance."""
    to.parent.mkdir(parents=True, exist_ok=True)
    plain = io.BytesIO()
    with tarfile.open(raw) as old, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            info = tarfile.TarInfo(member.name)
            info.type, info.size, info.mtime = member.type, member.size, date
            info.mode = 0o755 if member.isdir() else 0o644
            new.addfile(info, old.extractfile(member) if member.isfile() else None)
    with to.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=date) as packed:
        packed.write(plain.getvalue())
    return to


def build_wheel(sdist: Path, folder: Path, date: int) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    _python("build", "--wheel", "--outdir", str(folder / "wheel"), str(source), date=date)
    (wheel,) = (folder / "wheel").iterdir()
    return wheel


def build(source: Path, folder: Path, date: int) -> list[Path]:
    sdist = build_sdist(source, folder, date)
    return [sdist, build_wheel(sdist, folder, date)]


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def try_out(package: Path, kernel: str, changed: dict[str, str]) -> None:
    """Installs in an empty environment, and searches in it; `kernel`: how the name of the kernel must begin."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / ("Scripts" if sys.platform == "win32" else "bin") / "python")
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TAPR_KERNEL")}
        environment |= changed
        install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir" if changed else "--quiet", str(package)]
        subprocess.run(install, env=environment, check=True)
        subprocess.run([python, "-I", str(ROOT / "tools/smoke.py"), kernel], env=environment, cwd=folder, check=True)


def _python(*arguments: str, date: int) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(date)}
    subprocess.run([sys.executable, "-m", *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the sdist and the wheel, twice, and try them.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--no-try", action="store_true", help="build and compare only")
    options = parser.parse_args()
    os.umask(0o022)  # modes of files are part of a wheel
    date = epoch()
    with tempfile.TemporaryDirectory() as temporary:
        source, one, other = (Path(temporary) / name for name in ("source", "one", "another"))
        copy_tracked(source)
        first, second = build(source, one, date), build(source, other, date)
        for file, again in zip(first, second, strict=True):
            if (file.name, sha256(file)) != (again.name, sha256(again)):
                print(f"{file.name} is not the same twice: {sha256(file)}, {sha256(again)}", file=sys.stderr)
                return 1
        options.out.mkdir(parents=True, exist_ok=True)
        built = [Path(shutil.copy(file, options.out)) for file in first]
    for file in built:
        print(f"{sha256(file)}  {file.name}  {file.stat().st_size:,} bytes, twice the same")
    if not options.no_try:
        sdist, wheel = built
        compiled = "numpy" if sys.platform == "win32" else "cpu-"
        try_out(wheel, compiled, {})
        try_out(sdist, compiled, {})
        if sys.platform != "win32":
            try_out(sdist, "numpy", NO_COMPILER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
