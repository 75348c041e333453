from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tapr.errors import BadInput
from tapr.evaluate.bank import check_bank, find_rows, open_bank
from tapr.evaluate.datasets.base import Dataset
from tapr.gallery import Gallery
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
