from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tapr.evaluate import evaluate
from tapr.evaluate.published import control_figure, method_rows, published, size_of
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.table import Table
from tapr.evaluate.tables import tables_of
from tests.evaluate import made_up

LARGE = "open_clip:ViT-L-14/laion2b_s32b_b82k"


def run(encoder: str, split: str = "val", **metrics: Any) -> StoredRun:
    config = {
        "protocol": {
            "dataset": "CIRR", "split": split, "gallery": "2,297 pictures", "reference": "removed from the ranking",
            "edit_text": "caption", "metrics": ["R@1"], "main": "R@1", "mean": "over queries",
        },
        "encoder": {
            "name": encoder, "weights_sha256": "w" * 64, "extractor": "clearclip", "fit": "crop", "template": "{}",
        },
        "bank": {"precision": "fp16", "sha256": "b" * 64},
        "theta": {"weights": {"target": 1, "add": 0.5, "preserve": 0.5, "remove": 0.3}, "how": "the fixed prior"},
        "records": {"origin": "specs.jsonl", "sha256": "r" * 64},
        "tau": 0.02, "score": {"rule": "paper"}, "queries": 10, "code_sha256": "c" * 64,
    }  # fmt: skip
    return StoredRun(Path("nowhere"), config, {"methods": {}, "controls": {}, "skipped": {}, **metrics})


def row(value: float, **more: Any) -> dict[str, Any]:
    return {"label": "TAPR", "ours": "theta", "R@1": value, "interval": [value - 1, value + 1], **more}


def test_published_figures_are_those_of_the_same_split_and_size_of_encoder() -> None:
    def figures(dataset: str, split: str, label: str, size: str) -> list[dict[str, float]]:
        return [row["figures"] for row in method_rows(dataset, split, size) if row["label"] == label]

    assert figures("CIRR", "test1", "TAPR", "ViT-L")[0]["R@1"] == 40.17
    assert figures("FashionIQ", "val", "SDR-CIR", "ViT-L") == [{"R@10": 40.84, "R@50": 61.25}]
    assert figures("CIRCO", "test", "WISER", "ViT-G")[0]["mAP@5"] == 36.53
    assert figures("CIRR", "val", "TAPR", "ViT-L") == []  # its table is on test1
    assert size_of("clip-b16") is None  # no table has a ViT-B/16
    assert control_figure("controls", "w/o Target", "CIRR", "R@1", LARGE) == 24.64
    assert control_figure("controls", "global, shared read", "CIRCO", "mAP@5", LARGE) == 26.71
    assert control_figure("controls", "Full TAPR", "FashionIQ", "R@10", LARGE) == 43.23
    assert control_figure("controls", "Full TAPR", "FashionIQ", "R@10", "clip-b16") is None


def test_sources_agree_where_they_cite_the_same_figures() -> None:
    """WISER's table and the paper's quote the same authors."""
    cited: dict[tuple[str, ...], dict[str, float]] = {}
    for row in published()["methods"]:
        key = row["dataset"], row["encoder"], row["label"]
        assert {**cited.setdefault(key, {}), **row["figures"]} == {**row["figures"], **cited[key]}
        cited[key] |= row["figures"]
        assert row["source"] in published()["sources"]


def test_the_papers_column_is_shown_only_where_it_has_figures() -> None:
    controls = {"Full TAPR": row(38.0, control=""), "w/o Target": row(25.0, control="factors")}
    (large,) = tables_of(run(LARGE, controls=controls))
    assert [cells["paper, R@1"] for cells in large.rows] == [38.28, 24.64]
    (small,) = tables_of(run("clip-b16", controls=controls))
    assert "paper, R@1" not in small.columns


def test_rows_are_sorted_and_published_ones_stand_below_with_their_source() -> None:
    methods = {"a": row(20.0, label="A"), "b": row(30.0, label="B")}
    table = tables_of(run(LARGE, "test1", methods=methods))[0]
    assert [(cells["Method"], cells["Source"]) for cells in table.rows[:3]] == [
        ("B *", "this run"),
        ("A *", "this run"),
        ("WISER ‡", "WISER"),
    ]
    assert any("CVPR 2026" in note for note in table.notes)
    assert "Source" not in tables_of(run("clip-b16", methods=methods))[0].columns


def test_a_table_says_under_what_conditions_its_figures_hold() -> None:
    (table,) = tables_of(run("clip-b16", methods={"tapr": row(30.0)}, skipped={"ldre": "no records"}))
    text = table.markdown()
    for said in (
        "clip-b16", "wwwwwwwwwwww", "clearclip", "1 / 0.5 / 0.5 / 0.3: the fixed prior", "2,297 pictures",
        "removed from the ranking", "specs.jsonl", "cccccccccccc", "TAPR, decided here: theta", "ldre was not run",
    ):  # fmt: skip
        assert said in text


def test_tables_survive_latex_and_csv() -> None:
    table = Table("t", "50 % & more", ({"a_b": "x, y", "c": "1 – 2"},), ("note",))
    assert r"50 \% \& more" in table.latex()
    assert r"a\_b & c \\" in table.latex()
    assert list(csv.reader(io.StringIO(table.csv()))) == [["a_b", "c"], ["x, y", "1 – 2"]]


def test_a_stored_ranking_may_hold_line_separators(tmp_path: Path) -> None:
    (tmp_path / "rankings").mkdir()
    row = {"id": "one\u2028two", "right": [1], "subset_rank": None, "groups": [], "top": []}
    (tmp_path / "rankings" / "tapr.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    stored = StoredRun(tmp_path, {"protocol": {"mean": "of the queries"}}, {})
    assert stored.outcome("tapr").ids == ("one\u2028two",)


def test_evaluate_returns_a_row_per_method_and_writes_every_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")
    data, out = made_up.cirr(tmp_path / "cirr"), tmp_path / "run"
    options = {"records": [made_up.specs(data)], "methods": ["tapr", "image"], "encoder": "fake", "page": False}
    rows = evaluate("cirr", out, data=data, search={"tau": 0.01}, **options)
    assert [row["R@1"] for row in rows] == sorted((row["R@1"] for row in rows), reverse=True)
    stored = StoredRun.open(out)
    assert {row["method"] for row in rows} == stored.metrics["methods"].keys()
    assert stored.config["tau"] == 0.01
    ranks = list(csv.DictReader(io.StringIO((out / "ranks.csv").read_text())))
    assert [int(row["image"]) for row in ranks] == [places[0].right[0] for places in stored.outcome("image").ranks]
    assert [row["query"] for row in ranks] == list(stored.outcome("tapr").ids)
