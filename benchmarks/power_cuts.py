"""Cut the power at random moments of writing, and see that what was acknowledged is there and that every gallery opens.

python benchmarks/power_cuts.py [--cuts 200] [--seed 0]

A program puts, deletes and syncs, saves searches and records their matches, takes backups, restores them and makes new
galleries. A layer under it (tests/faults/record.c, loaded with LD_PRELOAD) records each write, truncation, rename,
deletion and fsync, SQLite's too. A power cut is a place in that record. The folder is built again as a disk might hold
it after the cut:

- a file holds what it held at its last fsync; of later writes and truncations none, all or a random part is there, and
  each write may be torn between two sectors of 512 bytes;
- a folder has the names that it had at its last fsync; of later changes of names a part is there, from the first on
  (journals of file systems keep their order), none or all of them.

Then every acknowledged gallery must open, hold exactly the last acknowledged state or the one that was being written,
verify without damage, and take the next write. One that was being made is there whole, or it is made again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from tapr import Gallery
from tapr.encoders.fake import COLOURS, FakeEncoder
from tapr.store.backup import copy_gallery
from tapr.store.layout import MANIFEST
from tapr.store.verify import verify

FAULTS = Path(__file__).parents[1] / "tests" / "faults"
state_of = runpy.run_path(str(FAULTS / "power_child.py"))["state_of"]
State = dict[str, dict[str, Any]]  # what each gallery holds, by its place in the folder
SECTOR = 512  # bytes that a disk writes whole or not at all, as SQLite's tests assume, too
SURVIVES = ("nothing", "names", "some", "all")  # of what was not flushed


@dataclass(frozen=True)
class Operation:
    kind: str
    inode: int
    first: int
    second: int
    text: str
    data: bytes = b""


def read_log(path: Path) -> list[Operation]:
    data, at, out = path.read_bytes(), 0, []
    while at < len(data):
        end = data.index(b"\n", at)
        kind, inode, first, second, text = data[at:end].decode().split(" ", 4)
        at = end + 1
        body = b""
        if kind == "W":
            body = data[at : at + int(second)]
            at += int(second)
        out.append(Operation(kind, int(inode), int(first), int(second), text, body))
    return out


@dataclass
class File:
    flushed: bytes = b""
    pending: list[Operation] = field(default_factory=list)

    def after(self, survives: str, dice: random.Random) -> bytes:
        content = bytearray(self.flushed)
        for one in self.pending:
            if survives in ("nothing", "names") or (survives == "some" and dice.random() < 0.5):
                continue
            data = one.data
            if survives == "some" and dice.random() < 0.3:
                end = (one.first + dice.randrange(len(data) + 1)) // SECTOR * SECTOR
                data = data[: max(0, end - one.first)]
            if one.kind == "T":
                content = content[: one.first].ljust(one.first, b"\0")
            else:
                content = content.ljust(one.first, b"\0")
                content[one.first : one.first + len(data)] = data
        return bytes(content)


@dataclass
class Folder:
    flushed: dict[str, File | None] = field(default_factory=dict)  # None: a folder
    pending: list[tuple[str, str, File | None]] = field(default_factory=list)  # what, name, file

    def after(self, survives: str, dice: random.Random) -> dict[str, File | None]:
        names = dict(self.flushed)
        most = {"nothing": 0, "names": len(self.pending), "all": len(self.pending)}
        for what, name, file in self.pending[: most.get(survives, dice.randint(0, len(self.pending)))]:
            if what == "add":
                names[name] = file
            else:
                names.pop(name, None)
        return names


class Disk:
    """What a disk holds for sure, and what it may hold besides."""

    def __init__(self, base: Path, inodes: dict[int, str]) -> None:
        """`base` is a copy of the folder as it was when the record began, `inodes` what its files' numbers were."""
        self._inodes: dict[int, File | Folder] = {}
        self.folders: dict[str, Folder] = {}
        for number, name in sorted(inodes.items(), key=lambda item: item[1]):
            path = base / name
            if path.is_dir():
                self.folders[name] = self._inodes[number] = Folder()
            else:
                self._inodes[number] = File(path.read_bytes())
        for number, name in inodes.items():
            if name != ".":
                parent = str(Path(name).parent)
                one = self._inodes[number]
                self.folders[parent].flushed[Path(name).name] = one if isinstance(one, File) else None

    def do(self, one: Operation, root: str) -> None:
        if one.kind == "F":
            self._flush(self._inodes[one.inode])
        elif one.kind in "WT":
            file = self._inodes[one.inode]
            assert isinstance(file, File)
            file.pending.append(one)
        elif one.kind == "C":
            self._inodes[one.inode] = file = File()
            self._name("add", os.path.relpath(one.text, root), file)
        elif one.kind == "D":
            name = os.path.relpath(one.text, root)
            self.folders[name] = self._inodes[one.inode] = Folder()
            self._name("add", name, None)
        elif one.kind == "R":
            old, new = one.text.split("\t")
            file = self._inodes[one.inode]
            assert isinstance(file, File)
            if old != new:  # then it changes nothing
                self._name("add", os.path.relpath(new, root), file)
                self._name("remove", os.path.relpath(old, root), None)
        elif one.kind == "U":
            self._name("remove", os.path.relpath(one.text, root), None)

    def _flush(self, one: File | Folder) -> None:
        if isinstance(one, File):
            one.flushed, one.pending = one.after("all", random.Random()), []
        else:
            one.flushed, one.pending = one.after("all", random.Random()), []

    def _name(self, what: str, name: str, file: File | None) -> None:
        self.folders[str(Path(name).parent)].pending.append((what, Path(name).name, file))

    def build(self, to: Path, survives: str, dice: random.Random, name: str = ".") -> None:
        (to / name).mkdir(exist_ok=True)
        for each, file in self.folders[name].after(survives, dice).items():
            inside = each if name == "." else f"{name}/{each}"
            if file is None:
                self.build(to, survives, dice, inside)
            else:
                (to / inside).write_bytes(file.after(survives, dice))


@dataclass
class Recording:
    root: str  # the folder of the galleries while it was recorded
    base: Path
    inodes: dict[int, str]
    log: list[Operation]
    pictures: Path

    def cut(self, at: int, survives: str, to: Path, dice: random.Random) -> list[State]:
        """Build the folder after a cut. Return the states that it may have: the last acknowledged one, and the next."""
        disk = Disk(self.base, self.inodes)
        marks = [number for number, one in enumerate(self.log) if one.kind == "M"]
        for one in self.log[:at]:
            disk.do(one, self.root)
        disk.build(to, survives, dice)
        last = max(number for number in marks if number < at)
        following = [number for number in marks if number >= at][:1]
        return [json.loads(self.log[number].text) for number in (last, *following)]


@contextmanager
def recorder() -> Iterator[Path]:
    """The compiled layer."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "record.so"
        compiler = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(FAULTS / "record.c"), "-ldl", "-lpthread"]
        subprocess.run(compiler, check=True)
        yield library


def record(place: Path, library: Path, seed: int) -> Recording:
    folder, pictures, base, log = place / "folder", place / "pictures", place / "base", place / "log"
    gallery = folder / "gallery"
    pictures.mkdir(parents=True)
    for name in sorted(COLOURS)[:6]:
        Image.new("RGB", (24, 24), COLOURS[name]).save(pictures / f"{name}.png")
    opened = Gallery.build(gallery, pictures, FakeEncoder(), "both")
    opened.put("first", (pictures / f"{sorted(COLOURS)[0]}.png").read_bytes())
    del opened
    shutil.copytree(folder, base)
    inodes = {path.stat().st_ino: str(path.relative_to(folder)) for path in (folder, *folder.rglob("*"))}
    command = [sys.executable, str(FAULTS / "power_child.py"), *map(str, (folder, pictures, log, seed))]
    subprocess.run(command, check=True, env={**os.environ, "LD_PRELOAD": str(library)})
    return Recording(str(folder), base, inodes, read_log(log), pictures)


def check(folder: Path, states: list[State], pictures: Path) -> None:
    """Look at every gallery that was acknowledged, or was being made when the power was cut."""
    acknowledged, following = states[0], states[-1]
    assert set(following) >= set(acknowledged)
    for place in following:
        gallery = folder / place
        if place in acknowledged:
            check_gallery(gallery, [acknowledged[place], following[place]])
        elif not (gallery / MANIFEST).exists():  # what was begun is no obstacle
            make_again(folder, place, pictures)
        else:
            empty: dict[str, Any] = {
                "pictures": {},
                "searches": {},
            }  # what a first index run publishes at first
            check_gallery(gallery, [following[place], *([empty] if place.startswith("first") else [])])
    opened = Gallery.open(folder / "gallery", encoder=FakeEncoder())
    opened.sync()  # goes on with an index run that was cut
    opened.put("after the cut", next(pictures.glob("*.png")).read_bytes())
    assert opened.find("after the cut") is not None
    assert verify(opened.path).is_whole


def check_gallery(path: Path, states: list[dict[str, Any]]) -> None:
    state = state_of(Gallery.open(path, encoder=FakeEncoder()))
    counts = [{name: len(part) for name, part in one.items()} for one in (state, *states)]
    assert state in states, f"{path.name} holds {counts[0]}, not {counts[1:]}"
    verdict = verify(path)
    assert verdict.is_whole, verdict


def make_again(folder: Path, place: str, pictures: Path) -> None:
    if place.startswith("first"):
        Gallery.build(folder / place, pictures, FakeEncoder(), "both")
    else:
        copy_gallery(folder / "gallery", folder / place)
    assert verify(folder / place).is_whole


def trial(recording: Recording, dice: random.Random, place: Path) -> str:
    at, survives = dice.randrange(1, len(recording.log) + 1), dice.choice(SURVIVES)
    states = recording.cut(at, survives, place, dice)
    try:
        check(place, states, recording.pictures)
    except Exception as error:
        raise AssertionError(f"a cut at {at} of {len(recording.log)}, {survives} survives: {error!r}") from error
    return survives


def main() -> None:
    parser = argparse.ArgumentParser(description="Power cuts while a gallery is written.")
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    dice, done, failed = random.Random(given.seed), Counter[str](), 0
    with recorder() as library, tempfile.TemporaryDirectory() as folder:
        recordings = [record(Path(folder) / f"recording{n}", library, given.seed + n) for n in range(5)]
        print(f"{len(recordings)} recordings of {', '.join(f'{len(one.log):,}' for one in recordings)} operations")
        for number in range(given.cuts):
            place = Path(folder) / "cut"
            try:
                done[trial(dice.choice(recordings), dice, place)] += 1
            except AssertionError as error:
                failed += 1
                print(f"FAILED {number}: {error}", flush=True)
            shutil.rmtree(place, ignore_errors=True)
    print(f"{given.cuts} power cuts; of what was not flushed survived: {dict(done)}; {failed} failed")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
