"""How long the grounded factorizer takes and how often it agrees with what a person wrote.

    PYTHONPATH=src python benchmarks/grounded.py [--encoder clip-b16]

The reading is timed without the tagging; with `--encoder` the tagging of a picture is timed too, and the first use.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from PIL import Image

from tapr.factorize.grammar import read_edit
from tapr.factorize.tagged import ground
from tapr.factorize.tags import Tagger, Tags, vocabulary

EDITS = Path(__file__).parents[1] / "tests/factorize/data/edits.jsonl"
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", help="also time the tagging with this encoder")
    name = parser.parse_args().encoder
    rows = [json.loads(line) for line in EDITS.read_text().splitlines()]
    print_times([row["edit"] for row in rows])
    print_agreement(rows)
    if name:
        print_tagging(name)


def print_agreement(rows: list[dict[str, object]]) -> None:
    """Exact agreement of the Add set and the Remove set, casefolded, articles dropped."""
    for split in ("dev", "held-out"):
        chosen = [row for row in rows if row["split"] == split]
        right = sum(agrees(row) for row in chosen)
        print(f"{split:9} exact Add and Remove: {right} of {len(chosen)} edits, {100 * right / len(chosen):.1f} %")


def agrees(row: dict[str, object]) -> bool:
    given = dict(row.get("tags", {}))  # type: ignore[call-overload]
    edit = str(row["edit"])
    spec, _ = ground(edit, read_edit(edit), Tags(given.pop("subject", ""), given))
    return (plain(spec.add), plain(spec.remove)) == (plain(row["add"]), plain(row["remove"]))


def plain(atoms: object) -> set[str]:
    assert isinstance(atoms, (list, tuple))
    return {" ".join(word for word in atom.casefold().split() if word not in ("a", "an", "the")) for atom in atoms}


def print_times(edits: list[str]) -> None:
    start = time.perf_counter()
    read_edit(edits[0])
    first = time.perf_counter() - start
    times = []
    for edit in edits * ROUNDS:
        start = time.perf_counter()
        ground(edit, read_edit(edit), Tags("dog", {"colour": "red"}))
        times.append(1000 * (time.perf_counter() - start))
    times.sort()
    worst = times[int(0.99 * len(times))]
    middle, mean = statistics.median(times), statistics.fmean(times)
    print(f"reading an edit, without tagging: median {middle:.2f} ms, mean {mean:.2f} ms, {len(times)} readings")
    print(f"99 of 100 readings take at most {worst:.2f} ms")
    print(f"the first edit, with lists and patterns loaded: {1000 * first:.0f} ms")


def print_tagging(name: str) -> None:
    from tapr.encoders.registry import load_encoder

    encoder = load_encoder(name)
    image = Image.new("RGB", (300, 200), (200, 30, 30))
    picture = encoder.encode_images([encoder.prepare(image)]).global_vectors[0]
    with tempfile.TemporaryDirectory() as folder:
        for said in ("vocabulary encoded", "vocabulary read from disk"):
            tagger = Tagger(encoder, Path(folder))
            start = time.perf_counter()
            tagger.tag(picture)
            print(
                f"{name}: first tags, {said} ({len(vocabulary().phrases)} phrases): {time.perf_counter() - start:.2f} s"
            )
        start = time.perf_counter()
        for _ in range(100):
            tagger.tag(picture)
        print(f"{name}: tags of a further picture: {10 * (time.perf_counter() - start):.2f} ms")


if __name__ == "__main__":
    main()
