"""cirr-words: captions of CIRR's pictures ranked by what a factorizer reads from a caption and an edit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tapr.encoders.registry import load_encoder
from tapr.errors import BadInput
from tapr.evaluate.cirr_words import compare_readers, readers
from tests.evaluate import made_up
from tests.evaluate.test_report import invoke


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    """CIRR in the form of its authors, without pictures, and captions in the form of WeiMoCIR's."""
    root = made_up.cirr(tmp_path / "cirr")
    for picture in (root / "dev").iterdir():
        picture.unlink()
    names = json.loads((root / "image_splits" / "split.rc2.val.json").read_text())
    rows = [{"candidate": name, "captions": [" and ".join(name.split("-")[1:])]} for name in names]
    path = tmp_path / "captions.json"
    path.write_text(json.dumps(rows))
    return path


def test_every_reader_has_a_row_with_the_official_ground_truth(captions: Path, tmp_path: Path) -> None:
    records = made_up.specs(tmp_path / "cirr")
    arguments = ("--data", tmp_path / "cirr", "--captions", captions, "--encoder", "fake", "--records", records)
    rows = json.loads(invoke("cirr-words", *arguments, "--out", tmp_path / "out", "--json").stdout)["rows"]
    by_name = {row["Reader"]: row for row in rows}
    assert set(by_name) == {"edit", "edit + 0.5 caption", "grounded/3", "grounded/3 + edit", "specs.val"}
    assert by_name["specs.val"]["R@5"] == pytest.approx(100)
    assert by_name["specs.val"]["R@5"] > by_name["edit"]["R@5"]  # specs name both colours of the target
    assert [row["R@10"] for row in rows] == sorted((row["R@10"] for row in rows), reverse=True)
    assert "19 of 19 queries" in (tmp_path / "out" / "cirr_words.md").read_text()


def test_the_reference_is_left_out(captions: Path, tmp_path: Path) -> None:
    query = json.loads((tmp_path / "cirr" / "captions" / "cap.rc2.val.json").read_text())[0]
    kept = [
        row
        for row in json.loads(captions.read_text())
        if row["candidate"] in (query["reference"], query["target_hard"])
    ]
    captions.write_text(json.dumps(kept))
    reference = {"caption": lambda query, caption: {caption: 1.0}}
    _, outcomes = compare_readers(tmp_path / "cirr", captions, load_encoder("fake"), reference)
    assert outcomes["caption"].ranks[0][0].right == (1.0,)
    captions.write_text(json.dumps([{"candidate": "x", "captions": ["y"]}]))
    with pytest.raises(BadInput):
        compare_readers(tmp_path / "cirr", captions, load_encoder("fake"), readers())
