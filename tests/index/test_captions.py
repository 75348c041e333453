"""Captions in a gallery: made while it is indexed, added later, left alone, and found by filters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tapr import BadInput, Gallery
from tapr.captions.captioner import Captioner
from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.index import captions
from tests.pictures import SOME_FLAGS, write_flags


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A drawing of a clock, twice under two names, and noise."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    clock = Image.new("RGB", (300, 300), "white")
    draw = ImageDraw.Draw(clock)
    draw.ellipse((20, 20, 280, 280), outline="black", width=8)
    draw.line((150, 150, 150, 60), fill="black", width=8)
    draw.line((150, 150, 210, 150), fill="black", width=8)
    clock.save(folder / "clock.png")
    clock.save(folder / "the same clock.png")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(folder / "noise.png")
    return folder


def captions_of(gallery: Gallery) -> dict[str, str | None]:
    return {entry.id: entry.caption for entry in gallery.entries(range(len(gallery)))}


def test_an_index_of_clip_b16_describes_its_pictures(clip: ClipOnnxEncoder, pictures: Path, tmp_path: Path) -> None:
    gallery = Gallery.build(tmp_path / "g", pictures, clip)
    found = captions_of(gallery)
    captioner = Captioner(clip)
    for name, caption in found.items():
        one = captioner.describe_vectors(captioner.look(Image.open(pictures / name).convert("RGB"))[None])[0]
        assert caption == (one.text if one.is_title else "")
    assert found["clock.png"] == found["the same clock.png"]
    assert found["noise.png"] == ""  # looked at, and not sure
    report = gallery.report
    assert report is not None
    assert report.described + report.unsure == 3
    assert report.unsure >= 1


def test_what_was_not_described_is_described_later_from_the_stored_vectors(
    clip: ClipOnnxEncoder, pictures: Path, tmp_path: Path
) -> None:
    described = captions_of(Gallery.build(tmp_path / "g", pictures, clip))
    gallery = Gallery.build(tmp_path / "later", pictures, clip, captions=False)
    assert set(captions_of(gallery).values()) == {None}
    with pytest.raises(BadInput, match="there is no column 'caption'"):
        gallery.select("caption contains 'clock'")
    (pictures / "new.png").write_bytes((pictures / "noise.png").read_bytes() + b"another file")
    gallery.sync()  # --no-captions is remembered
    assert set(captions_of(gallery).values()) == {None}
    (pictures / "noise.png").rename(pictures / "moved.png")
    report = gallery.sync(captions=True)
    assert report.encoded == 0
    found = captions_of(gallery)
    assert found["clock.png"] == described["clock.png"]
    assert found["the same clock.png"] == described["clock.png"]
    assert found["moved.png"] == described["noise.png"]
    assert None not in found.values()
    assert gallery.sync().described == report.described  # nothing left to do


def test_other_encoders_describe_from_the_files_when_asked(
    clip: ClipOnnxEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captions, "load_encoder", lambda *_, **__: clip)
    write_flags(tmp_path / "p", SOME_FLAGS[:3])
    said: list[str] = []

    class Listening:
        def say(self, sentence: str) -> None:
            said.append(sentence)

        def start(self, total: int, what: str) -> None: ...
        def advance(self, done: int) -> None: ...

    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", "fake")
    assert set(captions_of(gallery).values()) == {None}
    gone = next((tmp_path / "p").glob("*.png"))
    data = gone.read_bytes()
    gallery.sync(captions=True, progress=Listening())
    assert None not in captions_of(gallery).values()
    assert any("fake has no captioner" in sentence and "once more" in sentence for sentence in said)
    (tmp_path / "p" / "later.png").write_bytes(data + b" ")
    gallery.sync()  # the wish is remembered
    assert None not in captions_of(gallery).values()


def test_filters_look_into_captions(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS[:3])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", "fake")
    gallery.sync(describe=lambda evidence: [])  # nothing is new
    write_flags(tmp_path / "q", SOME_FLAGS[3:6])
    gallery.sync([tmp_path / "q"], describe=lambda evidence: ["a Dog on a hill"] + [""] * (len(evidence) - 1))
    assert len(gallery.select("caption contains 'dog'")) == 1
    assert len(gallery.select("caption is null")) == 3
    assert len(gallery.select("caption = ''")) == 2


def test_a_description_that_fails_fails_the_run(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS[:3])

    def fail(evidence: object) -> list[str]:
        raise RuntimeError("no words")

    Gallery.build(tmp_path / "g", tmp_path / "p", "fake")
    write_flags(tmp_path / "q", SOME_FLAGS[3:6])
    with pytest.raises(RuntimeError, match="no words"):
        Gallery.open(tmp_path / "g").sync([tmp_path / "q"], describe=fail)
    assert len(Gallery.open(tmp_path / "g")) == 3
