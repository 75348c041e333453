"""`tapr index` of this tree against that of another commit, and against the tower alone, in one run.

    git worktree add /tmp/before e446134
    python benchmarks/index_against.py --before /tmp/before/src [--now src] [--processors 2 16] [--pictures 300]

Every run is a process of its own, held to so many processors; the two trees take turns. Pictures are JPEG of 640 x 480,
drawn, no two equal; captions are made, as by default. `tower alone` runs the image tower on pictures in memory, on
as many threads as there are processors, without decoding, captions or writing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

_INDEX = """
import json, sys, time
from tapr import Gallery
begin = time.perf_counter()
gallery = Gallery.build(sys.argv[1], sys.argv[2])
print(json.dumps([len(gallery) / gallery.report.seconds, len(gallery) / (time.perf_counter() - begin)]))
"""
_TOWER = """
import json, sys, time
import numpy as np
from tapr.encoders.registry import load_encoder
encoder, count = load_encoder("clip-b16"), int(sys.argv[1])
pictures = list(np.random.default_rng(0).integers(0, 256, (count, 224, 224, 3), np.uint8))
encoder.encode_images(pictures[:4])
begin = time.perf_counter()
encoder.encode_images(pictures)
print(json.dumps([count / (time.perf_counter() - begin)]))
"""


def run(code: str, source: Path, processors: int, *arguments: str) -> float:
    environment = {**os.environ, "PYTHONPATH": f"{source}:{os.environ.get('PYTHONPATH', '')}", "TAPR_KERNEL": "numpy"}

    def hold() -> None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])

    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, preexec_fn=hold, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout.splitlines()[-1])[0])


def draw(folder: Path, count: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(1)
    for number in range(count):
        small = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8))
        small.resize((640, 480), Image.Resampling.BICUBIC).save(folder / f"{number:05}.jpg", quality=85)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--now", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--processors", type=int, nargs="+", default=[os.cpu_count() or 1])
    parser.add_argument("--pictures", type=int, default=300, help="for two processors; as many more for more")
    parser.add_argument("--turns", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        print("| processors | before, per s | now, per s | now / before | tower alone, per s | now / tower alone |")
        print("|---|---|---|---|---|---|", flush=True)
        for processors in asked.processors:
            count = asked.pictures * max(1, processors // 4)
            folder = Path(scratch) / f"pictures{processors}"
            few = Path(scratch) / f"few{processors}"
            draw(folder, count)
            draw(few, max(32, count // 3))
            rates: dict[str, list[float]] = {"before": [], "now": [], "tower": []}
            for turn in range(asked.turns):
                where = [str(Path(scratch) / f"{name}{processors}-{turn}") for name in ("before", "now")]
                rates["before"].append(run(_INDEX, asked.before, processors, where[0], str(few)))
                rates["now"].append(run(_INDEX, asked.now, processors, where[1], str(folder)))
                rates["tower"].append(run(_TOWER, asked.now, processors, str(count)))
            before, now, tower = (float(np.median(rates[name])) for name in rates)
            print(f"| {processors} | {before:.1f} | {now:.1f} | {now / before:.2f} | {tower:.1f} | {now / tower:.2f} |",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
