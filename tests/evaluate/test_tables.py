from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from tapr.evaluate import paper
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.table import Table
from tapr.evaluate.tables import tables_of

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
        "tau": 0.02, "queries": 10, "code_sha256": "c" * 64,
    }  # fmt: skip
    return StoredRun(Path("nowhere"), config, {"methods": {}, "controls": {}, "skipped": {}, **metrics})


def row(value: float, **more: Any) -> dict[str, Any]:
    return {"label": "TAPR", "ours": "theta", "R@1": value, "interval": [value - 1, value + 1], **more}


def test_the_papers_figures_are_those_of_the_same_split_and_size_of_encoder() -> None:
    assert paper.method_figures("CIRR", "test1", "TAPR", LARGE)["R@1"] == 40.17
    assert paper.method_figures("FashionIQ", "val", "SDR-CIR", LARGE) == {"R@10": 40.84, "R@50": 61.25}
    assert paper.method_figures("CIRR", "val", "TAPR", LARGE) == {}  # its table is on test1
    assert paper.method_figures("CIRR", "test1", "TAPR", "clip-b16") == {}  # it has no ViT-B/16
    assert paper.control_figure("CIRR", "val", "w/o Target", LARGE) == 24.64
    assert paper.control_figure("CIRCO", "val", "global, shared read", LARGE) == 26.71
    assert paper.control_figure("FashionIQ", "val", "Full TAPR", LARGE) == 43.23


def test_the_papers_column_is_shown_only_where_it_has_figures() -> None:
    controls = {"Full TAPR": row(38.0, control=""), "w/o Target": row(25.0, control="factors")}
    (large,) = tables_of(run(LARGE, controls=controls))
    assert large.columns[-1] == "paper, R@1"
    assert [cells[-1] for cells in large.rows] == ["38.28", "24.64"]
    (small,) = tables_of(run("clip-b16", controls=controls))
    assert "paper, R@1" not in small.columns


def test_a_table_says_under_what_conditions_its_figures_hold() -> None:
    (table,) = tables_of(run("clip-b16", methods={"tapr": row(30.0)}, skipped={"ldre": "no records"}))
    text = table.markdown()
    for said in (
        "clip-b16", "wwwwwwwwwwww", "clearclip", "1 / 0.5 / 0.5 / 0.3: the fixed prior", "2,297 pictures",
        "removed from the ranking", "specs.jsonl", "cccccccccccc", "TAPR, decided here: theta", "ldre was not run",
    ):  # fmt: skip
        assert said in text


def test_tables_survive_latex_and_csv() -> None:
    table = Table("t", "50 % & more", ("a_b", "c"), (("x, y", "1 – 2"),), ("note",))
    assert r"50 \% \& more" in table.latex()
    assert r"a\_b & c \\" in table.latex()
    assert list(csv.reader(io.StringIO(table.csv()))) == [["a_b", "c"], ["x, y", "1 – 2"]]


def test_a_stored_ranking_may_hold_line_separators(tmp_path: Path) -> None:
    (tmp_path / "rankings").mkdir()
    row = {"id": "one\u2028two", "right": [1], "subset_rank": None, "groups": [], "top": []}
    (tmp_path / "rankings" / "tapr.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    stored = StoredRun(tmp_path, {"protocol": {"mean": "of the queries"}}, {})
    assert stored.outcome("tapr").ids == ("one\u2028two",)
