from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tapr.errors import BadInput
from tapr.evaluate.datasets import load_dataset
from tapr.evaluate.fallback import blank_note
from tapr.evaluate.ranking import ground_truths
from tapr.methods import RecordSet
from tests.evaluate import made_up, miniature
from tests.evaluate.official import official


def test_official_circo() -> None:
    val = load_dataset("circo", official("circo"), "val")
    test = load_dataset("circo", official("circo"), "test")
    assert (len(val.queries), len(test.queries)) == (220, 800)
    assert max(len(query.right) for query in val.queries) == 14
    assert val.protocol.keep_reference
    assert val.queries[0].right[0] == "000000355099"
    assert test.protocol.hidden
    assert not any(query.right for query in test.queries)


def test_official_cirr() -> None:
    val = load_dataset("cirr", official("cirr"), "val")
    test = load_dataset("cirr", official("cirr"), "test1")
    assert (len(val.queries), val.gallery_size) == (4181, 2297)
    assert (len(test.queries), test.gallery_size) == (4148, 2315)
    assert all(len(query.subset) == 6 and query.reference in query.subset for query in val.queries)
    assert all(query.right[0] in query.subset for query in val.queries)
    assert not val.protocol.keep_reference


def test_official_fashioniq_has_two_galleries() -> None:
    original = load_dataset("fashioniq", official("fashioniq"))
    val = load_dataset("fashioniq", official("fashioniq"), gallery_protocol="val")
    assert [len(part.queries) for part in original.parts] == [2017, 2038, 1961]
    assert [len(part.gallery) for part in original.parts] == [3817, 6346, 5373]
    assert [len(part.gallery) for part in val.parts] == [2628, 3089, 2902]


@pytest.mark.parametrize("place", [".", "img_raw", "cirr/img_raw"])
def test_cirr_finds_its_pictures_in_either_layout(place: str, tmp_path: Path) -> None:
    made_up.cirr(tmp_path / "made")
    data = tmp_path / "data"
    (data / "cirr").mkdir(parents=True)
    (data / place).mkdir(parents=True, exist_ok=True)
    for folder in ("captions", "image_splits"):
        (tmp_path / "made" / folder).rename(data / "cirr" / folder)
    (tmp_path / "made" / "dev").rename(data / place / "dev")
    assert load_dataset("cirr", data).missing() == []


def test_cirr_removes_the_reference_and_ranks_five_of_the_set(tmp_path: Path) -> None:
    dataset = load_dataset("cirr", made_up.cirr(tmp_path))
    (part,) = dataset.parts
    query = part.queries[0]
    truth = ground_truths(part, part.queries[:1], dataset.protocol.keep_reference)[0]
    scores = np.zeros((1, len(part.gallery)))
    scores[0, part.gallery.index(query.reference)] = 9  # the reference would come first
    scores[0, part.gallery.index(query.right[0])] = 5
    (places,) = truth.ranks(scores)
    assert (places.target, places.subset) == (1, 1)
    assert truth.subset is not None
    assert len(truth.subset) == 5
    assert part.gallery.index(query.reference) not in truth.top(scores[0], len(part.gallery))
    (kept,) = truth.ranks(scores, keep_reference=True)
    assert (kept.target, kept.subset) == (2, 1)


def test_fashioniq_keeps_the_reference_and_joins_its_captions(tmp_path: Path) -> None:
    dataset = load_dataset("fashioniq", made_up.fashioniq(tmp_path))
    part = dataset.parts[0]
    query = part.queries[0]
    assert query.edit == "is redder and has stripes"
    assert query.groups == ("dress",)
    assert dataset.protocol.macro
    truth = ground_truths(part, part.queries[:1], dataset.protocol.keep_reference)[0]
    scores = np.zeros((1, len(part.gallery)))
    scores[0, part.gallery.index(query.reference)] = 9
    scores[0, part.gallery.index(query.right[0])] = 5
    assert truth.ranks(scores)[0].target == 2


def test_fashioniq_ranks_each_kind_alone_over_the_gallery_that_was_chosen(tmp_path: Path) -> None:
    original = load_dataset("fashioniq", made_up.fashioniq(tmp_path))
    val = load_dataset("fashioniq", tmp_path, gallery_protocol="val")
    assert [len(part.gallery) for part in original.parts] == [6, 6, 6]
    assert [len(part.gallery) for part in val.parts] == [5, 4, 3]
    assert all(name.startswith(part.name) for part in original.parts for name in part.gallery)
    assert "val" in val.protocol.gallery
    with pytest.raises(BadInput, match="not 'test'"):
        load_dataset("fashioniq", tmp_path, gallery_protocol="test")


def test_circo_puts_the_target_first_and_knows_its_gallery(tmp_path: Path) -> None:
    rows = [{"id": 0, "reference_img_id": 3, "target_img_id": 2, "relative_caption": "bigger", "gt_img_ids": [1, 2]}]
    made_up.write(tmp_path / "annotations" / "val.json", rows)
    listed = {"images": [{"id": number} for number in range(1, 8)]}
    made_up.write(tmp_path / "COCO2017_unlabeled" / "annotations" / "image_info_unlabeled2017.json", listed)
    dataset = load_dataset("circo", tmp_path)
    assert dataset.queries[0].right == ("000000000002", "000000000001")
    assert dataset.gallery_size == 7
    assert dataset.pictures["000000000003"].name == "000000000003.jpg"


def test_missing_pictures_are_listed_and_can_be_left_out(tmp_path: Path) -> None:
    dataset = load_dataset("fashioniq", made_up.fashioniq(tmp_path))
    gone = dataset.parts[0].queries[0].reference
    dataset.pictures[gone].unlink()
    assert dataset.missing() == [gone]
    left = dataset.without({gone: "its file is missing"})
    assert len(left.parts[0].queries) == len(dataset.parts[0].queries) - 1
    assert gone not in left.parts[0].gallery
    assert f"1 picture left out ({gone}: its file is missing)" in left.notes[-1]
    assert "not the official ones" in left.notes[-1]


def test_jsonl_queries_name_pictures_beside_them(tmp_path: Path) -> None:
    made_up.cirr(tmp_path)
    query = {"id": "1", "reference": "dev/dev-red-blue.png", "edit": "greener", "targets": ["dev/dev-red-green.png"]}
    (tmp_path / "queries.jsonl").write_text(json.dumps(query) + "\n")
    dataset = load_dataset("jsonl", tmp_path)
    assert dataset.gallery_size == len(made_up.PAIRS)
    assert not dataset.missing()
    (tmp_path / "queries.jsonl").write_text(json.dumps({**query, "targets": ["nowhere.png"]}) + "\n")
    with pytest.raises(BadInput, match=r"'nowhere.png' is not in the gallery"):
        load_dataset("jsonl", tmp_path)
    (tmp_path / "queries.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(BadInput, match="line 1: a query is"):
        load_dataset("jsonl", tmp_path)


def test_line_separators_inside_an_edit_break_no_line(tmp_path: Path) -> None:
    made_up.cirr(tmp_path)
    pair = {"reference": "dev/dev-red-blue.png", "targets": ["dev/dev-red-green.png"]}
    query = {"id": "1", "edit": "greener\u2028and\x85brighter", **pair}
    (tmp_path / "queries.jsonl").write_text(json.dumps(query, ensure_ascii=False) + "\n", encoding="utf-8")
    (part,) = load_dataset("jsonl", tmp_path).parts
    assert [one.edit for one in part.queries] == [query["edit"]]


def test_invalid_datasets_are_refused_with_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unknown dataset 'coco'"):
        load_dataset("coco", tmp_path)
    with pytest.raises(BadInput, match=r"there is no annotations/val.json"):
        load_dataset("circo", tmp_path)
    with pytest.raises(BadInput, match="CIRR has the splits val, test1"):
        load_dataset("cirr", tmp_path, "train")
    with pytest.raises(BadInput, match="give their folder with --data"):
        load_dataset("cirr")


def test_a_limit_is_noted_and_keeps_the_gallery(tmp_path: Path) -> None:
    dataset = load_dataset("cirr", made_up.cirr(tmp_path))
    limited = dataset.limited(5)
    assert len(limited.queries) == 5
    assert limited.gallery_size == dataset.gallery_size
    assert "only 5 of" in limited.notes[0]
    assert limited.digest() != dataset.digest()


def test_jsonl_pictures_behind_a_link_are_found_and_a_loop_of_links_ends(tmp_path: Path) -> None:
    made_up.cirr(tmp_path / "elsewhere")
    data = tmp_path / "data"
    data.mkdir()
    (data / "pictures").symlink_to(tmp_path / "elsewhere" / "dev")
    (tmp_path / "elsewhere" / "dev" / "loop").symlink_to(data)
    names = "pictures/dev-red-blue.png", "pictures/dev-red-green.png"
    query = {"id": "1", "reference": names[0], "edit": "", "targets": [names[1]]}
    (data / "queries.jsonl").write_text(json.dumps(query) + "\n")
    dataset = load_dataset("jsonl", data)
    assert set(names) <= set(dataset.parts[0].gallery)
    assert dataset.gallery_size == len(made_up.PAIRS)
    assert not dataset.missing()


def test_a_picture_that_is_left_out_leaves_the_sets_of_cirr_too(tmp_path: Path) -> None:
    dataset = load_dataset("cirr", made_up.cirr(tmp_path))
    first = dataset.queries[0]
    gone = next(name for name in first.subset if name not in (first.reference, *first.right))
    left = dataset.without({gone: "it cannot be read"})
    (part,) = left.parts
    assert all(gone not in query.subset for query in part.queries)
    assert len(ground_truths(part, part.queries, keep_reference=False)) == len(part.queries)
    assert left.left_out == {gone: "it cannot be read"}
    with pytest.raises(BadInput, match="no query is left"):
        dataset.without(dict.fromkeys(dataset.pictures, "its file is missing"))


def test_circo_val_records_are_refused_on_test_whose_ids_overlap(tmp_path: Path) -> None:
    val, test = (load_dataset("circo", official("circo"), split) for split in ("val", "test"))
    assert {query.id for query in val.queries} <= {query.id for query in test.queries}
    records = tmp_path / "specs.jsonl"
    lines = [{"id": query.id, "edit": query.edit, "payload": {"target": query.edit}} for query in val.queries]
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert RecordSet.from_files([records], val.queries, {}).has("spec", [query.id for query in val.queries])
    with pytest.raises(BadInput, match="220 have the id of a query but another edit; give the records"):
        RecordSet.from_files([records], test.queries, {})


def test_the_blank_edit_of_cirr_test1_is_kept_and_noted() -> None:
    test = load_dataset("cirr", official("cirr"), "test1")
    (note,) = blank_note(test)
    assert note.startswith("the edit of 1 query is blank (27098)")


def test_circo_s_shared_concept_is_read_only_if_asked_for(tmp_path: Path) -> None:
    miniature.circo(tmp_path / "circo")
    plain = load_dataset("circo", tmp_path / "circo", "val")
    assert not any("also" in query.edit for query in plain.queries)
    both = plain.with_concepts()
    for before, after in zip(plain.queries, both.queries, strict=True):
        assert after.edit == f"Find a picture that also {before.concept}, but {before.edit}"
    assert both.digest() != plain.digest()
    assert "[shared_concept]" in both.protocol.edit_text
    assert any("shared concept" in note for note in both.notes)
    with pytest.raises(BadInput):
        load_dataset("cirr", made_up.cirr(tmp_path / "cirr"), "val").with_concepts()
