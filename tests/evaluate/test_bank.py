from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tapr.errors import BadInput
from tapr.evaluate.bank import check_bank, find_rows, open_bank
from tapr.evaluate.datasets import load_dataset
from tapr.evaluate.datasets.base import Dataset
from tapr.evaluate.session import default_bank
from tapr.gallery import Gallery
from tests.evaluate import made_up
from tests.evaluate.scenes import random_scene
from tests.pictures import SOME_FLAGS, write_flags


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    paths = write_flags(tmp_path / "p", SOME_FLAGS)
    return replace(random_scene().dataset, pictures={f"picture {i}": path for i, path in enumerate(paths)})


def test_a_bank_is_built_once_and_then_opened(dataset: Dataset, tmp_path: Path) -> None:
    built = open_bank(dataset, tmp_path / "bank", encoder="fake")
    assert sorted(built.ids()) == sorted(dataset.pictures)
    assert find_rows(dataset, open_bank(dataset, tmp_path / "bank")).row_of == find_rows(dataset, built).row_of


def test_a_bank_that_a_stopped_run_left_incomplete_is_completed(dataset: Dataset, tmp_path: Path) -> None:
    some = replace(dataset, pictures=dict(list(dataset.pictures.items())[:4]))
    assert len(open_bank(some, tmp_path / "bank", encoder="fake")) == 4
    assert len(open_bank(dataset, tmp_path / "bank", encoder="fake")) == 10


def test_a_gallery_of_your_own_is_never_changed(dataset: Dataset, tmp_path: Path) -> None:
    Gallery.build(tmp_path / "mine", list(dataset.pictures.values())[:4], "fake")
    mine = open_bank(dataset, tmp_path / "mine")
    assert len(mine) == 4
    with pytest.raises(BadInput, match="lacks 6 of the benchmark's pictures"):
        check_bank(dataset, mine, allow_missing=False)


def test_unreadable_pictures_are_named_and_left_out_where_that_is_allowed(tmp_path: Path) -> None:
    dataset = load_dataset("fashioniq", made_up.fashioniq(tmp_path / "fiq"))
    broken = dataset.parts[0].queries[0].reference
    dataset.pictures[broken].write_bytes(b"not a picture")
    gallery = open_bank(dataset, tmp_path / "bank", encoder="fake")
    with pytest.raises(BadInput, match=rf"lacks 1 of .* such as {broken} \(is not a picture.*--allow-missing"):
        check_bank(dataset, gallery, allow_missing=False)
    left = check_bank(dataset, gallery, allow_missing=True)
    assert list(left.left_out) == [broken]
    assert "is not a picture" in left.left_out[broken]
    assert f"1 picture left out ({broken}: is not a picture" in left.notes[-1]
    assert broken not in find_rows(left, gallery).row_of


def test_a_gallery_that_was_indexed_through_a_link_has_the_pictures(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "p")
    gallery = Gallery.build(tmp_path / "g", tmp_path / "link", "fake")
    assert len(find_rows(check_bank(dataset, gallery, allow_missing=False), gallery).row_of) == len(dataset.pictures)


def test_relative_absolute_and_linked_data_have_one_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = made_up.fashioniq(tmp_path / "fiq")
    (tmp_path / "link").symlink_to(data)
    monkeypatch.chdir(tmp_path)
    banks = {default_bank(load_dataset("fashioniq", path), "fake", None) for path in (data, Path("fiq"), Path("link"))}
    assert len(banks) == 1


def test_a_gallery_of_another_encoder_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    Gallery.build(tmp_path / "mine", tmp_path / "p", "fake")
    with pytest.raises(BadInput, match="was made with encoder 'fake', not 'clip-b16'"):
        open_bank(dataset, tmp_path / "mine", encoder="clip-b16")
