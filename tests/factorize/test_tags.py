from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tapr.encoders.fake import COLOURS, FakeEncoder
from tapr.factorize.tags import Tagger, vocabulary
from tapr.types import Float32


class CountingEncoder(FakeEncoder):
    """Counts the phrases it is asked to encode."""

    phrases = 0

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        self.phrases += len(texts)
        return super().encode_texts(texts)


def picture(encoder: FakeEncoder, colour: tuple[int, int, int]) -> Float32:
    vectors = encoder.encode_images([encoder.prepare(Image.new("RGB", (40, 40), colour))]).global_vectors  # (1, d)
    return vectors.reshape(-1)


@pytest.mark.parametrize("colour", ["red", "green", "blue", "yellow", "black", "white", "purple"])
def test_the_colour_of_a_plain_picture_is_its_tag(colour: str, tmp_path: Path) -> None:
    encoder = FakeEncoder()
    tags = Tagger(encoder, tmp_path).tag(picture(encoder, COLOURS[colour]))
    assert tags.attributes == {"colour": colour}
    assert tags.shares[colour] > 0.7


def test_a_picture_like_nothing_in_the_vocabulary_has_no_tags(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    tags = Tagger(encoder, tmp_path).tag(np.zeros(encoder.card.dim, np.float32))
    assert (tags.subject, tags.attributes, tags.shares) == ("", {}, {})


def test_a_picture_that_is_one_of_the_things_has_it_as_subject(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    tags = Tagger(encoder, tmp_path).tag(encoder.encode_texts(["umbrella"])[0])
    assert tags.subject == "umbrella"
    assert tags.to_dict()["shares"]["umbrella"] == tags.shares["umbrella"]


def test_phrases_that_only_contrast_are_never_reported(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    assert "standing" in vocabulary().tag_groups["pose"].contrast
    tags = Tagger(encoder, tmp_path).tag(encoder.encode_texts(["standing"])[0])
    assert "pose" not in tags.attributes


def test_only_people_and_animals_have_a_pose(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    tagger = Tagger(encoder, tmp_path)
    assert tagger.tag(encoder.encode_texts(["horse running"])[0]).attributes.get("pose") == "running"
    assert "pose" not in tagger.tag(encoder.encode_texts(["teapot running"])[0]).attributes


def test_the_vocabulary_is_encoded_once_an_encoder(tmp_path: Path) -> None:
    first, again, other = CountingEncoder(), CountingEncoder(), CountingEncoder(grid=(2, 2))
    red = picture(first, COLOURS["red"])
    made = Tagger(first, tmp_path).tag(red)
    assert first.phrases == len(vocabulary().phrases)
    assert Tagger(again, tmp_path).tag(red) == made
    assert again.phrases == 0
    Tagger(other, tmp_path).tag(red)  # another card: its own file
    assert other.phrases == first.phrases
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    red = picture(encoder, COLOURS["red"])
    made = Tagger(encoder, tmp_path).tag(red)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    assert Tagger(encoder, tmp_path).tag(red) == made
    assert encoder.phrases == 2 * len(vocabulary().phrases)


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    encoder = FakeEncoder()
    assert Tagger(encoder, blocked / "tags").tag(picture(encoder, COLOURS["red"])).attributes == {"colour": "red"}


def test_tapr_home_is_where_phrase_vectors_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_HOME", str(tmp_path))
    encoder = FakeEncoder()
    Tagger(encoder).tag(picture(encoder, COLOURS["red"]))
    assert [file.suffix for file in (tmp_path / "tags").iterdir()] == [".cache"]


def test_the_vocabulary_is_sensible() -> None:
    words = vocabulary()
    assert len(words.things) == len(set(words.things))
    assert 400 <= len(words.phrases) <= 700
    assert words.family("puppy") == ("dog", "puppy")
    assert words.family("nothing we know") == ("nothing we know",)
    assert all(0.5 < contest.share < 1 for contest in words.tag_groups.values())
