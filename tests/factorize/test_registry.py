from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tapr.encoders.fake import FakeEncoder
from tapr.factorize.picture import NO_EVIDENCE
from tapr.factorize.records import Maker, Record, RecordFile
from tapr.factorize.registry import DEFAULT_FACTORIZER, FACTORIZERS, load_factorizer, maker_of, needs_encoder
from tapr.factorize.replay import CachingFactorizer, RecordsFactorizer
from tapr.factorize.settings import LLMSettings
from tapr.factorize.target_only import TargetOnlyFactorizer
from tapr.query.reference import Reference
from tapr.query.spec import MAX_ATOM_CHARACTERS, MAX_TARGET_CHARACTERS, EditSpec
from tests.refusals import refused

SETTINGS = LLMSettings(base_url="http://127.0.0.1:1/v1", model="m")


def reference() -> Reference:
    return Reference(Image.new("RGB", (4, 4)), NO_EVIDENCE, "ab" * 32)


def test_the_names_and_the_default() -> None:
    assert tuple(FACTORIZERS) == ("grounded", "openai", "records", "target-only")
    assert DEFAULT_FACTORIZER == "grounded"
    assert [name for name in FACTORIZERS if needs_encoder(name)] == ["grounded"]


def test_grounded_looks_with_the_encoder() -> None:
    pytest.importorskip("tapr.factorize.grounded")
    encoder = FakeEncoder()
    grounded = load_factorizer(encoder=encoder)
    assert grounded.name.startswith("grounded")
    assert maker_of(grounded, encoder) != maker_of(grounded, FakeEncoder(grid=(2, 2))), (
        "another encoder sees other tags"
    )


def test_openai_takes_its_settings_or_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx", reason="the llm extra is not installed")
    assert load_factorizer("openai", settings=SETTINGS).name == "openai:m"
    monkeypatch.setenv("TAPR_LLM_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("TAPR_LLM_MODEL", "from the environment")
    assert load_factorizer("openai").name == "openai:from the environment"


def test_openai_without_its_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with refused("missing_extra", "tapr-cir[llm]"):
        load_factorizer("openai", settings=SETTINGS)


def test_openai_with_records_remembers_under_prompt_and_schema(tmp_path: Path) -> None:
    pytest.importorskip("httpx", reason="the llm extra is not installed")
    path = tmp_path / "specs.jsonl"
    maker = maker_of(load_factorizer("openai", settings=SETTINGS))
    assert maker.model == "openai:m"
    assert len(maker.prompt_sha256) == 64
    blind = SETTINGS.model_copy(update={"send_image": False})
    assert maker_of(load_factorizer("openai", settings=blind)) != maker, "what was not seen is another question"
    RecordFile(path).append(Record({"target": "a cat"}, image="ab" * 32, edit="a cat", maker=maker))
    remembering = load_factorizer("openai", settings=SETTINGS, records=path)
    assert isinstance(remembering, CachingFactorizer)
    assert remembering.factorize(reference(), "a cat").spec == EditSpec("a cat"), "no server was needed"


def test_records_and_target_only(tmp_path: Path) -> None:
    path = tmp_path / "specs.jsonl"
    RecordFile(path).append(Record({"target": "a cat"}, image="ab" * 32, edit="a cat", maker=Maker("x")))
    assert isinstance(load_factorizer("records", records=path), RecordsFactorizer)
    assert isinstance(load_factorizer("target-only"), TargetOnlyFactorizer)


def test_target_only_is_flagged_and_fits_any_edit() -> None:
    answer = load_factorizer("target-only").factorize(reference(), "  make it   blue ")
    assert answer.spec == EditSpec("make it blue", add=("make it blue",))
    assert answer.details == {"fallback": False}
    assert "not factorized" in answer.notes[0]
    long = load_factorizer("target-only").factorize(reference(), "word " * 300)
    assert len(long.spec.target) <= MAX_TARGET_CHARACTERS
    assert len(long.spec.add[0]) <= MAX_ATOM_CHARACTERS
    assert long.spec.target.endswith("word")
    assert any("1499 characters" in note for note in long.notes)


@pytest.mark.parametrize(
    ("name", "options", "code", "fact"),
    [
        ("gpt", {}, "unknown_name", "'gpt'"),
        ("records", {}, "missing_option", "--records"),
        ("grounded", {}, "missing_option", "encoder"),
        ("grounded", {"on_failure": "target-only"}, "conflicting_options", "openai"),
        ("openai", {"on_failure": "guess"}, "bad_option", "'guess'"),
    ],
)
def test_what_cannot_be_loaded_is_said(name: str, options: dict[str, str], code: str, fact: str) -> None:
    with refused(code, fact):
        load_factorizer(name, **options)  # type: ignore[arg-type]


def test_the_registry_loads_no_client() -> None:
    code = "import sys, tapr.factorize.registry; sys.exit(any(m in sys.modules for m in ('openai', 'httpx', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
