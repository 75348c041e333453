"""The local factorizer beside grounded: how often it agrees with a person, what it finds, how long it takes.

    PYTHONPATH=src python benchmarks/local_model.py pairs [--kept] [--limit N]
    PYTHONPATH=src python benchmarks/local_model.py emoji GALLERY [--limit 60] [--split val] [--records FILE]

`pairs`: the captions and edits of tests/factorize/data; the half marked "kept" is not for choosing prompts. `emoji`:
EmojiCIR with its pictures in GALLERY, `--limit` queries evenly over the split as `tapr eval --limit` takes them. Both
need `tapr models pull local`. `--minutes` ends the asking: pairs then count as far as they were asked, and emoji go on
at the next run with the same records.
"""

from __future__ import annotations

import argparse
import json
import runpy
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from tapr.encoders.registry import load_encoder
from tapr.evaluate.bank import find_rows
from tapr.evaluate.datasets import Dataset, load_dataset
from tapr.evaluate.session import Request, evaluate
from tapr.factorize.failures import NoSpec
from tapr.factorize.grounded import apply
from tapr.factorize.local import LocalFactorizer
from tapr.factorize.registry import load_factorizer
from tapr.factorize.seeing import Seen
from tapr.gallery import Gallery
from tapr.images.decode import read_bytes, sha256_of
from tapr.methods import Features
from tapr.query.open_reference import shown
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tapr.utils.progress import NoProgress

# by its path: some packages install a `tests` of their own
_TESTS = runpy.run_path(str(Path(__file__).parents[1] / "tests/factorize/caption_pairs.py"))
PAIRS, differing = _TESTS["PAIRS"], _TESTS["differing"]
PARTS = ("target", "add", "preserve", "remove", "continuity")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=("pairs", "emoji"))
    parser.add_argument("gallery", nargs="?", type=Path)
    parser.add_argument("--kept", action="store_true", help="the other half of the pairs")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--split", default="val")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--records", type=Path, help="keep the local model's specs here, and use those that are there")
    parser.add_argument("--show", action="store_true", help="print every answer that differs")
    asked = parser.parse_args()
    if asked.set == "pairs":
        rows = [row for row in PAIRS if row["kept"] == asked.kept][: asked.limit]
        print_pairs(rows, asked.minutes, asked.show)
    elif asked.gallery is None:
        parser.error("emoji needs a GALLERY with EmojiCIR's pictures")
    else:
        print_emoji(asked.gallery, asked.split, asked.limit, asked.minutes, asked.records)


def print_pairs(rows: list[dict[str, Any]], minutes: float, show: bool) -> None:
    local = LocalFactorizer(load_encoder("clip-b16"))
    local.apply(Seen("a cup on a table"), "in green")  # reads the examples, once per process
    specs: list[EditSpec | None] = []
    start = time.perf_counter()
    for row in rows:
        if time.perf_counter() - start > 60 * minutes:
            break
        specs.append(_asked(local, row, show))
    took = time.perf_counter() - start
    rows = rows[: len(specs)]
    print_agreement("local", rows, specs)
    print_agreement("grounded", rows, [apply(Seen(row["caption"]), row["edit"]).spec for row in rows])
    print(f"local: {took / max(len(rows), 1):.1f} s per edit, {specs.count(None)} edits without a valid spec")


def _asked(local: LocalFactorizer, row: dict[str, Any], show: bool) -> EditSpec | None:
    try:
        spec = local.apply(Seen(row["caption"]), row["edit"]).spec
    except NoSpec as error:
        print(f"{row['edit']!r}: {error}")
        return None
    if show and (wrong := differing(row, spec)):
        print(
            json.dumps({"caption": row["caption"], "edit": row["edit"], "wrong": wrong, **spec.to_dict()}), flush=True
        )
    return spec


def print_agreement(name: str, rows: list[dict[str, Any]], specs: list[EditSpec | None]) -> None:
    wrong = [list(PARTS) if spec is None else differing(row, spec) for row, spec in zip(rows, specs, strict=True)]
    counts = Counter(part for parts in wrong for part in parts)
    shares = ", ".join(f"{part} {len(rows) - counts[part]}" for part in PARTS)
    print(f"{name}: {sum(not parts for parts in wrong)} of {len(rows)} pairs exact; {shares}")


def print_emoji(path: Path, split: str, limit: int, minutes: float, kept: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        records = kept or Path(folder) / "local.jsonl"
        dataset = load_dataset("emoji", None, split, None).limited(limit)
        if remember(dataset, path, records, minutes) < limit:
            raise SystemExit("out of time: run it again with the same --records, or ask fewer with --limit")
        requests = {
            "local": Request("emoji", Path(folder) / "local", records=(records,)),
            "grounded": Request("emoji", Path(folder) / "grounded", factorizer="grounded"),
        }
        for name, request in requests.items():
            asked = replace(request, split=split, gallery=path, limit=limit, methods=("tapr",))
            run = evaluate(replace(asked, baselines=False, plots=False, page=False), NoProgress())
            print(name, json.dumps(run.metrics["methods"]["tapr"]))


def remember(dataset: Dataset, path: Path, records: Path, minutes: float) -> int:
    """Ask for what the records lack; -> how many queries were asked in time."""
    gallery = Gallery.open(path)
    factorizer = load_factorizer("local", encoder=gallery.encoder, records=records)
    (part,) = dataset.parts
    features = Features.of(gallery.encoder, gallery, find_rows(dataset, gallery).row_of, part.gallery)
    start = time.perf_counter()
    for done, query in enumerate(part.queries):
        if time.perf_counter() - start > 60 * minutes:
            return done
        data = read_bytes(dataset.pictures[query.reference])
        reference = Reference(shown(data), features.references([query.reference]), sha256_of(data))
        try:
            made = factorizer.factorize(reference, query.edit)
        except NoSpec as error:  # counts as not found below
            print(f"{query.id}: {error}")
        else:
            print(f"{query.id} {time.perf_counter() - start:.0f} s", query.edit, made.spec.to_json(), flush=True)
    return len(part.queries)


if __name__ == "__main__":
    main()
