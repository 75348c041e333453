"""The page for everyone: axe finds nothing, on desktop, laptop and phone, light and dark; hands find what they need."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.browsing import (
    DESKTOP,
    LAPTOP,
    PHONE,
    axe_finds_nothing,
    camera_is_first,
    expect,
    fine_tune,
    fingers_can_hit_everything,
    reference_stays_in_sight,
    results_come_into_sight,
    settles,
    start,
)

SCREENS = [
    (DESKTOP, "light"),
    (DESKTOP, "dark"),
    (LAPTOP, "light"),
    (LAPTOP, "dark"),
    (PHONE, "light"),
    (PHONE, "dark"),
]


@pytest.mark.parametrize("screen", SCREENS, indirect=True)
def test_axe_finds_nothing(screen: Any, axe: str) -> None:
    page = screen
    page.goto("/")
    expect(page.locator(".hit:not(.ghostly)").first).to_be_visible()
    axe_finds_nothing(page, axe)
    start(page)
    page.locator("#shown summary").click()
    axe_finds_nothing(page, axe)
    page.locator("#shown summary").click()
    fine_tune(page)
    page.locator("#filter summary").click()
    axe_finds_nothing(page, axe)
    if page.locator("#adjust").is_visible():
        page.locator("#adjust").click()
    page.locator(".hit .frame").first.click()
    axe_finds_nothing(page, axe)
    page.keyboard.press("Escape")
    if page.locator("#adjust").is_visible():
        page.locator("#adjust").click()
    page.get_by_role("button", name="Crop").click()
    axe_finds_nothing(page, axe)


@pytest.mark.parametrize("screen", [(LAPTOP, "light"), ((1366, 768), "light")], indirect=True)
def test_on_a_laptop_the_reference_and_its_controls_stay_in_sight(screen: Any) -> None:
    page = screen
    start(page)
    reference_stays_in_sight(page)


@pytest.mark.parametrize("screen", [(PHONE, "light")], indirect=True)
def test_on_a_phone_the_camera_is_first_results_are_in_sight_and_targets_are_large(screen: Any) -> None:
    page = screen
    page.goto("/")
    camera_is_first(page)
    expect(page.locator(".hit:not(.ghostly)").first).to_be_visible()
    fingers_can_hit_everything(page)
    start(page)
    results_come_into_sight(page)
    fingers_can_hit_everything(page)
    fine_tune(page)
    fingers_can_hit_everything(page)
    page.locator("#adjust").click()
    page.locator(".hit .frame").first.tap()
    viewer = page.get_by_role("dialog")
    expect(viewer).to_be_visible()
    fingers_can_hit_everything(page)

    fingers = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        there = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": there})

    first, second = (page.locator(".hit .name").nth(place).text_content() for place in (0, 1))
    for across, name in ((-120, second), (120, first)):  # a swipe, and back
        touch("touchStart", (200, 200))
        touch("touchMove", (200 + across / 2, 204))
        touch("touchMove", (200 + across, 206))
        touch("touchEnd")
        expect(viewer.locator("h2 .name")).to_have_text(name)
    zoom = "() => Number(getComputedStyle(document.querySelector('.stage')).getPropertyValue('--zoom'))"
    touch("touchStart", (180, 200), (220, 200))
    touch("touchMove", (140, 200), (260, 200))
    touch("touchEnd")
    settles(page, lambda: page.evaluate(zoom) > 2, True)
    viewer.locator("figure").first.tap()  # the small reference
    page.keyboard.press("0")
    viewer.locator("figure").first.tap()
    expect(viewer.locator("figure").first).to_have_class("front")
