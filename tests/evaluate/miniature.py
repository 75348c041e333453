"""CIRCO, CIRR and FashionIQ in the official layouts, a few queries each, with flags for pictures; and a language model
that reads "X instead of Y". The queries of the paper's figures are there by their numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.evaluate.made_up import COLOURS, PAIRS, write
from tests.factorize.scripted_server import Request, Step, says
from tests.pictures import flag, png

FIGURE_1 = 37730  # of CIRR
FIGURE_4 = {60: 23304, 22: 148408}  # of CIRCO: query -> right answer
_QUERIES = 8


def draw_all(root: Path) -> Path:
    circo(root / "circo")
    for split in ("val", "test1"):
        cirr(root / "cirr", split)
    fashioniq(root / "fashioniq")
    return root


def circo(root: Path) -> None:
    pictures = root / "COCO2017_unlabeled" / "unlabeled2017"
    pictures.mkdir(parents=True)
    numbers = [*FIGURE_4.values(), *range(1000, 1000 + len(PAIRS) - len(FIGURE_4))]
    by_flag = dict(zip(PAIRS, numbers, strict=True))
    for colours, number in by_flag.items():
        (pictures / f"{number:012d}.jpg").write_bytes(png(flag(*colours)))
    images = [{"id": number, "file_name": f"{number:012d}.jpg"} for number in numbers]
    write(root / "COCO2017_unlabeled" / "annotations" / "image_info_unlabeled2017.json", {"images": images})
    rows = []
    for place, number in enumerate([*FIGURE_4, *range(100, 100 + _QUERIES - len(FIGURE_4))]):
        one, two = PAIRS[place]
        other = next(colour for colour in COLOURS if colour not in (one, two))
        reference, edit = by_flag[one, other], f"{two} instead of {other}"
        answers = {"target_img_id": by_flag[one, two], "gt_img_ids": [by_flag[one, two], by_flag[two, one]]}
        said = {"relative_caption": edit, "shared_concept": "a flag", "semantic_aspects": ["attributes"]}
        rows.append({"id": number, "reference_img_id": reference, **said, **answers})
    write(root / "annotations" / "val.json", rows)
    hidden = [{key: row[key] for key in row if key not in ("target_img_id", "gt_img_ids")} for row in rows]
    # the test split numbers its queries from 0 too, and asks other things
    write(root / "annotations" / "test.json", [{**row, "relative_caption": "red instead of blue"} for row in hidden])


def cirr(root: Path, split: str) -> None:
    prefix = "dev" if split == "val" else "test1"
    (root / prefix).mkdir(parents=True)
    for one, two in PAIRS:
        (root / prefix / f"{prefix}-{one}-{two}.png").write_bytes(png(flag(one, two)))
    rows = []
    for number, (one, two) in enumerate(PAIRS[: 5 * _QUERIES : 5]):
        members = [f"{prefix}-{one}-{other}" for other in COLOURS if other != one][:6]
        reference = f"{prefix}-{one}-{two}"
        if reference not in members:
            members[-1] = reference
        target = next(name for name in members if name != reference)
        caption = f"{target.split('-')[2]} instead of {two}"
        row: dict[str, Any] = {"pairid": number or FIGURE_1, "reference": reference, "caption": caption}
        row |= {"img_set": {"id": number, "members": members, "reference_rank": 0}}
        if split == "val":
            row |= {"target_hard": target, "target_soft": {target: 1.0}}
        rows.append(row)
    if split == "test1":
        rows[1] |= {"pairid": 27098, "caption": ""}  # as in the official file
    write(root / "captions" / f"cap.rc2.{split}.json", rows)
    names = {f"{prefix}-{one}-{two}": f"./{prefix}/{prefix}-{one}-{two}.png" for one, two in PAIRS}
    write(root / "image_splits" / f"split.rc2.{split}.json", names)


def fashioniq(root: Path) -> None:
    (root / "images").mkdir(parents=True)
    for number, category in enumerate(("dress", "shirt", "toptee")):
        flags = PAIRS[number * 14 : number * 14 + 14]
        names = [f"{category[0].upper()}{place:03d}" for place in range(len(flags))]
        for name, colours in zip(names, flags, strict=True):
            (root / "images" / f"{name}.png").write_bytes(png(flag(*colours)))
        rows = []
        for place in range(5):
            captions = [f"{flags[place + 1][1]} instead of {flags[place][1]}.", " has two stripes, "]
            rows.append({"candidate": names[place], "target": names[place + 1], "captions": captions})
        write(root / "captions" / f"cap.{category}.val.json", rows)
        write(root / "image_splits" / f"split.{category}.val.json", names)


def answer(request: Request) -> Step:
    """As a good model would: the keys that the prompt names, with what the edit says; as many as were asked for."""
    asked = json.dumps(request["messages"][-1]["content"], ensure_ascii=False).replace("\\", "")
    edits = re.findall(r"(\w+) instead of (\w+)", asked)  # the last one: a prompt's examples stand before it
    new, old = edits[-1] if edits else ("red", "blue")
    if request.get("response_format", {}).get("json_schema", {}).get("name") == "edit_spec":
        return says(
            json.dumps({"target": f"a {new} flag", "add": [new], "preserve": [], "remove": [old], "continuity": None})
        )
    said = {
        "caption": f"a {old} flag", "description": f"a {new} flag", "target": f"a {new} flag", "thoughts": "none",
        "reflections": "none", "edited": f"a {new} flag", "existent": [new], "nonexistent": [old],
        "prescriptive": [f"a {new} flag"], "proscriptive": [],
    }  # fmt: skip
    names = re.findall(r'"(\w+)": \[?"\.\.\."', asked)
    step = says(json.dumps({name: said[name] for name in names}))
    step.body["choices"] = step.body["choices"] * int(request.get("n", 1))
    return step
