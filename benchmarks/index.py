"""Indexing: how much of the wall time the encoder has, what captions add, and that memory does not grow.

    python benchmarks/index.py [--images DIR] [--encoder clip-b16] [--counts 100 400]

Each line is two runs, each in its own process, without captions and with them (for encoders that have a captioner):
pictures per second with captions, the share of the wall time inside the encoder, the processor time that captions add,
and the peak resident memory. Without --images it makes JPEG pictures of camera-like size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from tapr import Gallery


def make_pictures(folder: Path, count: int, size: tuple[int, int] = (1600, 1200)) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(count):
        small = Image.fromarray(rng.integers(0, 255, (30, 40, 3), np.uint8))
        small.resize(size, Image.Resampling.BICUBIC).save(folder / f"{i:05d}.jpg", quality=90)


def one_run(images: str, encoder: str, gallery: str, captions: bool) -> None:
    report = Gallery.build(gallery, images, encoder, captions=None if captions else False).report
    assert report is not None
    used = resource.getrusage(resource.RUSAGE_SELF)
    done = {"encoded": report.encoded, "seconds": report.seconds, "inside": report.encoder_seconds}
    print(json.dumps({**done, "processor": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss / 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", help="a folder of pictures; made up when left out")
    parser.add_argument("--encoder", default="clip-b16")
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 400])
    parser.add_argument("--one", nargs=3, metavar=("IMAGES", "GALLERY", "CAPTIONS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one_run(arguments.one[0], arguments.encoder, arguments.one[1], arguments.one[2] == "captions")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(arguments.images)] if arguments.images else []
        for count in [] if folders else arguments.counts:
            folders.append(Path(scratch, f"pictures-{count}"))
            make_pictures(folders[-1], count)
        print(f"{'pictures':>9} {'per second':>11} {'inside the encoder':>19} {'captions add':>13} {'peak memory':>12}")
        for i, folder in enumerate(folders):
            runs = []
            for captions in ("none", "captions"):
                one = [str(folder), f"{scratch}/g{i}-{captions}", captions]
                command = [sys.executable, __file__, "--encoder", arguments.encoder, "--one", *one]
                runs.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
            without, done = runs
            rate, share = done["encoded"] / done["seconds"], done["inside"] / done["seconds"]
            added = done["processor"] / without["processor"] - 1
            print(f"{done['encoded']:>9,} {rate:>11.1f} {share:>19.1%} {added:>13.1%} {done['peak']:>8.0f} MiB")


if __name__ == "__main__":
    main()
