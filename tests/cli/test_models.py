"""tapr models list and pull."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tapr.cli.models import models
from tapr.encoders import model_files, registry, weights
from tapr.errors import BadInput, TaprError

CONTENT = b"tower" * 100


@pytest.fixture(autouse=True)
def small_tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> weights.WeightFile:
    """clip-b16 with a weight file of 500 bytes that lies in a folder."""
    monkeypatch.setenv("TAPR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TAPR_OFFLINE", raising=False)
    source = tmp_path / "published.onnx"
    source.write_bytes(CONTENT)
    file = weights.WeightFile(
        "the image tower of clip-b16",
        "clip-b16",
        "tower.onnx",
        hashlib.sha256(CONTENT).hexdigest(),
        len(CONTENT),
        "MIT",
        (weights.FileSource(source),),
    )
    known = tuple(replace(known, files=(file,)) if known.files else known for known in registry.known_models())
    monkeypatch.setattr(registry, "known_models", lambda: known)
    return file


def run(*arguments: str) -> tuple[str, str]:
    result = CliRunner().invoke(models, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_list_shows_every_encoder() -> None:
    table, _ = run("list")
    for known in registry.known_models():
        assert known.name in table
    assert "tapr-cir[openclip]" in table


def test_list_json_says_what_is_here() -> None:
    rows = {row["name"]: row for row in json.loads(run("list", "--json")[0])["models"]}
    assert rows["clip-b16"]["present"] is False
    assert (rows["clip-b16"]["dim"], rows["clip-b16"]["locals"]) == (512, 49)
    assert "clearclip" in rows["clip-b16"]["extractors"]
    run("pull")
    rows = {row["name"]: row for row in json.loads(run("list", "--json")[0])["models"]}
    assert rows["clip-b16"]["present"] is True
    assert rows["fake"]["present"] is True
    assert rows["open_clip:ViT-L-14/laion2b_s32b_b82k"]["present"] is None


def test_list_shows_every_file_with_its_hash_and_a_second_source() -> None:
    table, _ = run("list")
    files = json.loads(run("list", "--json")[0])["files"]
    assert {"the image tower of clip-b16", "the captioner of clip-b16"} <= {file["name"] for file in files}
    for file in files:
        assert f"sha256 {file['sha256']}\n" in table
        assert f"from {file['source']}; second source: {file['second_source']}\n" in table


def test_pull_fetches_once_and_says_so_on_stderr(small_tower: weights.WeightFile) -> None:
    out, said = run("pull", "clip-b16")
    assert str(small_tower.path) in out
    assert "fetching the image tower of clip-b16" in said
    assert small_tower.path.read_bytes() == CONTENT
    assert run("pull", "clip-b16") == (out, "")


def test_pull_fetches_what_is_no_encoder_s_too(
    small_tower: weights.WeightFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = replace(small_tower, owner="local", name="a language model")
    monkeypatch.setattr(model_files, "FETCHED", (small_tower, file))
    out, said = run("pull", "local")
    assert str(file.path) in out
    assert "fetching a language model" in said
    assert file.path.read_bytes() == CONTENT


def test_pull_json(small_tower: weights.WeightFile) -> None:
    answer = json.loads(run("pull", "--json")[0])
    assert answer["name"] == "clip-b16"
    assert answer["files"][0]["path"] == str(small_tower.path)
    assert answer["files"][0]["sha256"] == small_tower.sha256


def test_pull_from_a_file(tmp_path: Path, small_tower: weights.WeightFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_OFFLINE", "1")
    given = tmp_path / "mine.onnx"
    given.write_bytes(CONTENT)
    assert "mine.onnx" in run("pull", "--from", str(given))[1]
    assert small_tower.path.read_bytes() == CONTENT


def test_pull_verify_repairs(small_tower: weights.WeightFile) -> None:
    run("pull")
    assert run("pull", "--verify")[1] == ""
    small_tower.path.write_bytes(b"x" * len(CONTENT))
    assert "is damaged" in run("pull", "--verify")[1]
    assert small_tower.path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["clip-b17"], "unknown encoder 'clip-b17'"),
        (["open_clip:ViT-L-14/laion2b_s32b_b82k"], "kept by open_clip"),
        (["fake", "--from", "x.onnx"], "fake has no weight file"),
        (["--from", "/no/such/file"], "cannot read '/no/such/file'"),
    ],
)
def test_bad_use_is_one_sentence(arguments: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        CliRunner().invoke(models, ["pull", *arguments], catch_exceptions=False)


def test_pull_offline_fails_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_OFFLINE", "1")
    with pytest.raises(TaprError, match="--from FILE"):
        CliRunner().invoke(models, ["pull"], catch_exceptions=False)


def test_fake_needs_no_weights() -> None:
    assert run("pull", "fake")[0] == "fake needs no weights\n"
