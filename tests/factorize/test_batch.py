"""Batches: every query ends in a record or a named failure, once, whatever happens on the way."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tapr.factorize.base import Factorizer
from tapr.factorize.batch import BatchReport, factorize_batch
from tapr.factorize.failures import NoAnswer, ServerRefused, ServerUnreachable
from tapr.factorize.openai_compatible import OpenAIFactorizer
from tapr.factorize.picture import picture_only
from tapr.factorize.queries import BatchQuery, read_queries, write_queries
from tapr.factorize.records import FAILURE, SPEC, Maker, Record, RecordFile
from tapr.factorize.registry import maker_of
from tapr.factorize.settings import LLMSettings
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tests.factorize.scripted_server import Request, ScriptedServer, Step, fails, says
from tests.refusals import refused

MAKER = Maker("echo/1")


class Echo:
    """Answers the edit itself; fails on edits that say so."""

    name = "echo/1"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        self.asked.append(edit)
        if edit.startswith("fail"):
            raise NoAnswer(f"cannot: {edit}")
        if edit == "refuse":
            raise ServerRefused("wrong key")
        return Factorization(EditSpec(edit), self.name)


def picture(folder: Path, name: str = "red.png", colour: str = "red") -> Path:
    path = folder / name
    Image.new("RGB", (8, 8), colour).save(path)
    return path


def queries(folder: Path, *edits: str) -> list[BatchQuery]:
    path = picture(folder)
    return [BatchQuery(f"q{i}", path, edit) for i, edit in enumerate(edits)]


def run(asked: list[BatchQuery], factorizer: Factorizer, out: Path, **options: Any) -> BatchReport:
    return factorize_batch(asked, factorizer, maker_of(factorizer), out, picture_only, **options)


def kinds(out: Path) -> Counter[tuple[str, str | None]]:
    return Counter((record.kind, record.id) for record in RecordFile(out).read()[0])


def test_every_query_becomes_a_record_and_a_second_run_asks_nothing(tmp_path: Path) -> None:
    asked, out = queries(tmp_path, "one", "two"), tmp_path / "out" / "specs.jsonl"
    first = run(asked, Echo(), out)
    echo = Echo()
    second = run(asked, echo, out)
    assert (first.made, first.done, second.kept, echo.asked) == (2, 2, 2, [])
    assert kinds(out) == {(SPEC, "q0"): 1, (SPEC, "q1"): 1}


def test_failures_are_named_do_not_stop_the_rest_and_are_tried_again(tmp_path: Path) -> None:
    asked, out = queries(tmp_path, "one", "fail", "two"), tmp_path / "specs.jsonl"
    asked.append(BatchQuery("gone", tmp_path / "none.png", "three"))
    report = run(asked, Echo(), out)
    assert report.made == 2
    assert dict(report.failures)["q1"] == "cannot: fail"
    assert "none.png: cannot be read" in dict(report.failures)["gone"]
    assert kinds(out)[FAILURE, "gone"] == 1
    picture(tmp_path, "none.png", "blue")
    again = run(asked, Echo(), out)
    assert (again.kept, again.made, [name for name, _ in again.failures]) == (2, 1, ["q1"])


def test_the_same_question_under_another_id_is_not_asked_again(tmp_path: Path) -> None:
    echo, out = Echo(), tmp_path / "specs.jsonl"
    report = run(queries(tmp_path, "one", "one "), echo, out)
    assert (report.made, report.reused, echo.asked) == (1, 1, ["one"])
    assert kinds(out) == {(SPEC, "q0"): 1, (SPEC, "q1"): 1}


def test_a_changed_question_is_asked_anew_and_a_hand_written_spec_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "specs.jsonl"
    run(queries(tmp_path, "one", "two", "three"), Echo(), out)
    RecordFile(out).append(Record({"target": "by hand"}, id="q2"))
    echo = Echo()
    report = run(queries(tmp_path, "one", "changed", "three"), echo, out)
    assert (report.kept, report.made, echo.asked) == (2, 1, ["changed"])
    other = Maker("echo/2")
    report = factorize_batch(queries(tmp_path, "one", "two", "three"), Echo(), other, out, picture_only)
    assert (report.kept, report.made) == (1, 2), "another model: all but the hand-written one"


def test_wrong_settings_stop_the_batch_and_keep_what_was_made(tmp_path: Path) -> None:
    out = tmp_path / "specs.jsonl"
    with refused("factorizer_unavailable", "wrong key", kind=ServerRefused):
        run(queries(tmp_path, "one", "refuse", "two"), Echo(), out)
    assert kinds(out) == {(SPEC, "q0"): 1}


def test_fallbacks_are_flagged_and_tried_again(tmp_path: Path) -> None:
    pytest.importorskip("httpx", reason="the llm extra is not installed")
    asked, out = queries(tmp_path, "one"), tmp_path / "specs.jsonl"
    with ScriptedServer(*[says("sorry")] * 3, says('{"target": "good"}')) as server:
        settings = LLMSettings(base_url=server.url, model="m", backoff=0.01)
        factorizer = OpenAIFactorizer(settings, on_failure="target-only")
        first, second = run(asked, factorizer, out), run(asked, factorizer, out)
    assert (first.fallbacks, first.made) == (1, 0)
    assert (second.fallbacks, second.made) == (0, 1)
    records = RecordFile(out).read()[0]
    assert [record.maker.model for record in records] == ["target-only", "openai:m"]
    assert records[0].details["fallback"] is True


def test_a_dead_server_stops_the_batch(tmp_path: Path) -> None:
    pytest.importorskip("httpx", reason="the llm extra is not installed")
    asked, out = queries(tmp_path, *(f"edit {i}" for i in range(50))), tmp_path / "specs.jsonl"
    with ScriptedServer(says('{"target": "good"}')) as server:
        settings = LLMSettings(base_url=server.url, model="m", backoff=0.01, retries=1)
        run(asked[:10], OpenAIFactorizer(settings), out, concurrency=4)
    with pytest.raises(ServerUnreachable):
        run(asked, OpenAIFactorizer(settings), out, concurrency=4)
    assert sum(kinds(out).values()) == 10
    assert sum(kinds(out)[SPEC, f"q{i}"] for i in range(10)) == 10


def test_progress_counts_to_the_end(tmp_path: Path) -> None:
    seen: list[int] = []
    run(queries(tmp_path, "one", "fail", "two"), Echo(), tmp_path / "o", on_progress=lambda at: seen.append(at.done))
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    ("lines", "fact"),
    [
        (["{"], "line 1"),
        (['{"id": "a", "reference": "r.png"}'], "line 1: the query has no edit"),
        (['{"id": "a", "reference": "r.png", "edit": "x"}'] * 2, "line 2: the id 'a'"),
        ([""], "no queries"),
    ],
)
def test_broken_queries_are_refused_with_their_line(lines: list[str], fact: str, tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text("\n".join(lines))
    with refused("bad_queries", fact):
        read_queries(path)


def test_line_separators_inside_an_edit_break_no_line(tmp_path: Path) -> None:
    row = {"id": "q", "reference": "red.png", "edit": "one\u2028two\x85three"}
    (tmp_path / "q.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\r\n", newline="")
    assert [query.edit for query in read_queries(tmp_path / "q.jsonl")] == [row["edit"]]


def test_paths_are_relative_to_the_queries_file(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text('{"id": 7, "reference": "pictures/r.png", "edit": "x"}\n')
    assert read_queries(path) == [BatchQuery("7", tmp_path / "pictures/r.png", "x")]


COUNT = 1000


class Awkward:
    """One query in nine fails at first, in one of seven ways; a few never get a valid answer."""

    WAYS = (
        fails(429, headers={"Retry-After": "0"}),
        fails(500),
        fails(503),
        says('{"target": "cut', finish="length"),
        says("Sure: here you are."),
        says('{"target": 5}'),
        Step("{", drop=True),
    )

    def __init__(self) -> None:
        self.failed: set[str] = set()

    def __call__(self, request: Request) -> Step:
        text = str(request["messages"][1]["content"]).rpartition("Edit: ")[2]
        chance = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        if chance % 99 == 0:
            self.failed.add(text)
            return says("never")
        if chance % 9 == 0 and text not in self.failed:
            self.failed.add(text)
            return self.WAYS[chance // 9 % len(self.WAYS)]
        return says(json.dumps({"target": text, "add": [text], "preserve": [], "remove": []}))


@pytest.mark.faults
def test_a_thousand_calls_with_failures_survive_kill_9_and_resume(tmp_path: Path) -> None:
    pytest.importorskip("httpx", reason="the llm extra is not installed")
    picture(tmp_path)
    path, out = tmp_path / "queries.jsonl", tmp_path / "specs.jsonl"
    asked = [{"id": f"q{i}", "reference": "red.png", "edit": f"edit number {i}"} for i in range(COUNT)]
    path.write_text("".join(json.dumps(query) + "\n" for query in asked))
    awkward = Awkward()
    with ScriptedServer(script=awkward) as server:
        environ = {**os.environ, "TAPR_LLM_BASE_URL": server.url, "TAPR_LLM_MODEL": "m", "TAPR_LLM_BACKOFF": "0.01"}
        environ |= {"TAPR_LLM_SEND_IMAGE": "false", "TAPR_LLM_CONCURRENCY": "16"}
        arguments = ["--factorizer", "openai", "--batch", str(path), "--out", str(out), "--json"]
        command = [sys.executable, "-m", "tapr.cli.main", "factorize", *arguments]

        first = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while first.poll() is None and (not out.exists() or out.read_bytes().count(b"\n") < COUNT // 3):
            time.sleep(0.01)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        assert first.returncode == -signal.SIGKILL, "it was to be killed in the middle"
        before = out.read_bytes().count(b"\n")
        with out.open("ab") as file:
            file.write(b'{"version": 1, "kind": "spec", "id": "q9')  # what a kill inside a write leaves

        resumed = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        calls = len(server.requests)

    report = json.loads(resumed.stdout)
    records, torn = RecordFile(out).read()
    specs = Counter(record.id for record in records if record.kind == SPEC)
    failed = {record.id: record.payload["error"] for record in records if record.kind == FAILURE}
    assert torn is None
    assert len(awkward.failed) >= COUNT // 10
    assert COUNT // 3 <= before < COUNT
    assert any("was cut off" in note for note in report["notes"])
    assert set(specs) | set(failed) == {query["id"] for query in asked}, "none is lost"
    assert set(specs.values()) == {1}, "none is doubled"
    assert not set(specs) & set(failed)
    assert failed, "some edits of the script never work"
    assert all("gave no valid spec in 3 answers" in reason for reason in failed.values())
    assert {failure["id"] for failure in report["failures"]} == set(failed)
    assert report["kept"] + report["made"] + len(report["failures"]) == COUNT
    assert resumed.returncode == 1
    assert resumed.stderr.strip().endswith("queries failed: the same command tries them again")
    for record in records:
        if record.kind == SPEC:
            number = str(record.id)[1:]
            assert record.payload["target"] == record.edit == f"edit number {number}", "no answer went astray"
    assert calls < COUNT * 1.5


def test_a_record_under_the_same_id_of_another_question_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    out = tmp_path / "specs.jsonl"
    by_hand = Record({"target": "by hand"}, id="q0", edit="the edit of another split")
    RecordFile(out).append(by_hand)
    (query,) = queries(tmp_path, "this edit")
    assert run([query], Echo(), out).made == 1
    assert run([query], Echo(), out).kept == 1
    RecordFile(out).append(by_hand)  # appended later, it hides nothing
    assert run([query], Echo(), out).kept == 1


def test_queries_of_two_splits_may_have_the_same_ids(tmp_path: Path) -> None:
    path = picture(tmp_path)
    asked = [BatchQuery("7", path, "one", "CIRCO", "val"), BatchQuery("7", path, "one", "CIRCO", "test")]
    write_queries(tmp_path / "below" / "queries.jsonl", [*asked, BatchQuery("8", path, "", "CIRCO", "test")])
    read = read_queries(tmp_path / "below" / "queries.jsonl")
    assert [(query.id, query.edit, query.split) for query in read] == [
        ("7", "one", "val"), ("7", "one", "test"), ("8", "", "test"),
    ]  # fmt: skip
    assert read[0].reference.resolve() == path.resolve()
    echo, out = Echo(), tmp_path / "specs.jsonl"
    report = run(read[:2], echo, out)
    assert (report.made, report.reused, echo.asked) == (1, 1, ["one"])
    assert [(record.dataset, record.split) for record in RecordFile(out).read()[0]] == [
        ("CIRCO", "val"), ("CIRCO", "test"),
    ]  # fmt: skip
    assert run(read[:2], Echo(), out).kept == 2
