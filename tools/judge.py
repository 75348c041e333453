"""Judge two ways to search, blind: contact sheets with both top fives side by side, in random order.

    python tools/judge.py rank EDITS.jsonl A.json --gallery GALLERY [--gallery coco=OTHER] [--factorizer NAME]
    python tools/judge.py sheets A.json B.json FOLDER [--seed N]    # sheet-01.png ...; key.json says which is which
    python tools/judge.py count FOLDER VERDICTS                     # after judging: good, partly, bad of each

EDITS has lines {"reference": NAME, "edit": TEXT}; a gallery may be given for names that start with "coco/". `rank` can
be run with any version of tapr, so that versions can be compared too. VERDICTS has lines "NUMBER LEFT RIGHT" with g, p
or b. Good: at least two of five fit, or the only one there is. Partly: one fits, or everything but a detail.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageOps

BEST, SIDE, ROWS, GAP = 5, 130, 6, 24
WORDS = {"g": "good", "p": "partly", "b": "bad"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    step = steps.add_parser("rank")
    step.add_argument("edits", type=Path)
    step.add_argument("out", type=Path)
    step.add_argument("--gallery", action="append", required=True)
    step.add_argument("--factorizer", default="grounded")
    step.set_defaults(run=rank)
    step = steps.add_parser("sheets")
    step.add_argument("first", type=Path)
    step.add_argument("second", type=Path)
    step.add_argument("folder", type=Path)
    step.add_argument("--seed", type=int)
    step.set_defaults(run=sheets)
    step = steps.add_parser("count")
    step.add_argument("folder", type=Path)
    step.add_argument("verdicts", type=Path)
    step.set_defaults(run=count)
    asked = parser.parse_args()
    asked.run(asked)


def rank(asked: argparse.Namespace) -> None:
    import tapr

    named = [given.rpartition("=")[::2] for given in asked.gallery]
    galleries = {prefix: tapr.Gallery.open(path) for prefix, path in named}
    out = []
    for line in asked.edits.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        prefix = row["reference"].split("/")[0]
        gallery = galleries[prefix] if prefix in galleries else galleries[""]
        name = Path(row["reference"]).stem if prefix in galleries else row["reference"]
        found = tapr.search(gallery, name, row["edit"], k=BEST, factorizer=asked.factorizer)
        files = {entry.id: entry.path for entry in gallery.entries(range(len(gallery)))}
        best = [str(files[hit.id]) for hit in found.hits]
        out.append({**row, "file": str(files[name]), "best": best, "spec": found.spec.to_dict()})
        print(len(out), row["edit"], found.spec.to_json(), sep="\t")
    asked.out.write_text(json.dumps(out, indent=1, ensure_ascii=False), encoding="utf-8")


def sheets(asked: argparse.Namespace) -> None:
    both = [json.loads(path.read_text(encoding="utf-8")) for path in (asked.first, asked.second)]
    asked.folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(asked.seed)
    rows, key = list(zip(*both, strict=True)), []
    for start in range(0, len(rows), ROWS):
        page = Image.new("RGB", ((2 * BEST + 1) * SIDE + 3 * GAP, ROWS * (SIDE + GAP)), "white")
        for place, pair in enumerate(rows[start : start + ROWS]):
            swapped = chance.random() < 0.5
            key.append(swapped)
            draw_row(page, place * (SIDE + GAP), start + place + 1, pair[::-1] if swapped else pair)
        page.save(asked.folder / f"sheet-{start // ROWS + 1:02d}.png")
    names = [asked.first.stem, asked.second.stem]
    (asked.folder / "key.json").write_text(json.dumps({"names": names, "swapped": key}), encoding="utf-8")


def draw_row(page: Image.Image, top: int, number: int, pair: Any) -> None:
    """The edit, its reference, and the two answers; nothing says which is whose."""
    ImageDraw.Draw(page).text((4, top + 4), f"{number}. {pair[0]['edit']}", fill="black", font_size=17)
    left = 0
    for files in ([pair[0]["file"]], pair[0]["best"], pair[1]["best"]):
        for file in files:
            with Image.open(file) as image:
                small = ImageOps.contain(image.convert("RGB"), (SIDE - 4, SIDE - 4))
            page.paste(small, (left, top + GAP))
            left += SIDE
        left += GAP


def count(asked: argparse.Namespace) -> None:
    key = json.loads((asked.folder / "key.json").read_text(encoding="utf-8"))
    counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    pairs: Counter[str] = Counter()
    for line in asked.verdicts.read_text(encoding="utf-8").split("\n"):
        if not line.strip():
            continue
        number, *said = line.split()[:3]
        first, second = said[::-1] if key["swapped"][int(number) - 1] else said
        counts[0][WORDS[first]] += 1
        counts[1][WORDS[second]] += 1
        better = "gpb".index(second) - "gpb".index(first)
        pairs["equal" if not better else key["names"][better < 0]] += 1
    for name, counted in zip(key["names"], counts, strict=True):
        print(name, *(f"{counted[word]} {word}" for word in WORDS.values()), sep="   ")
    print("better:", dict(pairs))


if __name__ == "__main__":
    main()
