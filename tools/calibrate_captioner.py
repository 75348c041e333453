"""Measures how well a caption's numbers tell whether it is right, and fits the lines of tapr/captions/sureness.py.

    python tools/calibrate_captioner.py FOLDER

FOLDER holds captions.json.gz and image_vectors_fp16.npy: what people said of 38,768 pictures, and their global vectors.
Only the 3,900 pictures kept out of the captioner's training are read. They are the first of each set in the order that
RandomState(0) permutes the sets, one after the other: all 60 golden rows, which were kept out, are among them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapr.captions.captioner import load_decoder
from tapr.captions.description import MIN_SURE_CHANCE
from tapr.captions.sureness import LINES, chance_of_being_right, manner
from tapr.encoders.base import unit
from tapr.encoders.model_files import CLIP_B16_TEXT_TOWER, CLIP_B16_TOKENIZER
from tapr.encoders.text_tower import TextTower

SETS = {"coco": 1000, "flickr": 1000, "fashion": 1000, "imagenet": 200, "emoji": 700}  # pictures kept out
# an ImageNet picture has one word, not sentences: too few to tell a right caption by, so it is not fitted to
FITTED = ("coco", "flickr", "fashion", "emoji")
_STOP = """a an the of in on at to with and or is are was were be being been up down by for from that this these those
it its his her their as into onto near next top front side some over out off through under other one another while there
which who has have having very s emoji photo"""
STOP_WORDS = frozenset(_STOP.split())
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    set: str
    caption: str
    log_probability: float
    cosine: float
    right: bool


def content_words(text: str) -> set[str]:
    words = re.findall(r"[a-z]+", text.lower())
    return {word.removesuffix("s") if len(word) > 3 else word for word in words if word not in STOP_WORDS}


def is_right(caption: str, people: list[str], name: str) -> bool:
    """At least half of its content words were said of the picture; an ImageNet picture's name, in part, suffices."""
    said, heard = content_words(caption), set().union(*map(content_words, people))
    if name == "imagenet":
        return bool(said & heard)
    return 2 * len(said & heard) >= len(said) > 0


def kept_out(sets: list[str]) -> dict[str, NDArray[np.int64]]:
    chance, rows = np.random.RandomState(0), {}  # the generator that the training used
    for name, count in SETS.items():
        places = np.flatnonzero([one == name for one in sets])
        rows[name] = np.sort(places[chance.permutation(len(places))[:count]])
    return rows


def judge(folder: Path) -> list[Judged]:
    people = json.loads(gzip.decompress((folder / "captions.json.gz").read_bytes()))
    vectors = np.load(folder / "image_vectors_fp16.npy", mmap_mode="r")
    decoder, tower = load_decoder(), TextTower(CLIP_B16_TEXT_TOWER.path, CLIP_B16_TOKENIZER.path)
    judged = []
    for name, rows in kept_out([row["set"] for row in people]).items():
        pictures = unit(vectors[rows])
        for row, vector, caption in zip(rows, pictures, decoder.greedy(pictures), strict=True):
            cosine = float(tower.encode(caption.text) @ vector)
            right = is_right(caption.text, people[row]["captions"], name)
            judged.append(Judged(name, caption.text, caption.log_probability, cosine, right))
    return judged


def fit(numbers: Floats, right: NDArray[np.bool_]) -> Floats:
    """Logistic regression by Newton's method: (N, 2) -> two weights and a constant."""
    mean, spread = numbers.mean(0), numbers.std(0)
    design = np.c_[(numbers - mean) / spread, np.ones(len(numbers))]
    weights = np.zeros(3)
    for _ in range(50):
        chance = 1 / (1 + np.exp(-design @ weights))
        gradient = design.T @ (chance - right) + 1e-3 * weights
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + 1e-3 * np.eye(3)
        weights -= np.linalg.solve(curvature, gradient)
    slopes = weights[:2] / spread
    return np.array([*slopes, weights[2] - slopes @ mean])


def separation(scores: Floats, right: NDArray[np.bool_]) -> float:
    """The chance that a right caption scores above a wrong one (area under the ROC curve)."""
    ranks = scores.argsort(kind="stable").argsort(kind="stable") + 1
    wins = ranks[right].sum() - right.sum() * (right.sum() + 1) / 2
    return float(wins / (right.sum() * (~right).sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    judged = judge(parser.parse_args().folder)
    numbers = np.array([(one.log_probability, one.cosine) for one in judged])
    right = np.array([one.right for one in judged])
    sets = np.array([one.set for one in judged])
    manners = np.array([manner(one.caption) for one in judged])
    fitted = np.isin(sets, FITTED)
    halves = np.arange(len(judged)) % 2
    crossed = np.zeros(len(judged))  # each half by the lines of the other
    for name in LINES:
        mine = manners == name
        slopes = fit(numbers[mine & fitted], right[mine & fitted])
        line = f"Regression({slopes[0]:.2f}, {slopes[1]:.2f}, {slopes[2]:.2f})"
        print(f'    "{name}": {line},  # {(mine & fitted).sum()} captions')
        for half in (0, 1):
            slopes = fit(numbers[mine & fitted & (halves != half)], right[mine & fitted & (halves != half)])
            these = mine & (halves == half)
            crossed[these] = 1 / (1 + np.exp(-(numbers[these] @ slopes[:2] + slopes[2])))
    print(
        "set | captions | right | separated by log-probability, cosine, both | sure | right of the sure, of the unsure"
    )
    for name in (*SETS, "fitted"):
        of = fitted if name == "fitted" else sets == name
        sure = of & (crossed >= MIN_SURE_CHANCE)
        unsure = of & (crossed < MIN_SURE_CHANCE)
        apart = [separation(scores[of], right[of]) for scores in (*numbers.T, crossed)]
        print(
            f"{name} | {of.sum()} | {right[of].mean():.3f} | {' '.join(f'{one:.3f}' for one in apart)} | "
            f"{sure.sum() / of.sum():.3f} | {right[sure].mean():.3f}, {right[unsure].mean():.3f}"
        )
    print("chance said | captions | right")
    for low in np.arange(0, 1, 0.1):
        of = fitted & (crossed >= low) & (crossed < low + 0.1)
        if of.any():
            print(f"{low:.1f} to {low + 0.1:.1f} | {of.sum()} | {right[of].mean():.2f}")
    now = [chance_of_being_right(one.caption, one.log_probability, one.cosine) for one in judged]
    print(f"with the shipped lines: separation {separation(np.array(now)[fitted], right[fitted]):.3f}")


if __name__ == "__main__":
    main()
