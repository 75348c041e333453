"""Run files for other programs: ir_measures finds the same figures in them as we do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Part, Query
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.evaluate.run_files import StoredRanking, StoredRun
from tapr.evaluate.trec import write_trec
from tests.evaluate.test_report import invoke, runs

__all__ = ["runs"]  # a fixture
MEASURES = {"R@1": "Success@1", "R@5": "Success@5", "R@10": "R@10", "R@50": "R@50"}  # one target: recall is success


def checked(run: StoredRun, folder: Path, pairs: dict[str, str], suffix: str = "") -> None:
    """Every method's every metric, query by query and in the mean, by ir_measures."""
    measures = pytest.importorskip("ir_measures", reason="ir_measures is not installed (the extra `dev`)")
    qrels = list(measures.read_trec_qrels(str(folder / "qrels.txt")))
    for method in run.methods():
        found = list(measures.read_trec_run(str(folder / f"{method}{suffix}.run")))
        for ours, theirs in pairs.items():
            values = run.outcome(method).values(Metric.parse(ours))
            by_query = {
                one.query_id: one.value for one in measures.iter_calc([measures.parse_measure(theirs)], qrels, found)
            }
            np.testing.assert_allclose([by_query[name] for name in run.outcome(method).ids], values, atol=1e-6)
            mean = measures.calc_aggregate([measures.parse_measure(theirs)], qrels, found)
            assert next(iter(mean.values())) == pytest.approx(float(values.mean()), abs=1e-6)


def test_ir_measures_finds_the_same_recalls(runs: Path, tmp_path: Path) -> None:
    run = StoredRun.open(runs / "run-val")
    shown = json.loads(invoke("trec", run.folder, "--out", tmp_path, "--json").stdout)
    names = {Path(path).name for path in shown["files"]}
    assert {"qrels.txt", "tapr.run", "tapr.subset.run", "image.run"} <= names
    checked(run, tmp_path, MEASURES)
    checked(run, tmp_path, {"Rsubset@1": "Success@1", "Rsubset@2": "Success@2"}, ".subset")


def test_ir_measures_finds_the_same_mean_average_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several right answers, names with spaces; at 50 no query has more right answers than ranks."""
    pytest.importorskip("emoji", reason="EmojiCIR needs the extra `eval`")
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")
    asked = ("emoji", "--split", "mini", "--encoder", "fake", "--method", "tapr", "--no-page")
    invoke(*asked, "--out", tmp_path / "run")
    run = StoredRun.open(tmp_path / "run")
    write_trec(run, tmp_path / "trec")
    checked(run, tmp_path / "trec", {"mAP@50": "AP@50", "Hit@10": "Success@10"})


def test_a_split_whose_answers_are_hidden_has_rankings_alone(runs: Path, tmp_path: Path) -> None:
    names = {path.name for path in write_trec(StoredRun.open(runs / "run-test1"), tmp_path)}
    assert "tapr.run" in names
    assert "qrels.txt" not in names


def test_names_with_spaces_are_one_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = Protocol("d", "val", "g", True, "t", metrics("R@1"), Metric("R", 1))
    dataset = Dataset(protocol, (Part("all", ("a b", "50%"), (Query("q 1", "r", "e", ("50%",)),)),), {})
    ranks = StoredRanking({"q 1": ["a b", "50%"]}, {}, None, None)
    monkeypatch.setattr("tapr.evaluate.trec.read_ranking", lambda *_: ranks)
    monkeypatch.setattr("tapr.evaluate.trec.dataset_of", lambda *_: dataset)
    run = StoredRun(tmp_path, {"protocol": {"mean": ""}}, {})
    (tmp_path / "rankings").mkdir()
    (tmp_path / "rankings" / "mine.jsonl").touch()
    write_trec(run, tmp_path)
    assert (tmp_path / "mine.run").read_text() == "q%201 Q0 a%20b 1 2 mine\nq%201 Q0 50%25 2 1 mine\n"
    assert (tmp_path / "qrels.txt").read_text() == "q%201 0 50%25 1\n"


def test_a_folder_without_rankings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no ranking"):
        write_trec(StoredRun(tmp_path, {"protocol": {"mean": ""}}, {}), tmp_path / "out")
