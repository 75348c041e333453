"""Small benchmarks in the official formats, with flags as pictures that the fake encoder can tell apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.pictures import flag, png

COLOURS = ("red", "green", "blue", "yellow", "orange", "purple", "white", "black")
PAIRS = [(one, two) for one in COLOURS for two in COLOURS if one != two]  # 56 flags


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def cirr(root: Path, split: str = "val") -> Path:
    """Queries: the same flag with its second colour changed. Sets of six share the first colour."""
    names = {f"dev-{one}-{two}": f"./dev/dev-{one}-{two}.png" for one, two in PAIRS}
    (root / "dev").mkdir(parents=True, exist_ok=True)
    for one, two in PAIRS:
        (root / "dev" / f"dev-{one}-{two}.png").write_bytes(png(flag(one, two)))
    queries = []
    for number, (one, two) in enumerate(PAIRS[::3]):
        members = [f"dev-{one}-{other}" for other in COLOURS if other != one][:6]
        reference = f"dev-{one}-{two}"
        if reference not in members:
            members[-1] = reference
        target = next(name for name in members if name != reference)
        query: dict[str, Any] = {
            "pairid": 100 + number,
            "reference": reference,
            "caption": f"{target.split('-')[2]} instead of {two}",
            "img_set": {"id": number, "members": members, "reference_rank": 0},
        }
        if split == "val":
            query |= {"target_hard": target, "target_soft": {target: 1.0}}
        queries.append(query)
    write(root / "captions" / f"cap.rc2.{split}.json", queries)
    write(root / "image_splits" / f"split.rc2.{split}.json", names)
    return root


def specs(root: Path, split: str = "val") -> Path:
    """A record file with the spec of every query."""
    lines = []
    for query in json.loads((root / "captions" / f"cap.rc2.{split}.json").read_text()):
        _, one, two = query["reference"].split("-")
        new = query["caption"].split()[0]
        spec = {"target": f"a {one} and {new} flag", "add": [new], "preserve": [one], "remove": [two]}
        lines.append(json.dumps({"id": str(query["pairid"]), "payload": spec, "model": "test"}))
    path = root / f"specs.{split}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def fashioniq(root: Path) -> Path:
    """Three kinds; the split file lists one picture more than the queries name."""
    for number, category in enumerate(("dress", "shirt", "toptee")):
        own = PAIRS[number * 10 : number * 10 + 6]
        names = [f"{category}-{one}-{two}" for one, two in own]
        (root / "images").mkdir(parents=True, exist_ok=True)
        for name, colours in zip(names, own, strict=True):
            (root / "images" / f"{name}.png").write_bytes(png(flag(*colours)))
        queries = [
            {"target": names[place + 1], "candidate": names[place], "captions": [" is redder.", "has stripes, "]}
            for place in range(4 - number)
        ]
        write(root / "captions" / f"cap.{category}.val.json", queries)
        write(root / "image_splits" / f"split.{category}.val.json", names)
    return root


def lasco(root: Path) -> Path:
    """The official val over a corpus of 20 flags, and the subset's train file: two categories over 13 of them."""
    numbers = {number: PAIRS[number] for number in range(20)}
    for folder, start in (("val2014", 0), ("train2017", 10)):  # half of the pictures are where COCO later put them
        (root / folder).mkdir(parents=True, exist_ok=True)
        for number in range(start, start + 10):
            name = f"COCO_val2014_{number:012d}" if folder == "val2014" else f"{number:012d}"
            (root / folder / f"{name}.jpg").write_bytes(png(flag(*numbers[number])))
    corpus = [{"id": number, "path": f"val/{_coco(number)}"} for number in numbers]
    write(root / "lasco_val_corpus.json", corpus)
    write(root / "lasco_val.json", [_triplet(number, number + 1, f"more {number}") for number in range(6)])
    pairs = {"person": [(0, 1), (1, 2), (4, 5), (6, 7)], "animal": [(2, 3), (8, 9), (8, 10), (11, 12)]}
    subset = {}
    for category, members in pairs.items():
        rows = [_triplet(*pair, f"less {pair[0]}") for pair in members]
        subset[category] = {str(row["qid"]): row for row in rows}
    write(root / "CL-LaSCO_train.json", subset)
    return root


def _coco(number: int) -> str:
    return f"val2014/COCO_val2014_{number:012d}.jpg"


def _triplet(reference: int, target: int, text: str) -> dict[str, Any]:
    return {
        "qid": 1000 * reference + target,
        "query-image": [reference, _coco(reference)],
        "query-text": text,
        "target-image": [target, _coco(target)],
    }
