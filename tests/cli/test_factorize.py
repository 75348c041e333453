from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from tapr.cli.factorize import factorize
from tapr.errors import BadInput, TaprError
from tapr.factorize.records import RecordFile
from tapr.factorize.seeing import Seen
from tapr.query.spec import EditSpec
from tests.factorize.scripted_server import ScriptedServer, Step, fails, says

GOOD = EditSpec("a blue car", add=("blue car",), preserve=("car",), remove=("red car",))


@pytest.fixture
def picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("TAPR_LLM_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TAPR_LLM_BACKOFF", "0.01")
    path = tmp_path / "red.png"
    Image.new("RGB", (16, 16), "red").save(path)
    return path


def call(*arguments: str | Path) -> Result:
    """Run the verb; what the command line would turn into an exit code and a sentence is raised."""
    result = CliRunner().invoke(factorize, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def openai(server: ScriptedServer) -> tuple[str, ...]:
    pytest.importorskip("httpx", reason="the llm extra is not installed")
    return "--factorizer", "openai", "--llm-url", server.url, "--llm-model", "m"


def write_queries(folder: Path, count: int) -> Path:
    path = folder / "queries.jsonl"
    lines = [{"id": f"q{i}", "reference": "red.png", "edit": f"edit {i}"} for i in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_spec_is_printed_as_json_and_its_origin_beside_it(picture: Path) -> None:
    result = call(picture, "make it blue", "--factorizer", "target-only")
    assert EditSpec.from_json(result.stdout) == EditSpec("make it blue", add=("make it blue",))
    assert "made by target-only" in result.stderr
    assert "not factorized" in result.stderr


def test_json_tells_the_origin_too(picture: Path) -> None:
    with ScriptedServer(says(GOOD.to_json())) as server:
        answer = json.loads(call(picture, "make it blue", *openai(server), "--json").stdout)
    assert EditSpec.from_dict(answer["spec"]) == GOOD
    assert answer["factorizer"] == "openai:m"
    assert answer["details"]["usage"]["calls"] == 1


def test_o_writes_a_file_for_search(picture: Path, tmp_path: Path) -> None:
    out = tmp_path / "spec.json"
    result = call(picture, "make it blue", "--factorizer", "target-only", "-o", out)
    assert EditSpec.from_file(out).target == "make it blue"
    assert result.stdout == ""


def test_grounded_is_the_default(picture: Path) -> None:
    pytest.importorskip("tapr.factorize.grounded")
    pytest.importorskip("tapr.encoders.registry")
    answer = json.loads(call(picture, "make it blue", "--encoder", "fake", "--json").stdout)
    assert answer["factorizer"].startswith("grounded")


def test_why_shows_caption_operations_and_result(picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SaysTheSame:
        def see(self, pictures: object) -> list[Seen]:
            return [Seen("a red car on a street", 0.4, sure=False)]

    monkeypatch.setattr("tapr.factorize.grounded.seer_of", lambda encoder, folder: SaysTheSame())
    said = call(picture, "make it blue", "--encoder", "fake", "--why").stderr
    assert "the picture: a red car on a street (unsure, 0.40)" in said
    assert "the edit was read as: make it blue" in said
    assert 'exchange colour: "red" -> "blue" (car)' in said
    assert "the result: a blue car on a street" in said


def test_why_says_when_nobody_looked(picture: Path) -> None:
    assert "no captioner looked" in call(picture, "make it blue", "--encoder", "fake", "--why").stderr


def test_a_hand_written_spec_becomes_a_record_that_replays(picture: Path, tmp_path: Path) -> None:
    written, records = tmp_path / "mine.json", tmp_path / "hand.jsonl"
    written.write_text(GOOD.to_json())
    call(picture, "make it blue", "--spec", written, "--records", records)
    assert RecordFile(records).read()[0][0].image == hashlib.sha256(picture.read_bytes()).hexdigest()
    replayed = call(picture, "make it blue", "--factorizer", "records", "--records", records, "--json")
    assert json.loads(replayed.stdout)["factorizer"] == "records:hand"
    with pytest.raises(BadInput, match="no spec for picture"):
        call(picture, "make it green", "--factorizer", "records", "--records", records)


def test_records_before_openai_are_a_memory(picture: Path, tmp_path: Path) -> None:
    with ScriptedServer(says(GOOD.to_json())) as server:
        memory = str(tmp_path / "memory.jsonl")
        arguments = (str(picture), "make it blue", *openai(server), "--records", memory, "--json")
        first, second = json.loads(call(*arguments).stdout), json.loads(call(*arguments).stdout)
        assert len(server.requests) == 1
    assert (first["factorizer"], second["factorizer"]) == ("openai:m", "records:openai:m")
    assert first["spec"] == second["spec"]


def test_on_failure_target_only_is_asked_for_and_flagged(picture: Path) -> None:
    with ScriptedServer(says("sorry")) as server:
        with pytest.raises(TaprError, match="no valid spec"):
            call(picture, "make it blue", *openai(server))
        result = call(picture, "make it blue", *openai(server), "--on-failure", "target-only")
    assert "note: fallback, because m gave no valid spec" in result.stderr


def test_a_batch_sums_up_and_resumes(picture: Path, tmp_path: Path) -> None:
    queries, out = write_queries(tmp_path, 3), tmp_path / "specs.jsonl"
    with ScriptedServer(fails(500), says(GOOD.to_json())) as server:
        arguments = ("--batch", str(queries), "--out", str(out), *openai(server))
        first = json.loads(call(*arguments, "--json").stdout)
        second = call(*arguments)
    assert (first["made"], first["total"], first["failures"]) == (3, 3, [])
    assert first["usage"] == {"calls": 4, "tokens_in": 300, "tokens_out": 30}
    assert "3 kept, 0 reused, 0 made" in second.stdout


def test_failed_queries_are_listed_and_the_batch_exits_as_a_failure(picture: Path, tmp_path: Path) -> None:
    queries = write_queries(tmp_path, 2)
    with ScriptedServer(says("sorry")) as server:
        arguments = ("--batch", str(queries), "--out", str(tmp_path / "specs.jsonl"), *openai(server))
        result = CliRunner().invoke(factorize, list(arguments))
    assert isinstance(result.exception, TaprError)
    assert result.exception.exit_code == 1
    assert "failed: q1: m gave no valid spec" in result.stderr
    assert "2 of 2 queries failed" in str(result.exception)


def test_wrong_settings_stop_a_batch_with_the_way_on(picture: Path, tmp_path: Path) -> None:
    with ScriptedServer(fails(401, "who are you")) as server, pytest.raises(BadInput, match="same command goes on"):
        call("--batch", write_queries(tmp_path, 2), "--out", tmp_path / "specs.jsonl", *openai(server))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give a picture and an edit"),
        (("red.png",), "give a picture and an edit"),
        (("none.png", "x", "--factorizer", "target-only"), "none.png: cannot be read"),
        (("red.png", "  ", "--factorizer", "target-only"), "the edit is empty"),
        (("red.png", "x", "--factorizer", "openai"), "needs a base_url: set TAPR_LLM_BASE_URL"),
        (("red.png", "x", "--factorizer", "records"), "needs a record file"),
        (("red.png", "x", "--factorizer", "target-only", "--llm-model", "m"), "go with --factorizer openai"),
        (("red.png", "x", "--spec", "s.json"), "name it with --records"),
        (("--batch", "q.jsonl"), "--batch and --out go together"),
        (("red.png", "x", "--batch", "q.jsonl", "--out", "o"), "leave out REFERENCE"),
        (("--batch", "none.jsonl", "--out", "o"), "cannot read the queries"),
        (("--batch", "none.jsonl", "--out", "o", "--records", "r"), "the record file is --out"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    arguments: tuple[str, ...], sentence: str, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(picture.parent)
    with pytest.raises(BadInput, match=sentence) as mistake:
        call(*arguments)
    assert "\n" not in str(mistake.value)


def test_ctrl_c_stops_at_once_and_keeps_the_records(picture: Path, tmp_path: Path) -> None:
    queries, out = write_queries(tmp_path, 20), tmp_path / "specs.jsonl"
    served = 0

    def five_then_nothing(request: object) -> Step:
        nonlocal served
        served += 1
        return says(GOOD.to_json()) if served <= 5 else Step("", trickle=True)

    with ScriptedServer(script=five_then_nothing) as server:
        command = [sys.executable, "-m", "tapr.cli.main", "factorize", "--batch", str(queries), "--out", str(out)]
        environ = {**os.environ, "TAPR_LLM_CONCURRENCY": "2", "TAPR_LLM_TIMEOUT": "600"}
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, as in a shell's
        process = subprocess.Popen([*command, *openai(server)], env=environ, stderr=subprocess.PIPE, text=True)
        signal.signal(signal.SIGINT, before)  # background job, children would ignore it too
        while process.poll() is None and served < 7:  # both workers wait for an answer that never ends
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    records, torn = RecordFile(out).read()
    assert len(records) == 5
    assert torn is None


def test_records_of_a_compared_system_are_made_and_resumed(picture: Path) -> None:
    queries = write_queries(picture.parent, 3)
    answer = says(json.dumps({"prescriptive": "a blue car", "proscriptive": "a red car"}))
    out = picture.parent / "soft.jsonl"
    with ScriptedServer(answer) as server:
        where = openai(server)[2:]
        assert "3 made" in call("--for", "soft", "--batch", queries, "--out", out, *where).stdout
        assert "0 made" in call("--for", "soft", "--batch", queries, "--out", out, *where).stdout
        assert len(server.requests) == 3
        with pytest.raises(BadInput, match="no prompt for 'magic'"):
            call("--for", "magic", "--batch", queries, "--out", out, *where)
        picture.write_bytes(b"not a picture any more")
        with pytest.raises(TaprError, match="3 queries failed"):
            call("--for", "cotmr", "--batch", queries, "--out", picture.parent / "cotmr.jsonl", *where)
    with pytest.raises(BadInput, match="--batch FILE --out FILE"):
        call("--for", "soft", picture, "make it blue")


def test_specs_are_made_with_and_without_saying_for_spec(picture: Path, tmp_path: Path) -> None:
    queries = write_queries(tmp_path, 2)
    common = ("--batch", queries, "--factorizer", "target-only")
    assert "2 made" in call(*common, "--for", "spec", "--out", tmp_path / "named.jsonl").stdout
    assert "2 made" in call(*common, "--out", tmp_path / "plain.jsonl").stdout
    assert (tmp_path / "named.jsonl").read_bytes() == (tmp_path / "plain.jsonl").read_bytes()
    with pytest.raises(BadInput, match="no prompt for 'clip': choose spec, cirevl"):
        call(*common, "--for", "clip", "--llm-url", "http://127.0.0.1:9", "--llm-model", "m", "--out", tmp_path / "x")


def test_a_blank_edit_does_not_stop_the_file(picture: Path, tmp_path: Path) -> None:
    queries = write_queries(tmp_path, 3)
    queries.write_text(queries.read_text().replace("edit 1", " "))
    done = call("--batch", queries, "--factorizer", "target-only", "--out", tmp_path / "specs.jsonl")
    assert "2 made" in done.stdout
    assert "no record is made for q1" in done.stderr
    assert [record.id for record in RecordFile(tmp_path / "specs.jsonl").read()[0]] == ["q0", "q2"]


def test_every_hint_of_a_missing_record_names_a_command_that_works(picture: Path, tmp_path: Path) -> None:
    from tapr.methods import METHODS, RecordSet, make_method
    from tapr.methods.record_kinds import unusable_records
    from tests.methods.small import Question

    pytest.importorskip("httpx", reason="the llm extra is not installed")
    for name in (name for name in METHODS if not METHODS[name].multi_pass):
        method = make_method(name)
        for reason in unusable_records(method, [Question("q0")], RecordSet({}, "none")).values():
            kind = reason.rpartition("tapr factorize --for ")[2]
            assert kind in method.kinds
            with ScriptedServer(says("I would rather not")) as server, pytest.raises(TaprError) as answer:
                call("--for", kind, "--batch", write_queries(tmp_path, 1), "--out", tmp_path / "o", *openai(server))
            assert answer.value.exit_code == 1  # asked, and failed: the command itself was understood


def _answers(request: dict[str, object]) -> Step:
    """What each prompt asks for, told by the keys that it names; as many answers as were asked for."""
    text = json.dumps(request["messages"])
    names = re.findall(r'\\\\?"(\w+)\\\\?": (\[?)\\\\?"\.\.\.', text)
    if not names or "readings" in dict(names):  # the prompt for specs
        return says(GOOD.to_json())
    content = {name: [name] * (15 if name == "edited" else 1) if several else name for name, several in names}
    step = says(json.dumps(content))
    step.body["choices"] = step.body["choices"] * int(request.get("n", 1))  # type: ignore[call-overload]
    return step


def test_for_all_says_what_it_costs_makes_every_kind_and_goes_on(picture: Path, tmp_path: Path) -> None:
    out = tmp_path / "records.jsonl"
    queries = write_queries(tmp_path, 2)
    asked = ("--batch", queries, "--out", out, "--for", "all")
    with ScriptedServer(script=_answers) as server:
        where = ("--llm-url", server.url, "--llm-model", "m")
        pytest.importorskip("httpx", reason="the llm extra is not installed")
        said = call(*asked, *where, "--estimate").stderr
        assert server.requests == []
        calls = {kind: int(count) for kind, count in re.findall(r"(\w+): 2 queries, about (\d+) calls", said)}
        assert calls["ldre"] == 2 * (1 + 15)  # captions at once, then each edited alone
        assert f"together about {sum(calls.values())} calls" in said
        shown = json.loads(call(*asked, *where, "--json").stdout)
        first = len(server.requests)
        assert [request["n"] for request in server.requests if "n" in request] == [15, 15, 5, 5]
        assert {request["temperature"] for request in server.requests} == {0, 0.7}
        assert all(shown[kind]["made"] == 2 for kind in ("spec", "cirevl", "ldre", "soft", "stitch"))
        again = call(*asked, *where)
        assert "spec: 2 kept, 0 reused, 0 made" in again.stdout
        assert len(server.requests) == first == sum(calls.values())
    kinds = [record.kind for record in RecordFile(out).read()[0]]
    assert len(kinds) == 16
    assert len(set(kinds)) == 8


def test_a_server_that_gives_one_answer_at_a_time_is_asked_again(picture: Path, tmp_path: Path) -> None:
    pytest.importorskip("httpx", reason="the llm extra is not installed")

    def refuses_n(request: dict[str, object]) -> Step:
        return fails(400, "n must be 1") if "n" in request else _answers(request)

    out = tmp_path / "records.jsonl"
    with ScriptedServer(script=refuses_n) as server:
        where = ("--llm-url", server.url, "--llm-model", "m")
        call("--batch", write_queries(tmp_path, 1), "--out", out, "--for", "stitch", *where)
        assert len(server.requests) == 1 + 5
    (record,) = RecordFile(out).read()[0]
    assert record.payload["descriptions"] == ["description"] * 5
    assert record.details["usage"]["calls"] == 6
