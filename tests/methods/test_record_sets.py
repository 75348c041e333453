"""Records find the queries they were made for: by id, edit and picture, as far as they name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tapr.methods import RecordSet
from tapr.methods.records import RecordFilter
from tapr.methods.sdr_cir import SdrRecord
from tests.methods.small import Question
from tests.refusals import refused

A, B = "aa" * 32, "bb" * 32
QUERIES = (Question("1", "a", "in green"), Question("2", "b", "in white"))
PICTURES = {"a": A, "b": B}


def written(path: Path, *lines: dict[str, Any]) -> Path:
    file = path / "records.jsonl"
    whole = [{"kind": "sdr-cir", "payload": {"description": "it"}, **line} for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in whole))
    return file


def read(path: Path, *lines: dict[str, Any]) -> RecordSet:
    return RecordSet.from_files([written(path, *lines)], QUERIES, PICTURES)


def found(records: RecordSet, query_id: str) -> str:
    return records.get(SdrRecord, query_id).description


def test_records_of_other_queries_under_the_same_ids_are_refused(tmp_path: Path) -> None:
    other_edits = [{"id": "1", "edit": "older"}, {"id": "2", "edit": "newer"}]
    with refused("no_record", "records.jsonl", "2 have the id of a query but another edit"):
        read(tmp_path, *other_edits)
    with refused("no_record", "1 have", "another picture"):
        read(tmp_path, {"id": "1", "edit": "in green", "image": B})
    with refused("no_record", "1 have", "no query"):
        read(tmp_path, {"id": "7", "edit": "in green"})


def test_unmatched_records_are_counted_and_not_used(tmp_path: Path) -> None:
    records = read(tmp_path, {"id": "1", "edit": " in  green"}, {"id": "2", "edit": "older"}, {"id": "3", "edit": "x"})
    assert found(records, "1") == "it"
    assert records.notes == (
        "records.jsonl: 2 of 3 records answer no query of this run: 1 have the id of a query but another edit, "
        "1 have the id of no query",
    )
    with refused("no_record", "'2'", "tapr factorize --for sdr-cir"):
        found(records, "2")


def test_a_later_record_of_another_question_does_not_hide_the_right_one(tmp_path: Path) -> None:
    right = {"id": "1", "edit": "in green", "image": A.upper(), "payload": {"description": "right"}}
    other = {"id": "1", "edit": "in green", "image": B, "payload": {"description": "other"}}
    assert found(read(tmp_path, right, other), "1") == "right"
    corrected = {"id": "1", "edit": "in green", "payload": {"description": "corrected by hand"}}
    assert found(read(tmp_path, right, corrected, other), "1") == "corrected by hand"


def test_records_without_an_id_are_found_by_picture_and_edit(tmp_path: Path) -> None:
    assert found(read(tmp_path, {"image": B, "edit": "in white"}), "2") == "it"


def test_records_with_only_an_id_are_used_and_noted(tmp_path: Path) -> None:
    records = read(tmp_path, {"id": "1"}, {"id": "2", "edit": "in white"})
    assert found(records, "1") == "it"
    assert records.notes == (
        "records.jsonl: 1 records name neither edit nor picture and were matched by their query's id alone",
    )


def test_a_failure_says_why_there_is_no_record(tmp_path: Path) -> None:
    failure = {"kind": "failure", "id": "2", "payload": {"error": "no answer", "kind": "sdr-cir"}}
    records = read(tmp_path, {"id": "1", "edit": "in green"}, failure)
    with refused("no_record", "'2'", "no answer"):
        found(records, "2")


def test_records_of_another_dataset_or_split_are_ignored(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {"id": "1", "dataset": "CIRCO", "split": "test", "payload": {"description": "test"}},
        {"id": "1", "dataset": "CIRR", "split": "val", "payload": {"description": "cirr"}},
        {"id": "1", "dataset": "CIRCO", "split": "val", "edit": "in green", "payload": {"description": "val"}},
        {"image": B, "dataset": "CIRR", "edit": "in white"},
    )
    records = RecordSet.from_files([file], QUERIES, PICTURES, ("CIRCO", "val"))
    assert found(records, "1") == "val"
    assert records.notes == ()
    with refused("no_record", "sdr-cir"):
        found(records, "2")
    with refused("no_record", "4 have another dataset"):
        RecordSet.from_files([file], QUERIES, PICTURES, ("FashionIQ", "val"))


def test_several_files_are_read_and_the_last_one_wins(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = written(tmp_path / "one", {"id": "1", "edit": "in green"}, {"id": "2", "edit": "in white"})
    two = written(tmp_path / "two", {"id": "2", "edit": "in white", "payload": {"description": "later"}})
    records = RecordSet.from_files([one, two], QUERIES, PICTURES)
    assert (found(records, "1"), found(records, "2")) == ("it", "later")
    assert records.origin.count("made by") == 2


def test_records_are_chosen_by_model_and_prompt_and_what_people_wrote_stays(tmp_path: Path) -> None:
    lines = [
        {"id": "1", "edit": "in green", "model": "openai:a", "prompt": "sdr-cir", "payload": {"description": "by a"}},
        {"id": "1", "edit": "in green", "model": "openai:b", "prompt": "sdr-cir", "payload": {"description": "by b"}},
        {"id": "2", "edit": "in white", "payload": {"description": "by hand"}},
    ]
    file = written(tmp_path, *lines)
    both = RecordSet.from_files([file], QUERIES, PICTURES)
    assert found(both, "1") == "by b"
    assert "1 records are there more than once, by several models or prompts" in both.notes[0]
    chosen = RecordSet.from_files([file], QUERIES, PICTURES, wanted=RecordFilter("a"))
    assert (found(chosen, "1"), found(chosen, "2"), chosen.notes) == ("by a", "by hand", ())
    with refused("no_record", "2 have another model or prompt"):
        RecordSet.from_files([written(tmp_path, *lines[:2])], QUERIES, PICTURES, wanted=RecordFilter(prompt="older"))


def test_records_that_were_filled_up_are_counted(tmp_path: Path) -> None:
    records = read(tmp_path, {"id": "1", "edit": "in green", "details": {"filled": True}})
    assert records.notes == ("1 sdr-cir records were filled up from fewer texts",)
