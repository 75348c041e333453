from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tapr.factorize.picture import NO_EVIDENCE
from tapr.factorize.records import HAND, Maker, Record, RecordFile, RecordIndex
from tapr.factorize.replay import CachingFactorizer, RecordsFactorizer
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tests.refusals import refused

IMAGE = "ab" * 32
QWEN = Maker("openai:qwen", "edit_v1", "11" * 32)
SPEC = EditSpec("a blue car", add=("blue",), remove=("red",))


def record(target: str = "a blue car", **values: object) -> Record:
    return Record({**SPEC.to_dict(), "target": target}, **{"image": IMAGE, "edit": "make it blue", **values})  # type: ignore[arg-type]


def reference(sha256: str = IMAGE) -> Reference:
    return Reference(Image.new("RGB", (4, 4)), NO_EVIDENCE, sha256)


def file_of(path: Path, *records: Record) -> RecordFile:
    file = RecordFile(path / "specs.jsonl")
    for one in records:
        file.append(one)
    return file


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    written = record(id="q1", maker=QWEN, notes=("a note",), details={"tries": 2})
    other = Record({"captions": ["a", "b"]}, kind="ldre", id="q1", maker=Maker("qwen"))
    records, torn = file_of(tmp_path, written, other).read()
    assert records == [written, other]
    assert torn is None


def test_a_record_is_found_by_everything_that_decides_the_answer() -> None:
    index = RecordIndex()
    index.add(record("qwen", maker=QWEN))
    assert index.get(IMAGE.upper(), " make  it blue ", QWEN) is not None
    for maker in (Maker("other", *list(vars(QWEN).values())[1:]), replace(QWEN, prompt="edit_v2"),
                  replace(QWEN, prompt_sha256="33" * 32)):  # fmt: skip
        assert index.get(IMAGE, "make it blue", maker) is None
    assert index.get("cd" * 32, "make it blue", QWEN) is None
    assert index.get(IMAGE, "make it red", QWEN) is None


def test_replay_needs_only_the_file(tmp_path: Path) -> None:
    file = file_of(tmp_path, record(id="q1", maker=QWEN, notes=("seen by a model",)))
    answer = RecordsFactorizer(file.path).factorize(reference(), "make it  blue")
    assert answer.spec == SPEC
    assert answer.factorizer == "records:openai:qwen"
    assert answer.notes == ("seen by a model",)
    assert answer.details["record"]["id"] == "q1"


def test_the_last_record_wins_so_a_correction_is_one_more_line(tmp_path: Path) -> None:
    file = file_of(tmp_path, record("first", maker=QWEN), record("second", maker=QWEN))
    assert RecordsFactorizer(file.path).factorize(reference(), "make it blue").spec.target == "second"
    file.append(record("by hand"))
    assert RecordsFactorizer(file.path).factorize(reference(), "make it blue").factorizer == "records:hand"
    index, _ = file.index()
    by_qwen = index.get(IMAGE, "make it blue", QWEN)
    assert by_qwen is not None
    assert by_qwen.payload["target"] == "second"


def test_a_hand_written_line_needs_an_id_and_a_spec(tmp_path: Path) -> None:
    path = tmp_path / "hand.jsonl"
    path.write_text('{"id": "q7", "payload": {"target": "a cat", "add": ["cat"]}}')  # no Return at the end
    index, _ = RecordFile(path).index()
    assert [found.maker for found in index.by_id("q7")] == [HAND]
    RecordFile(path).append(record())
    assert len(RecordFile(path).read()[0]) == 2


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    replay = RecordsFactorizer(file_of(tmp_path, record(id="q1")).path)
    with refused("no_record", "cdcdcdcdcdcd...", "'make it blue'"):
        replay.factorize(reference("cd" * 32), "make it blue")
    with refused("bad_records", "none.jsonl"):
        RecordsFactorizer(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("{]", "not valid JSON"),
        ('{"payload": ' + "[" * 500 + "]" * 500 + "}", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "a record must be a JSON object"),
        ('{"id": "a", "spec": {}}', "unknown key 'spec'"),
        ('{"id": "a"}', "payload must be a JSON object"),
        ('{"payload": {"target": "x"}}', "nothing to find the record by"),
        ('{"id": 7, "payload": {"target": "x"}}', "id must be text"),
        ('{"version": 9, "id": "a", "payload": {}}', "record version 9"),
        (
            '{"version": 1, "id": "a", "key": "00", "payload": {}}',
            "record version 1, this tapr reads version 2",
        ),
    ],
)
def test_a_broken_line_is_refused_with_its_number(line: str, fact: str, tmp_path: Path) -> None:
    path = tmp_path / "specs.jsonl"
    path.write_text(record().to_line() + line + "\n" + record().to_line())
    with refused("bad_records", "line 2", fact):
        RecordsFactorizer(path)


def test_an_invalid_spec_is_refused_when_it_is_asked_for(tmp_path: Path) -> None:
    file = file_of(tmp_path, record("", id="q1"))
    with refused("bad_records", "q1", "target is empty"):
        RecordsFactorizer(file.path).factorize(reference(), "make it blue")


@pytest.mark.parametrize("kept", [1, 20, 150])
def test_half_a_line_after_a_kill_is_left_out_said_and_mended(kept: int, tmp_path: Path) -> None:
    file = file_of(tmp_path, record("whole"))
    with file.path.open("a") as handle:
        handle.write(record("half").to_line()[:kept])
    records, torn = file.read()
    assert [one.payload["target"] for one in records] == ["whole"]
    assert torn is not None
    assert "was cut off" in torn
    assert torn in RecordsFactorizer(file.path).factorize(reference(), "make it blue").notes
    with file.writer() as writer:
        assert writer.mended == torn
        writer.write(record("next"))
    records, torn = file.read()
    assert [one.payload["target"] for one in records] == ["whole", "next"]
    assert torn is None


APPEND_FIFTY = """
import sys
from tapr.factorize.records import Record, RecordFile
for i in range(50):
    RecordFile(sys.argv[1]).append(Record({"target": "x" * 300}, id=f"{sys.argv[2]}-{i}"))
"""


def test_writers_in_several_processes_leave_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "specs.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", APPEND_FIFTY, str(path), name]) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    records, torn = RecordFile(path).read()
    assert {one.id for one in records} == {f"{name}-{i}" for name in "abc" for i in range(50)}
    assert len(records) == 150
    assert torn is None


def test_a_second_long_writer_is_refused(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "specs.jsonl")
    with file.writer(), refused("writer_busy"), RecordFile(file.path).writer():
        pass


class _Counting:
    name = "counting"

    def __init__(self, answers_as: str = "counting") -> None:
        self.calls = 0
        self._answers_as = answers_as

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        self.calls += 1
        return Factorization(SPEC, self._answers_as, (), {"n": self.calls})


def test_what_is_remembered_is_asked_once(tmp_path: Path) -> None:
    inner, path = _Counting(), tmp_path / "specs.jsonl"
    first = CachingFactorizer(inner, path, Maker("counting")).factorize(reference(), "make it blue")
    again = CachingFactorizer(inner, path, Maker("counting"))
    replayed = again.factorize(reference(), "make it blue")
    assert (first.factorizer, replayed.factorizer) == ("counting", "records:counting")
    assert replayed.spec == first.spec
    assert inner.calls == 1
    again.factorize(reference(), "make it red")
    CachingFactorizer(inner, path, Maker("counting", "edit_v2")).factorize(reference(), "make it blue")
    assert inner.calls == 3


def test_a_fallback_is_not_remembered(tmp_path: Path) -> None:
    inner, path = _Counting("target-only"), tmp_path / "specs.jsonl"
    remembering = CachingFactorizer(inner, path, Maker("counting"))
    for _ in range(2):
        remembering.factorize(reference(), "make it blue")
    assert inner.calls == 2
    assert not path.exists()


def test_lines_are_plain_json_that_other_tools_read(tmp_path: Path) -> None:
    line = json.loads(record(id="q1", maker=QWEN).to_line())
    assert line["payload"] == SPEC.to_dict()
    assert line["model"] == "openai:qwen"
    assert line["prompt_sha256"] == "11" * 32
    assert line["version"] == 2
