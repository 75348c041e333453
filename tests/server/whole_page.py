"""What the page promises, on a whole gallery of real pictures. A module per gallery makes a class of this one.

Tests name the screens on which their promise could break; the others run on the screen of the class.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image, ImageChops

from tapr.server.settings import Settings
from tests.server.browsing import (
    DESKTOP,
    LAPTOP,
    PHONE,
    all_is_seen_without_scrolling,
    asked_for,
    axe_finds_nothing,
    becomes,
    camera_is_first,
    changed_from,
    close,
    expect,
    fingers_can_hit_everything,
    loads,
    names,
    reference_stays_in_sight,
    results_come_into_sight,
    settles,
    until,
)
from tests.server.conftest import served, visitor
from tests.server.test_page_words import table
from tests.server.whole_gallery import Whole

DIFFERENT, LOOKED = "What should be different?", "What are you looking for?"
CARDS = ".hit:not(.ghostly)"
CUT_OFF = """() => [...document.querySelectorAll('.hit .use')].filter(button => {
  const range = document.createRange();
  range.selectNodeContents(button);
  return range.getBoundingClientRect().right > button.closest('.hit').getBoundingClientRect().right - 2;
}).map(button => button.ariaLabel)"""


def on(*screens: tuple[tuple[int, int], str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("screen", screens, indirect=True, ids=lambda one: f"{one[0][0]}-{one[1]}")


def ask(page: Any, whole: Whole, **more: str) -> None:
    """The whole way: a picture, words, Search."""
    page.goto(f"/#{urlencode({'r': whole.reference, **more})}")
    expect(page.locator(".hit:not(.ghostly)").first).to_be_visible()  # what is still loading moves the button
    page.get_by_label(DIFFERENT).fill(whole.edit)
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".hit .bar").first).to_be_visible()
    expect(page.locator("#doing")).to_be_hidden()


def unfold(page: Any, *, fold: bool = False) -> None:
    """On a phone what was asked is a bar, and the rest is behind a button."""
    button = page.locator("#adjust")
    if button.is_visible() and button.get_attribute("aria-expanded") == str(fold).lower():
        button.click()


def fills_the_window(page: Any) -> None:
    """The opened picture is as large as the window allows, beside the reference or above the reasons."""
    box, window = page.locator("#viewer").bounding_box(), page.viewport_size
    assert (box["width"], box["height"]) == (window["width"], window["height"])
    stage, found = page.locator(".stage").bounding_box(), page.locator(".stage .front .stack").bounding_box()
    if window["width"] > 500:
        pictures = [one.bounding_box() for one in page.locator(".stage .stack").all()]
        assert max(sum(one["width"] for one in pictures) / stage["width"], found["height"] / stage["height"]) > 0.85
    else:
        assert max(found["width"] / stage["width"], found["height"] / stage["height"]) > 0.98
        assert stage["height"] > 0.4 * window["height"]


def title(page: Any, shown: int, searched: int) -> None:
    expect(page.locator("#found-title")).to_have_text(f"Top {shown} of {searched}")


def seen(place: Any) -> Image.Image:
    return Image.open(io.BytesIO(place.screenshot())).convert("RGB")


def changed(before: Image.Image, after: Image.Image) -> str:
    """How much of a picture a person sees changed: 60 of 255 in a colour is far beyond what an edge's rounding does."""
    difference = np.asarray(ImageChops.difference(before, after.resize(before.size)))
    share = (difference.max(axis=2) > 60).mean()
    return "clearly" if share > 0.01 else "not" if share < 0.002 else "hardly"


def axe_in_both_themes(page: Any, axe: str) -> None:
    for theme in ("dark", "light"):
        page.emulate_media(color_scheme=theme)
        axe_finds_nothing(page, axe)


class WholePage:
    SCREEN: tuple[tuple[int, int], str]  # its size and theme

    # see why, at a glance

    @on((DESKTOP, "light"), (LAPTOP, "dark"), (PHONE, "dark"))
    def test_a_result_opens_as_it_is_and_shows_where_each_wish_was_found(self, screen: Any, whole: Whole) -> None:
        page = screen
        ask(page, whole)
        atoms = page.locator(".chip[data-atom]").count()
        ticks = page.locator(".tick")
        expect(ticks.first).to_be_visible()
        titles = [tick.get_attribute("title") for tick in ticks.all()]
        assert {title.rsplit(", ", 1)[1] for title in titles} <= {"found", "maybe", "still there", "mostly gone"}
        page.locator(".hit .frame").first.click()
        viewer = page.get_by_role("dialog")
        loads(page, "#viewer .stack img:not(.over)")
        expect(viewer.locator(".over:visible")).to_have_count(0)
        assert viewer.get_by_role("radio").first.get_attribute("aria-label") == "No overlay"
        assert viewer.get_by_role("radio").last.get_attribute("aria-label") == "Overall"
        fills_the_window(page)
        words = viewer.locator(".found-word").all_text_contents()
        assert len(words) <= atoms
        assert set(words) <= {"found", "maybe", "still there", "mostly gone"}
        if page.viewport_size["width"] > 500:  # beside it, without scrolling
            expect(viewer.locator(".term").nth(1)).to_be_in_viewport(ratio=1)
            right = "() => document.querySelector('.stage').getBoundingClientRect().right"
            until(page, f"() => document.querySelector('.why').getBoundingClientRect().left >= ({right})()")
        expect(viewer.locator(".legend")).to_contain_text("Strong colour: much evidence")

        found = viewer.locator(".stack").last
        clean = seen(found)
        viewer.locator(".term", has=page.locator(".found-word.found")).first.get_by_role("radio").check()
        loads(page, "#viewer .over")
        settles(page, lambda: changed(clean, seen(found)), "clearly")
        strength = viewer.get_by_label("Overlay opacity")
        strength.fill("0")
        settles(page, lambda: changed(clean, seen(found)), "not")
        strength.fill("1")
        settles(page, lambda: changed(clean, seen(found)), "clearly")
        viewer.get_by_role("radio", name="No overlay").check()
        settles(page, lambda: changed(clean, seen(found)), "not")

    # find and go on

    def test_more_pictures_come_and_those_alike_are_one(self, screen: Any, whole: Whole) -> None:
        page = screen
        others = len(whole.gallery) - 1
        page.goto(f"/#{urlencode({'r': whole.nearest, 'like': 1})}")
        title(page, 24, others)
        folded = page.get_by_role("button", name=re.compile(r"^\d+ alike$"))
        expect(folded.first).to_be_visible()
        cards = page.locator(CARDS).count()
        assert cards < 24
        more = int(folded.first.text_content().split()[0]) - 1
        folded.first.click()
        expect(page.locator(CARDS)).to_have_count(cards + more)
        page.get_by_role("button", name="Fold", exact=True).click()
        expect(page.locator(CARDS)).to_have_count(cards)

        page.get_by_text("Show", exact=True).click()
        asked_for(page, lambda: page.get_by_label("Group near-duplicates").uncheck())
        expect(page.locator(CARDS)).to_have_count(24)
        for shown in (48, 72):
            page.get_by_role("button", name="Show more").click()
            title(page, shown, others)
            expect(page.locator(CARDS)).to_have_count(shown)
        assert page.locator(".hit .rank").all_text_contents() == [str(rank) for rank in range(1, 73)]

    def test_words_alone_and_a_picture_alone(self, screen: Any, whole: Whole) -> None:
        page = screen
        page.goto("/")
        page.get_by_label(LOOKED).fill(whole.words)
        request = asked_for(page, lambda: page.get_by_role("button", name="Search").click())
        assert "reference_id" not in request
        expect(page.locator("#found-note")).to_contain_text("Text search")
        title(page, 24, len(whole.gallery))
        page.locator(".hit .frame").first.click()
        expect(page.get_by_role("dialog").locator("figcaption")).to_have_text(["Found"])
        close(page)

        page.goto("/#")
        page.reload()
        expect(page.locator(CARDS)).to_have_count(48)
        page.locator(".hit .frame").nth(3).click()
        expect(page.get_by_label(DIFFERENT)).to_be_visible()
        request = asked_for(page, lambda: page.get_by_role("button", name="Search").click())
        assert "spec" not in request
        expect(page.locator("#found-note")).to_contain_text("Image search")
        title(page, 24, len(whole.gallery) - 1)

    @on((DESKTOP, "dark"), (PHONE, "light"))
    def test_a_part_of_the_reference_and_a_second_one(self, screen: Any, whole: Whole) -> None:
        page = screen
        ask(page, whole)
        all_is_seen_without_scrolling(page)
        unfold(page)
        page.get_by_role("button", name="Crop").click()
        dialog = page.get_by_role("dialog", name="Select the area to search")
        loads(page, ".crop-stage img")
        if page.viewport_size["width"] > 500:
            box = dialog.locator(".crop-stage").bounding_box()
            page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.1 * box["height"])
            page.mouse.down()
            page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.6 * box["height"], steps=4)
            page.mouse.up()
        else:
            for edge, place in (("Left", "0.25"), ("Top", "0.1"), ("Right", "0.75"), ("Bottom", "0.6")):
                dialog.get_by_label(edge).fill(place)
        request = asked_for(page, lambda: dialog.get_by_role("button", name="Use this area").click())
        assert request["crop"] == pytest.approx([0.25, 0.1, 0.75, 0.6], abs=0.03)
        expect(page.locator("#found-note")).to_contain_text("Only the selected area is searched")
        expect(page.locator("#crop-mark")).to_be_visible()

        page.get_by_role("button", name="Add picture").click()
        expect(page.locator("#adding")).to_be_visible()
        unfold(page, fold=True)
        card = page.locator(".hit").nth(2)
        second = card.get_attribute("data-id")
        card.hover()
        request = asked_for(page, lambda: card.get_by_role("button", name="Use as reference").click())
        assert request["more_references"] == [{"reference_id": second}]
        expect(page.locator("#more-references-list li")).to_have_count(1)
        expect(page.locator("#found-note")).to_contain_text("Pictures count equally")
        page.locator(".hit .frame").first.click()
        viewer = page.get_by_role("dialog")
        expect(viewer.locator("figcaption")).to_have_text(["Reference 1", "Reference 2", "Found"])
        expect(viewer.locator(".crop-mark")).to_be_visible()
        viewer.get_by_role("radio", name="Likeness: details (picture 2)").check()
        loads(page, "#viewer .over")
        expect(viewer.locator(".over:visible")).to_have_count(3)

    def test_back_and_forward_also_with_a_picture_open(self, screen: Any, whole: Whole) -> None:
        page = screen
        ask(page, whole, apart="1")
        first = names(page)
        page.get_by_label(DIFFERENT).fill("in black and white")
        page.get_by_role("button", name="Search").click()
        changed_from(page, first)
        expect(page.locator("#doing")).to_be_hidden()
        second = names(page)
        viewer = page.get_by_role("dialog")
        page.locator(".hit .frame").nth(1).click()
        expect(viewer).to_be_visible()
        opened = viewer.get_by_role("heading").text_content()
        page.go_back()
        expect(viewer).to_be_hidden()
        becomes(page, second)
        page.go_forward()
        expect(viewer.get_by_role("heading")).to_have_text(opened)
        page.go_back()
        expect(viewer).to_be_hidden()
        page.go_back()
        becomes(page, first)
        expect(page.get_by_label(DIFFERENT)).to_have_value(whole.edit)
        page.go_forward()
        becomes(page, second)

    # screens, hands and eyes

    @on((LAPTOP, "light"))
    def test_on_a_laptop_the_reference_stays_in_sight(self, screen: Any, whole: Whole) -> None:
        page = screen
        ask(page, whole)
        expect(page.locator(".hit .frame").first).to_be_in_viewport()
        reference_stays_in_sight(page)

    @on((PHONE, "light"))
    def test_on_a_phone(self, screen: Any, whole: Whole) -> None:
        page = screen
        page.goto("/")
        expect(page.locator(CARDS)).to_have_count(48)
        camera_is_first(page)
        expect(page.locator("#found-note")).to_contain_text("Take a photo or choose a picture")
        fingers_can_hit_everything(page)
        ask(page, whole)
        results_come_into_sight(page)
        settles(page, lambda: page.evaluate(CUT_OFF), [])
        all_is_seen_without_scrolling(page)
        unfold(page)
        page.locator("#fine-tune summary").click()
        page.locator("#filter summary").click()
        fingers_can_hit_everything(page)
        page.get_by_role("button", name="Crop").click()
        fingers_can_hit_everything(page)
        until(page, "() => document.querySelector('#cropper').getBoundingClientRect().width === innerWidth")
        page.keyboard.press("Escape")
        unfold(page, fold=True)
        page.locator(".hit .frame").first.tap()
        expect(page.get_by_role("dialog")).to_be_visible()
        fingers_can_hit_everything(page)

    @on((DESKTOP, "light"), (PHONE, "light"))
    def test_axe_finds_nothing_in_either_theme(self, screen: Any, whole: Whole, axe: str) -> None:
        page = screen
        page.goto("/")
        expect(page.locator(CARDS)).to_have_count(48)
        axe_in_both_themes(page, axe)
        ask(page, whole)
        unfold(page)
        page.locator("#filter summary").click()
        axe_in_both_themes(page, axe)
        unfold(page, fold=True)
        page.locator(".hit .frame").first.click()
        loads(page, "#viewer .stack img:not(.over)")
        axe_in_both_themes(page, axe)

    def test_examples_are_pressed(self, screen: Any, whole: Whole) -> None:
        page = screen
        page.goto("/")
        examples = page.get_by_role("list", name="Examples to try").get_by_role("button")
        expect(examples.first).to_be_visible()
        asked_for(page, examples.first.click)
        expect(page.locator("#found-note")).to_contain_text("Text search")
        expect(examples).to_have_count(0)
        page.goto(f"/#{urlencode({'r': whole.reference})}")
        edits = {str(text) for key, text in table("en").items() if key.startswith("example.edit.")}
        expect(examples.first).to_be_visible()
        assert set(examples.all_text_contents()) <= edits  # those that the gallery's own words speak of
        request = asked_for(page, examples.first.click)
        assert request["spec"]["target"]

    # facets, columns, filters

    def test_facets_narrow_the_search_and_are_cleared(self, screen: Any, whole: Whole) -> None:
        page = screen
        page.goto("/")
        page.get_by_text("Filters", exact=True).click()
        column, value = whole.few
        first = page.locator("#facets legend").first.text_content().split()[0]
        expect(page.get_by_label("Filter on metadata")).to_have_attribute("placeholder", re.compile(rf"^{first} [<=] "))
        page.locator("#facets").get_by_label(value).check()
        kept = whole.count(f"{column} = '{value}'")
        expect(page.locator("#found-note")).to_contain_text(f"{kept} of {len(whole.gallery)} meet the filters")
        expect(page.locator("#gallery-count")).to_have_text(f"{len(whole.gallery)} pictures")
        page.get_by_label(LOOKED).fill(whole.words)
        page.keyboard.press("Enter")
        title(page, 24, kept)
        unfold(page)
        if whole.slider:
            page.get_by_label(f"{whole.slider} to").fill("30")
            searched = "Number(document.querySelector('#found-title').textContent.split(' ').at(-1))"
            until(page, f"all => {searched} < all", kept)
        page.get_by_label("Filter on metadata").fill("width < 2")
        page.keyboard.press("Enter")
        expect(page.locator("#found-title")).to_have_text("No picture meets the filters")
        page.get_by_role("button", name="Clear the filters").click()
        title(page, 24, len(whole.gallery))
        expect(page.locator("#facets").get_by_label(value)).not_to_be_checked()

    def test_a_wrong_filter_names_its_column_and_chosen_columns_are_shown(self, screen: Any, whole: Whole) -> None:
        page = screen
        column, other = whole.columns
        page.goto(f"/#{urlencode({'edit': whole.words, 'where': f'{column}x = 1'})}")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text(f"there is no column '{column}x': did you mean {column}?")
        alert.get_by_role("button", name="Clear the filters").click()
        expect(page.locator(".hit .bar").first).to_be_visible()
        expect(alert).to_be_hidden()
        page.get_by_text("Show", exact=True).click()
        page.get_by_label(column, exact=True).check()
        page.get_by_label(other, exact=True).check()
        expect(page.locator(".hit .chosen").first).to_contain_text(column)
        page.reload()
        expect(page.locator(".hit .bar").first).to_be_visible()
        expect(page.locator(".hit .chosen").first).to_contain_text(column)

    # what the page says while it works, and whom it lets in

    def test_the_page_says_what_it_is_doing(self, screen: Any, whole: Whole) -> None:
        page = screen
        held: list[Any] = []

        def hold(route: Any) -> None:
            held.append(route)

        page.route("**/api/factorize", hold)
        page.route("**/api/rank", hold)
        page.goto(f"/#{urlencode({'r': whole.reference})}")
        page.get_by_label(DIFFERENT).fill(whole.edit)
        page.get_by_role("button", name="Search").click()
        expect(page.locator("#doing")).to_have_text("Reading the picture and your words …")
        settles(page, lambda: len(held), 1)
        held[0].continue_()
        expect(page.locator("#doing")).to_have_text(f"Comparing {len(whole.gallery)} pictures …")
        settles(page, lambda: len(held), 2)
        held[1].continue_()
        expect(page.locator(".hit .bar").first).to_be_visible()
        expect(page.locator("#doing")).to_be_hidden()

    def test_a_token_is_asked_for_in_a_page_and_the_search_goes_on(self, browser: Any, whole: Whole, axe: str) -> None:
        with (
            served(whole.gallery, None, Settings(port=0, token="secret-token")) as server,
            visitor(browser, f"http://127.0.0.1:{server.port}", LAPTOP) as page,
        ):
            page.goto(f"/#{urlencode({'target': whole.words})}")
            axe_in_both_themes(page, axe)
            page.get_by_label("Token").fill("guess-again")
            page.keyboard.press("Enter")
            expect(page.get_by_role("alert")).to_have_text("That is not the token of this server.")
            page.get_by_label("Token").fill("secret-token")
            page.keyboard.press("Enter")
            title(page, 24, len(whole.gallery))

    def test_what_was_found_is_exported(self, screen: Any, whole: Whole) -> None:
        page = screen
        ask(page, whole, apart="1")
        with page.expect_download() as download:
            page.get_by_role("button", name="Export the list (CSV)").click()
        rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(), newline="")))
        assert [row["name"] for row in rows] == names(page)
        with page.expect_download() as download:
            page.get_by_role("button", name="Export the pictures (ZIP)").click()
        with zipfile.ZipFile(download.value.path()) as archive:
            assert len(archive.namelist()) == 24 + 1  # and their list
        page.locator(".hit .frame").first.click()
        viewer = page.get_by_role("dialog")
        expect(viewer.get_by_role("button", name="Use as reference")).to_be_visible()
        expect(viewer.get_by_role("button", name="Show in folder")).to_have_count(0)  # unless the server allows it
