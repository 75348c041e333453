from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr.errors import BadInput
from tapr.evaluate.datasets import Dataset, load_dataset
from tapr.evaluate.datasets.base import Query
from tapr.evaluate.datasets.lasco import halves
from tapr.evaluate.ranking import ground_truths
from tests.evaluate import made_up
from tests.evaluate.official import official

CATEGORIES = (
    "person", "vehicle", "outdoor", "animal", "accessory", "sports", "kitchen", "food", "furniture", "electronic",
    "appliance", "indoor", "other",
)  # fmt: skip


def pictures_of(queries: tuple[Query, ...]) -> set[str]:
    return {name for query in queries for name in (query.reference, *query.right)}


def place_of_the_answer(dataset: Dataset) -> float:
    """Its rank where the first query's reference has the best score and its answer the second."""
    (part,) = dataset.parts
    query = part.queries[0]
    scores = np.zeros((1, len(part.gallery)))
    scores[0, part.gallery.index(query.reference)] = 9
    scores[0, part.gallery.index(query.right[0])] = 5
    return ground_truths(part, [query], dataset.protocol.keep_reference)[0].ranks(scores)[0].target


def test_the_files_of_cl_lasco_train() -> None:
    folder = official("lasco")
    tune, check = (load_dataset("lasco", folder, split) for split in ("tune", "check"))
    assert tune.gallery_size == check.gallery_size == 4159
    assert tune.parts[0].gallery == check.parts[0].gallery
    for half in (tune, check):
        assert Counter(query.groups[0] for query in half.queries) == dict.fromkeys(CATEGORIES, 100)
    assert not pictures_of(tune.queries) & pictures_of(check.queries)


def test_official_val_ranks_its_corpus(tmp_path: Path) -> None:
    dataset = load_dataset("lasco", made_up.lasco(tmp_path))
    assert (len(dataset.queries), dataset.gallery_size) == (6, 20)
    query = dataset.queries[1]
    assert (query.id, query.reference, query.edit) == ("1002", "000000000001", "more 1")
    assert query.right == ("000000000002",)
    assert not dataset.protocol.tunable
    assert place_of_the_answer(dataset) == 2  # the reference is in the corpus and stays there
    assert not dataset.missing()


def test_pictures_are_found_under_both_of_cocos_namings(tmp_path: Path) -> None:
    dataset = load_dataset("lasco", made_up.lasco(tmp_path))
    assert dataset.pictures["000000000003"] == tmp_path / "val2014" / "COCO_val2014_000000000003.jpg"
    assert dataset.pictures["000000000013"] == tmp_path / "train2017" / "000000000013.jpg"
    assert dataset.notes == ("pictures not under the annotations' paths: 10 from train2017",)
    (tmp_path / "train2017" / "000000000013.jpg").unlink()
    dataset = load_dataset("lasco", tmp_path)
    assert dataset.missing() == ["000000000013"]
    assert dataset.pictures["000000000013"] == tmp_path / "val2014" / "COCO_val2014_000000000013.jpg"


def test_the_halves_of_the_subset_share_the_gallery_and_no_query_picture(tmp_path: Path) -> None:
    tune, check = (load_dataset("lasco", made_up.lasco(tmp_path), split) for split in ("tune", "check"))
    assert tune.parts[0].gallery == check.parts[0].gallery
    assert tune.gallery_size == 13
    assert not pictures_of(tune.queries) & pictures_of(check.queries)
    assert {query.id for query in (*tune.queries, *check.queries)} == {
        "1", "1002", "2003", "4005", "6007", "8009", "8010", "11012",
    }  # fmt: skip
    for half in (tune, check):
        assert Counter(query.groups[0] for query in half.queries) == {"person": 2, "animal": 2}
    assert (tune.protocol.tunable, check.protocol.tunable) == (True, False)
    assert place_of_the_answer(tune) == 1  # the reference is removed
    assert [str(metric) for metric in tune.protocol.metrics] == ["mAP@10", "R@1", "R@5", "R@10", "R@50"]


def test_queries_that_share_a_picture_through_others_stay_together() -> None:
    chain = [Query(str(n), f"p{n}", "", (f"p{n + 1}",), groups=("a",)) for n in (0, 2, 1, 3)]  # the third joins two
    alone = [Query(str(n), f"p{n}", "", (f"q{n}",), groups=("a",)) for n in range(10, 14)]
    first, second = halves([*alone, *chain])
    assert [query.id for query in first] == ["0", "2", "1", "3"]
    assert [query.id for query in second] == ["10", "11", "12", "13"]


def test_the_subset_val_file_is_a_split_of_its_own_that_no_weight_is_chosen_on(tmp_path: Path) -> None:
    made_up.lasco(tmp_path)
    (tmp_path / "CL-LaSCO_train.json").rename(tmp_path / "CL-LaSCO_val.json")
    dataset = load_dataset("lasco", tmp_path, "cl-val")
    assert len(dataset.queries) == 8
    assert not dataset.protocol.tunable
    with pytest.raises(BadInput, match=r"there is no CL-LaSCO_train.json"):
        load_dataset("lasco", tmp_path, "tune")


def test_files_that_do_not_fit_are_refused_in_a_sentence(tmp_path: Path) -> None:
    made_up.lasco(tmp_path)
    train = json.loads((tmp_path / "CL-LaSCO_train.json").read_text())
    row: dict[str, Any] = train["person"]["1"]
    for changed, sentence in (
        ([row], "must hold the queries of each category"),
        ({"person": {}}, "holds no queries"),
        ({"person": {"1": row}, "animal": {"1": row}}, "two queries have the qid 1"),
        ({"person": {"1": {"qid": 1}}}, "has no 'query-image'"),
        ({"person": {"1": row | {"query-image": "a.jpg"}}}, "a picture is"),
        ({"person": {"1": row | {"query-text": None}}}, "is not text"),
    ):
        made_up.write(tmp_path / "CL-LaSCO_train.json", changed)
        with pytest.raises(BadInput, match=sentence):
            load_dataset("lasco", tmp_path, "tune")
    made_up.write(tmp_path / "lasco_val_corpus.json", [{"id": 0, "path": "val/val2014/COCO_val2014_000000000000.jpg"}])
    with pytest.raises(BadInput, match="the target 000000000001 is not in the corpus"):
        load_dataset("lasco", tmp_path)
    with pytest.raises(BadInput, match="LaSCo has the splits val, tune, check, cl-val, not 'test'"):
        load_dataset("lasco", tmp_path, "test")
