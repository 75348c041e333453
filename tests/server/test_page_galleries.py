"""The page of a server with several galleries: one is chosen, the address says which, and no other is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tapr.gallery import Gallery
from tapr.server.access import Tokens
from tapr.server.settings import Settings
from tests.server.browsing import DESKTOP, PHONE, axe_finds_nothing, expect, fingers_can_hit_everything, names
from tests.server.conftest import ColourFactorizer, served, visitor
from tests.server.test_galleries import gallery_of


@pytest.fixture(scope="module")
def galleries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Gallery]:
    root = tmp_path_factory.mktemp("galleries")
    return {"shop": gallery_of(root / "a", "red", "blue"), "outlet": gallery_of(root / "b", "black", "white", "green")}


@pytest.fixture(scope="module")
def address(galleries: dict[str, Gallery]) -> Iterator[str]:
    with served(galleries, ColourFactorizer()) as server:
        yield f"http://127.0.0.1:{server.port}"


def shows(page: Any, *pictures: str) -> None:
    expect(page.locator(".hit:not(.ghostly)")).to_have_count(len(pictures))
    assert sorted(names(page)) == sorted(pictures)


def test_another_gallery_is_chosen_and_all_is_asked_of_it(page: Any) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    shows(page, "blue", "red")
    expect(page.get_by_label("Gallery")).to_have_value("shop")
    expect(page.locator("#gallery-name")).to_have_text("2 pictures", use_inner_text=True)
    asked.clear()
    page.get_by_label("Gallery").select_option("outlet")
    expect(page).to_have_url("/?gallery=outlet")
    shows(page, "black", "green", "white")
    page.get_by_role("button", name="Use as reference: black").click()
    page.get_by_label("What should be different?").fill("in green")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".hit .bar").first).to_be_visible()
    assert names(page)[0] == "green"
    page.locator(".hit .frame").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_role("radio", name="Add: green").check()
    expect(page.locator(".over:not(.pending)")).to_have_count(2)
    page.get_by_role("button", name="Close").click()
    with page.expect_download():
        page.get_by_role("button", name="Export the list (CSV)").click()
    asked = [url.partition("/api/")[2] for url in asked if "/api/" in url]
    kinds = {url.removeprefix("galleries/outlet/").partition("?")[0] for url in asked} - {"galleries"}
    assert all(url == "galleries" or url.startswith("galleries/outlet/") for url in asked)
    assert {"gallery", "images", "factorize", "rank", "heatmap", "export"} <= kinds


def test_links_back_and_forward_keep_the_gallery(page: Any) -> None:
    page.goto("/")
    expect(page.get_by_label("Gallery")).to_have_value("shop")
    page.get_by_label("What are you looking for?").fill("white")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".hit .bar")).to_have_count(2)
    page.get_by_label("Gallery").select_option("outlet")  # words alone go along
    expect(page.locator(".hit .bar")).to_have_count(3)
    expect(page.get_by_label("What are you looking for?")).to_have_value("white")
    assert names(page)[0] == "white"
    link = page.url
    page.go_back()
    while "outlet" in page.url:  # what was searched there is a step of its own
        page.go_back()
    expect(page.get_by_label("Gallery")).to_have_value("shop")
    expect(page.locator(".hit .bar")).to_have_count(2)
    page.go_forward()
    expect(page.get_by_label("Gallery")).to_have_value("outlet")
    page.goto("about:blank")
    page.goto(link)
    expect(page.get_by_label("Gallery")).to_have_value("outlet")
    expect(page.locator(".hit .bar")).to_have_count(3)
    page.get_by_label("What are you looking for?").fill("")
    page.goto("/?gallery=outlet#edit=black")
    page.locator(".brand").click()
    expect(page).to_have_url("/?gallery=outlet")
    shows(page, "black", "green", "white")


def test_a_gallery_that_is_not_there_is_told_and_others_are_offered(page: Any) -> None:
    page.goto("/?gallery=attic")
    expect(page.get_by_role("alert")).to_contain_text("There is no gallery 'attic' here")
    page.get_by_label("Gallery").select_option("outlet")
    shows(page, "black", "green", "white")


def test_only_what_the_token_opens_is_offered(browser: Any, galleries: dict[str, Gallery]) -> None:
    tokens = {"shop": Tokens(("shop reads",)), "outlet": Tokens(("outlet reads",))}
    with served(galleries, ColourFactorizer(), Settings(port=0, tokens=tokens)) as server:
        address = f"http://127.0.0.1:{server.port}"
        with visitor(browser, address, DESKTOP) as page:
            page.goto("/#edit=black")  # the plain address is the first gallery's, which this token does not open
            page.get_by_label("Token").fill("outlet reads")
            page.keyboard.press("Enter")
            expect(page.locator(".hit .bar")).to_have_count(3)
            assert "/?gallery=outlet#" in page.url
            assert names(page)[0] == "black"
            expect(page.get_by_label("Gallery")).to_be_hidden()
            page.goto("/?gallery=shop")
            expect(page.get_by_role("alert")).to_contain_text("This token does not open that gallery")
            expect(page.get_by_label("Gallery").locator("option")).to_have_text(["Choose a gallery", "outlet"])
        with visitor(browser, address, DESKTOP) as page:
            page.goto("/?gallery=outlet")
            page.get_by_label("Token").fill("outlet reads")
            page.keyboard.press("Enter")
            expect(page).to_have_url("/?gallery=outlet")
            shows(page, "black", "green", "white")


@pytest.mark.parametrize("screen", [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")], indirect=True)
def test_the_choice_is_for_everyone(screen: Any, axe: str) -> None:
    page = screen
    page.goto("/")
    shows(page, "blue", "red")
    expect(page.get_by_label("Gallery")).to_be_visible()
    axe_finds_nothing(page, axe)
    if page.viewport_size["width"] == PHONE[0]:
        fingers_can_hit_everything(page)
