import json
import re
from pathlib import Path

import pytest

import tapr
from tapr import BadInput, EditSpec, Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.explain.report import Panel, write_report
from tests.pictures import flag, png, write_flags

HOSTILE = "</script><img src=x onerror=alert(1)>'\".png".replace("/", "\u2215")


def page_data(path: Path) -> dict[str, object]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found
    value: dict[str, object] = json.loads(found.group(1))
    return value


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    write_flags(tmp_path / "p", [("red", "blue"), ("green",), ("red",)])
    (tmp_path / "p" / HOSTILE).write_bytes(png(flag("blue")))
    return Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())


def test_one_page_with_the_reasons_and_nothing_from_outside(gallery: Gallery, tmp_path: Path) -> None:
    edit = "<script>alert(1)</script>"
    ranking = tapr.search(gallery, "green.png", spec=EditSpec("a red flag", ["red"], remove=["</script>"]))
    page = write_report(tmp_path / "out.html", [Panel(ranking, edit, answer="red.png")])
    text = page.read_text()
    assert "http://" not in text
    assert "https://" not in text
    assert "alert(1)" in text  # shown,
    assert "<script>alert" not in text  # never run
    assert text.count("</script>") == 2
    panel = page_data(page)["panels"][0]  # type: ignore[index]
    assert panel["edit"] == edit
    labels = {name: row["label"] for name, row in page_data(page)["factors"].items()}  # type: ignore[attr-defined]
    assert labels == {
        "target": "Looking for", "add": "Add", "preserve": "Keep", "continuity": "Likeness", "remove": "Leave out",
    }  # fmt: skip
    assert {hit["id"] for hit in panel["hits"]} == {"red-blue.png", "red.png", HOSTILE}
    first = panel["hits"][0]
    assert first["id"] == "red.png"
    assert first["answer"]
    assert set(first["heat"]) == {"", "add:0", "remove:0", "reference:0:local"}
    assert [part["text"] for part in first["parts"]] == ["Looking for", "red", "overall look", "details", "</script>"]
    assert sum(part["value"] for part in first["parts"]) == pytest.approx(first["score"])
    assert {term["key"]: term["text"] for term in panel["terms"]} == {
        None: "overall look",  # the target, too, has no place
        "add:0": "red",
        "remove:0": "</script>",
        "reference:0:local": "details",
    }
    assert f"reference weight {ranking.reference_weight:.2f}" in panel["facts"]


def test_an_atom_with_the_text_of_a_term_of_the_reference_has_a_map_of_its_own(
    gallery: Gallery, tmp_path: Path
) -> None:
    ranking = tapr.search(gallery, "green.png", spec=EditSpec("a red flag", ["details", "(reference)"]))
    hits = page_data(write_report(tmp_path / "out.html", [Panel(ranking)]))["panels"][0]["hits"]  # type: ignore[index]
    heat = hits[0]["heat"]
    assert set(heat) == {"", "add:0", "add:1", "reference:0:local"}
    assert heat["add:0"] != heat["reference:0:local"]


def test_a_hit_whose_file_is_gone_is_shown_by_name(gallery: Gallery, tmp_path: Path) -> None:
    ranking = tapr.search(gallery, "green.png", spec=EditSpec("red"), k=1)
    Path(ranking.hits[0].path).unlink()
    data = page_data(write_report(tmp_path / "out.html", [Panel(ranking)]))
    assert data["panels"][0]["hits"][0]["picture"] is None  # type: ignore[index]


def test_a_place_that_cannot_be_written_is_said(gallery: Gallery, tmp_path: Path) -> None:
    ranking = tapr.search(gallery, "green.png", spec=EditSpec("red"), k=1)
    with pytest.raises(BadInput, match="no folder"):
        write_report(tmp_path / "none" / "out.html", [Panel(ranking)])
