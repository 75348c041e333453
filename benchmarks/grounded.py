"""How long the grounded factorizer takes and how often it agrees with what a person wrote.

    PYTHONPATH=src python benchmarks/grounded.py [--encoder clip-b16]

The reading is timed without the tagging; with `--encoder` the tagging of a picture is timed too, and the first use, and
the whole of grounded/3 but the image tower: caption, edit, text tower.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from tapr.factorize.grammar import read_edit
from tapr.factorize.tagged import ground
from tapr.factorize.tags import Tagger, Tags, vocabulary

EDITS = Path(__file__).parents[1] / "tests/factorize/data/edits.jsonl"
ROUNDS = 5
sys.path.insert(0, str(EDITS.parents[1]))  # the tests' own judgement of what is the same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", help="also time the tagging with this encoder")
    name = parser.parse_args().encoder
    rows = [json.loads(line) for line in EDITS.read_text().splitlines()]
    print_times([row["edit"] for row in rows])
    print_agreement(rows)
    print_captions()
    if name:
        print_tagging(name)
        print_whole(name, [row["edit"] for row in rows])


def print_agreement(rows: list[dict[str, object]]) -> None:
    """Exact agreement of the Add set and the Remove set, casefolded, articles dropped."""
    for split in ("dev", "held-out"):
        chosen = [row for row in rows if row["split"] == split]
        right = sum(agrees(row) for row in chosen)
        print(f"{split:9} exact Add and Remove: {right} of {len(chosen)} edits, {100 * right / len(chosen):.1f} %")


def print_captions() -> None:
    """Captions with an edit applied: exact Target content words and factors; one half was kept apart from the rules."""
    pairs = importlib.import_module("caption_pairs")
    for kept in (False, True):
        wrong = [pairs.wrong_parts(row) for row in pairs.PAIRS if row["kept"] == kept]
        right = sum(not parts for parts in wrong)
        parts = ", ".join(
            f"{part} {sum(part not in one for one in wrong)}" for part in ("target", "add", "preserve", "remove")
        )
        half = "kept apart" if kept else "seen"
        print(f"captions, {half:10}: {right} of {len(wrong)} specs exact, {100 * right / len(wrong):.1f} % ({parts})")


def print_whole(name: str, edits: list[str]) -> None:
    """One edit after the other on a picture that is encoded already."""
    from tapr.encoders.registry import load_encoder
    from tapr.factorize.grounded import GroundedFactorizer
    from tapr.query.reference import Reference

    encoder = load_encoder(name)
    image = Image.new("RGB", (300, 200), (200, 30, 30))
    reference = Reference(image, encoder.encode_images([encoder.prepare(image)]), "00" * 32)
    factorizer = GroundedFactorizer(encoder)
    factorizer.factorize(reference, edits[0])
    times = []
    for edit in edits:
        start = time.perf_counter()
        factorizer.factorize(reference, edit)
        times.append(1000 * (time.perf_counter() - start))
    print(f"{name}: grounded/3 without the image tower: median {statistics.median(times):.1f} ms, {len(times)} edits")


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
