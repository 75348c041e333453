import os
from pathlib import Path

import numpy as np
import pytest

from tapr import BadInput, TaprError
from tapr.encoders.fake import FakeEncoder
from tapr.store.checksums import FileDigest
from tapr.store.layout import GrowingArray, Manifest
from tapr.utils.files import write_atomically


def a_manifest() -> Manifest:
    return Manifest(
        gallery_id="0123",
        encoder=FakeEncoder().card.to_dict(),
        precision="both",
        shard_rows=10,
        snapshot=3,
        catalog=FileDigest(bytes=3, sha256="45"),
    )


def test_a_growing_array_is_a_plain_npy_file_at_every_step(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    array = GrowingArray(path, (3,), np.dtype("<f2"), 0)
    total = 0
    for step in (1, 5, 10, 1000, 123_456):  # the header's length must not change as the count gains digits
        array.append(np.full((step, 3), step % 1000, np.float16))
        array.flush()
        total += step
        assert np.load(path).shape == (total, 3)
    array.close()
    assert np.load(path, mmap_mode="r")[-1].tolist() == [456] * 3


def test_rows_that_were_not_committed_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    array = GrowingArray(path, (2,), np.dtype("i1"), 0)
    array.append(np.arange(10, dtype=np.int8).reshape(5, 2))
    array.flush()
    array.close()
    again = GrowingArray(path, (2,), np.dtype("i1"), 3)
    again.append(np.full((1, 2), 9, np.int8))
    again.flush()
    again.close()
    assert np.load(path).tolist() == [[0, 1], [2, 3], [4, 5], [9, 9]]


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    a_manifest().write(tmp_path)
    assert Manifest.read(tmp_path) == a_manifest()
    assert set(a_manifest().kinds()) == {"global", "local", "codes", "scales", "errors"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is damaged .it is not JSON"),
        ("[]", "format version None"),
        ('{"format_version": 99}', "format version 99"),
        ('{"format_version": 6, "precision": "both"}', "format version 6"),
        ('{"format_version": 7}', "its own checksum does not hold"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(TaprError, match=reason) as caught:
        Manifest.read(tmp_path)
    assert isinstance(caught.value, BadInput) == reason.startswith("format")  # damage is nobody's bad use


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "text is not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_file_permissions_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "f", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == mode


def test_a_file_that_lost_rows_is_not_filled_up_with_zeros(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    array = GrowingArray(path, (2,), np.dtype("i1"), 0)
    array.append(np.ones((5, 2), np.int8))
    array.flush()
    array.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(TaprError, match="shorter than the 5 rows"):
        GrowingArray(path, (2,), np.dtype("i1"), 5)
    path.unlink()
    with pytest.raises(TaprError, match="shorter than the 5 rows"):
        GrowingArray(path, (2,), np.dtype("i1"), 5)
    assert not path.exists()
