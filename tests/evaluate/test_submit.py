from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tapr.errors import BadInput
from tapr.evaluate.datasets import Dataset, load_dataset
from tapr.evaluate.metrics import Metric
from tapr.evaluate.overlap import overlap
from tapr.evaluate.run import MethodResult
from tapr.evaluate.submit import read_predictions, score_predictions, submissions, validate, write_submissions
from tests.evaluate import made_up
from tests.evaluate.official import official
from tests.pictures import flag, png


@pytest.fixture
def cirr(tmp_path: Path) -> Dataset:
    return load_dataset("cirr", made_up.cirr(tmp_path))


def perfect(dataset: Dataset) -> MethodResult:
    """The target first, then the rest of the gallery."""
    top, subset = {}, {}
    for query in dataset.queries:
        rest = [name for name in dataset.parts[0].gallery if name not in (query.reference, *query.right)]
        top[query.id] = [*query.right, *rest][:50]
        members = [name for name in query.subset if name not in (query.reference, *query.right)]
        subset[query.id] = [*query.right, *members]
    return MethodResult("perfect", "Perfect", "", None, top, subset, 0.0)


def test_cirr_has_two_files_that_score_as_they_should(cirr: Dataset, tmp_path: Path) -> None:
    recall, subset = write_submissions(perfect(cirr), cirr, tmp_path / "out")
    written = json.loads(recall.read_text())
    assert (written["version"], written["metric"]) == ("rc2", "recall")
    assert json.loads(subset.read_text())["metric"] == "recall_subset"
    assert len(written["100"]) == 50
    assert len(json.loads(subset.read_text())["100"]) == 3
    outcome = score_predictions(recall, cirr, subset)
    assert outcome.mean(Metric("R", 1)) == pytest.approx(1)
    assert outcome.mean(Metric("Rsubset", 1)) == pytest.approx(1)
    with pytest.raises(BadInput, match="--subset-predictions"):
        score_predictions(subset, cirr)


def test_without_the_subset_file_nothing_is_found_in_the_subset(cirr: Dataset, tmp_path: Path) -> None:
    recall, _ = write_submissions(perfect(cirr), cirr, tmp_path / "out")
    assert score_predictions(recall, cirr).mean(Metric("Rsubset", 3)) == 0


def broken(content: dict[str, Any], dataset: Dataset, how: str) -> dict[str, Any]:
    first = dataset.queries[0]
    names = list(content[first.id])
    changed = {
        "short": names[:-1],
        "twice": [*names[:-1], names[0]],
        "reference": [*names[:-1], first.reference],
        "stranger": [*names[:-1], "dev-pink-pink"],
        "number": [*names[:-1], 7],
    }
    return {**content, first.id: changed[how]}


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("short", "49 answers, not 50"),
        ("twice", "names a picture twice"),
        ("reference", "names its own reference"),
        ("stranger", "'dev-pink-pink', which is not in its gallery"),
        ("number", "must have a list of names"),
    ],
)
def test_submissions_that_the_cirr_server_would_refuse_are_refused(cirr: Dataset, how: str, sentence: str) -> None:
    content = submissions(perfect(cirr), cirr)["cirr_val_perfect_recall.json"]
    validate(content, cirr)
    with pytest.raises(BadInput, match=sentence):
        validate(broken(content, cirr, how), cirr)


def test_missing_and_unknown_queries_are_refused(cirr: Dataset) -> None:
    content = submissions(perfect(cirr), cirr)["cirr_val_perfect_recall.json"]
    with pytest.raises(BadInput, match="belong to no query"):
        validate({**content, "9999": content["100"]}, cirr)
    del content["100"]
    with pytest.raises(BadInput, match="1 queries have no answer, such as 100"):
        validate(content, cirr)
    with pytest.raises(BadInput, match='"version": "rc2"'):
        validate({**content, "version": "rc1"}, cirr)


def test_circo_writes_fifty_numbers_a_query(tmp_path: Path) -> None:
    rows = [{"id": number, "reference_img_id": 90, "relative_caption": "bigger"} for number in range(2)]
    made_up.write(tmp_path / "annotations" / "test.json", rows)
    listed = {"images": [{"id": number} for number in range(1, 91)]}
    made_up.write(tmp_path / "COCO2017_unlabeled" / "annotations" / "image_info_unlabeled2017.json", listed)
    dataset = load_dataset("circo", tmp_path, "test")
    top = {str(number): list(dataset.parts[0].gallery[:50]) for number in range(2)}
    (path,) = write_submissions(MethodResult("m", "M", "", None, top, {}, 0), dataset, tmp_path / "out")
    assert json.loads(path.read_text())["1"] == list(range(1, 51))
    with pytest.raises(BadInput, match="on its server"):
        score_predictions(path, dataset)
    with pytest.raises(BadInput, match="names a picture twice"):
        validate({"0": [1] * 50, "1": list(range(1, 51))}, dataset)


def test_own_benchmarks_take_names_and_numbers(tmp_path: Path) -> None:
    for name in ("1", "2", "3"):
        (tmp_path / name).write_bytes(png(flag("red")))
    (tmp_path / "gallery.txt").write_text("1\n2\n3\n")
    query = {"id": 7, "reference": "1", "edit": "x", "targets": ["3"]}
    (tmp_path / "queries.jsonl").write_text(json.dumps(query) + "\n")
    dataset = load_dataset("jsonl", tmp_path)
    path = tmp_path / "predictions.json"
    for answers in (["2", "3"], [2, 3], ["1", "2", "3"]):  # the reference is not in the ranking
        path.write_text(json.dumps({"7": answers}))
        outcome = score_predictions(path, dataset)
        assert outcome.ranks[0][0].right == (2,)
    for wrong, sentence in (
        ([2, 9], "'9', which is not in its gallery"),
        (["2", "2"], "twice"),
        ([[2]], "a list of names"),
        ("2", "a list of names"),
    ):
        path.write_text(json.dumps({"7": wrong}))
        with pytest.raises(BadInput, match=sentence):
            score_predictions(path, dataset)
    path.write_text("[]")
    with pytest.raises(BadInput, match="must hold one object"):
        score_predictions(path, dataset)


GOLDEN = {  # files that their authors handed in, from github.com/yzy-bupt/SEIZE and github.com/Cuberick-Orion/CIRR
    "SEIZE-G_gpt-4o.json": ("circo", "test"),
    "SEIZE-L_gpt-3.5.json": ("circo", "test"),
    "SEIZE_G-14.json": ("cirr", "test1"),
    "SEIZE_L-14.json": ("cirr", "test1"),
    "subset_SEIZE_G-14.json": ("cirr", "test1"),
    "test1_pred_ranks_recall.json": ("cirr", "test1"),
    "test1_pred_ranks_recall_subset.json": ("cirr", "test1"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_submissions_of_others_are_read_and_written_as_they_are(name: str, tmp_path: Path) -> None:
    path = Path(os.environ.get("TAPR_GOLDEN_SUBMISSIONS", "nowhere")) / name
    if not path.is_file():
        pytest.skip("the authors' files are not here: name their folder with TAPR_GOLDEN_SUBMISSIONS")
    benchmark, split = GOLDEN[name]
    dataset = load_dataset(benchmark, official(benchmark), split)
    lists, content = read_predictions(path, dataset), json.loads(path.read_text())
    assert validate(content, dataset) == lists  # of full length, without repeats and strangers
    result = MethodResult("m", "M", "", None, lists, lists, 0)
    written = submissions(result, dataset)
    if benchmark == "circo":  # their numbers are text
        content = {query_id: list(map(int, numbers)) for query_id, numbers in content.items()}
    assert content in written.values()


def test_the_overlap_of_two_rankings(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    dataset = load_dataset("cirr", data, "val")
    names = dataset.parts[0].gallery
    head = {"version": "rc2", "metric": "recall"}
    for file, shift in (("one", 0), ("two", 5)):
        lists = {
            query.id: [name for name in names if name != query.reference][shift : shift + 10]
            for query in dataset.queries
        }
        (tmp_path / f"{file}.json").write_text(json.dumps({**head, **lists}))
    table = overlap(tmp_path / "one.json", tmp_path / "two.json", dataset)
    assert {row["k"]: row["in both, %"] for row in table.rows} == {"1": 0, "3": 0, "5": 0, "10": 50}
    same = overlap(tmp_path / "one.json", tmp_path / "one.json", dataset)
    assert all(row["in both, %"] == 100 for row in same.rows)
