"""The page in a real browser: the whole story, from a reference to a changed mind."""

from __future__ import annotations

import re
import urllib.request
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.browsing import DESKTOP, NAMES, becomes, changed_from, chips, expect, fine_tune, names, start, until
from tests.server.conftest import HOSTILE_IDS, visitor


@pytest.mark.smoke
def test_from_a_picture_and_an_edit_to_pictures_and_reasons(page: Any) -> None:
    start(page)
    assert chips(page, "add") == ["blue"]
    assert chips(page, "remove") == ["yellow"]
    assert "blue" in names(page)[0]
    assert "Looking for" in page.locator(".hit .bar").first.get_attribute("aria-label")
    page.locator(".facts summary").click()  # numbers and names of programs are among the details
    expect(page.locator("#facts")).to_contain_text("encoder fake (tokens) · factorizer colours · kernel")
    expect(page.locator("#found-title")).to_have_text("Top 24 of 29")


def test_chips_are_added_changed_weighed_moved_and_deleted_without_a_new_factorization(
    page: Any, asked: list[str]
) -> None:
    start(page, edit="in blue and green")
    before = names(page)
    asked.clear()

    page.get_by_role("button", name="Add a phrase to Leave out").click()
    page.get_by_label("New phrase of Leave out").fill("black")
    page.keyboard.press("Enter")
    changed_from(page, before)
    assert chips(page, "remove") == ["black"]

    page.locator("[data-atom=green]").click()
    page.get_by_label("Words", exact=True).fill("yellow")
    page.keyboard.press("Enter")
    expect(page.locator("#chip-card")).to_be_hidden()
    expect(page.locator("[data-atom=yellow]")).to_be_visible()
    assert chips(page, "add") == ["blue", "yellow"]

    before = names(page)
    page.locator("[data-atom=yellow]").click()
    page.get_by_label("Weight of this phrase").fill("3")
    changed_from(page, before)
    page.keyboard.press("Escape")
    expect(page.locator("[data-atom=yellow] .times")).to_have_text("×3.0")

    before = names(page)
    fine_tune(page)
    page.get_by_label("Weight of Add").fill("2")
    changed_from(page, before)

    page.locator("[data-atom=black]").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("[data-atom=black]")).to_have_count(0)
    assert chips(page, "remove") == []
    assert "rank" in asked
    assert "factorize" not in asked


def test_a_chip_is_dragged_to_another_factor(page: Any) -> None:
    start(page)
    before = names(page)
    page.locator("[data-atom=blue]").hover()
    page.mouse.down()
    box = page.locator("[data-factor=remove]").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 20, steps=5)
    expect(page.locator("[data-factor=remove]")).to_have_class("factor factor-remove over")
    page.mouse.up()
    changed_from(page, before)
    assert chips(page, "add") == []
    assert chips(page, "remove") == ["yellow", "blue"]
    assert "Add" not in page.locator(".hit .bar").first.get_attribute("aria-label")
    expect(page.locator("#chip-card")).to_be_hidden()


def test_a_factor_is_switched_off_and_on(page: Any) -> None:
    start(page)
    before = names(page)
    fine_tune(page)
    page.get_by_role("switch", name="Use Add").click()
    changed_from(page, before)
    assert "Add" not in page.locator(".hit .bar").first.get_attribute("aria-label")
    page.get_by_role("switch", name="Use Add").click()
    becomes(page, before)


def test_undo_and_redo_go_through_every_step(page: Any) -> None:
    start(page)
    first = names(page)
    fine_tune(page)
    page.get_by_role("switch", name="Use Add").click()
    changed_from(page, first)
    second = names(page)
    page.locator("#weight-remove").fill("2")
    changed_from(page, second)
    page.locator("#found").focus()
    page.keyboard.press("Control+z")
    becomes(page, second)
    page.get_by_role("button", name="Undo").click()
    becomes(page, first)
    page.keyboard.press("Control+Shift+z")
    becomes(page, second)


def test_a_result_shows_where_its_evidence_lies_beside_the_reference(page: Any) -> None:
    start(page)
    page.locator(".hit .frame").first.click()
    viewer = page.get_by_role("dialog")
    expect(viewer).to_be_visible()
    shown = (
        "() => [...document.querySelectorAll('.viewer img:not([hidden])')].every(i => i.complete && i.naturalWidth > 0)"
    )
    until(page, shown)
    assert viewer.locator("figcaption").all_text_contents() == ["Reference", "Found"]
    expect(viewer.locator(".over").nth(1)).to_be_hidden()  # it opens without one
    choices = viewer.get_by_role("radio")
    assert choices.first.get_attribute("aria-label") == "No overlay"
    assert choices.last.get_attribute("aria-label") == "Overall"
    viewer.get_by_role("radio", name="Overall").check()
    until(page, shown)
    combined = viewer.locator(".over").nth(1).get_attribute("src")
    viewer.get_by_role("radio", name="Add: blue").check()
    until(page, "() => [...document.querySelectorAll('.over:not(.pending)')].length === 2")
    assert viewer.locator(".over").nth(1).get_attribute("src") != combined
    assert "term=add%3A0" in viewer.locator(".over").nth(1).get_attribute("src")
    zoom = "() => Number(getComputedStyle(document.querySelector('.stage')).getPropertyValue('--zoom'))"
    viewer.locator(".stack").last.dblclick()
    assert page.evaluate(zoom) == 2.5
    viewer.locator(".stack").last.hover()
    page.mouse.wheel(0, -300)
    assert page.evaluate(zoom) > 5
    page.keyboard.press("0")
    assert page.evaluate(zoom) == 1
    assert "0." not in viewer.inner_text()  # scores are among the details
    viewer.get_by_text("Details", exact=True).click()
    assert re.search(r"Score\s+0\.\d{3}", viewer.inner_text())
    first = viewer.get_by_role("heading").text_content()
    page.keyboard.press("Tab")
    viewer.get_by_role("button", name="Next").click()
    assert viewer.get_by_role("heading").text_content() != first
    page.keyboard.press("Escape")
    expect(viewer).to_be_hidden()


def test_cards_tell_which_wishes_are_met(page: Any) -> None:
    start(page)
    card = page.locator(".hit").first
    assert card.locator(".tick").all_text_contents() == ["blue", "yellow"]
    expect(card.locator(".tick.factor-add")).to_have_attribute("title", "Add: blue, maybe")  # half of it
    expect(card.locator(".tick.factor-remove")).to_have_class("tick factor-remove met")


def test_more_pictures_are_shown_until_there_are_no_more(page: Any) -> None:
    start(page)
    before = names(page)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator(".hit")).to_have_count(29)
    assert names(page)[: len(before)] == before
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()


def test_back_and_forward_go_through_questions_and_close_an_opened_picture(page: Any) -> None:
    start(page)
    first = names(page)
    page.get_by_label("What should be different?").fill("in green")
    page.get_by_role("button", name="Search").click()
    changed_from(page, first)
    second = names(page)
    page.locator(".hit .frame").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert names(page) == second
    page.locator(".hit .frame").first.click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    until(page, "() => !history.state?.viewing")  # closing it takes its step back
    page.go_back()
    becomes(page, first)
    expect(page.get_by_label("What should be different?")).to_have_value("in blue, no yellow")
    page.go_forward()
    becomes(page, second)


def test_any_result_becomes_the_reference(page: Any) -> None:
    start(page)
    name = names(page)[0]
    card = page.locator(".hit").first
    card.hover()
    card.get_by_role("button", name="Use as reference").click()
    expect(page.locator("#reference-picture")).to_have_attribute("alt", f"the reference: {name}")
    expect(page.locator("#reference-name")).to_have_text(name)  # not its path
    until(page, f"name => document.querySelector('.hit .bar') && !{NAMES}.includes(name)", name)


def test_the_address_holds_the_search(page: Any, browser: Any) -> None:
    start(page)
    fine_tune(page)
    page.get_by_label("Weight of Add").fill("1.5")
    page.get_by_role("switch", name="Use Looking for").click()
    until(page, "() => !document.querySelector('.hit .bar').ariaLabel.includes('Looking for')")
    found, address = names(page), page.url
    with visitor(browser, "", DESKTOP) as other:
        other.goto(address)
        expect(other.locator(".hit .bar").first).to_be_visible()
        assert names(other) == found
        assert chips(other, "add") == ["blue"]
        expect(other.locator("#reference-name")).to_have_text("red and green")
        fine_tune(other)
        expect(other.get_by_role("switch", name="Use Looking for")).not_to_be_checked()
        expect(other.get_by_label("Weight of Add")).to_have_value("1.5")


def test_hostile_names_are_shown_as_they_are(page: Any, address: str) -> None:
    page.goto("/")
    expect(page.locator(".hit:not(.ghostly)")).to_have_count(30)
    shown = names(page)
    assert '"><script>alert(1)</script>.png' in shown
    assert "zwei⏎Zeilen⏎⏎Set-Cookie: x=1.png" in shown
    assert "日本語 – ñ 🚲.png" in shown
    loaded = "[...document.images].filter(i => i.src).every(i => i.complete && i.naturalWidth > 0)"
    until(page, f"() => {{ scrollTo(0, document.body.scrollHeight); return {loaded} }}")
    assert page.locator(".gone").count() == 0
    for number, id_ in enumerate(HOSTILE_IDS):
        page.locator(".hit .frame").nth(20 + number).click()
        expect(page.locator("#reference-picture")).to_be_visible()
        until(page, "width => document.querySelector('#reference-picture').naturalWidth === width", 40 + number)
        if id_ != "..":
            with urllib.request.urlopen(f"{address}/api/images/{quote(id_, safe='')}") as reply:
                assert reply.status == 200


NAMELESS = """() => [...document.querySelectorAll('button, input, textarea, a, img, dialog')].filter(e => {
  if (e.closest('[hidden]') || e.closest('[aria-hidden=true]')) return false;
  if (e.tagName === 'IMG') return !e.hasAttribute('alt');
  const label = e.labels?.[0]?.textContent ?? '';
  const named = e.ariaLabel || e.getAttribute('aria-labelledby');
  return !(named || e.textContent.trim() || label.trim() || e.querySelector('img'));
}).map(e => e.outerHTML.slice(0, 120))"""


def test_everything_to_press_has_a_name(page: Any) -> None:
    start(page)
    assert page.evaluate(NAMELESS) == []
    page.locator(".hit .frame").first.click()
    assert page.evaluate(NAMELESS) == []
    page.keyboard.press("Escape")
    page.locator("[data-atom=blue]").click()
    assert page.evaluate(NAMELESS) == []
