import json
from pathlib import Path

import pytest
from PIL import Image

from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tests.cli.terminal import run


@pytest.fixture
def pictures(clip: ClipOnnxEncoder, tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{colour}.png" for colour in ("red", "blue")]
    for path in paths:
        Image.new("RGB", (64, 64), path.stem).save(path)
    return paths


def test_each_picture_gets_a_line(pictures: list[Path]) -> None:
    done = run("describe", *pictures)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert [line.startswith(str(path)) for line, path in zip(lines, pictures, strict=True)] == [True, True]


def test_several_as_json(pictures: list[Path]) -> None:
    done = run("describe", pictures[0], "-n", "3", "--json")
    assert done.code == 0
    value = json.loads(done.out)
    assert value["failures"] == []
    (row,) = value["pictures"]
    assert row["path"] == str(pictures[0])
    assert [set(one) for one in row["descriptions"]] == [{"text", "score", "sure"}] * 3


def test_a_bad_picture_is_one_sentence_and_the_others_are_described(pictures: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("no picture")
    done = run("describe", pictures[0], tmp_path / "bad.png", tmp_path / "none.png", "--json")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert "bad.png: is not a picture" in done.err
    value = json.loads(done.out)
    assert [row["path"] for row in value["pictures"]] == [str(pictures[0])]
    assert [Path(row["path"]).name for row in value["failures"]] == ["bad.png", "none.png"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "Missing argument"),
        (("-n", "0"), "0"),
        (("-n", "51"), "from 1 to 50"),
        (("-n", "2", "--greedy"), "greedy gives one"),
    ],
)
def test_mistakes_exit_with_2_and_one_line(pictures: list[Path], arguments: tuple[str, ...], reason: str) -> None:
    done = run("describe", *(pictures[:1] if arguments else ()), *arguments)
    assert done.code == 2
    assert reason in done.err
    assert len(done.err.splitlines()) == 1
