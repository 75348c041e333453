"""Which tests `make check` leaves out."""

from pathlib import Path

import pytest

from tests.conftest import HEAVY, heavy_reason

TESTS = Path(__file__).parent


@pytest.mark.parametrize("place", [place for places in HEAVY.values() for place in places])
def test_every_heavy_place_is_there(place: str) -> None:
    file, _, name = place.partition("::")
    assert f"def {name}" in (TESTS / file).read_text(encoding="utf-8")


def test_a_test_is_heavy_by_its_place_or_by_what_it_asks_for() -> None:
    assert heavy_reason("factorize/test_llama_server.py::test_anything") == "llama.cpp"
    assert (
        heavy_reason("encoders/test_registry.py::test_the_default_is_clip_b16", ["clip"]) == "the weights of clip-b16"
    )
    assert heavy_reason("test_search.py::test_ties_keep_gallery_order", ["tmp_path"]) is None
