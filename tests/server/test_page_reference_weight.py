"""The slider between the words and the picture, and what the page shows of continuity."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tapr.query.factors import FACTORS
from tests.server.browsing import DESKTOP, becomes, changed_from, chips, close, expect, fine_tune, names, start, until
from tests.server.conftest import visitor

SLIDER = "Follow the words or the picture?"
STRANGE_ATOMS = ("(reference)", "details", "overall look", "constructor", "__proto__", "toString")


def ranked(page: Any) -> Any:
    """Wait for the answer to what comes next."""
    return page.expect_response("**/api/rank")


def begin(page: Any, **words: str) -> float:
    """Search; -> how much of the reference stayed, as the server decided."""
    with ranked(page) as reply:
        start(page, **words)
    fine_tune(page)
    reference_weight: float = reply.value.json()["reference_weight"]
    return reference_weight


def step(reference_weight: float) -> str:
    """Where the slider stands: it has 20 steps."""
    return f"{round(20 * reference_weight) / 20:g}"


def share(page: Any, factor: str) -> bool:
    """Whether the factor is in the bar of the first picture."""
    return factor in page.locator(".hit .bar").first.get_attribute("aria-label")


def test_the_slider_starts_where_the_rule_put_it_and_follows_the_person(page: Any) -> None:
    reference_weight = begin(page)
    slider, value = page.get_by_role("slider", name=SLIDER), page.locator("#reference-weight-value")
    expect(slider).to_have_value(step(reference_weight))
    expect(value).to_have_text("Balanced (automatic)")
    automatic = page.get_by_role("button", name="Back to automatic")
    expect(automatic).to_be_hidden()
    by_rule = names(page)

    with ranked(page) as reply:
        slider.fill("0")
    assert json.loads(reply.value.request.post_data)["reference_weight"] == 0
    expect(value).to_have_text("Words only (your choice)")
    until(page, "() => !document.querySelector('.hit .bar').ariaLabel.includes('Likeness')")
    by_words = names(page)
    assert by_words != by_rule

    slider.fill("1")
    until(page, "() => document.querySelector('.hit .bar').ariaLabel.startsWith('Likeness')")
    assert not share(page, "Looking for")
    assert "red" in names(page)[0]
    assert "green" in names(page)[0], "the reference is red and green"

    with ranked(page) as reply:
        automatic.click()
    assert json.loads(reply.value.request.post_data)["reference_weight"] is None
    becomes(page, by_rule)
    expect(value).to_have_text("Balanced (automatic)")
    expect(slider).to_have_value(step(reference_weight))
    expect(slider).to_be_focused()
    expect(automatic).to_be_hidden()


def test_the_slider_is_moved_by_keys_and_says_its_value(page: Any) -> None:
    reference_weight = begin(page)
    slider = page.get_by_role("slider", name=SLIDER)
    slider.focus()
    page.keyboard.press("End")
    expect(slider).to_have_attribute("aria-valuetext", "Picture only (your choice)")
    page.keyboard.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", "Mostly the picture (your choice)")
    expect(slider).to_have_accessible_description("more like the words more like the picture")
    page.keyboard.press("Control+z")
    expect(slider).to_have_attribute("aria-valuetext", "Balanced (automatic)")
    expect(slider).to_have_value(step(reference_weight))


def test_a_slider_that_is_undone_while_it_has_the_focus_goes_back(page: Any) -> None:
    start(page)
    fine_tune(page)
    slider = page.get_by_label("Weight of Add")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_value("0.55")
    page.keyboard.press("Control+z")
    expect(slider).to_have_value("0.5")


def test_the_choice_is_in_the_history_and_in_the_address(page: Any, browser: Any) -> None:
    begin(page)
    first = names(page)
    slider = page.get_by_role("slider", name=SLIDER)
    for value in ("0.9", "0.95", "1"):  # one movement, one step
        slider.fill(value)
    changed_from(page, first)
    page.wait_for_load_state("networkidle")  # the ranking of the last value, not of one on the way
    moved = names(page)
    page.get_by_role("button", name="Undo").click()
    becomes(page, first)
    expect(page.locator("#reference-weight-value")).to_have_text("Balanced (automatic)")
    page.get_by_role("button", name="Redo").click()
    becomes(page, moved)
    assert "reference_weight=1" in page.url

    with visitor(browser, "", DESKTOP) as other:
        other.goto(page.url)
        becomes(other, moved)
        expect(other.locator("#reference-weight-value")).to_have_text("Picture only (your choice)")


@pytest.mark.parametrize("nonsense", ["2", "-1", "x", "", "NaN", "Infinity"])
def test_nonsense_in_the_address_is_left_to_the_rule(page: Any, nonsense: str) -> None:
    page.goto(f"/#r=red-green.png&target=blue&reference_weight={nonsense}&continuity={nonsense}")
    expect(page.locator("#reference-weight-value")).to_contain_text("automatic")


def test_what_the_factorizer_says_is_the_starting_point(page: Any) -> None:
    start(page, edit="something blue instead")
    fine_tune(page)
    slider = page.get_by_role("slider", name=SLIDER)
    expect(slider).to_have_value("0")
    expect(page.locator("#reference-weight-value")).to_have_text("Words only (from your words)")
    expect(page.locator("#reference-weight-note")).to_have_text("Nothing of the picture stays: the words decide alone")
    expect(page.locator("#found-note")).not_to_contain_text("nothing of the reference")
    assert not share(page, "Likeness")
    slider.fill("0.6")
    until(page, "() => document.querySelector('.hit .bar').ariaLabel.includes('Likeness')")
    expect(page.locator("#reference-weight-note")).to_have_text("")
    found = names(page)
    page.reload()
    becomes(page, found)
    page.get_by_role("button", name="Back to automatic").click()
    expect(page.locator("#reference-weight-value")).to_have_text("Words only (from your words)")


def test_the_rules_note_stands_at_the_slider(page: Any) -> None:
    note = "the words fit about 40 pictures of 30: the reference decides among them (stay 0.48)"

    def by_rule(route: Any) -> None:
        reply = route.fetch()
        route.fulfill(
            response=reply,
            json={**reply.json(), "reference_weight": 0.48, "reference_weight_notes": [note], "notes": [note, "x"]},
        )

    page.route("**/api/rank", by_rule)
    start(page)
    fine_tune(page)
    expect(page.locator("#reference-weight-note")).to_have_text(
        "The words fit about 40 of 30 pictures: your picture decides among them"
    )
    expect(page.locator("#reference-weight-value")).to_have_text("Balanced (automatic)")
    expect(page.locator("#found-note")).to_have_text("X")


def test_a_new_edit_starts_with_the_rule_again(page: Any) -> None:
    start(page)
    fine_tune(page)
    page.get_by_role("slider", name=SLIDER).fill("1")
    expect(page.locator("#reference-weight-value")).to_have_text("Picture only (your choice)")
    page.get_by_label("What should be different?").fill("in black")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("[data-atom=black]")).to_be_visible()
    expect(page.locator("#reference-weight-value")).to_contain_text("automatic")


def test_continuity_has_a_row_a_colour_and_two_terms(page: Any) -> None:
    reference_weight = begin(page)
    rows = page.locator(".factor").evaluate_all("rows => rows.map(row => row.dataset.factor)")
    assert rows == [row.name for row in FACTORS if row.from_words]
    row = page.locator("[data-picture=continuity]")
    expect(row).to_contain_text("how much it should look like your picture")
    expect(row.locator(".chip.fixed")).to_have_text(["overall look", "details"])
    expect(row.locator("output")).to_have_text(f"{reference_weight:.2f}")
    piece = page.locator(".hit .bar .factor-continuity").first
    light = piece.evaluate("e => getComputedStyle(e).backgroundColor")
    assert light == "rgb({}, {}, {})".format(*next(row.colour for row in FACTORS if row.name == "continuity"))
    page.emulate_media(color_scheme="dark")
    colours = page.evaluate(
        "[...document.querySelector('.hit .bar').children].map(e => getComputedStyle(e).backgroundColor)"
    )
    assert len(set(colours)) == len(colours)
    assert light not in colours

    page.locator(".hit .frame").first.click()
    viewer = page.get_by_role("dialog")
    placeless = viewer.locator(".term.plain .term-name")
    expect(placeless).to_have_text(["“a picture in blue, no yellow” (whole image)", "overall look (whole image)"])
    viewer.get_by_role("radio", name="Likeness: details").check()
    until(page, "() => [...document.querySelectorAll('.over:not(.pending)')].length === 2")
    assert "term=reference%3A0%3Alocal" in viewer.locator(".over").nth(1).get_attribute("src")
    viewer.get_by_role("button", name="Next").click()
    expect(viewer.get_by_role("radio", name="Likeness: details")).to_be_checked()


def test_a_chip_is_not_dropped_on_the_sentence(page: Any) -> None:
    start(page)
    page.locator("[data-atom=blue]").hover()
    page.mouse.down()
    box = page.locator("[data-factor=target]").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 10, steps=5)
    expect(page.locator(".factor.over")).to_have_count(0)
    page.mouse.up()
    assert chips(page, "add") == ["blue"]


@pytest.mark.parametrize("atom", STRANGE_ATOMS)
def test_an_atom_may_be_called_anything(page: Any, atom: str) -> None:
    start(page, edit="in blue")
    page.get_by_role("button", name="Add a phrase to Add").click()
    page.get_by_label("New phrase of Add").fill(atom)
    with ranked(page):
        page.keyboard.press("Enter")
    chip = page.locator(f'[data-factor=add] [data-atom="{atom}"]')
    expect(chip.locator(".times")).to_have_text("")
    chip.click()
    expect(page.get_by_label("Weight of this phrase")).to_have_value("1")
    with ranked(page) as reply:
        page.get_by_label("Weight of this phrase").fill("2")
    assert json.loads(reply.value.request.post_data)["spec"]["atom_weights"] == {atom: 2}
    assert reply.value.ok
    page.keyboard.press("Escape")
    page.reload()
    expect(chip.locator(".times")).to_have_text("×2.0")

    page.locator(".hit .frame").first.click()
    viewer = page.get_by_role("dialog")
    seen = []
    for name in (f"Add: {atom}", "Likeness: details"):
        viewer.get_by_role("radio", name=name, exact=True).check()
        expect(viewer.get_by_role("radio", checked=True)).to_have_count(1)
        until(page, "() => [...document.querySelectorAll('.over:not(.pending)')].length === 2")
        seen.append(viewer.locator(".over").nth(1).get_attribute("src"))
    assert seen[0] != seen[1]
    close(page)  # only then it no longer takes the focus

    chip.press("Alt+ArrowDown")
    expect(page.locator(f'[data-factor=preserve] [data-atom="{atom}"]')).to_be_focused()
    page.keyboard.press("Delete")
    expect(page.locator(f'[data-atom="{atom}"]')).to_have_count(0)
    assert "atoms=" not in page.url


def test_on_a_phone_the_slider_is_moved_by_a_finger(browser: Any, address: str) -> None:
    with visitor(browser, address, (360, 740), has_touch=True, is_mobile=True) as page:
        start(page)
        fine_tune(page)
        slider = page.get_by_role("slider", name=SLIDER)
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        assert box["height"] >= 32
        page.touchscreen.tap(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2)
        expect(page.locator("#reference-weight-value")).to_contain_text("your choice")
        automatic = page.get_by_role("button", name="Back to automatic").bounding_box()
        assert automatic["x"] + automatic["width"] <= 360
        wide, screen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert wide <= screen


def test_a_server_that_does_not_answer_at_first_is_asked_again(page: Any) -> None:
    page.route("**/api/gallery?*", lambda route: route.abort())
    page.route("**/api/gallery", lambda route: route.abort())
    page.goto("/#r=red-green.png&target=blue&add=blue")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".hit .bar").first).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()
    assert chips(page, "add") == ["blue"]


def test_the_factors_are_those_that_the_server_tells(page: Any) -> None:
    """A factor that this page has never heard of gets its row, its colour and its slider."""

    def with_another(route: Any) -> None:
        reply = route.fetch()
        facts = reply.json()
        mood = {**facts["factors"][1], "name": "mood", "weight": 0.7, "colour": "#123456", "hint": "how it feels"}
        route.fulfill(response=reply, json={**facts, "factors": [*facts["factors"], mood]})

    page.route("**/api/gallery*", with_another)
    page.goto("/#r=red-green.png&target=blue&add=blue")
    row = page.locator("[data-factor=mood]")
    expect(row.locator(".factor-name")).to_have_attribute("title", "Mood: how it feels")
    fine_tune(page)
    expect(page.get_by_label("Weight of Mood")).to_have_value("0.7")
    assert row.evaluate("e => getComputedStyle(e).getPropertyValue('--c')").startswith("light-dark(#123456")
