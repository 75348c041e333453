"""Server scores come back, theta is chosen together, the paper's tables have ours in them, queries become figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tapr.cli.eval import eval as eval_command
from tapr.errors import BadInput
from tapr.evaluate.diagnostics import CELLS, INTERACTION, gains
from tapr.evaluate.metrics import AnswerRanks, Metric, Outcome
from tapr.evaluate.run_files import StoredRun, read_lines
from tapr.evaluate.server_scores import metric_of
from tapr.evaluate.table import Table
from tapr.evaluate.tables import tables_of
from tapr.evaluate.theta import GRID, joint, leave_one_out
from tests.evaluate import made_up


def invoke(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(eval_command, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A validation run with the matched control, the reference both ways, and a test run."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tapr.evaluate.session.home", lambda: folder / "home")
        for split in ("val", "test1"):
            data = made_up.cirr(folder / split, split)
            asked: list[str | Path] = [
                "cirr",
                "--data",
                data,
                "--split",
                split,
                "--records",
                made_up.specs(data, split),
            ]
            asked += ["--encoder", "fake", "--method", "tapr", "--method", "image", "--no-page"]
            more = ["--controls", "matched", "--reference", "both"] if split == "val" else []
            invoke(*asked, *more, "--out", folder / f"run-{split}")
    return folder


@pytest.mark.parametrize(
    ("key", "metric"),
    [
        ("mAP@5", "mAP@5"), ("circo_map25", "mAP@25"), ("R@1", "R@1"), ("recall@10", "R@10"),
        ("recall_top_1_correct_composition", "R@1"), ("recall_inset_top_2_correct_composition", "Rsubset@2"),
        ("Rsubset@3", "Rsubset@3"), ("cirr_sub1", "Rsubset@1"), ("submission", ""), ("rank", ""),
    ],
)  # fmt: skip
def test_servers_names_of_metrics_are_known(key: str, metric: str) -> None:
    assert metric_of(key) == metric


def test_scores_of_the_server_stand_in_the_table_beside_the_papers(runs: Path, tmp_path: Path) -> None:
    run = runs / "run-test1"
    table = (run / "tables.md").read_text()
    assert "(no scores yet of TAPR, Image only)" in table
    recall = tmp_path / "recall.json"
    recall.write_text(json.dumps({"recall_top_1_correct_composition": 0.31, "recall_top_5_correct_composition": 0.6}))
    subset = tmp_path / "subset.json"
    subset.write_text(json.dumps({"tapr": {"Rsubset@1": 70.5}}))
    with pytest.raises(BadInput, match="say of which with --method"):
        invoke("import", run, recall)
    with pytest.raises(BadInput, match="has no method 'cotmr'"):
        invoke("import", run, recall, "--method", "cotmr")
    with pytest.raises(BadInput, match="there is nothing to import"):
        invoke("import", runs / "run-val", subset)
    invoke("import", run, recall, "--method", "tapr")
    shown = json.loads(invoke("import", run, subset, "--json").stdout)
    assert shown["server"]["tapr"] == {"R@1": 31.0, "R@5": 60.0, "Rsubset@1": 70.5}
    assert "| TAPR * | 31.00 | 60.00 |" in (run / "tables.md").read_text().replace("**", "")
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"tapr": {"score": 3}}))
    with pytest.raises(BadInput, match="holds no metric of this benchmark"):
        invoke("import", run, bad)


def test_the_reference_is_kept_and_removed_as_two_rows(runs: Path) -> None:
    run = StoredRun.open(runs / "run-val")
    assert run.metrics["methods"]["image"]["flipped"]["R@1"] == 0
    for row in read_lines(run.folder / "rankings" / "image.jsonl") or ():
        assert row["right_flipped"] == [rank + 1 for rank in row["right"]]  # behind the reference itself
    table = (run.folder / "reference.csv").read_text()
    assert "Image only,removed," in table
    assert "Image only,kept,0.00" in table


def test_a_reference_flag_against_the_protocol_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")
    data = made_up.cirr(tmp_path / "cirr")
    asked = ("cirr", "--data", data, "--encoder", "fake", "--method", "image", "--no-page", "--reference", "kept")
    invoke(*asked, "--out", tmp_path / "run")
    assert "own protocol removes the reference" in (tmp_path / "run" / "tables.md").read_text()
    hidden = made_up.cirr(tmp_path / "hidden", "test1")
    with pytest.raises(BadInput, match="one ranking to hand in"):
        invoke("cirr", "--data", hidden, "--split", "test1", "--reference", "both", "--out", tmp_path / "two")


def test_the_gains_are_those_of_the_cells(runs: Path) -> None:
    run = StoredRun.open(runs / "run-val")
    controls, found = run.metrics["controls"], run.metrics["gains"]
    cell = {key: controls[name]["R@1"] for key, name in CELLS.items()}
    expected = (cell["local", "factor-wise"] - cell["local", "shared"]) - (
        cell["global", "factor-wise"] - cell["global", "shared"]
    )
    assert found[INTERACTION]["value"] == pytest.approx(expected)
    assert gains({"Full TAPR": run.control("Full TAPR")}, Metric("R", 1)) == {}


def test_weights_of_another_score_encoder_or_tau_are_refused(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: runs / "home")
    asked: tuple[str | Path, ...] = ("cirr", "--data", runs / "val", "--records", runs / "val" / "specs.val.jsonl")
    asked = (*asked, "--encoder", "fake", "--method", "tapr", "--no-page")
    grid = tmp_path / "grid"
    invoke(*asked, "--theta", "grid", "--out", grid)
    invoke(*asked, "--theta", f"from:{grid}", "--out", tmp_path / "same")
    config = json.loads((grid / "config.json").read_text())
    for change, field in (
        ({"score": {**config["score"], "rule": "paper"}}, "score"),
        ({"encoder": {**config["encoder"], "weights_sha256": "0" * 64}}, "weights sha256"),
        ({"encoder": {**config["encoder"], "extractor": "value"}}, "extractor"),
        ({"tau": 0.05}, "tau"),
    ):
        (grid / "config.json").write_text(json.dumps({**config, **change}))
        for theta in (f"from:{grid}", f"joint:{grid}"):
            with pytest.raises(BadInput, match=f"were chosen with {field} "):
                invoke(*asked, "--theta", theta, "--out", tmp_path / "other")


def test_the_papers_score_has_one_row(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: runs / "home")
    asked: tuple[str | Path, ...] = ("cirr", "--data", runs / "val", "--records", runs / "val" / "specs.val.jsonl")
    asked = (*asked, "--encoder", "fake", "--method", "tapr", "--method", "tapr-paper", "--no-page")
    invoke(*asked, "--out", tmp_path / "ours")
    assert {"tapr", "tapr-paper"} <= StoredRun.open(tmp_path / "ours").metrics["methods"].keys()
    invoke(*asked, "--score", "paper", "--out", tmp_path / "paper")
    assert "tapr-paper" not in StoredRun.open(tmp_path / "paper").metrics["methods"]


def test_a_checkpoint_is_named_by_its_file_alone(runs: Path) -> None:
    run = StoredRun.open(runs / "run-val")
    for name, shown in (
        ("open_clip:ViT-L-14//home/me/secret/epoch_3.pt", "open_clip:ViT-L-14/epoch_3.pt"),
        ("open_clip:ViT-B-32/laion2b_s34b_b79k", "open_clip:ViT-B-32/laion2b_s34b_b79k"),
        ("fake", "fake"),
    ):
        other = StoredRun(run.folder, {**run.config, "encoder": {**run.config["encoder"], "name": name}}, run.metrics)
        assert other.encoder == shown
        texts = [text for table in tables_of(other) for text in (table.title, *table.notes)]
        assert not any("/home/me" in text for text in texts)


def test_the_papers_tables_hold_ours(runs: Path, tmp_path: Path) -> None:
    invoke("report", runs / "run-val", runs / "run-test1", "--out", tmp_path / "paper")
    page = (tmp_path / "paper" / "paper.md").read_text()
    ours = StoredRun.open(runs / "run-val").metrics["controls"]["global, shared read"]["R@1"]
    plain = page.replace("**", "")
    assert f"| global, shared read | 26.71 | – | 30.14 | {ours:.2f} | – | " in plain
    assert "| w/o Target | 22.02 | – | 24.64 | – | – | – | 28.89 | – |" in plain
    assert "| ViT-L | TAPR | TAPR | 37.83 | 38.46 | 41.44 | 42.50 | 40.17 |" in plain
    assert "| ViT-L | WISER ‡ | WISER | 35.10 | 36.30 | 38.46 | 39.15 | 49.23 |" in plain
    with pytest.raises(BadInput, match="are both on CIRR val fake: give one of them"):
        invoke("report", runs / "run-val", runs / "run-val", "--out", tmp_path / "twice")


def test_the_papers_tables_tell_the_intervals_of_ours(runs: Path, tmp_path: Path) -> None:
    invoke("report", runs / "run-val", "--out", tmp_path)
    page = (tmp_path / "paper.md").read_text()
    low, high = StoredRun.open(runs / "run-val").metrics["controls"]["Full TAPR"]["interval"]
    assert f"Ours, 95 % intervals of CIRR val R@1: Full TAPR {low:.1f} – {high:.1f}; " in page


def test_one_theta_for_all_datasets_or_by_the_others() -> None:
    grids = {name: [0.0] * len(GRID) for name in ("A", "B", "C")}
    for place, name in enumerate(grids):
        grids[name][place] = 10.0
        grids[name][7] = 9.0  # good on all, best on none
    assert joint(grids).weights == GRID[7]
    assert joint(grids).how == "best grid point on A, B, C together"
    assert leave_one_out(grids, "A").how == "best grid point on B, C together, A left out"
    assert leave_one_out(grids, "D").how == "best grid point on A, B, C together"


def test_pictures_are_fitted_as_asked_and_the_other_fits_are_a_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")
    data = made_up.cirr(tmp_path / "cirr")
    asked: tuple[str | Path, ...] = ("cirr", "--data", data, "--records", made_up.specs(data), "--encoder", "fake")
    asked = (*asked, "--method", "tapr", "--no-page", "--fit", "pad", "--controls", "fit")
    invoke(*asked, "--out", tmp_path / "run")
    run = StoredRun.open(tmp_path / "run")
    assert run.config["encoder"]["fit"] == "pad"
    assert list(run.metrics["controls"]) == ["Full TAPR", "fit crop", "fit targetpad", "fit squash"]
    assert len({path.name for path in (tmp_path / "home" / "eval").iterdir() if path.is_dir()}) == 4


def test_the_paper_is_told_whole(runs: Path, tmp_path: Path) -> None:
    invoke("report", runs / "run-val", "--out", tmp_path / "paper")
    page = (tmp_path / "paper" / "paper.md").read_text()
    for figures in ("69.29", "71.44", "almost certainly no Preserve atoms"):
        assert figures in page


def test_the_best_of_a_block_is_bold_and_notes_stand_in_the_table() -> None:
    figures = (("a", 1.5), ("b", 2.5), ("c", 2.5), ("d", None))
    rows = tuple({"x": name, "y": "one", "R@1": value} for name, value in figures)
    table = Table("t", "title", (*rows, {"x": "e", "y": "two", "R@1": 9.0}), ("* b_c, decided here.",), ("R@1",), "y")
    assert "| a | one | 1.50 |" in table.markdown()
    assert "| b | one | **2.50** |" in table.markdown()
    assert "| c | one | **2.50** |" in table.markdown()
    assert "| d | one | – |" in table.markdown()
    assert "| e | two | 9.00 |" in table.markdown()  # alone in its block
    assert "\\* b_c" in table.markdown()
    text = replace(table, label="mine").latex()
    assert r"b & one & \textbf{2.50} \\" in text
    assert r"\label{tab:mine}" in text
    assert r"{@{}llr@{}}" in text
    assert text.index(r"\bottomrule") < text.index(r"* b\_c, decided here.") < text.index(r"\end{table*}")
    assert text.count(r"\midrule") == 2


def test_values_of_one_query_in_the_four_cells_give_their_interaction() -> None:
    def outcome(*ranks: float) -> Outcome:
        places = tuple((AnswerRanks((rank,)),) for rank in ranks)
        return Outcome(tuple(map(str, range(len(ranks)))), places, ((),) * len(ranks))

    cells = dict(zip(CELLS.values(), (outcome(2, 2), outcome(1, 2), outcome(2, 1), outcome(1, 1)), strict=True))
    found = gains(cells, Metric("R", 1))
    assert {name: one.interval.value for name, one in found.items()} == {
        "factor-wise, on global vectors": 50, "factor-wise, on global + local vectors": 50,
        "local vectors, under the shared read": 50, "local vectors, under factor-wise matching": 50, "interaction": 0,
    }  # fmt: skip
