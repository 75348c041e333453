from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tapr.errors import BadInput
from tapr.factorize.batch import BatchQuery
from tapr.factorize.failures import NoSpec
from tapr.factorize.settings import LLMSettings
from tapr.images import sha256_of
from tapr.methods import RecordSet
from tapr.methods.ask import RecordPrompt, ask_record, make_records
from tapr.methods.kinds import schemas
from tapr.methods.sdr_cir import SdrRecord
from tests.factorize.scripted_server import ScriptedServer, says
from tests.methods.small import Question
from tests.pictures import write_flags


class Scripted:
    """Answers in turn and remembers what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[list[dict[str, Any]]]()

    async def __call__(self, messages: list[dict[str, Any]]) -> str:
        self.asked.append(messages)
        return self.answers.pop(0)


def asked(kind: str, model: Scripted, tries: int = 2) -> dict[str, Any]:
    return asyncio.run(ask_record(RecordPrompt.load(kind), "make it red", "data:picture", model, tries))


@pytest.mark.parametrize("kind", sorted(schemas()))
def test_every_kind_has_a_prompt_that_names_its_fields_and_the_edit(kind: str) -> None:
    prompt = RecordPrompt.load(kind)
    text = " ".join(call for call, _ in prompt.calls)
    assert "{edit}" in text
    for name in schemas()[kind].model_fields:
        assert f'"{name}"' in text
    assert prompt.calls[0][1]  # the first call sees the picture


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


def test_answers_that_stay_wrong_are_a_failure() -> None:
    with pytest.raises(NoSpec, match="no valid soft record in 2 tries: the answer holds no JSON object"):
        asked("soft", Scripted("no", "never"))


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(BadInput, match="no prompt for 'clip'"):
        RecordPrompt.load("clip")


def test_a_batch_is_asked_once_and_resumed(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="asking a server needs the extra `llm`")
    (picture,) = write_flags(tmp_path, [("red", "blue")])
    queries = [BatchQuery("1", picture, "in green"), BatchQuery("2", picture, "in white")]
    out = tmp_path / "records.jsonl"
    with ScriptedServer(says('{"description": "a green flag"}'), says("I would rather not")) as server:
        settings = LLMSettings(base_url=server.url, model="m", tries=1, concurrency=1, retries=0)
        assert make_records("sdr-cir", queries, settings, out) == (1, 1)
    with ScriptedServer(says('{"description": "a white flag"}')) as server:
        settings = LLMSettings(base_url=server.url, model="m", tries=1)
        assert make_records("sdr-cir", queries, settings, out) == (1, 0)
        assert len(server.requests) == 1
    asked_again = [Question("1", "red", "in green"), Question("2", "red", "in white")]
    records = RecordSet.from_file(out, asked_again, {"red": sha256_of(picture.read_bytes())})
    assert records.get(SdrRecord, "1").description == "a green flag"
    assert records.get(SdrRecord, "2").description == "a white flag"


def test_records_of_another_question_under_the_same_id_are_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="asking a server needs the extra `llm`")
    first, second = write_flags(tmp_path, [("red", "blue"), ("green", "blue")])
    out = tmp_path / "records.jsonl"
    answers = [says(json.dumps({"description": f"flag {number}"})) for number in range(3)]
    with ScriptedServer(*answers) as server:
        settings = LLMSettings(base_url=server.url, model="m", tries=1, concurrency=1)
        for picture, edit in ((first, "in green"), (first, "in white"), (second, "in green")):
            query = BatchQuery("0", picture, edit)
            assert make_records("sdr-cir", [query], settings, out) == (1, 0)
            assert make_records("sdr-cir", [query], settings, out) == (0, 0)
    asked_again = [Question("0", "first", "in white")]
    records = RecordSet.from_file(out, asked_again, {"first": sha256_of(first.read_bytes())})
    assert records.get(SdrRecord, "0").description == "flag 1"
    assert "2 of 3 records answer no query of this run" in records.notes[0]
