"""Counts that follow puts and deletes tell the same columns as a look at all rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.store.catalog import Catalog
from tapr.store.column_statistics import GalleryStatistics, columns_of
from tapr.store.columns import Column
from tapr.store.write_operations import Content, Delete, Operation, Put
from tests.pictures import flag, png

VALUES: tuple[Any, ...] = (1, 2.5, "7", "8", "true", True, "2024-01-31", "word", "other word", None, ["a list"])


def test_counts_follow_what_comes_and_goes() -> None:
    for seed in range(60):
        dice = random.Random(seed)
        few = dice.sample(VALUES, dice.randint(1, 4))
        rows: list[dict[str, Any]] = []
        statistics, known = GalleryStatistics(), 0
        for _ in range(40):
            place = dice.randrange(len(rows)) if rows and dice.random() < 0.4 else None
            if place is not None:
                statistics.remove(rows.pop(place))
            row = {name: dice.choice(few) for name in dice.sample("abc", dice.randint(0, 3))}
            if place is not None and dice.random() < 0.5:  # in the place of another
                statistics.add(row, last=False)
                rows.insert(place, row)
            elif place is None:
                statistics.add(row)
                rows.append(row)
            found = statistics.columns({"a": "text"})
            known += found is not None
            assert found in (None, columns_of(rows, {"a": "text"}))
        assert known > 10


def test_the_last_value_takes_its_column_along() -> None:
    statistics = GalleryStatistics([{"price": 7}, {"price": None, "name": "x"}])
    statistics.remove({"price": 7})
    assert statistics.columns({}) == {"name": Column("name", "text"), "price": Column("price", "text")}
    statistics.remove({"price": None, "name": "x"})
    assert statistics.columns({}) == {}


def test_writes_after_the_first_read_no_other_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pictures").mkdir()
    flag("red").save(tmp_path / "pictures" / "red.png")
    gallery = Gallery.build(tmp_path / "bank", tmp_path / "pictures", FakeEncoder())
    content = Content.of(png(flag("blue")), gallery.encoder)

    def put(id_: str, **metadata: Any) -> Operation:
        return Put(id_, content, metadata)

    gallery.apply([put("a", price=1, name="one"), put("b", price=2)])
    scans: list[int] = []
    all_of = Catalog._metadata

    def looked(catalog: Catalog) -> Any:
        scans.append(1)
        return all_of(catalog)

    monkeypatch.setattr(Catalog, "_metadata", looked)
    gallery.apply([put("c", price=3), Delete("a")])  # the name goes, so the columns are stored anew
    assert [column.name for column in gallery.columns()] == ["price"]
    scans.clear()
    gallery.apply([put("d", price=4)])
    gallery.apply([put("c", price=5)])
    gallery.apply([Delete("b")])
    assert not scans
    assert {entry.id for entry in gallery.select("price >= 4").entries(range(2))} == {"c", "d"}
    gallery.apply([put("e", price="unknown")])
    assert gallery.columns() == [Column("price", "text", note="2 are numbers, but one is 'unknown'")]
    other = Gallery.open(gallery.path, encoder=gallery.encoder)
    other.apply([Delete("e")])  # another writer: what this one knows is old
    scans.clear()
    gallery.apply([put("f", price=6)])
    assert scans
    assert gallery.columns() == [Column("price", "number")]
    assert len(gallery.select("price >= 4")) == 3


def test_a_write_that_was_killed_leaves_nothing_that_others_take_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pictures").mkdir()
    flag("red").save(tmp_path / "pictures" / "red.png")
    gallery = Gallery.build(tmp_path / "bank", tmp_path / "pictures", FakeEncoder())
    order = Put("new", Content.of(png(flag("blue")), gallery.encoder))
    snapshot = gallery.manifest.snapshot or 0

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            gallery.apply([order])
    left = sorted(path.name for path in gallery.path.glob("*catalog*"))
    assert left == sorted([f".catalog-{snapshot + 1}.sqlite.alone", f"catalog-{snapshot}.sqlite"])
    assert len(Gallery.open(gallery.path, encoder=gallery.encoder)) == 1
    gallery.apply([order])
    assert [path.name for path in gallery.path.glob("*catalog*")] == [f"catalog-{gallery.manifest.snapshot}.sqlite"]
    assert len(gallery) == 2
