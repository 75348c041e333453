"""Indexing on a GPU: pictures per second of a whole run, beside the tower alone and the decoder alone in the same run.

    PYTHONPATH=src python benchmarks/index_gpu.py [--pictures 20000] [--model ViT-L-14] [--compile]

The weights are random: there is no hub here, and speed does not depend on them. Pictures are JPEG of 640 x 480, as
COCO's; a few hundred are drawn, each file gets a comment of its own so that none is equal to another. Rates:
  tower     the image tower alone on random tensors that are on the card already, in float16
  tokens    the same with local vectors
  threads   the obvious way: two threads decode, the encoder takes 16 at a time, then they are written
  decoder   all processors decode, nothing is encoded
  index     `Gallery.build`, decoding, encoding, writing and catalogue
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tapr import Gallery
from tapr.encoders.openclip import OpenClipEncoder
from tapr.index.load import load_in_order
from tapr.index.sources import Candidate
from tapr.utils.progress import NoProgress
from tapr.utils.threads import thread_count

DRAWN = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--model", default="ViT-L-14")
    parser.add_argument("--size", type=int, nargs=2, default=(640, 480))
    parser.add_argument("--compile", action="store_true", help="the tower by torch.compile too, with its own time")
    asked = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(
        f"{device}, torch {torch.__version__}, {thread_count()} processors, {asked.model}, random weights", flush=True
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        encoder = random_encoder(asked.model, folder)
        begin = time.perf_counter()
        make_pictures(folder / "pictures", asked.pictures, tuple(asked.size))
        print(f"{asked.pictures:,} pictures made in {time.perf_counter() - begin:.0f} s (not counted)", flush=True)
        rates = {
            "tower": tower_rate(encoder, encoder._network.visual),
            "tokens": tower_rate(encoder, encoder._tokens),
        }
        told(rates)
        if asked.compile:
            begin = time.perf_counter()
            compiled = torch.compile(encoder._network.visual)
            rates["tower, torch.compile"] = tower_rate(encoder, compiled)
            print(f"torch.compile and its measurement: {time.perf_counter() - begin:.0f} s", flush=True)
            told(rates)
        candidates = [Candidate(path.name, str(path)) for path in sorted((folder / "pictures").iterdir())]
        rates["decoder"] = decoder_rate(candidates[:12_000], encoder)
        rates["threads"] = plain_rate(folder, encoder, min(asked.pictures, 1500))
        told(rates)
        rates["index"], inside = index_rate(folder, encoder, asked.pictures)
        told(rates)
        limit = min(rates["tower"], rates["decoder"])
        which = "tower" if limit == rates["tower"] else "decoder"
        print(f"index / tower alone: {rates['index'] / rates['tower']:.2f}; index / the lower limit ({which}): "
              f"{rates['index'] / limit:.2f}; inside the encoder {inside:.0%} of the time")  # fmt: skip
        print(f"123,403 pictures at this rate: {123_403 / rates['index'] / 60:.1f} minutes")


def told(rates: dict[str, float]) -> None:
    print("; ".join(f"{name} {rate:,.0f} pictures/s" for name, rate in rates.items()), flush=True)


def random_encoder(model: str, folder: Path) -> OpenClipEncoder:
    import open_clip

    network = open_clip.create_model(model, precision="fp32", device="cpu")
    torch.save(network.state_dict(), folder / "random.pt")
    encoder = OpenClipEncoder(model, str(folder / "random.pt"))
    (folder / "random.pt").unlink()
    return encoder


def make_pictures(folder: Path, count: int, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    files = []
    for number in range(min(DRAWN, count)):
        small = Image.fromarray(rng.integers(0, 255, (24, 32, 3), np.uint8)).resize(size, Image.Resampling.BICUBIC)
        noisy = np.asarray(small, np.int16) + rng.integers(-12, 12, (size[1], size[0], 3), np.int16)
        path = folder / f"{number:06d}.jpg"
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, quality=88)
        files.append(path.read_bytes())
    for number in range(count):  # a comment right after the start of the file: other bytes, the same picture
        data = files[number % len(files)]
        comment = f"{number:08d}".encode()
        marker = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
        (folder / f"{number:06d}.jpg").write_bytes(data[:2] + marker + data[2:])


def tower_rate(encoder: OpenClipEncoder, work: Callable[[Any], Any]) -> float:
    """The best of a few batch sizes, pictures per second."""
    visual = encoder._network.visual
    size, best = encoder.card.image_size, 0.0
    for batch in (128, 256, 512) if visual.proj.is_cuda else (8,):
        pixels = torch.randn(batch, 3, size, size, device=visual.proj.device, dtype=visual.proj.dtype)
        with torch.inference_mode():
            seconds = _seconds(lambda pixels=pixels: work(pixels))  # type: ignore[misc]
        best = max(best, batch / seconds)
    return best


def _seconds(work: Callable[[], Any]) -> float:
    def wait() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    work()
    wait()
    times = 0
    begin = time.perf_counter()
    while times < 3 or time.perf_counter() - begin < 1.5:
        work()
        wait()
        times += 1
    return (time.perf_counter() - begin) / times


def decoder_rate(candidates: list[Candidate], encoder: OpenClipEncoder) -> float:
    """Decoding, cropping and hashing by all processors; the start of the processes is not counted."""
    found = load_in_order(candidates, encoder)
    first = 512 if len(candidates) > 2000 else 1
    for _ in range(first):
        next(found)
    begin = time.perf_counter()
    count = sum(1 for _ in found)
    return count / (time.perf_counter() - begin)


def plain_rate(folder: Path, encoder: OpenClipEncoder, count: int) -> float:
    class Plain:
        """The encoder without its bulks."""

        card, prepare, encode_images = encoder.card, encoder.prepare, encoder.encode_images
        encode_texts, encode_atoms, unread = encoder.encode_texts, encoder.encode_atoms, encoder.unread

    some = [str(path) for path in sorted((folder / "pictures").iterdir())[:count]]
    begin = time.perf_counter()
    Gallery.build(folder / "plain", some, Plain())
    rate = count / (time.perf_counter() - begin)
    shutil.rmtree(folder / "plain")
    return rate


def index_rate(folder: Path, encoder: OpenClipEncoder, count: int) -> tuple[float, float]:
    class Say(NoProgress):
        def say(self, sentence: str) -> None:
            print(f"  {sentence}", flush=True)

    begin = time.perf_counter()
    report = Gallery.build(folder / "bulk", folder / "pictures", encoder, progress=Say()).report
    seconds = time.perf_counter() - begin
    assert report is not None
    assert report.encoded == count, report
    size = sum(os.path.getsize(file) for file in (folder / "bulk").iterdir())
    print(f"index: {seconds:.1f} s, {size / 1e9:.1f} GB on disk", flush=True)
    return count / seconds, report.encoder_seconds / seconds


if __name__ == "__main__":
    main()
