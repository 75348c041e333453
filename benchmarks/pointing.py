"""Do heat maps point at what they name? Objects pasted on backgrounds, so that their places are known.

    python benchmarks/pointing.py [--cases 200] [--extractor clearclip ...] [--backgrounds FOLDER]

Each case is a Twemoji object at a random place and size on a background: photographs of a folder, else drawn.
The pointing game asks whether the strongest cell of the object's map lies inside the object's box. Chance is the box's
share of the picture. "Found" is the word that reports and the page show (explain/calibration.py): how often for
objects that are there, and for objects of other cases, which are not.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from tapr.encoders.local_tokens import EXTRACTORS
from tapr.encoders.registry import load_encoder
from tapr.evaluate.datasets.emoji_names import Emoji, pictures
from tapr.explain.calibration import Pictures, words_of
from tapr.images.decode import load_image
from tapr.images.frame import Frame

SIDE = 336
KINDS = ("Animals & Nature", "Food & Drink", "Objects", "Travel & Places", "Activities")


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    picture: Image.Image
    box: tuple[int, int, int, int]  # left, top, right, bottom


def cases(count: int, folder: Path | None, seed: int = 0) -> list[Case]:
    draw = random.Random(seed)
    objects = [emoji for emoji in pictures() if emoji.category in KINDS and len(emoji.name.split()) <= 2]
    photographs = sorted(path for path in folder.rglob("*") if path.suffix == ".jpg") if folder else []
    return [_case(draw, draw.choice(objects), photographs) for _ in range(count)]


def _case(draw: random.Random, thing: Emoji, photographs: list[Path]) -> Case:
    if photographs:
        photograph = load_image(draw.choice(photographs), side=SIDE)
        background = Image.fromarray(Frame(SIDE).apply(photograph))
    else:
        background = _drawn(draw)
    side = draw.randint(90, 150)
    left, top = draw.randint(0, SIDE - side), draw.randint(0, SIDE - side)
    with Image.open(thing.path) as opened:
        pasted = opened.convert("RGBA").resize((side, side), Image.Resampling.LANCZOS)
    background.paste(pasted, (left, top), pasted)
    return Case(thing.name, background, (left, top, left + side, top + side))


def _drawn(draw: random.Random) -> Image.Image:
    """Soft shapes on a soft ground: something to be wrong about."""

    def colour() -> tuple[int, int, int]:
        return draw.randint(40, 220), draw.randint(40, 220), draw.randint(40, 220)

    image = Image.new("RGB", (SIDE, SIDE), colour())
    pen = ImageDraw.Draw(image)
    for _ in range(6):
        x, y, size = draw.randint(-60, SIDE), draw.randint(-60, SIDE), draw.randint(60, 220)
        draw.choice((pen.ellipse, pen.rectangle))((x, y, x + size, y + size), fill=colour())
    return image.filter(ImageFilter.GaussianBlur(6))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", type=int, default=200)
    options.add_argument("--extractor", action="append", choices=EXTRACTORS)
    options.add_argument("--backgrounds", type=Path)
    asked = options.parse_args()
    made = cases(asked.cases, asked.backgrounds)
    chance = np.mean([(right - left) * (bottom - top) / SIDE**2 for left, top, right, bottom in (c.box for c in made)])
    where = str(asked.backgrounds) if asked.backgrounds else "drawn backgrounds"
    print(f"{len(made)} cases, clip-b16, {where}; a random cell is right in {chance:.0%}")
    print(f"{'extractor':10} {'points at it':>12} {'found, there':>18} {'maybe':>7} {'found, not there':>22}")
    for extractor in asked.extractor or EXTRACTORS:
        print(row(extractor, made), flush=True)


def row(extractor: str, made: list[Case]) -> str:
    encoder = load_encoder(extractor=extractor)
    shown = [encoder.encode_images([encoder.prepare(case.picture)]) for case in made]
    local_vectors = np.concatenate([one.local_vectors for one in shown])  # (C, M, d)
    pictures = Pictures(np.concatenate([one.global_vectors for one in shown]), local_vectors)
    probes = encoder.encode_atoms([case.name for case in made])  # (C, d)
    maps = np.einsum("cd,kmd->ckm", probes, local_vectors)  # (C, C, M): atom, picture, place
    own = maps[np.arange(len(made)), np.arange(len(made))]
    right = [inside(case.box, values, encoder.card.grid) for case, values in zip(made, own, strict=True)]
    names = np.array([case.name for case in made])
    is_there = names[:, None] == names[None]
    words = np.array(words_of(list(names), pictures, encoder))
    there, absent = words[is_there], words[~is_there]
    return (
        f"{extractor:10} {np.mean(right):12.1%} {np.mean(there == 'found'):18.1%} "
        f"{np.mean(there == 'maybe'):7.1%} {np.mean(absent == 'found'):22.1%}"
    )


def inside(box: tuple[int, int, int, int], values: NDArray[np.float32], grid: tuple[int, int]) -> bool:
    down, across = divmod(int(values.argmax()), grid[1])
    x, y = (across + 0.5) * SIDE / grid[1], (down + 0.5) * SIDE / grid[0]
    left, top, right, bottom = box
    return left <= x < right and top <= y < bottom


if __name__ == "__main__":
    main()
