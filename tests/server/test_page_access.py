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
    fingers_can_hit_everything,
    reference_stays_in_sight,
    results_come_into_sight,
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
    page.locator("#filter summary").click()
    page.locator("#shown summary").click()
    axe_finds_nothing(page, axe)
    page.locator("#shown summary").click()
    page.locator(".hit .frame").first.click()
    axe_finds_nothing(page, axe)
    page.keyboard.press("Escape")
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
    page.locator(".hit .frame").first.tap()
    expect(page.get_by_role("dialog")).to_be_visible()
    fingers_can_hit_everything(page)
