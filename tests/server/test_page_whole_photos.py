"""The page on the whole of ../shared/data/photos, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.browsing import PHONE
from tests.server.conftest import serving
from tests.server.whole_gallery import Whole, whole_photos
from tests.server.whole_page import WholePage


@pytest.fixture(scope="module")
def whole(browser: object, image_tower_file: object, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def address(whole: Whole) -> Iterator[str]:
    with serving(whole.gallery, None) as address:
        yield address


class TestThePhotos(WholePage):
    SCREEN = (PHONE, "light")
