"""Natural edits on photographs, two factorizers side by side, for judging by eye.

python benchmarks/natural.py GALLERY OUT.html [--first grounded/1] [--second grounded]

GALLERY is indexed from a folder of photographs with the files that data/natural_edits.jsonl names. The page shows, per
edit, the reference, both specs and both five best. It holds photographs, so it is not part of the repository.
"""

from __future__ import annotations

import argparse
import html
import json
from pathlib import Path

import tapr
from tapr.explain.report import Panel, write_report

EDITS = Path(__file__).parent / "data" / "natural_edits.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gallery")
    parser.add_argument("out", type=Path)
    parser.add_argument("--first", default="grounded/1")
    parser.add_argument("--second", default="grounded")
    parser.add_argument("-k", type=int, default=5)
    asked = parser.parse_args()
    gallery = tapr.Gallery.open(asked.gallery)
    panels = []
    for number, line in enumerate(EDITS.read_text(encoding="utf-8").splitlines(), 1):
        row = json.loads(line)
        for name in (asked.first, asked.second):
            ranking = tapr.search(gallery, row["reference"], row["edit"], k=asked.k, factorizer=name)
            panels.append(Panel(ranking, f"{number}. {row['edit']}", note=f"factorizer {html.escape(name)}"))
            print(number, name, ranking.spec.to_json(), [hit.id for hit in ranking.hits])
    write_report(asked.out, panels, "Natural edits")


if __name__ == "__main__":
    main()
