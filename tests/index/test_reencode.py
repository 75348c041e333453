"""tapr index --reencode: all vectors anew, everything else as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tapr.encoders.arithmetic import FLOAT32, ROWS, STORED
from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.index.reencode import run_reencode
from tapr.store.lock import writer_lock
from tapr.store.verify import verify
from tapr.utils.progress import NoProgress
from tests.pictures import SOME_FLAGS, write_flags


class Mirrored(FakeEncoder):
    """The fake encoder in another arithmetic: the same vectors, backwards."""

    def __init__(self, arithmetic: str = ROWS) -> None:
        super().__init__()
        self.card = replace(self.card, arithmetic=arithmetic)

    def encode_images(self, prepared):  # type: ignore[no-untyped-def]
        found = super().encode_images(prepared)
        return type(found)(found.global_vectors[:, ::-1].copy(), found.local_vectors[..., ::-1].copy())


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    write_flags(tmp_path / "flags", SOME_FLAGS)
    return Gallery.build(tmp_path / "bank", tmp_path / "flags", encoder=FakeEncoder())


def vectors(gallery: Gallery) -> dict[str, bytes]:
    block = gallery.gather(gallery.rows)
    return {id_: block.global_vectors[i].tobytes() for i, id_ in enumerate(gallery.ids())}


def reencode(gallery: Gallery, encoder: FakeEncoder) -> tuple[int, list[str]]:
    with writer_lock(gallery.path):
        done = run_reencode(gallery.path, encoder, NoProgress())
    return done.encoded, [Path(path).name for path, _ in done.lost]


def test_all_vectors_are_new_and_ids_stay(gallery: Gallery) -> None:
    before, ids = vectors(gallery), gallery.ids()
    assert gallery.card.arithmetic == STORED
    assert reencode(gallery, Mirrored()) == (len(ids), [])
    after = Gallery.open(gallery.path, encoder=Mirrored(FLOAT32))
    assert (after.ids(), after.card.arithmetic) == (ids, ROWS)
    for id_, old in before.items():
        new = np.frombuffer(vectors(after)[id_], np.float16)
        np.testing.assert_array_equal(new, np.frombuffer(old, np.float16)[::-1])
    assert not verify(gallery.path).damage
    with pytest.raises(BadInput, match="arithmetic"):
        Gallery.open(gallery.path, encoder=FakeEncoder())


def test_a_file_that_changed_or_went_leaves_as_a_failure(gallery: Gallery, tmp_path: Path) -> None:
    files = sorted((tmp_path / "flags").iterdir())
    files[0].unlink()
    files[1].write_bytes(files[2].read_bytes())
    encoded, lost = reencode(gallery, Mirrored())
    assert encoded == len(gallery) - 2
    assert sorted(lost) == [files[0].name, files[1].name]
    after = Gallery.open(gallery.path)
    assert len(after) == encoded
    assert {Path(entry.path).name for entry in after.failures()} == {files[0].name, files[1].name}


def test_another_encoder_is_refused(gallery: Gallery) -> None:
    with pytest.raises(BadInput, match="own encoder"):
        reencode(gallery, FakeEncoder(grid=(2, 2)))
    assert Gallery.open(gallery.path).card == gallery.card


def test_one_that_is_up_to_date_is_left_alone(gallery: Gallery) -> None:
    assert Gallery.reencode(gallery.path) is None
