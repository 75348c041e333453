"""The page hands pictures on: as a list, as files, and, where the server allows it, in their folder."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tapr.gallery import Gallery
from tests.server.browsing import expect, names, start
from tests.server.conftest import ColourFactorizer, served

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


def test_a_picture_is_shown_in_its_folder(page: Any, opened: list[str]) -> None:
    start(page)
    card = page.locator(".hit").first
    card.locator(".frame").click()
    with page.expect_response("**/api/show"):
        page.get_by_role("dialog").get_by_role("button", name="Show in folder").click()
    assert [Path(path).name for path in opened] == [card.get_attribute("data-id")]
