from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tapr.factorize.asking import Asker, ask_record
from tapr.factorize.batch import BatchReport, record_batch
from tapr.factorize.chat import Reply
from tapr.factorize.dialect import AnswerForm, Dialect, Draw
from tapr.factorize.failures import NoAnswer
from tapr.factorize.picture import picture_only
from tapr.factorize.queries import BatchQuery
from tapr.factorize.records import RecordAnswer
from tapr.factorize.settings import LLMSettings
from tapr.images.decode import sha256_of
from tapr.methods import RecordSet
from tapr.methods.record_kinds import schemas
from tapr.methods.record_prompts import examples, load_kind
from tapr.methods.sdr_cir import SdrRecord
from tests.factorize.scripted_server import ScriptedServer, says
from tests.methods.small import Question
from tests.pictures import write_flags
from tests.refusals import refused


class Scripted:
    """Answers in turn and remembers what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[list[dict[str, Any]]]()
        self.sampled_captions: list[Draw] = []

    async def __call__(self, messages: list[dict[str, Any]], form: AnswerForm, draw: Draw) -> Reply:
        self.asked.append(messages)
        self.sampled_captions.append(draw)
        return Reply((self.answers.pop(0),), False, Dialect())


def answered(kind: str, model: Scripted, tries: int = 2, prompt: Path | None = None) -> RecordAnswer:
    settings = LLMSettings(base_url="http://127.0.0.1:1", model="m", tries=tries)
    return asyncio.run(ask_record(load_kind(kind, prompt), "make it red", "data:picture", model, settings))


def asked(kind: str, model: Scripted, tries: int = 2) -> dict[str, Any]:
    return dict(answered(kind, model, tries).payload)


@pytest.mark.parametrize("kind", sorted(kind for kind, schema in schemas().items() if schema.prompt))
def test_every_kind_has_a_prompt_that_names_its_fields_and_the_edit(kind: str) -> None:
    prompt = load_kind(kind)
    assert any("{edit}" in step.text for step in prompt.steps)
    filled = {name for step in prompt.steps for name in [step.list_name] if name}
    filled |= {name for step in prompt.steps if not step.list_name for name in step.form.schema["required"]}
    assert filled == schemas()[kind].model_fields.keys()
    assert prompt.steps[0].sees_picture


def test_cirevl_takes_two_calls_and_the_second_sees_only_the_caption() -> None:
    model = Scripted('Sure: {"caption": "a blue car"}', '```json\n{"description": "a red car"}\n```')
    assert asked("cirevl", model) == {"caption": "a blue car", "description": "a red car"}
    first, second = model.asked
    assert first[0]["content"][0]["image_url"]["url"] == "data:picture"
    assert "a blue car" in second[0]["content"]
    assert "make it red" in second[0]["content"]


def test_a_wrong_answer_is_asked_for_again() -> None:
    good = json.dumps({"prescriptive": "a red car", "proscriptive": "a blue car"})
    assert asked("soft", Scripted("I cannot", good))["prescriptive"] == "a red car"
    assert asked("soft", Scripted('{"prescriptive": "a red car"}', good))["proscriptive"] == "a blue car"


def test_the_model_is_told_what_was_wrong_with_its_answer() -> None:
    good = json.dumps({"prescriptive": ["a red car"], "proscriptive": []})
    model = Scripted('{"prescriptive": ["a red car"]}', good)
    assert asked("soft", model)["proscriptive"] == []
    question, answer, correction = model.asked[1]
    assert question == model.asked[0][0]
    assert answer == {"role": "assistant", "content": '{"prescriptive": ["a red car"]}'}
    assert "cannot be used: it is wrong at 'proscriptive': Field required" in correction["content"]


def test_a_wrong_second_call_does_not_ask_the_first_again() -> None:
    model = Scripted('{"caption": "a blue car"}', "never", '{"description": "a red car", "caption": "changed"}')
    assert asked("cirevl", model) == {"caption": "a blue car", "description": "a red car"}
    assert [len(messages) for messages in model.asked] == [1, 1, 3]


def captions(count: int, key: str = "caption") -> list[str]:
    return [json.dumps({key: f"{key} {number}"}) for number in range(count)]


def test_captions_are_drawn_one_by_one_where_the_server_gives_one() -> None:
    model = Scripted(*captions(15), *captions(15, "edited"))
    answer = answered("ldre", model)
    assert answer.payload["captions"] == [f"caption {number}" for number in range(15)]
    assert answer.payload["edited"] == [f"edited {number}" for number in range(15)]
    assert len(model.asked) == 30  # each caption is edited by a request of its own, as the authors' code does
    assert "described as: caption 3" in model.asked[18][0]["content"]
    assert "caption 4" not in model.asked[18][0]["content"]
    assert model.sampled_captions[0] == Draw(0.7, 15)
    assert model.sampled_captions[14] == Draw(0.7, 1)
    assert model.sampled_captions[15] == Draw(0.0, 1)  # editing is no matter of chance
    assert answer.notes == ()
    assert answer.details == {"temperature": 0.7, "drawn": 15, "tries": 30}


def test_too_few_draws_are_filled_up_and_marked() -> None:
    answer = answered("stitch", Scripted(*captions(3, "description"), "no", "never"))
    assert answer.payload["descriptions"] == [f"description {number % 3}" for number in range(5)]
    assert answer.notes == ("3 of 5 descriptions were drawn: the first ones are repeated",)
    assert answer.details["filled"]


def test_a_prompt_of_ones_own_is_asked_as_it_stands(tmp_path: Path) -> None:
    """Here all captions are edited by one request, and too few edited ones are said to the model."""
    file = tmp_path / "theirs.md"
    file.write_text('# draw 15 captions at 0.7\nSay it. {"caption": "..."}\n# call without picture\n'
                    'Edit {answers} so: {edit} {"edited": ["...", ...]}')  # fmt: skip
    prompt = load_kind("ldre", file)
    assert prompt.version == "file:theirs.md"
    assert prompt.steps[0].text == 'Say it. {"caption": "..."}'
    short = json.dumps({"edited": [f"edited {number}" for number in range(14)]})
    model = Scripted(*captions(15), short, short)
    with refused("factorizer_unavailable", "15 captions", "14 edited", kind=NoAnswer):
        answered("ldre", model, prompt=file)
    assert "15 captions but 14 edited ones" in model.asked[16][-1]["content"]


def test_a_prompt_that_cannot_make_the_record_is_refused(tmp_path: Path) -> None:
    for text, fact in (("nothing", "# call"), ('# call\n{"caption": "..."}', "description")):
        (tmp_path / "p.md").write_text(text)
        with refused("bad_prompt", fact):
            load_kind("cirevl", tmp_path / "p.md")
    with refused("bad_prompt", "none.md"):
        load_kind("cirevl", tmp_path / "none.md")


@pytest.mark.parametrize("kind", sorted(kind for kind, schema in schemas().items() if schema.prompt))
def test_every_prompt_has_the_rules_the_examples_and_a_schema(kind: str) -> None:
    """Equal care: what TAPR's own prompt shows is shown to every system, in its own terms."""
    prompt = load_kind(kind)
    assert prompt.version == f"{kind}_v2"
    assert len(examples()) == 7
    for step in prompt.steps:
        assert "Absolute words only" in step.text
        answers = [json.loads(line) for line in step.text.splitlines() if line.startswith('{"') and "..." not in line]
        assert len(answers) == 7
        schema = step.form.schema
        assert all(answer.keys() == set(schema["required"]) for answer in answers)


def test_answers_that_stay_wrong_are_a_failure() -> None:
    with refused("factorizer_unavailable", "soft", "2 answers", "no JSON object", kind=NoAnswer):
        asked("soft", Scripted("no", "never"))


def test_unknown_kinds_are_refused() -> None:
    with refused("unknown_name", "'clip'"):
        load_kind("clip")


def make_records(kind: str, queries: list[BatchQuery], settings: LLMSettings, out: Path) -> BatchReport:
    asker = Asker(load_kind(kind), settings)
    return record_batch(queries, kind, asker.session(), asker.maker, out, picture_only, concurrency=1)


def counts(report: BatchReport) -> tuple[int, int]:
    return report.made, len(report.failures)


def test_a_batch_is_asked_once_and_resumed(tmp_path: Path) -> None:
    pytest.importorskip("httpx", reason="asking a server needs the extra `llm`")
    (picture,) = write_flags(tmp_path, [("red", "blue")])
    queries = [BatchQuery("1", picture, "in green"), BatchQuery("2", picture, "in white")]
    out = tmp_path / "records.jsonl"
    with ScriptedServer(says('{"description": "a green flag"}'), says("I would rather not")) as server:
        settings = LLMSettings(base_url=server.url, model="m", tries=1, concurrency=1, retries=0)
        assert counts(make_records("sdr-cir", queries, settings, out)) == (1, 1)
    with ScriptedServer(says('{"description": "a white flag"}')) as server:
        settings = LLMSettings(base_url=server.url, model="m", tries=1)
        assert counts(make_records("sdr-cir", queries, settings, out)) == (1, 0)
        assert len(server.requests) == 1
    asked_again = [Question("1", "red", "in green"), Question("2", "red", "in white")]
    records = RecordSet.from_files([out], asked_again, {"red": sha256_of(picture.read_bytes())})
    assert records.get(SdrRecord, "1").description == "a green flag"
    assert records.get(SdrRecord, "2").description == "a white flag"


def test_records_of_another_question_under_the_same_id_are_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("httpx", reason="asking a server needs the extra `llm`")
    first, second = write_flags(tmp_path, [("red", "blue"), ("green", "blue")])
    out = tmp_path / "records.jsonl"
    answers = [says(json.dumps({"description": f"flag {number}"})) for number in range(3)]
    with ScriptedServer(*answers) as server:
        settings = LLMSettings(base_url=server.url, model="m", tries=1, concurrency=1)
        for picture, edit in ((first, "in green"), (first, "in white"), (second, "in green")):
            query = BatchQuery("0", picture, edit)
            assert counts(make_records("sdr-cir", [query], settings, out)) == (1, 0)
            assert counts(make_records("sdr-cir", [query], settings, out)) == (0, 0)
    asked_again = [Question("0", "first", "in white")]
    records = RecordSet.from_files([out], asked_again, {"first": sha256_of(first.read_bytes())})
    assert records.get(SdrRecord, "0").description == "flag 1"
    assert "2 of 3 records answer no query of this run" in records.notes[0]
