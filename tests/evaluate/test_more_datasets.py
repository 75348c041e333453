"""Benchmarks published since: each loader on a few rows in the form of its authors' files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

from tapr import EditSpec, search
from tapr.cli.eval import eval as eval_command
from tapr.errors import BadInput
from tapr.evaluate.cut_outs import with_cut_outs
from tapr.evaluate.datasets import load_dataset
from tapr.evaluate.datasets.base import read_ids
from tapr.evaluate.metrics import AnswerRanks, Metric, trapezoid_precision
from tapr.evaluate.run_files import read_lines
from tapr.gallery import Gallery
from tests.evaluate import made_up
from tests.evaluate.made_up import PAIRS, write
from tests.pictures import flag


def test_trapezoid_precision_is_that_of_the_authors_code() -> None:
    def theirs(places: list[int], count: int) -> float:
        """Ranks from 0, as their code counts; without its 1e-5, which keeps a division from 0."""
        total = 0.0
        for found, rank in enumerate(places):
            before = 1.0 if rank == 0 else found / rank
            total += (before + (found + 1) / (rank + 1)) / (2 * count)
        return total

    for ranks in ([1], [2], [1, 2, 3], [3, 7, 8], [10, 1]):
        wanted = theirs(sorted(rank - 1 for rank in ranks), len(ranks))
        assert trapezoid_precision(ranks) == pytest.approx(wanted)
    metric = Metric.parse("tAP@all")
    assert str(metric) == "tAP@all"
    assert metric.value(AnswerRanks((1.0, float("inf")))) == pytest.approx(0.5)
    for wrong in ("tAP@5", "mAP@all", "R@all"):
        with pytest.raises(BadInput, match="unknown metric"):
            Metric.parse(wrong)


def test_icir_ranks_each_instance_in_its_own_database(tmp_path: Path) -> None:
    (tmp_path / "query_files.csv").write_text("query/a/1.jpg,on a beach,temple\nquery/b/1.jpg,as a toy,bear\n")
    rows = ["database/a/1.jpg,on a beach,temple", "database/a/2.jpg,at night,temple", "database/b/1.jpg,as a toy,bear"]
    (tmp_path / "database_files.csv").write_text("\n".join([*rows, "database/a/3.jpg,on a beach,temple"]) + "\n")
    dataset = load_dataset("icir", tmp_path)
    bear, temple = dataset.parts
    assert (bear.name, temple.name) == ("bear", "temple")
    assert temple.gallery == ("database/a/1.jpg", "database/a/2.jpg", "database/a/3.jpg")
    assert temple.queries[0].right == ("database/a/1.jpg", "database/a/3.jpg")
    assert dataset.pictures["query/a/1.jpg"] == tmp_path / "query/a/1.jpg"
    assert str(dataset.protocol.main) == "tAP@all"
    (tmp_path / "query_files.csv").write_text("query/a/1.jpg,in space,temple\n")
    with pytest.raises(BadInput, match="has no picture of temple with 'in space'"):
        load_dataset("icir", tmp_path)
    (tmp_path / "query_files.csv").write_text("query/a/1.jpg\n")
    with pytest.raises(BadInput, match="a line is path,text,instance"):
        load_dataset("icir", tmp_path)


def test_genecis_ranks_a_gallery_per_query(tmp_path: Path) -> None:
    row: dict[str, Any] = {"condition": "bench", "reference": {"val_image_id": 7}, "target": {"val_image_id": 8}}
    row["gallery"] = [{"val_image_id": number} for number in (9, 10)]
    made_up.write(tmp_path / "genecis" / "change_object.json", [row])
    dataset = load_dataset("genecis", tmp_path, "change_object")
    (query,) = dataset.queries
    assert (query.edit, query.right) == ("bench", ("000000000008",))
    assert query.subset == ("000000000008", "000000000009", "000000000010")
    assert dataset.parts[0].gallery == query.subset
    assert dataset.pictures["000000000007"] == tmp_path / "val2017" / "000000000007.jpg"
    made_up.write(tmp_path / "genecis" / "focus_object.json", [{**row, "target": 8}])
    with pytest.raises(BadInput, match=r"a picture is {val_image_id}"):
        load_dataset("genecis", tmp_path)


def test_multi_target_sets_have_every_fitting_picture(tmp_path: Path) -> None:
    data = made_up.cirr(tmp_path / "cirr")
    first = json.loads((data / "captions" / "cap.rc2.val.json").read_text())[0]
    reference, target = first["reference"], first["target_hard"]
    other = next(name for name in first["img_set"]["members"] if name not in (reference, target))
    scores = {target: 0.95, other: 0.9, reference: 1.0}
    row = {"reference_image_name": reference, "target_image_name": target, "relative_captions": "Bluer.",
           "threshold": 0.85, "confidence_scores": scores}  # fmt: skip
    made_up.write(data / "cirr_multi_target_selection.json", [row])
    (query,) = load_dataset("multi-target", data).queries
    assert query.right == (target, other)  # the reference is not ranked
    fashion = made_up.fashioniq(tmp_path / "fashioniq")
    for category in ("dress", "shirt", "toptee"):
        names = json.loads((fashion / "image_splits" / f"split.{category}.val.json").read_text())
        row |= {"reference_image_name": names[0], "target_image_name": names[1], "relative_captions": ["is red.", "?"]}
        row["confidence_scores"] = {names[1]: 0.9, names[2]: 0.88}
        made_up.write(fashion / "multi_target_selection" / f"{category}_multi_target_selection.json", [row])
    dataset = load_dataset("multi-target", fashion, "fashioniq")
    assert [len(query.right) for query in dataset.queries] == [2, 2, 2]
    assert dataset.queries[0].edit == "is red and "
    assert dataset.protocol.macro


def test_domain_conversion_asks_for_every_other_domain(tmp_path: Path) -> None:
    (tmp_path / "query_files.csv").write_text("minidn/real/cat/1.jpg real cat\n")
    rows = [
        "minidn/sketch/cat/1.jpg sketch cat",
        "minidn/sketch/dog/1.jpg sketch dog",
        "minidn/real/cat/2.jpg real cat",
    ]
    (tmp_path / "database_files.csv").write_text("\n".join([*rows, "minidn/painting/cat/1.jpg painting cat"]) + "\n")
    dataset = load_dataset("domains", tmp_path)
    found = {query.edit: (query.right, query.groups) for query in dataset.queries}
    assert found == {
        "sketch": (("minidn/sketch/cat/1.jpg",), ("photo to sketch",)),
        "painting": (("minidn/painting/cat/1.jpg",), ("photo to painting",)),
    }
    (tmp_path / "query_files.csv").write_text("minidn/real/cat/1.jpg real\n")
    with pytest.raises(BadInput, match="a line is path domain class"):
        load_dataset("domains", tmp_path)


def test_a_file_chooses_the_queries(tmp_path: Path) -> None:
    dataset = load_dataset("cirr", made_up.cirr(tmp_path / "cirr"))
    (tmp_path / "validated.txt").write_text("101\n103\n")
    (tmp_path / "validated.json").write_text("[101, 103]")
    for name in ("validated.txt", "validated.json"):
        some = dataset.only(read_ids(tmp_path / name), name)
        assert [query.id for query in some.queries] == ["101", "103"]
        assert some.parts[0].gallery == dataset.parts[0].gallery
        assert "those of validated" in some.notes[-1]
    with pytest.raises(BadInput, match="names the query '9', which CIRR val has not"):
        dataset.only(["9"], "ids")


def test_domain_conversion_with_one_list_ranks_the_query_too(tmp_path: Path) -> None:
    """LTLL and ImageNet-R: FREEDOM's code reads queries and database from full_files.csv."""
    rows = [("ltll/New/images/Taj/1.jpg", "New", "Taj"), ("ltll/Old/images/Taj/2.jpg", "Old", "Taj"),
            ("ltll/Old/images/Rome/3.jpg", "Old", "Rome")]  # fmt: skip
    (tmp_path / "ltll").mkdir()
    (tmp_path / "ltll" / "full_files.csv").write_text("".join(f"{' '.join(row)}\n" for row in rows))
    dataset = load_dataset("domains", tmp_path, "ltll", None)
    assert [(query.reference, query.edit, query.right) for query in dataset.queries] == [
        (rows[0][0], "Archive", (rows[1][0],)),
        (rows[1][0], "Today", (rows[0][0],)),
    ]
    assert dataset.parts[0].gallery == tuple(row[0] for row in rows)
    assert dataset.protocol.keep_reference


def test_genecis_attributes_are_objects_cut_out_as_the_authors_do(tmp_path: Path) -> None:
    def shown(number: int, *box: float) -> dict[str, object]:
        return {"image_id": number, "instance_bbox": list(box)}

    rows = [{"condition": "same colour", "reference": shown(7, 10, 20, 30, 40), "target": shown(8, 0, 0, 10, 10),
             "gallery": [shown(7, 60, 10, 20, 20)]}]  # fmt: skip
    write(tmp_path / "genecis" / "change_attribute.json", rows)
    (tmp_path / "VG_All").mkdir()
    for number in (7, 8):
        flag("red", "blue", size=(100, 80)).save(tmp_path / "VG_All" / f"{number}.jpg")
    dataset = with_cut_outs(load_dataset("genecis", tmp_path, "change_attribute", None), tmp_path / "made")
    (query,) = dataset.queries
    assert (query.reference, query.right) == ("7@10,20,30,40", ("8@0,0,10,10",))
    # the box of 30 x 40 at 10, 20: to 0, 0 and 1.7 times as large, 51 x 68, on a square of 68
    with Image.open(dataset.pictures[query.reference]) as made:
        assert made.size == (68, 68)
        assert made.getpixel((0, 34)) == (0, 0, 0)
        assert made.getpixel((20, 34))[0] > 200  # type: ignore[index]


def oacirr(root: Path) -> Path:
    """Two instances of three pictures each; the query's box is the left half of its reference."""
    top = root / "OACIRR-Subset" / "OACIRR-Car"
    names = {f"{kind}{number}": f"val/{kind}/{number}.png" for kind in ("mini", "van") for number in range(3)}
    for place, path in enumerate(names.values()):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        flag(*PAIRS[place], size=(100, 50)).save(top / path)
    quadruple = {"reference": "mini0", "target": "mini2", "modification_text_mllm": "in the snow",
                 "object_category": "car", "reference_bounding_box": [0, 0, 50, 50]}  # fmt: skip
    write(top / "oacirr-car" / "quadruple_captions" / "caption_full.val.json", [quadruple])
    write(top / "oacirr-car" / "image_splits" / "split.val.json", names)
    return root


def test_oacirr_has_boxes_and_instances(tmp_path: Path) -> None:
    dataset = load_dataset("oacirr", oacirr(tmp_path), "car", None)
    (query,) = dataset.queries
    assert query.crop == pytest.approx((0, 0, 0.5, 1))
    assert list(query.right) == ["mini2", "mini1"]  # the target, then the instance's other pictures
    assert not dataset.protocol.keep_reference
    assert len(dataset.parts[0].gallery) == 6


def test_references_of_several_pictures_and_parts_rank_as_a_search_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same question to tapr.search: the same order."""
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")
    data = tmp_path / "mine"
    data.mkdir()
    for one, two in PAIRS[:24]:
        flag(one, two).save(data / f"{one}-{two}.png")
    names = [f"{one}-{two}.png" for one, two in PAIRS[:24]]
    asked: list[dict[str, Any]] = [
        {"id": "two", "references": names[:2], "edit": "with green", "targets": [names[9]]},
        {"id": "part", "reference": names[3], "crop": [0, 0, 0.5, 1], "edit": "with blue", "targets": [names[12]]},
        {"id": "both", "references": names[4:7], "crop": [0.5, 0, 1, 1], "edit": "more red", "targets": [names[14]]},
        {"id": "one", "reference": names[5], "edit": "with red", "targets": [names[15]]},
    ]
    (data / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    specs = {one["id"]: {"target": f"a flag {one['edit']}", "add": [one["edit"].split()[1]]} for one in asked}
    records = tmp_path / "specs.jsonl"
    records.write_text("".join(json.dumps({"id": key, "payload": spec}) + "\n" for key, spec in specs.items()))
    options = ["--encoder", "fake", "--records", str(records), "--no-page", "--out"]
    methods = [word for name in ("tapr", "image", "sum") for word in ("--method", name)]
    result = CliRunner().invoke(eval_command, ["jsonl", "--data", str(data), *methods, *options, str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    tops = {row["id"]: row["top"] for row in read_lines(tmp_path / "run" / "rankings" / "tapr.jsonl") or []}
    gallery = Gallery.build(tmp_path / "gallery", data, "fake")
    for query in asked:
        first, *more = [data / name for name in query.get("references", [query.get("reference")])]
        spec = EditSpec.from_dict(specs[query["id"]])
        found = search(gallery, first, spec=spec, crop=query.get("crop"), more_references=more, k=24)
        assert tops[query["id"]] == [Path(hit.path).name for hit in found.hits], query["id"]
    more = ["--controls", "matched", *options, str(tmp_path / "other")]
    refusal = CliRunner().invoke(eval_command, ["jsonl", "--data", str(data), *more])
    assert isinstance(refusal.exception, BadInput)
    assert "one whole reference per query" in str(refusal.exception)
