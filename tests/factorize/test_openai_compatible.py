"""The openai factorizer against a server that behaves as badly as it is told."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from PIL import Image

from tapr.encoders.fake import FakeEncoder
from tapr.errors import TaprError
from tapr.factorize.event_loop import cancel_running
from tapr.factorize.failures import NoAnswer, ServerRefused, ServerUnreachable
from tapr.factorize.openai_compatible import OpenAIFactorizer
from tapr.factorize.picture import NO_EVIDENCE
from tapr.factorize.settings import LLMSettings
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tests.factorize.scripted_server import Request, ScriptedServer, Step, fails, says
from tests.refusals import refused

pytest.importorskip("httpx", reason="the llm extra is not installed")

KEY = "sk-very-secret-123"
SPEC = EditSpec("a cat on a sofa", add=("cat",), preserve=("sofa",), remove=("dog",))
GOOD = SPEC.to_json()


def settings(url: str, **values: Any) -> LLMSettings:
    defaults = {"model": "m", "api_key": KEY, "backoff": 0.01, "timeout": 20.0}
    return LLMSettings.checked({"base_url": url, **defaults, **values})


def reference(width: int = 60, height: int = 40) -> Reference:
    return Reference(Image.new("RGB", (width, height), "red"), NO_EVIDENCE, "ab" * 32)


def ask(server: ScriptedServer, edit: str = "a cat for the dog", **values: Any) -> Factorization:
    return OpenAIFactorizer(settings(server.url, **values)).factorize(reference(), edit)


def text_of(request: Request) -> str:
    """The last message, as the model reads it."""
    content = request["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def test_one_good_answer_is_the_spec_and_says_where_it_came_from() -> None:
    with ScriptedServer(says(GOOD)) as server:
        answer = ask(server, price_in=2.0, price_out=10.0)
    assert answer.spec == SPEC
    assert answer.factorizer == "openai:m"
    assert answer.notes == ()
    assert answer.details["tries"] == 1
    assert answer.details["usage"] == {"calls": 1, "tokens_in": 100, "tokens_out": 10}
    assert answer.details["cost"] == pytest.approx(100 * 2e-6 + 10 * 1e-5)
    assert len(answer.details["prompt_sha256"]) == 64


def test_the_request_asks_for_the_schema_at_temperature_0_without_thinking() -> None:
    with ScriptedServer(says(GOOD)) as server:
        ask(server)
        request = server.requests[0]
        assert server.keys == [f"Bearer {KEY}"]
    assert request["temperature"] == 0
    assert request["chat_template_kwargs"] == {"enable_thinking": False}
    form = request["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["strict"] is True
    assert form["json_schema"]["schema"]["required"] == [
        *("target", "add", "preserve", "remove", "continuity", "readings", "kind")
    ]
    assert "a cat for the dog" in text_of(request)


def test_the_picture_is_sent_small_and_as_jpeg() -> None:
    with ScriptedServer(says(GOOD)) as server:
        chosen = settings(server.url, longest_side=100, image_bytes=4096)
        noise = Image.effect_noise((640, 320), 90).convert("RGB")
        OpenAIFactorizer(chosen).factorize(Reference(noise, NO_EVIDENCE, "ab" * 32), "at night")
        url = server.requests[0]["messages"][-1]["content"][0]["image_url"]["url"]
    head, _, data = url.partition(",")
    jpeg = base64.b64decode(data)
    assert head == "data:image/jpeg;base64"
    assert len(jpeg) <= 4096
    with Image.open(io.BytesIO(jpeg)) as sent:
        assert max(sent.size) <= 100
        assert sent.size[0] == pytest.approx(2 * sent.size[1], abs=1)


def test_without_picture_the_model_is_told_so_and_the_spec_says_so() -> None:
    with ScriptedServer(says(GOOD)) as server:
        answer = ask(server, send_image=False)
        assert isinstance(server.requests[0]["messages"][-1]["content"], str)
        assert "cannot see the reference" in text_of(server.requests[0])
    assert any("did not see the picture" in note for note in answer.notes)


@pytest.mark.parametrize(
    "step",
    [
        says(f"Sure! Here it is:\n```json\n{GOOD}\n```\nAnything else?"),
        says(f"<think>maybe {{'target'}} or {{}}</think>{GOOD}"),
        says("", reasoning=GOOD),
        says(None, reasoning_content=f"I think {GOOD}"),
    ],
    ids=["prose", "thoughts", "reasoning", "reasoning_content"],
)
def test_the_answer_is_found_wherever_the_server_puts_it(step: Step) -> None:
    with ScriptedServer(step) as server:
        answer = ask(server)
    assert answer.spec == SPEC
    assert answer.details["tries"] == 1


def test_wrong_twice_then_right_with_the_errors_fed_back() -> None:
    wrong = '{"target": "a cat", "add": "cat"}', '{"target": "a cat", "add": ["cat"], "remove": ["no dog"]}'
    with ScriptedServer(says(wrong[0]), says(wrong[1]), says(GOOD)) as server:
        answer = ask(server)
        assert "add must be a list of phrases" in text_of(server.requests[1])
        assert "'no dog' of remove is negated" in text_of(server.requests[2])
        assert server.requests[2]["messages"][-2] == {"role": "assistant", "content": wrong[1]}
    assert answer.spec == SPEC
    assert answer.details["tries"] == 3
    assert answer.details["usage"]["tokens_in"] == 300


def test_a_truncated_answer_is_asked_for_again_and_says_that_it_was_cut_off() -> None:
    with ScriptedServer(says(GOOD[:30], finish="length"), says(GOOD)) as server:
        assert ask(server).spec == SPEC
        assert "cut off" in text_of(server.requests[1])


def test_three_wrong_answers_are_a_failure_that_names_the_last_reason() -> None:
    with ScriptedServer(says("I cannot help with that.")) as server, pytest.raises(NoAnswer) as failure:
        ask(server)
    assert len(server.requests) == 3
    assert str(failure.value) == "m gave no valid spec in 3 answers: the answer holds no JSON object"
    assert failure.value.details["usage"]["calls"] == 3


def test_target_only_stands_in_for_a_failure_only_when_asked_and_is_flagged() -> None:
    with ScriptedServer(says("no")) as server:
        factorizer = OpenAIFactorizer(settings(server.url), on_failure="target-only")
        answer = factorizer.factorize(reference(), "make it blue")
    assert answer.spec == EditSpec("make it blue", add=("make it blue",))
    assert answer.factorizer == "target-only"
    assert answer.details["fallback"] is True
    assert any("no valid spec in 3 answers" in note for note in answer.notes)
    assert answer.details["usage"]["calls"] == 3


@pytest.mark.parametrize(
    "trouble",
    [
        fails(500),
        fails(503),
        Step("<html>busy</html>", 502),
        Step("{", 200),
        Step({"choices": []}),
        Step("{", drop=True),
    ],
    ids=["500", "503", "html 502", "broken JSON", "no choices", "dropped connection"],
)
def test_passing_troubles_are_repeated(trouble: Step) -> None:
    with ScriptedServer(trouble, trouble, says(GOOD)) as server:
        answer = ask(server)
    assert answer.spec == SPEC
    assert answer.details["usage"]["calls"] == 3


def test_what_does_not_pass_is_a_failure_that_says_how_often_it_was_tried() -> None:
    with ScriptedServer(fails(500, "out of memory")) as server, pytest.raises(NoAnswer) as failure:
        ask(server, retries=2)
    assert len(server.requests) == 3
    assert str(failure.value) == f"the server at {server.url} answered 500 (out of memory) (tried 3 times)"


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_honoured_as_the_server_wrote_it(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    really_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds < 1:  # a server of another test, in a thread of this process
            await really_sleep(seconds)
        else:
            waits.append(seconds)

    monkeypatch.setattr("tapr.factorize.chat.asyncio.sleep", sleep)
    later = "7" if form == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=8), usegmt=True)
    with ScriptedServer(fails(429, headers={"Retry-After": later}), says(GOOD)) as server:
        assert ask(server).spec == SPEC
    assert len(waits) == 1
    assert 0 <= waits[0] <= 8
    assert form == "date" or waits == [7.0]


def test_without_retry_after_the_waits_grow() -> None:
    with ScriptedServer(says(GOOD)) as server:
        from tapr.factorize.chat import Chat

        chat = Chat(settings(server.url, backoff=1.0, max_wait=5.0))
        pauses = [[chat._pause(failures, None) for _ in range(50)] for failures in (1, 2, 3, 9)]
    assert all(0.5 * top <= pause <= top for top, many in zip((1, 2, 4, 5), pauses, strict=True) for pause in many)
    assert len(set(pauses[0])) > 1, "jitter"


def test_a_server_that_asks_to_wait_for_an_hour_is_a_failure() -> None:
    with ScriptedServer(fails(429, headers={"Retry-After": "3600"})) as server:
        with refused("factorizer_unavailable", "3600 s", "TAPR_LLM_MAX_WAIT", "60 s", kind=NoAnswer):
            ask(server)
        assert len(server.requests) == 1


@pytest.mark.parametrize("step", [Step("", trickle=True), Step('{"id":', trickle=True)], ids=["silent", "trickle"])
def test_the_timeout_is_for_the_whole_answer(step: Step) -> None:
    with ScriptedServer(step, says(GOOD)) as server:
        assert ask(server, timeout=0.4).spec == SPEC
    with ScriptedServer(step) as server, refused("factorizer_unavailable", "0.2 s", "once", kind=NoAnswer):
        ask(server, timeout=0.2, retries=0)


def test_nobody_at_the_address_is_said_with_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://user:{KEY}@127.0.0.1:{free.getsockname()[1]}/v1"
    with refused("factorizer_unavailable", "http://127.0.0.1:", kind=ServerUnreachable):
        OpenAIFactorizer(settings(url, retries=1)).factorize(reference(), "at night")


def test_a_server_that_refuses_json_schema_gets_the_other_ways_one_by_one() -> None:
    def script(request: Request) -> Step:
        if "response_format" in request:
            return fails(400, "response_format.type json_schema is not supported")
        if "structured_outputs" in request:
            return fails(400, "Extra inputs are not permitted: structured_outputs")
        return says(GOOD)

    with ScriptedServer(script=script) as server:
        factorizer = OpenAIFactorizer(settings(server.url))
        first = factorizer.factorize(reference(), "at night")
        second = factorizer.factorize(reference(), "by day")
        assert "guided_json" in server.requests[2]
        assert len(server.requests) == 4, "the second query starts where the first ended"
    for answer in (first, second):
        assert answer.details["answer_form"] == "guided_json"
        assert answer.notes == ("the server refuses response_format json_schema: guided_json was sent instead",)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("chat_template_kwargs", "Unrecognized request argument supplied: chat_template_kwargs"),
        ("chat_template_kwargs", "bad request"),
        ("temperature", "Unsupported value: 'temperature' does not support 0 with this model"),
        ("max_tokens", "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
    ],
)
def test_a_refused_part_is_left_out(part: str, message: str) -> None:
    with ScriptedServer(script=lambda request: fails(400, message) if part in request else says(GOOD)) as server:
        answer = ask(server)
        assert len(server.requests) == 2
    assert answer.details["answer_form"] == "json_schema"
    assert part == "max_tokens" or any(part in note for note in answer.notes)


def test_a_server_that_refuses_everything_is_a_failure_with_its_own_words() -> None:
    with (
        ScriptedServer(fails(400, "bad request")) as server,
        refused("factorizer_unavailable", "bad request", kind=NoAnswer),
    ):
        ask(server)
    with ScriptedServer(fails(400, "maximum context length is 4096 tokens")) as server:
        with refused("factorizer_unavailable", "context length", kind=NoAnswer):
            ask(server)
        assert len(server.requests) == 1, "no form of the question makes it shorter"


@pytest.mark.parametrize(
    ("step", "fact"),
    [
        (fails(401, f"Incorrect API key provided: {KEY}"), "TAPR_LLM_API_KEY"),
        (fails(404, "The model `m` does not exist"), "TAPR_LLM_MODEL"),
        (fails(429, "You exceeded your quota", code="insufficient_quota"), "nothing left to spend"),
        (fails(500, "image input is not supported - hint: provide the mmproj"), "TAPR_LLM_SEND_IMAGE=false"),
        (fails(400, "m is not a multimodal model"), "TAPR_LLM_SEND_IMAGE=false"),
        (fails(400, "This model does not support image input"), "TAPR_LLM_SEND_IMAGE=false"),
    ],
)
def test_wrong_settings_are_the_users_to_mend_and_not_repeated(step: Step, fact: str) -> None:
    with ScriptedServer(step) as server, refused("factorizer_unavailable", fact, kind=ServerRefused):
        OpenAIFactorizer(settings(server.url), on_failure="target-only").factorize(reference(), "at night")
    assert len(server.requests) == 1


def test_the_key_is_nowhere_to_be_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ScriptedServer(fails(401, f"Incorrect API key provided: {KEY}"), says(f"{KEY} {GOOD}")) as server:
        chosen = settings(server.url)
        factorizer = OpenAIFactorizer(chosen)
        with pytest.raises(TaprError) as failure:
            factorizer.factorize(reference(), "at night")
        answer = factorizer.factorize(reference(), "at night")
        assert all(key.endswith(KEY) for key in server.keys)
    seen = [str(failure.value), repr(failure.value), repr(chosen), str(chosen), repr(vars(factorizer))]
    seen += [repr(answer), chosen.model_dump_json(), json.dumps(dict(answer.details)), caplog.text]
    assert failure.value.__cause__ is None
    for text in seen:
        assert KEY not in text


def test_a_key_in_the_model_s_own_words_reaches_no_spec_and_no_record() -> None:
    repeated = EditSpec(f"a cat named {KEY}", add=(f"see http://me:{KEY}@host/?token={KEY}",)).to_json()
    with ScriptedServer(says(repeated)) as server:
        answer = OpenAIFactorizer(settings(server.url)).factorize(reference(), "at night")
    assert answer.spec.target == "a cat named ***"
    assert answer.spec.add == ("see http://***@host/?token=***",)
    assert KEY not in repr(answer)


def test_target_is_held_to_what_the_text_tower_reads() -> None:
    long = EditSpec("a cat " + "in a house " * 30, add=("cat",)).to_json()
    with ScriptedServer(says(long), says(GOOD)) as server:
        answer = OpenAIFactorizer(settings(server.url), encoder=FakeEncoder()).factorize(reference(), "a cat")
        assert "its end is not read" in text_of(server.requests[1])
    assert answer.spec == SPEC
    with ScriptedServer(says(long), says(GOOD)) as server:
        assert ask(server).details["tries"] == 2
        assert "92 words and signs" in text_of(server.requests[1])


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def test_a_flood_is_read_up_to_the_limit_of_bytes() -> None:
    with ScriptedServer(Step("{" * 65_536, flood=True)) as server:
        with refused("answer_too_long", "20,000 bytes"):
            ask(server, answer_bytes=20_000)
        assert len(server.requests) == 1, "the next answer would be as long"


@pytest.mark.parametrize("used", ["many", [1, 2], {"prompt_tokens": "many", "completion_tokens": [1]}, 7, None])
def test_an_answer_counts_whatever_is_said_of_its_tokens(used: Any) -> None:
    answer = {**says(GOOD).body, "usage": used}
    with ScriptedServer(Step(answer)) as server:
        made = ask(server)
    assert made.spec == SPEC
    assert made.details["usage"] == {"calls": 1, "tokens_in": 0, "tokens_out": 0}


@pytest.mark.parametrize(
    "body",
    [nested(100_000), nested(500), '{"choices": {"0": 1}}', '{"choices": [1]}', '{"choices": "abc"}', "[[]]", "7", ""],
)
@pytest.mark.parametrize("status", [200, 400, 500])
def test_what_is_no_completion_is_one_sentence(body: str, status: int) -> None:
    with ScriptedServer(Step(body, status)) as server, refused("factorizer_unavailable"):
        ask(server, retries=0)


def test_a_compressed_answer_is_not_unpacked() -> None:
    """Few bytes can be many: nothing compressed is asked for."""
    step = Step(GOOD, headers={"Content-Encoding": "gzip"})
    with ScriptedServer(step) as server, refused("factorizer_unavailable", "no chat completion"):
        ask(server, retries=0)


@pytest.mark.parametrize("key", ["sk-\nX-Other: 1", "sk-\u00fc"])
def test_a_key_that_fits_no_header_is_refused_and_not_shown(key: str) -> None:
    with refused("bad_setting", "TAPR_LLM_API_KEY") as caught:
        settings("http://127.0.0.1:1/v1", api_key=key)
    assert key not in str(caught.value)


def test_a_program_that_ends_breaks_its_questions_off() -> None:
    with ScriptedServer(Step("", trickle=True)) as server, ThreadPoolExecutor(1) as pool:
        question = pool.submit(ask, server, timeout=600.0)
        while not server.requests:
            time.sleep(0.01)
        cancel_running()
        with refused("unavailable"):
            question.result()


def test_cancelling_ends_the_request_at_once() -> None:
    async def give_up(factorizer: OpenAIFactorizer) -> None:
        async with factorizer.session() as question:
            task = asyncio.ensure_future(question(reference(), "at night"))
            while not server.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with ScriptedServer(Step("", trickle=True)) as server:
        asyncio.run(give_up(OpenAIFactorizer(settings(server.url, timeout=600.0))))
        assert len(server.requests) == 1


def test_it_also_works_inside_a_running_event_loop() -> None:
    async def notebook() -> Factorization:
        return ask(server)

    with ScriptedServer(says(GOOD)) as server:
        assert asyncio.run(notebook()).spec == SPEC


def test_an_empty_edit_is_refused_before_anything_is_sent() -> None:
    with ScriptedServer(says(GOOD)) as server:
        with refused("empty_edit"):
            ask(server, edit="  ")
        assert server.requests == []
