"""`tapr index` of this tree against that of another commit, and against the tower alone, in one run.

    git worktree add /tmp/before e446134
    python benchmarks/index_against.py --before /tmp/before/src [--processors 2 16] [--pictures 40] [--rounds 5]

Each tree has a process of its own, held to so many processors. It loads its encoder and indexes a few pictures first:
start-up is not measured. Then the two take turns: a gallery of so many pictures is indexed by the one, by the other,
and this tree's image tower encodes as many that are in memory and does nothing else. Of every round the ratios count,
by processor time and by the clock; the table has their medians. On a busy machine only processor time means much.

Pictures are JPEG, no two equal: those of --photos, or drawn ones of 640 x 480, which get captions of the greatest
length. Captions are made, as by default. `others` is what an index run spends beside the tower: decoding, captions,
codes, checksums, writing and Python.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

_CHILD = """
import json, os, sys, time
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
import numpy as np
from tapr import Gallery
from tapr.encoders.registry import load_encoder

encoder = load_encoder("clip-b16")

def timed(work):
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return [time.perf_counter() - wall, time.process_time() - processor]

for line in sys.stdin:
    what, first, second = json.loads(line)
    if what == "index":
        told = timed(lambda: Gallery.build(first, second, encoder))
    else:
        pictures = list(np.random.default_rng(0).integers(0, 256, (first, 224, 224, 3), np.uint8))
        told = timed(lambda: encoder.encode_images(pictures))
    print(json.dumps(told), flush=True)
"""


class Child:
    """A process with the code of one tree."""

    def __init__(self, source: Path, processors: int) -> None:
        path = f"{source}:{os.environ.get('PYTHONPATH', '')}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(processors)],
            env={**os.environ, "PYTHONPATH": path, "TAPR_KERNEL": "numpy"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str, first: object, second: object = None) -> Any:
        """-> seconds by the clock, seconds of processor time: an array (2,)"""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([what, first, second]) + "\n")
        self._process.stdin.flush()
        return np.array(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def draw(count: int, photos: Path | None) -> list[Image.Image]:
    if photos is not None:
        files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
        if len(files) < count:
            raise SystemExit(f"{photos} has {len(files)} pictures, and {count} are needed")
        return [Image.open(file).convert("RGB") for file in files[:count]]
    rng = np.random.default_rng(1)
    small = (Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)) for _ in range(count))
    return [one.resize((640, 480), Image.Resampling.BICUBIC) for one in small]


def folders(root: Path, rounds: int, pictures: int, photos: Path | None) -> list[Path]:
    """One of few pictures to warm up, then one per round."""
    images = iter(draw(4 + rounds * pictures, photos))
    made = []
    for number in range(rounds + 1):
        folder = root / f"pictures{number}"
        folder.mkdir()
        for at in range(pictures if number else 4):
            next(images).save(folder / f"{number}-{at:05}.jpg", quality=85)
        made.append(folder)
    return made


def measured(asked: argparse.Namespace, processors: int, root: Path) -> Any:
    """-> (rounds, 3, 2): before, now, tower alone; by the clock, processor time"""
    count = asked.pictures * max(1, processors // 2)
    before, now = Child(asked.before, processors), Child(asked.now, processors)
    rows = []
    for number, folder in enumerate(folders(root, asked.rounds, count, asked.photos)):
        rows.append([
            before.ask("index", str(root / f"before{number}"), str(folder)),
            now.ask("index", str(root / f"now{number}"), str(folder)),
            now.ask("tower", count if number else 4),
        ])  # fmt: skip
    before.close()
    now.close()
    return np.array(rows[1:]) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--now", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--processors", type=int, nargs="+", default=[os.cpu_count() or 1])
    parser.add_argument("--pictures", type=int, default=40, help="per round, for two processors; as many more for more")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--photos", type=Path, help="a folder of photographs, in place of drawn pictures")
    asked = parser.parse_args()
    print("| processors | time | before, ms per picture | now | tower alone | others | before / now | tower / now |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for processors in asked.processors:
        with tempfile.TemporaryDirectory() as scratch:
            times = measured(asked, processors, Path(scratch))
        for column, kind in enumerate(("by the clock", "of processors")):
            before, now, tower = times[:, :, column].T
            shown = [f"{1e3 * float(np.median(each)):.1f}" for each in (before, now, tower, now - tower)]
            ratios = [f"{float(np.median(ratio)):.2f}" for ratio in (before / now, tower / now)]
            print(f"| {processors} | {kind} | {' | '.join([*shown, *ratios])} |", flush=True)


if __name__ == "__main__":
    main()
