"""The page on the whole of the demo's gallery, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.server.browsing import LAPTOP, changed_from, chips, close, expect, fine_tune, names, until
from tests.server.conftest import serving
from tests.server.whole_gallery import Whole, whole_demo
from tests.server.whole_page import WholePage, ask


@pytest.fixture(scope="module")
def whole(browser: object, image_tower_file: object, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole_demo(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def address(whole: Whole) -> Iterator[str]:
    with serving(whole.gallery, None) as address:
        yield address


class TestTheDemo(WholePage):
    SCREEN = (LAPTOP, "dark")

    def test_a_red_book_becomes_green_and_a_mind_is_changed(self, page: Any, whole: Whole) -> None:
        ask(page, replace(whole, reference="red book", edit="make it green"), apart="1")
        assert names(page)[0] == "green book"
        (added,) = chips(page, "add")
        assert "green" in added
        page.locator(".facts summary").click()
        expect(page.locator("#facts")).to_contain_text("encoder clip-b16 (clearclip) · factorizer grounded/3 · kernel")

        page.locator(".hit .frame").first.click()  # why?
        viewer = page.get_by_role("dialog")
        viewer.get_by_role("radio", name=f"Add: {added}").check()
        until(page, "() => [...document.querySelectorAll('.over:not(.pending)')].length === 2")
        close(page)

        before = names(page)
        page.locator(f'[data-atom="{added}"]').click()  # rather blue
        page.get_by_label("Words", exact=True).fill("blue")
        page.keyboard.press("Enter")
        changed_from(page, before)
        fine_tune(page)
        page.locator("#weight-target").fill("0")  # the sentence still says green
        until(page, "() => document.querySelector('.hit .name').textContent.includes('blue')")

        page.get_by_role("button", name="Undo").click()
        page.get_by_role("button", name="Undo").click()
        until(page, "() => document.querySelector('.hit .name').textContent === 'green book'")
