"""Store the exact outcomes of 200 searches per kernel, and compare another version's with them bit for bit.

    python -m tools.golden write FILE       # outside the repository: bits depend on this machine's processor
    python -m tools.golden compare FILE     # exits with 1 if an answer, a score or a proof differs

How many pictures were read (`rescored`, `proof.read`) is no part of an answer: differences are counted and printed.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import tests
from tapr.search.topk import TopK

tests.__path__.insert(0, str(Path(__file__).parents[1] / "tests"))  # another package may be installed as `tests`
from tests.search.banks import every_kernel  # noqa: E402
from tests.search.searches import searches  # noqa: E402

Outcome = dict[str, Any]
COUNTS = ("rescored", "read", "open")


def outcome_of(found: TopK) -> Outcome:
    proof = found.proof
    return {
        "positions": found.positions.tolist(),
        "scores": found.scores.tobytes(),
        "radii": None if found.radii is None else found.radii.tobytes(),
        "exact": found.exact,
        "kernel": found.kernel,
        "proven": None if proof is None else (proof.proven, proof.pictures),
        "notes": found.notes if proof is None else found.notes[1:],
        "rescored": found.rescored,
        "read": None if proof is None else proof.read,
        "open": None if proof is None else proof.open,
    }


def outcomes() -> dict[tuple[str, str], list[Outcome]]:
    found = {}
    for kernel in every_kernel():
        for search in searches():
            found[kernel.name, search.name] = [outcome_of(answer) for answer in search.answers(kernel)]
    return found


def compare(before: dict[tuple[str, str], list[Outcome]]) -> int:
    now, differing = outcomes(), Counter[str]()
    assert before.keys() == now.keys()
    for key, several in now.items():
        for old, new in zip(before[key], several, strict=True):
            for field in old.keys() - COUNTS:
                if old[field] != new[field]:
                    differing[field] += 1
                    print(*key, field, "was", old[field], "is", new[field], sep="\n  ")
            for field in COUNTS:
                differing[field] += old[field] != new[field]
    print(f"{len(now):,} searches compared; fields that differ: {dict(+differing)}")
    for field in COUNTS:
        sums = [sum(one[field] or 0 for several in each.values() for one in several) for each in (before, now)]
        print(f"pictures {field}: {sums[0]:,} -> {sums[1]:,}")
    return int(any(differing[field] for field in differing if field not in COUNTS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.step == "write":
        options.file.write_bytes(pickle.dumps(outcomes()))
    else:
        sys.exit(compare(pickle.loads(options.file.read_bytes())))


if __name__ == "__main__":
    main()
