"""What the columns of a gallery hold, as far as a person can choose by it."""

from __future__ import annotations

import json
from pathlib import Path

from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tests.pictures import flag


def test_ranges_for_numbers_and_dates_and_values_where_they_are_few(tmp_path: Path) -> None:
    rows = []
    for number in range(14):
        flag("red", "blue", size=(16 + number, 16)).save(tmp_path / f"{number}.png")
        rows.append({
            "path": f"{number}.png", "price": 5 + number, "since": f"2024-01-{number + 1:02d}", "new": number < 3,
            "kind": "shirt" if number % 2 else "it's", "sku": f"s{number}", "same": "x", "none": None,
        })  # fmt: skip
    (tmp_path / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    gallery = Gallery.build(tmp_path / "bank", tmp_path / "table.jsonl", FakeEncoder())
    facets = {facet.name: facet for facet in gallery.facets()}
    assert set(facets) == {"price", "since", "new", "kind"}  # one value and too many values are no choice
    assert (facets["price"].least, facets["price"].most) == (5, 18)
    assert str(facets["since"].least).startswith("2024-01-01")
    assert facets["new"].values == ((False, 11), (True, 3))
    assert facets["kind"].values == (("it's", 7), ("shirt", 7))
    assert len(gallery.select("\"kind\" in ('it''s') and \"price\" between 5 and 10")) == 3
