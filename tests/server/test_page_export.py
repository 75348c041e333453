"""The page hands pictures on: as a list, as files, and, where the server allows it, in their folder."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tapr.gallery import Gallery
from tests.pictures import flag, png
from tests.server.browsing import PHONE, asked_for, axe_finds_nothing, expect, fingers_can_hit_everything, names, start
from tests.server.conftest import ColourFactorizer, served, visitor
from tests.server.test_writing import AS_PICTURE, small_gallery

from tapr.server.settings import Settings  # isort: skip


@pytest.fixture(scope="module")
def opened() -> list[str]:
    """What the file manager was asked to show."""
    return []


@pytest.fixture(scope="module")
def address(gallery: Gallery, opened: list[str]) -> Iterator[str]:
    def show(path: str) -> bool:
        opened.append(path)
        return True

    with (
        pytest.MonkeyPatch.context() as patch,
        served(gallery, ColourFactorizer(), Settings(port=0, show_in_folder=True)) as server,
    ):
        patch.setattr("tapr.server.export_api.show_in_folder", show)
        yield f"http://127.0.0.1:{server.port}"


def test_what_is_shown_is_exported(page: Any) -> None:
    page.goto("/")
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator("#export")).to_be_hidden()  # pictures to choose from are no result
    start(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export the list (CSV)").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(), newline="")))
    assert [row["name"] or row["id"] for row in rows if row["left"]] == [
        name for name in names(page) if " and " in name
    ]
    with page.expect_download() as download:
        page.get_by_role("button", name="Export the pictures (ZIP)").click()
    assert download.value.suggested_filename == "tapr-pictures.zip"
    with zipfile.ZipFile(download.value.path()) as archive:
        assert len(archive.namelist()) == len(rows) + 1
    with page.expect_download() as download:
        page.get_by_role("button", name="Share as picture").click()
    assert download.value.suggested_filename == "tapr-collage.jpg"
    with Image.open(download.value.path()) as picture:
        assert picture.width == 1600
    expect(page.locator("#saved")).to_be_hidden()  # nothing is saved, and this visitor may not write


def test_a_picture_is_shown_in_its_folder(page: Any, opened: list[str]) -> None:
    start(page)
    card = page.locator(".hit").first
    card.locator(".frame").click()
    with page.expect_response("**/api/show"):
        page.get_by_role("dialog").get_by_role("button", name="Show in folder").click()
    assert [Path(path).name for path in opened] == [card.get_attribute("data-id")]


def test_a_search_is_saved_told_of_run_and_deleted(browser: Any, tmp_path: Path, axe: str, red_file: bytes) -> None:
    bank = small_gallery(tmp_path)
    with (
        served(bank, ColourFactorizer(), Settings(port=0, allow_write=True, check_seconds=0.05)) as server,
        visitor(browser, f"http://127.0.0.1:{server.port}", PHONE, has_touch=True, is_mobile=True) as page,
    ):
        page.goto("/#apart=1")
        expect(page.locator(".hit:not(.ghostly)").first).to_be_visible()
        expect(page.locator("#saved")).to_be_hidden()
        sent = {"name": "red.png", "mimeType": "image/png", "buffer": red_file}
        page.locator("#ask:not([inert]) #file").set_input_files(sent)
        page.get_by_label("What should be different?").fill("in white / no red!")
        asked = asked_for(page, lambda: page.keyboard.press("Enter"))
        before = names(page)
        page.locator("#saved summary").click()
        expect(page.get_by_label("Name")).to_have_value("in white no red")  # signs that a name cannot have are left out
        page.get_by_role("button", name="Save this search").click()
        item = page.get_by_role("list", name="Saved searches").get_by_role("listitem")
        expect(item).to_contain_text("0 new")
        axe_finds_nothing(page, axe)
        fingers_can_hit_everything(page)
        written = page.request.put("/api/images/new", data=png(flag("white")), headers=AS_PICTURE)
        assert written.ok, written.text()
        seen = page.request.get(item.get_by_role("link", name="Feed of in white no red").get_attribute("href"))
        assert b"<feed" in seen.body()

        page.goto("about:blank")
        page.goto("/")
        page.locator("#saved summary").click()
        again = asked_for(page, page.get_by_role("button", name="Run in white no red").click)
        assert {"spec", "reference_key", "weights"} <= set(again)
        assert again["reference_key"] == asked["reference_key"]
        expect(page.get_by_label("What should be different?")).to_have_value("in white / no red!")
        assert [name for name in names(page) if name != "new"] == before
        page.locator("#saved summary").click()
        expect(item).to_contain_text("1 new")
        page.get_by_role("button", name="Delete in white no red").click()
        expect(item).to_have_count(0)
        assert page.request.get("/api/searches").json() == {"searches": []}
