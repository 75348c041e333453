"""The local factorizer around its model, for which scripted answers stand in: test_local_model.py asks real ones."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tapr.demo import queries
from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.factorize import local
from tapr.factorize.base import Factorizer
from tapr.factorize.failures import NoSpec
from tapr.factorize.local import LocalFactorizer, LocalPrompt, Message, read
from tapr.factorize.registry import load_factorizer, maker_of
from tapr.factorize.replay import CachingFactorizer
from tapr.factorize.seeing import Seen
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tests.factorize.caption_pairs import PAIRS

BLUE = {"target": "a blue car on a street", "add": ["blue car"], "remove": ["red car"]}
BLUE_SPEC = EditSpec("a blue car on a street", ["blue car"], ["car", "street"], ["red car"])


class Scripted:
    """Says one answer after the other, and keeps what it was asked."""

    def __init__(self, *answers: dict[str, Any] | str) -> None:
        self._answers = iter(answers)
        self.asked: list[list[Message]] = []

    def __call__(self, messages: list[Message]) -> str:
        self.asked.append(messages)
        answer = next(self._answers)
        return answer if isinstance(answer, str) else json.dumps(answer)


class SeesTheSame:
    """Every picture shows the same."""

    def __init__(self, sure: bool = True) -> None:
        self._sure = sure

    def see(self, pictures: np.ndarray) -> list[Seen]:
        return [Seen("a red car on a street", 0.7, self._sure)] * len(pictures)


@pytest.fixture
def captions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "seer_of", lambda encoder: SeesTheSame())


def reference() -> Reference:
    evidence = FakeEncoder().encode_images([FakeEncoder().prepare(Image.new("RGB", (40, 40)))])
    return Reference(Image.new("RGB", (40, 40)), evidence, "ab" * 32)


@pytest.mark.usefixtures("captions")
def test_the_caption_and_the_edit_are_asked_about() -> None:
    model = Scripted(BLUE)
    factorizer: Factorizer = LocalFactorizer(FakeEncoder(), model)
    made = factorizer.factorize(reference(), "  make it\n blue ")
    assert made.spec == BLUE_SPEC
    assert made.factorizer == factorizer.name == "local:qwen2.5-coder-1.5b"
    assert made.details == {
        "caption": {"text": "a red car on a street", "score": 0.7, "sure": True},
        "prompt": "local_v1",
        "tries": 1,
    }
    assert model.asked[0][0]["role"] == "system"
    assert model.asked[0][-1] == {"role": "user", "content": "Caption: a red car on a street\nEdit: make it blue"}


@pytest.mark.usefixtures("captions")
def test_an_edit_may_hold_the_prompt_s_own_signs() -> None:
    model = Scripted(BLUE)
    LocalFactorizer(FakeEncoder(), model).factorize(reference(), "say {caption} and {edit}")
    assert model.asked[0][-1]["content"] == "Caption: a red car on a street\nEdit: say {caption} and {edit}"


@pytest.mark.usefixtures("captions")
def test_a_wrong_answer_is_asked_again_with_the_reason() -> None:
    model = Scripted({**BLUE, "remove": ["no red car"]}, BLUE)
    made = LocalFactorizer(FakeEncoder(), model).factorize(reference(), "make it blue")
    assert made.spec == BLUE_SPEC
    assert made.details["tries"] == 2
    assert model.asked[1][:-1] == model.asked[0][:-1]
    assert model.asked[1][-1]["content"].startswith(model.asked[0][-1]["content"])
    assert "'no red car' of remove is negated" in model.asked[1][-1]["content"]


@pytest.mark.usefixtures("captions")
def test_after_two_wrong_answers_it_fails_with_one_sentence() -> None:
    model = Scripted({**BLUE, "add": ["more cars"]}, '{"target": "a blue car')
    with pytest.raises(NoSpec, match="no valid spec in 2 answers: the answer is cut off") as caught:
        LocalFactorizer(FakeEncoder(), model).factorize(reference(), "make it blue")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("captions")
def test_what_is_no_edit_is_not_asked() -> None:
    with pytest.raises(BadInput, match="the edit has no words"):
        LocalFactorizer(FakeEncoder(), Scripted()).factorize(reference(), " ... ")


def test_a_caption_that_is_unsure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "seer_of", lambda encoder: SeesTheSame(sure=False))
    made = LocalFactorizer(FakeEncoder(), Scripted(BLUE)).factorize(reference(), "make it blue")
    assert '"a red car on a street" is unsure' in made.notes[0]


def test_an_atom_is_in_one_factor() -> None:
    answer = {"target": "a cat on a sofa", "add": ["cat", "Cat", "sofa"], "remove": ["dog", "cat ", " "]}
    assert read(json.dumps(answer), "a dog on a sofa") == EditSpec("a cat on a sofa", ["cat", "sofa"], [], ["dog"])


def test_the_lists_agree_with_target() -> None:
    answer = {"target": "a man in a red shirt and jeans", "add": ["red shirt"], "remove": ["black shirt", "Jeans"]}
    made = read(json.dumps(answer), "a man in a black shirt and jeans near a fountain")
    assert made.remove == ("black shirt",), "jeans are still there"
    assert made.preserve == ("man", "shirt", "jeans"), "the fountain is not"


@pytest.mark.parametrize(
    ("caption", "answer", "continuity"),
    [
        ("an emoji of violin", {"target": "an emoji of drum", "add": ["drum"], "remove": ["violin"]}, 0.0),
        ("a violin on a chair", {"target": "a drum on a chair", "add": ["drum"], "remove": ["violin"]}, None),
        ("an emoji of red violin", {"target": "an emoji of red drum", "add": ["drum"], "remove": ["violin"]}, None),
        ("a violin", {"target": "a drum", "add": ["drum"], "remove": []}, None),
    ],
)
def test_nothing_stays_where_the_whole_is_replaced(
    caption: str, answer: dict[str, Any], continuity: float | None
) -> None:
    assert read(json.dumps(answer), caption).continuity == continuity


def test_an_encoder_without_a_captioner_is_refused() -> None:
    with pytest.raises(BadInput, match="fake has no captioner"):
        LocalFactorizer(FakeEncoder(), Scripted())


@pytest.mark.usefixtures("captions")
def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_HOME", str(tmp_path))
    found = importlib.util.find_spec

    def installed(name: str, package: str | None = None) -> Any:
        return "here" if name == "xllamacpp" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", installed)
    with pytest.raises(BadInput, match=r"\(1\.1 GB\) is not here: run `tapr models pull local`$"):
        load_factorizer("local", encoder=FakeEncoder())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    with pytest.raises(BadInput, match=r"xllamacpp: pip install 'tapr-cir\[local\]'$"):
        load_factorizer("local", encoder=FakeEncoder())


@pytest.mark.usefixtures("captions")
def test_records_remember_its_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, model = FakeEncoder(), Scripted(BLUE)
    factorizer = LocalFactorizer(encoder, model)
    maker = maker_of(factorizer, encoder)
    assert maker.model.startswith("local:qwen2.5-coder-1.5b:cc324af070c2@fake:")
    assert (len(maker.prompt_sha256), len(maker.schema_sha256)) == (64, 64)
    monkeypatch.setattr(local, "GRAMMAR", "another")
    assert factorizer.maker != maker
    first = CachingFactorizer(factorizer, tmp_path / "specs.jsonl", maker)
    assert first.factorize(reference(), "make it blue").spec == BLUE_SPEC
    again = CachingFactorizer(factorizer, tmp_path / "specs.jsonl", maker)
    assert again.factorize(reference(), "make it  blue").spec == BLUE_SPEC
    assert len(model.asked) == 1


def test_the_prompt_s_examples_are_valid_and_of_no_set() -> None:
    data = Path(local.__file__).with_name("prompts").joinpath(f"{local.PROMPT}.json").read_text()
    examples = json.loads(data)["examples"]
    captions, edits = ({row[key] for row in PAIRS} for key in ("caption", "edit"))
    edits |= {query.edit for query in queries()}
    for example in examples:
        spec = read(json.dumps(example["answer"]), example["caption"]).to_dict()
        assert {key: spec[key] for key in example["answer"]} == example["answer"]
        assert example["caption"] not in captions
        assert example["edit"] not in edits
    assert len(LocalPrompt(local.PROMPT).messages("a", "b")) == 2 + 2 * len(examples)
