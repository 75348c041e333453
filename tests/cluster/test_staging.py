"""Parts of an index run: whole, or as if they were not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tapr.cluster.files import LocalFiles
from tapr.cluster.index import make_part
from tapr.cluster.staging import Damaged, Part, StagedParts
from tapr.encoders.fake import FakeEncoder
from tapr.index.sources import find
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest
from tests.cluster.galleries import write_pictures


def made(folder: Path) -> Part:
    found, encoder = find([str(write_pictures(folder, 20))]), FakeEncoder()
    manifest = Manifest(
        gallery_id="staged", encoder=encoder.card.to_dict(), precision="both", shard_rows=9, snapshot=0,
        catalog=FileDigest(bytes=0, sha256=""),
    )  # fmt: skip
    return make_part(found.candidates, manifest, encoder, lambda evidence: ["said"] * len(evidence))


def test_a_staged_part_is_read_as_it_was_written(tmp_path: Path) -> None:
    part = made(tmp_path / "pictures")
    back = Part.from_bytes(part.to_bytes())
    assert back.seen == part.seen
    assert list(back.arrays) == ["global", "local", "codes", "scales", "errors"]
    assert all((back.arrays[kind] == array).all() for kind, array in part.arrays.items())
    broken = [one for one in part.seen if one.place is None]
    assert [Path(one.entry.path).name for one in broken] == ["broken.png"]
    assert {one.caption for one in part.seen if one.place is not None} == {"said"}


@pytest.mark.parametrize("place", [3, 20, 100, -1])
def test_damaged_parts_are_detected(tmp_path: Path, place: int) -> None:
    data = bytearray(made(tmp_path / "pictures").to_bytes())
    data[place] ^= 1
    with pytest.raises(Damaged):
        Part.from_bytes(bytes(data))


def test_a_damaged_part_is_made_again(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path / "parts")
    part = made(tmp_path / "pictures")
    files.write("a.part", part.to_bytes())
    files.write("b.part", b"cut")
    staged = StagedParts(files)
    assert files.names() == ["a.part"]
    first = part.seen[0].entry
    assert staged.find(first.path, first.size, first.mtime_ns) == ("a.part", 0)
    assert staged.find(first.path, first.size, first.mtime_ns + 1) is None, "the file changed"
    assert np.array_equal(staged.part("a.part").arrays["codes"], part.arrays["codes"])
