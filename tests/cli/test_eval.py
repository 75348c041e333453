"""tapr eval from end to end, on made-up pictures with the fake encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tapr.cli.eval import eval as eval_command
from tapr.errors import BadInput, TaprError
from tapr.evaluate.datasets import load_dataset
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.submit import validate
from tapr.factorize.queries import read_queries
from tapr.methods import BASELINES, METHODS, make_method
from tests.evaluate import made_up
from tests.evaluate.captioned import give_captioner


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")


def invoke(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(eval_command, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def evaluated(*arguments: str | Path) -> dict[str, Any]:
    result = invoke(*arguments, "--encoder", "fake", "--json")
    value: dict[str, Any] = json.loads(result.stdout)
    return value


@pytest.mark.slow
def test_a_whole_run_on_cirr_with_controls(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    controls = [part for name in ("matched", "tau", "theta") for part in ("--controls", name)]
    out = tmp_path / "run"
    shown = evaluated("cirr", "--data", data, "--records", made_up.specs(data), *controls, "--out", out)
    methods, config = shown["metrics"]["methods"], shown["config"]
    assert methods["tapr"]["R@1"] > methods["image"]["R@1"]
    assert methods["tapr"]["Rsubset@1"] >= methods["tapr"]["R@1"]
    assert methods["target"]["tapr_minus_this"]["value"] == pytest.approx(
        methods["tapr"]["R@1"] - methods["target"]["R@1"]
    )
    assert set(shown["metrics"]["skipped"]) == {  # there are only specs, and nothing that could caption a picture
        "cirevl", "pdv-cirevl", "soft", "ldre", "ldre-shared", "pdv-ldre", "seize", "weimocir", "xr", "reversed"
    }  # fmt: skip
    assert "records of cotmr, osrcir, sdr-cir, soft, stitch derived from its specs" in config["records"]["origin"]
    assert config["protocol"]["reference"] == "removed from the ranking"
    assert config["theta"]["how"].startswith("the fixed prior")
    for name in ("code_sha256", "dataset_sha256"):
        assert len(config[name]) == 64
    assert len(config["bank"]["sha256"]) == len(config["records"]["sha256"]) == 64
    for name in ("tables.md", "methods.tex", "methods.csv", "controls.csv", "ranks.csv"):
        assert (out / name).stat().st_size > 0
    table = (out / "tables.md").read_text()
    for said in ("Encoder fake", "extractor tokens", "theta T/A/P/R", "56 pictures", "cirevl was not run", "\\* TAPR"):
        assert said in table
    assert "needs a caption of the reference, and the encoder fake has no captioner" in table
    assert "offline captioner" not in table
    page = (out / "wins_and_losses.html").read_text()
    assert "Win: " in page or "Loss: " in page


def test_test1_writes_valid_submissions_and_no_metrics(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr", "test1")
    out = tmp_path / "run"
    shown = evaluated(
        "cirr", "--data", data, "--split", "test1", "--records", made_up.specs(data, "test1"),
        "--method", "tapr", "--controls", "all", "--out", out,
    )  # fmt: skip
    assert shown["metrics"]["methods"] == {}
    dataset = load_dataset("cirr", data, "test1")
    files = sorted((out / "submissions").glob("*.json"))
    assert [path.name for path in files] == ["cirr_test1_tapr_recall.json", "cirr_test1_tapr_subset.json"]
    for path in files:
        validate(json.loads(path.read_text()), dataset)


def test_predictions_are_scored_without_a_bank(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    out = tmp_path / "run"
    shown = evaluated("cirr", "--data", data, "--method", "image", "--out", out)
    recall, subset = (out / "submissions" / f"cirr_val_image_{kind}.json" for kind in ("recall", "subset"))
    scored = json.loads(
        invoke("cirr", "--data", data, "--predictions", recall, "--subset-predictions", subset, "--json").stdout
    )
    for metric in ("R@1", "R@10", "Rsubset@1", "Rsubset@3"):
        assert scored["metrics"][metric] == pytest.approx(shown["metrics"]["methods"]["image"][metric])
    said = invoke("cirr", "--data", data, "--predictions", recall).stdout
    assert "R@1" in said
    assert "Rsubset" not in said


def test_two_runs_are_compared_query_by_query(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    records = made_up.specs(data)
    common = ("cirr", "--data", data, "--records", records, "--method", "tapr", "--method", "image", "--no-page")
    evaluated(*common, "--out", tmp_path / "one")
    evaluated(*common, "--theta", "1,0,0,0", "--out", tmp_path / "two")
    found = json.loads(invoke("compare", tmp_path / "one", tmp_path / "two", "--json").stdout)
    rows = {(row["method"], row["metric"]): row for row in found["comparisons"]}
    assert rows["image", "R@1"]["difference"] == 0
    row = rows["tapr", "R@5"]
    assert row["difference"] == pytest.approx(row["first"] - row["second"])
    assert row["interval"][0] <= row["difference"] <= row["interval"][1]
    assert found["changed"]["theta.weights.add"] == [0.5, 0.0]
    against = invoke("compare", tmp_path / "one", tmp_path / "one", "--method", "tapr", "--against", "image").stdout
    assert "tapr against" in against


def test_weights_tuned_on_val_are_taken_to_another_run(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    records = made_up.specs(data)
    common = ("cirr", "--data", data, "--records", records, "--method", "tapr", "--no-page")
    tuned = evaluated(*common, "--theta", "grid", "--out", tmp_path / "grid")
    assert "CIRR val" in tuned["config"]["theta"]["how"]
    taken = evaluated(*common, "--theta", f"from:{tmp_path / 'grid'}", "--out", tmp_path / "taken")
    assert taken["config"]["theta"]["weights"] == tuned["config"]["theta"]["weights"]
    assert taken["metrics"]["methods"]["tapr"]["R@1"] == max(tuned["metrics"]["grid"])
    with pytest.raises(BadInput, match="leaves no run"):
        evaluated(*common, "--theta", f"leave-one-out:{tmp_path / 'grid'}", "--out", tmp_path / "three")


def test_weights_are_not_tuned_on_test1(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr", "test1")
    records = made_up.specs(data, "test1")
    with pytest.raises(BadInput, match="test split"):
        evaluated("cirr", "--data", data, "--split", "test1", "--records", records, "--theta", "grid")


def test_fashioniq_reports_each_kind_and_the_mean_of_kinds(tmp_path: Path) -> None:
    data = made_up.fashioniq(tmp_path / "fiq")
    shown = evaluated("fashioniq", "--data", data, "--method", "sum", "--out", tmp_path / "run")
    row = shown["metrics"]["methods"]["sum"]
    means = [group["R@10"] for group in row["groups"].values()]
    assert set(row["groups"]) == {"dress", "shirt", "toptee"}
    assert row["R@10"] == pytest.approx(sum(means) / 3)
    assert "original" in shown["config"]["protocol"]["gallery"]
    only = ("compare", tmp_path / "run", tmp_path / "run", "--json", "--group")
    compared = json.loads(invoke(*only, "shirt").stdout)["comparisons"][0]
    assert compared["first"] == pytest.approx(row["groups"]["shirt"][compared["metric"]])
    with pytest.raises(BadInput, match="no group 'hat': the groups are dress, shirt, toptee"):
        invoke(*only, "hat")


def test_every_table_has_the_baselines_and_says_what_one_modality_solves(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    common = ("cirr", "--data", data, "--records", made_up.specs(data), "--method", "tapr")
    shown = evaluated(*common, "--out", tmp_path / "run")
    methods, (row,) = shown["metrics"]["methods"], shown["metrics"]["alone"]
    assert list(methods) == [*BASELINES, "tapr"]
    assert (row["k"], row["image"], row["edit"]) == (1, methods["image"]["R@1"], methods["text"]["R@1"])
    assert max(row["image"], row["edit"]) <= row["either"] <= row["image"] + row["edit"]
    for file in ("tables.md", "wins_and_losses.html"):
        text = (tmp_path / "run" / file).read_text()
        assert f"Solved by one modality alone: in the top 1 image only {row['image']:.1f} %" in text
    printed = invoke(*common, "--encoder", "fake", "--out", tmp_path / "run")
    assert "Solved by one modality alone" in " ".join(printed.output.split())
    table = (tmp_path / "run" / "tables.md").read_text()
    assert all(f"| {label} |" in table for label in ("Image only", "Edit only", "Image + edit", "Target + 0.5 image *"))
    bare = evaluated(*common, "--no-baselines", "--out", tmp_path / "bare")
    assert list(bare["metrics"]["methods"]) == ["tapr"]
    assert "alone" not in bare["metrics"]


def test_lasco_is_ranked_with_what_one_modality_solves_in_the_main_metrics_top(tmp_path: Path) -> None:
    data = made_up.lasco(tmp_path / "lasco")
    shown = evaluated("lasco", "--data", data, "--split", "check", "--method", "image", "--out", tmp_path / "run")
    row = shown["metrics"]["methods"]["image"]
    assert set(row["groups"]) == {"person", "animal"}
    # one right answer: the mean of 1 / rank, cut at 10
    lines = (tmp_path / "run" / "rankings" / "image.jsonl").read_text().splitlines()
    ranks = [json.loads(line)["right"][0] for line in lines]
    assert row["mAP@10"] == pytest.approx(25 * sum(1 / rank for rank in ranks if rank <= 10))
    assert [(found["k"], found["image"]) for found in shown["metrics"]["alone"]] == [(1, row["R@1"]), (10, row["R@10"])]
    assert "no spec record" in shown["metrics"]["skipped"]["target+image"]
    with pytest.raises(BadInput, match="test split"):
        evaluated("lasco", "--data", data, "--split", "check", "--factorizer", "target-only", "--theta", "grid")


def test_missing_pictures_stop_a_run_unless_allowed(tmp_path: Path) -> None:
    data = made_up.fashioniq(tmp_path / "fiq")
    next((data / "images").glob("dress-*")).unlink()
    common = ("fashioniq", "--data", data, "--method", "image", "--out", tmp_path / "run")
    with pytest.raises(BadInput, match="1 of 18 pictures missing"):
        evaluated(*common)
    shown = evaluated(*common, "--allow-missing")
    assert "1 picture left out (dress-" in shown["config"]["notes"][0]


def test_own_queries_run_with_a_factorizer(tmp_path: Path) -> None:
    made_up.cirr(tmp_path)
    query = {"id": "1", "reference": "dev/dev-red-blue.png", "edit": "in green", "targets": ["dev/dev-red-green.png"]}
    blank = {**query, "id": "2", "edit": " "}
    (tmp_path / "queries.jsonl").write_text(json.dumps(query) + "\n" + json.dumps(blank) + "\n")
    shown = evaluated(
        "jsonl", "--data", tmp_path, "--factorizer", "target-only", "--method", "tapr", "--method", "cotmr",
        "--no-page", "--out", tmp_path / "run",
    )  # fmt: skip
    assert set(shown["metrics"]["methods"]) == {"tapr", "cotmr", *BASELINES}
    assert "target-only" in shown["config"]["records"]["origin"]
    assert "the edit of 1 query is blank (2)" in shown["config"]["notes"][0]


def test_what_cannot_be_done_is_said_before_anything_is_encoded(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    for arguments, sentence in (
        (("--method", "clip"), "unknown method 'clip'"),
        (("--controls", "tao"), "unknown control 'tao'"),
        (("--records", "x", "--factorizer", "grounded"), "not both"),
        (("--method", "cirevl"), "no cirevl record"),
        (("--method", "image", "--controls", "tau"), "the controls need spec records"),
    ):
        with pytest.raises(BadInput, match=sentence):
            evaluated("cirr", "--data", data, *arguments, "--out", tmp_path / "run")


def own_queries(root: Path) -> Path:
    """Four queries of one's own, and the pictures beside them."""
    made_up.cirr(root)
    queries = [
        {
            "id": number,
            "reference": f"dev/dev-red-{two}.png",
            "edit": f"in {new}",
            "targets": [f"dev/dev-red-{new}.png"],
        }
        for number, (two, new) in enumerate(
            [("blue", "green"), ("white", "black"), ("green", "blue"), ("black", "white")]
        )
    ]
    (root / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    return root


def method_records(root: Path, kind: str, *payloads: dict[str, Any]) -> Path:
    edits = [json.loads(line)["edit"] for line in (root / "queries.jsonl").read_text().splitlines()]
    lines = [{"id": str(n), "edit": edits[n], "kind": kind, "payload": payload} for n, payload in enumerate(payloads)]
    path = root / f"{kind}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_every_method_runs_from_pictures_and_edits_alone_and_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_captioner(monkeypatch)
    data, out = own_queries(tmp_path / "own"), tmp_path / "run"
    shown = evaluated("jsonl", "--data", data, "--factorizer", "grounded", "--out", out)
    assert shown["metrics"]["failed"] == {}
    assert list(shown["metrics"]["skipped"]) == ["weimocir", "xr"]  # the bank of this encoder has no captions
    methods = shown["metrics"]["methods"]
    assert list(methods) == [name for name in METHODS if name not in ("weimocir", "xr", "wiser", "embedder")]
    without_records = {name for name in methods if not make_method(name).kinds}
    assert {name for name, row in methods.items() if not row["offline"]} == without_records
    assert without_records >= {"image", "text", "sum", "basic"}
    for name in ("tables.md", "methods.csv", "wins_and_losses.html"):
        assert "†" in (out / name).read_text()
    table = (out / "tables.md").read_text()
    assert "| CIReVL † |" in table
    assert "| STiTch * † |" in table
    assert "| Image only |" in table
    assert "† offline captioner: the captions of references" in table
    compared = invoke("compare", out, out, "--method", "cirevl", "--against", "image")
    assert "image †" in compared.output  # a narrow screen breaks the line before it
    assert "† offline captioner" in compared.output
    assert "†" not in invoke("compare", out, out, "--method", "sum", "--against", "image").output


def test_one_s_own_specs_serve_the_other_methods_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_captioner(monkeypatch)
    data = own_queries(tmp_path / "own")
    spec = {"target": "a green and red flag", "add": ["green"], "preserve": ["red"], "remove": ["blue"]}
    records = method_records(data, "spec", spec, spec, spec, spec)
    common = ("jsonl", "--data", data, "--records", records, "--no-page", "--out", tmp_path / "run")
    asked = [part for name in ("cirevl", "ldre-shared", "cotmr") for part in ("--method", name)]
    shown = evaluated(*common, *asked)
    methods = shown["metrics"]["methods"]
    offline = {name: row["offline"] for name, row in methods.items() if name not in BASELINES}
    assert offline == {"cirevl": True, "ldre-shared": True, "cotmr": False}
    assert shown["config"]["records"]["origin"].endswith("derived from its specs and captions of the offline captioner")


def test_own_predictions_are_scored_by_name(tmp_path: Path) -> None:
    data = own_queries(tmp_path / "own")
    shown = evaluated("jsonl", "--data", data, "--method", "image", "--out", tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "rankings" / "image.jsonl").read_text().splitlines()]
    predictions = tmp_path / "mine.json"
    predictions.write_text(json.dumps({row["id"]: row["top"] for row in rows}))
    scored = json.loads(invoke("jsonl", "--data", data, "--predictions", predictions, "--json").stdout)
    for metric in ("mAP@10", "R@1", "Hit@10"):
        assert scored["metrics"][metric] == pytest.approx(shown["metrics"]["methods"]["image"][metric])


def test_one_uneven_answer_of_ldre_costs_one_query_and_the_table_names_it(tmp_path: Path) -> None:
    data = own_queries(tmp_path / "own")
    good = {"captions": ["a flag", "red"], "edited": ["a green flag", "green"]}
    records = method_records(data, "ldre", good, {**good, "edited": ["green"]}, good)  # and the last query has none
    common = ("jsonl", "--data", data, "--records", records, "--no-page", "--out", tmp_path / "run")
    shown = evaluated(*common, "--method", "ldre", "--method", "ldre-shared", "--method", "text")
    assert set(shown["metrics"]["methods"]) >= {"ldre", "ldre-shared", "text"}
    without = shown["metrics"]["fallbacks"]["ldre"]["queries"]
    assert "2 captions but 1 edited ones" in without["1"]
    assert "no ldre record" in without["3"]
    table = (tmp_path / "run" / "tables.md").read_text()
    assert "LDRE; LDRE (shared weights): 2 of 4 queries (1, 3) are ranked by the edit alone" in table


def test_one_failing_method_is_named_and_the_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = own_queries(tmp_path / "own"), tmp_path / "run"

    def fails(*_: object) -> None:
        assert (out / "rankings" / "image.jsonl").is_file()  # what came before is on the disk by now
        raise MemoryError("too large")

    monkeypatch.setattr("tapr.methods.baselines.TextOnly.score", fails)
    common = ("jsonl", "--data", data, "--encoder", "fake", "--no-baselines", "--out", out)
    asked = ("--method", "image", "--method", "text", "--method", "basic")
    with pytest.raises(TaprError, match=r"1 method failed: text \(MemoryError: too large") as failure:
        invoke(*common, *asked)
    assert failure.value.exit_code == 1
    assert "text failed and has no row: MemoryError: too large" in (out / "tables.md").read_text()
    assert "fails" in (out / "failed-text.txt").read_text()
    run = StoredRun.open(out)
    assert set(run.metrics["methods"]) == {"image", "basic"}
    assert list(run.metrics["failed"]) == ["text"]


def test_unreadable_pictures_are_left_out_where_missing_ones_are_allowed(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    broken = json.loads((data / "captions" / "cap.rc2.val.json").read_text())[0]["reference"]
    (data / "dev" / f"{broken}.png").write_bytes(b"torn")
    common = ("cirr", "--data", data, "--method", "image", "--out", tmp_path / "run")
    with pytest.raises(BadInput, match=f"lacks 1 of the benchmark's pictures, such as {broken}"):
        evaluated(*common)
    shown = evaluated(*common, "--allow-missing")
    assert list(shown["config"]["left_out"]) == [broken]
    assert f"1 picture left out ({broken}: " in (tmp_path / "run" / "tables.md").read_text()


def test_a_blank_edit_is_ranked_and_submitted_like_the_others(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr", "test1")
    records = made_up.specs(data, "test1")
    captions = data / "captions" / "cap.rc2.test1.json"
    queries = json.loads(captions.read_text())
    queries[3]["caption"] = " "
    captions.write_text(json.dumps(queries))
    lines = [line for line in records.read_text().splitlines() if json.loads(line)["id"] != "103"]
    records.write_text("\n".join(lines) + "\n")
    out = tmp_path / "run"
    evaluated(
        "cirr", "--data", data, "--split", "test1", "--records", records, "--method", "tapr", "--method", "image",
        "--out", out,
    )  # fmt: skip
    assert "the edit of 1 query is blank (103)" in (out / "tables.md").read_text()
    sent = {name: json.loads((out / "submissions" / f"cirr_test1_{name}_recall.json").read_text())
            for name in ("tapr", "image")}  # fmt: skip
    assert sent["tapr"]["103"] == sent["image"]["103"]
    assert sent["tapr"]["104"] != sent["image"]["104"]


def test_records_of_another_split_are_refused(tmp_path: Path) -> None:
    data = own_queries(tmp_path / "own")
    records = method_records(data, "sdr-cir", {"description": "a flag"})
    records.write_text(records.read_text().replace("in green", "older"))
    with pytest.raises(BadInput, match="1 have the id of a query but another edit; give the records"):
        evaluated("jsonl", "--data", data, "--records", records, "--method", "sdr-cir", "--out", tmp_path / "run")


def test_options_that_no_chosen_method_reads_are_refused(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    for option, value in (("theta", "grid"), ("tau", "0.5"), ("records", "x"), ("factorizer", "grounded")):
        with pytest.raises(BadInput, match=f"the methods image, text do not read {option}: leave {option} out"):
            evaluated("cirr", "--data", data, "--method", "image", "--method", "text", f"--{option}", value)
    with pytest.raises(BadInput, match="--theta scaled reads the queries' spec records"):
        evaluated("cirr", "--data", data, "--theta", "scaled", "--out", tmp_path / "run")


def test_queries_are_exported_with_blank_edits_and_come_back_as_records(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    captions = data / "captions" / "cap.rc2.val.json"
    rows = json.loads(captions.read_text())
    rows[0]["caption"] = ""
    captions.write_text(json.dumps(rows))
    file = tmp_path / "queries" / "cirr.jsonl"
    shown = json.loads(invoke("cirr", "--data", data, "--export-queries", file, "--json").stdout)
    assert shown["blank"] == ["100"]
    queries = read_queries(file)
    assert [query.id for query in queries] == [str(row["pairid"]) for row in rows]
    assert queries[1].reference.is_file()
    assert {(query.dataset, query.split) for query in queries} == {("CIRR", "val")}
    (data / "dev" / f"{rows[1]['reference']}.png").unlink()
    with pytest.raises(BadInput, match="1 of 19 references are missing"):
        invoke("cirr", "--data", data, "--export-queries", file)
    kept = json.loads(invoke("cirr", "--data", data, "--export-queries", file, "--allow-missing", "--json").stdout)
    assert kept["count"] < len(rows)
