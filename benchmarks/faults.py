"""Disturb index runs, syncs and repairs at random points, and see that nothing is lost, doubled or mixed up.

python benchmarks/faults.py [--trials 200] [--seed 0]

tapr runs as a process of its own, with a layer under it (tests/faults/faults.c, loaded with LD_PRELOAD) that counts the
operations on the gallery's files, SQLite's too, and lets one of them go wrong: the process is killed before it or in
the middle of it, the disk is full from there on, an fsync fails, writes are cut short. Meanwhile readers open the
gallery again and again and compare all that they are told with the state before and the state after. Then the command
is run again, undisturbed, and the gallery is compared with one that was never disturbed: shards byte for byte, the
catalogue row by row. At last a server answers while syncs are killed, and every answer is compared in the same way.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tapr import EditSpec, Gallery, TaprError, search
from tapr.encoders.fake import FakeEncoder
from tapr.store.layout import Manifest, catalog_path
from tapr.store.verify import verify

PARTS = Path(__file__).parents[1] / "tests" / "faults"
CHILD = PARTS / "child.py"
PAUSE = 0.005  # seconds between two looks of the readers
KINDS = ("kill", "torn", "full", "sync", "short")
_REFERENCE = "020.png"  # in all states
_SERVER = """
import sys
from tapr.cli.serve import run_server
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.server.settings import Settings
run_server(Gallery.open(sys.argv[1], encoder=FakeEncoder()), Settings(port=0), "target-only", as_json=True)
"""
Content = dict[str, bytes]  # id -> all that is stored of the picture


class Wrong(AssertionError):
    """A gallery is not what it should be."""


@dataclass(frozen=True)
class Scenario:
    """A command, the gallery that it starts from, and what it makes of it when nothing disturbs it."""

    name: str
    command: tuple[str, ...]
    pictures: Path  # what the sources hold when it runs
    base: Path | None  # None: there is no gallery yet
    damaged: bool  # the base cannot be relied on: readers may be refused
    before: Content | None
    after: Content
    whole: dict[str, bytes]  # the files of the shards
    rows: list[Any]  # of the catalogue
    operations: int


@dataclass
class ColumnStatistics:
    trials: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    reads: int = 0  # by readers while the command ran


class Workshop:
    """The pictures, the scenarios, and one folder in which trials happen."""

    def __init__(self, work: Path, pictures: int = 24) -> None:
        self._work, self._tapr = work, Disturbed(build_layer(work))
        self.gallery, self._shown = work / "trial" / "gallery", work / "pictures"
        self.gallery.parent.mkdir()
        self._make_pictures(pictures)
        start = ("index", str(self._shown), "-g", str(self.gallery), "--encoder", "fake")
        again, mend = ("index", "-g", str(self.gallery)), ("repair", "-g", str(self.gallery))
        index = self._undisturbed("index", start, "one", None)
        one, hurt = work / "made-index", work / "hurt"
        shutil.copytree(one, hurt)
        damage(hurt)
        self.scenarios = {
            "index": index,
            "sync": self._undisturbed("sync", again, "two", one),
            "compact": self._undisturbed("compact", again, "few", one),
            "repair": self._undisturbed("repair", mend, "one", hurt),
        }

    def close(self) -> None:
        self._tapr.close()

    def trial(self, scenario: Scenario, kind: str, at: int, tally: ColumnStatistics) -> None:
        """One disturbed run, its resumption, and all comparisons; raises Wrong."""
        self._reset(scenario)
        held = Gallery.open(self.gallery) if scenario.before is not None and not scenario.damaged else None
        self._tapr.start(scenario.command, self.gallery, at, kind)
        while not self._tapr.has_ended(PAUSE):
            tally.reads += self._read(scenario, held)
        end = self._tapr.end()
        check_end(kind, end)
        tally.reads += self._read(scenario, held)
        again = self._tapr.run(scenario.command)
        if again.code:
            raise Wrong(f"the run after it failed: {again.said}")
        self.check(scenario)
        if held is not None and content(held) != scenario.before:
            raise Wrong("a reader that was open is told other things than before")
        ended = {0: "it ended well", 1: "it failed with a sentence"}.get(end.code, "it was killed")
        tally.trials += 1
        tally.outcomes[ended] += 1

    def check(self, scenario: Scenario) -> None:
        """The gallery is what an undisturbed run makes."""
        if shards(self.gallery) != scenario.whole:
            raise Wrong("the shards differ from those of an undisturbed run")
        if rows_of(self.gallery) != scenario.rows:
            raise Wrong("the catalogue differs from that of an undisturbed run")
        if verify(self.gallery).damage:
            raise Wrong(f"{verify(self.gallery).damage[0]}")
        left = {path.name for path in self.gallery.iterdir()} - set(scenario.whole)
        left -= {".lock.queue", ".lock.holder"}  # of writers that wait for each other
        left -= {path.name for path in self.gallery.glob("vocabulary-*.cache")}  # phrases, kept for later
        if left != {".lock", "manifest.json", catalog_path(self.gallery, Manifest.read(self.gallery).snapshot).name}:
            raise Wrong(f"files were left behind: {sorted(left)}")

    def serve(self, rounds: int, rng: random.Random) -> dict[str, int]:
        """A server goes on while syncs to and fro are killed. -> how many answers it gave, and how many kills."""
        states = [self.scenarios[name] for name in ("index", "sync")]
        self._reset(self.scenarios["sync"])
        with _Asking(self.gallery, [ranking(self._work / f"made-{state.name}") for state in states]) as asking:
            kills = 0
            for number in range(rounds):
                state = states[(number + 1) % 2]
                self._show(state.pictures)
                end = self._tapr.run(self.scenarios["sync"].command, self.gallery, rng.randint(1, state.operations))
                kills += end.code == -9
                if self._tapr.run(self.scenarios["sync"].command).code:
                    raise Wrong("a sync after a kill failed")
        return {"answers": asking.answers, "kills": kills, "snapshots seen": len(asking.seen)}

    def _undisturbed(self, name: str, command: tuple[str, ...], pictures: str, base: Path | None) -> Scenario:
        made, damaged = self._work / f"made-{name}", command[0] == "repair"
        scenario = Scenario(name, command, self._work / pictures, base, damaged, None, {}, {}, [], 0)
        self._reset(scenario)
        before = None if base is None or damaged else content(Gallery.open(self.gallery))
        end = self._tapr.run(command, self.gallery, 0)
        if end.code:
            raise Wrong(f"{name} failed undisturbed: {end.said}")
        shutil.copytree(self.gallery, made)
        after = content(Gallery.open(made))
        return replace(
            scenario, before=before, after=after, whole=shards(made), rows=rows_of(made), operations=end.operations
        )

    def _reset(self, scenario: Scenario) -> None:
        shutil.rmtree(self.gallery, ignore_errors=True)
        if scenario.base is not None:
            shutil.copytree(scenario.base, self.gallery)
        self._show(scenario.pictures)

    def _show(self, pictures: Path) -> None:
        self._shown.unlink(missing_ok=True)
        self._shown.symlink_to(pictures)

    def _read(self, scenario: Scenario, held: Gallery | None) -> int:
        """Open the gallery and compare; -> how many readers were told something."""
        if held is not None and content(held) != scenario.before:
            raise Wrong("a reader that was open is told other things than before")
        try:
            told = content(Gallery.open(self.gallery))
        except TaprError:
            if scenario.before is not None:
                raise
            return 0  # there is no gallery yet, or a damaged one
        # an index run publishes the empty gallery that it makes first
        if told not in ([scenario.after, {}] if scenario.base is None else [scenario.before, scenario.after]):
            if scenario.damaged:
                return 0  # damage that a quick look does not find: verify does
            raise Wrong("a reader was told a mixture")
        return 1 + (held is not None)

    def _make_pictures(self, count: int) -> None:
        rng = np.random.default_rng(0)

        def picture(path: Path) -> None:
            Image.fromarray(rng.integers(0, 255, (6, 6, 3), np.uint8)).save(path)

        one, two, few = (self._work / name for name in ("one", "two", "few"))
        one.mkdir()
        for i in range(count):
            picture(one / f"{i:03d}.png")
        (one / "broken.png").write_bytes(b"no picture")
        shutil.copytree(one, two)
        few.mkdir()
        for i in range(0, 5):
            (two / f"{i:03d}.png").unlink()
        for i in range(5, 8):
            (two / f"{i:03d}.png").rename(two / f"renamed {i}.png")
        for i in range(8, 12):
            picture(two / f"{i:03d}.png")
        for i in range(6):
            picture(two / f"new {i}.png")
        shutil.copy2(two / "012.png", two / "same.png")
        for i in range(13, 16):
            shutil.copy2(one / f"{i:03d}.png", few)
        picture(few / "new.png")


@dataclass(frozen=True)
class End:
    """How a run of tapr ended."""

    code: int
    said: str  # on stderr
    operations: int  # on files of the gallery, when they were counted


class Disturbed:
    """tapr in processes of its own, one at a time, with the layer under them; see tests/faults/child.py."""

    def __init__(self, layer: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD)],
            env={**os.environ, "LD_PRELOAD": str(layer)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def start(self, command: Sequence[str], folder: Path | None = None, at: int = 0, kind: str = "kill") -> None:
        """With a folder, the operations on its files count."""
        fault = {} if folder is None else {"folder": str(folder), "at": at, "kind": kind}
        self._in.write(json.dumps({"command": command, **fault}) + "\n")
        self._in.flush()

    def has_ended(self, seconds: float) -> bool:
        return bool(select.select([self._out], [], [], seconds)[0])

    def end(self) -> End:
        return End(**json.loads(self._out.readline()))

    def run(self, command: Sequence[str], folder: Path | None = None, at: int = 0, kind: str = "kill") -> End:
        self.start(command, folder, at, kind)
        return self.end()

    def close(self) -> None:
        self._in.close()
        self._process.wait()
        self._out.close()


def check_end(kind: str, end: End) -> None:
    """A run ends well, is killed, or fails with one sentence."""
    allowed = {"kill": (-9, 0), "torn": (-9, 0), "full": (0, 1), "sync": (0, 1), "short": (0,)}[kind]
    lines = end.said.strip().splitlines()
    if end.code not in allowed or "Traceback" in end.said or "Exception ignored" in end.said:
        raise Wrong(f"the run ended with {end.code}: {end.said}")
    if end.code == 1 and (sum(line.startswith("tapr: ") for line in lines) != 1 or not lines[-1].startswith("tapr: ")):
        raise Wrong(f"not one sentence: {end.said}")


class _Asking:
    """A server as a process, and a thread that asks it all the time."""

    def __init__(self, gallery: Path, states: list[dict[str, float]]) -> None:
        self._states, self._stop = states, threading.Event()
        self.answers, self.seen, self._wrong = 0, set[int](), ""
        run = [sys.executable, "-c", _SERVER, str(gallery)]
        self._process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self._url = json.loads(self._process.stdout.readline())["url"]
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> _Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._process.terminate()
        self._process.communicate()
        if self._wrong:
            raise Wrong(self._wrong)

    def _ask(self) -> None:
        body = {"spec": {"target": "red", "add": ["blue"]}, "reference_id": _REFERENCE, "k": 100}  # fmt: skip
        while not self._stop.is_set() and not self._wrong:
            request = urllib.request.Request(
                f"{self._url}/api/rank", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request) as reply:
                    hits = {hit["id"]: hit["score"] for hit in json.load(reply)["hits"]}
            except urllib.error.HTTPError as error:
                self._wrong = f"the server answered {error.code}: {error.read()[:200]!r}"
                return
            state = next((state for state in self._states if set(state) == set(hits)), None)
            if state is None or max(abs(state[id_] - hits[id_]) for id_ in hits) > 1e-6:
                self._wrong = f"the server's answer is of no snapshot: {hits}"
                return
            self.answers += 1
            self.seen.add(self._states.index(state))


def ranking(folder: Path) -> dict[str, float]:
    """What a server should answer: id -> score."""
    gallery = Gallery.open(folder, encoder=FakeEncoder())
    found = search(gallery, _REFERENCE, spec=EditSpec("red", ["blue"]), k=100)
    return {hit.id: hit.score for hit in found.hits}


def content(gallery: Gallery) -> Content:
    block = gallery.gather(gallery.rows)
    decoded = block.decoded()
    return {id_: block.global_vectors[i].tobytes() + decoded[i].tobytes() for i, id_ in enumerate(gallery.ids())}


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.npy"))}


def rows_of(folder: Path) -> list[Any]:
    """All that the catalogue says, but for the keys, which a resumed run may give otherwise."""
    with contextlib.closing(sqlite3.connect(catalog_path(folder, Manifest.read(folder).snapshot))) as db:
        images = "id, path, size, mtime_ns, sha256, width, height, metadata, row, failure, source, caption"
        queries = (
            f"SELECT {images} FROM images ORDER BY row, key",
            "SELECT * FROM checksums ORDER BY kind, shard, start",
            "SELECT * FROM state WHERE name <> 'gallery' ORDER BY name",
        )
        return [db.execute(query).fetchall() for query in queries]


def damage(folder: Path) -> None:
    """A lost file, one that is cut, one with a flipped bit, one of zeros at its end."""
    (folder / "local-0-00000.npy").unlink()
    os.truncate(folder / "local-0-00001.npy", 1000)
    whole = bytearray((folder / "global-0-00001.npy").read_bytes())
    whole[200] ^= 4
    (folder / "global-0-00001.npy").write_bytes(whole)
    size = (folder / "global-0-00002.npy").stat().st_size
    os.truncate(folder / "global-0-00002.npy", 150)
    os.truncate(folder / "global-0-00002.npy", size)


def build_layer(work: Path) -> Path:
    out = work / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", out, PARTS / "faults.c", "-ldl"], check=True)
    return out


@contextlib.contextmanager
def workshop() -> Iterator[Workshop]:
    with tempfile.TemporaryDirectory(prefix="tapr-faults-") as work:
        shop = Workshop(Path(os.path.realpath(work)))
        try:
            yield shop
        finally:
            shop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="Disturbed runs, all scenarios and faults together.")
    parser.add_argument("--rounds", type=int, default=20, help="Syncs that are killed while a server answers.")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, begin = random.Random(arguments.seed), time.perf_counter()
    statistics: dict[tuple[str, str], ColumnStatistics] = {}
    with workshop() as shop:
        names = list(shop.scenarios)
        for number in range(arguments.trials):
            scenario, kind = shop.scenarios[names[number % len(names)]], KINDS[number // len(names) % len(KINDS)]
            tally = statistics.setdefault((scenario.name, kind), ColumnStatistics())
            at = rng.randint(1, scenario.operations)
            try:
                shop.trial(scenario, kind, at, tally)
            except Exception as error:
                sys.exit(f"WRONG after {number} trials: {names[number % len(names)]}, {kind} at {at}: {error}")
        print("| command | fault | operations | trials | how the disturbed runs ended | readers' answers compared |")
        print("|---|---|---:|---:|---|---:|")
        for (name, kind), tally in sorted(statistics.items()):
            ended = ", ".join(f"{count} x {what}" for what, count in sorted(tally.outcomes.items()))
            print(
                f"| {name} | {kind} | {shop.scenarios[name].operations} | {tally.trials} | {ended} | {tally.reads:,} |"
            )
        print(f"\nserver: {shop.serve(arguments.rounds, rng)}")
    trials = sum(tally.trials for tally in statistics.values())
    print(f"{trials} trials, no row lost, doubled or mixed up, in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
