"""The page for everyone: axe finds nothing, on desktop, laptop and phone, light and dark; hands find what they need."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.serve.browsing import expect, start

DESKTOP, LAPTOP, PHONE = (1440, 900), (1366, 640), (390, 844)
SCREENS = [
    (DESKTOP, "light"),
    (DESKTOP, "dark"),
    (LAPTOP, "light"),
    (LAPTOP, "dark"),
    (PHONE, "light"),
    (PHONE, "dark"),
]


@pytest.fixture(scope="session")
def axe() -> str:
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-playwright-python, which brings axe-core, is not installed")
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def screen(browser: Any, address: str, request: Any) -> Iterator[Any]:
    (width, height), scheme = request.param
    phone = width < 500
    context = browser.new_context(
        base_url=address, viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=phone,
        is_mobile=phone, reduced_motion="reduce",
    )  # fmt: skip
    yield context.new_page()
    context.close()


def violations(page: Any, axe: str) -> list[str]:
    page.evaluate(axe)
    found = page.evaluate("() => axe.run({resultTypes: ['violations']})")
    return [f"{one['id']}: {node['html'][:120]}" for one in found["violations"] for node in one["nodes"]]


@pytest.mark.parametrize("screen", SCREENS, indirect=True)
def test_axe_finds_nothing(screen: Any, axe: str) -> None:
    page = screen
    page.goto("/")
    expect(page.locator(".hit:not(.ghostly)").first).to_be_visible()
    assert violations(page, axe) == []
    start(page)
    page.locator("#filter summary").click()
    page.locator("#shown summary").click()
    assert violations(page, axe) == []
    page.locator("#shown summary").click()
    page.locator(".hit .frame").first.click()
    assert violations(page, axe) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Choose a part").click()
    assert violations(page, axe) == []


@pytest.mark.parametrize("screen", [(LAPTOP, "light"), ((1366, 768), "light")], indirect=True)
def test_on_a_laptop_the_reference_and_its_controls_stay_in_sight(screen: Any) -> None:
    page = screen
    start(page)
    height = page.viewport_size["height"]
    page.locator(".hit").last.scroll_into_view_if_needed()
    page.locator(".ask-rest").evaluate("e => e.scrollTo(0, e.scrollHeight)")
    for part in ("#reference-picture", "#choose", "#part", "#forget", "#edit", "#go"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0, part
        assert box["y"] + box["height"] <= height, part
    rest = page.locator(".ask-rest").bounding_box()
    assert min(height, rest["y"] + rest["height"]) - rest["y"] >= 200  # the factors have room too


SMALL = """() => [...document.querySelectorAll('button, summary, input, a, textarea, .switch, .check, .term')]
  .filter(e => e.checkVisibility() && !e.matches('.skip') && !e.parentElement.closest('.switch, .check, .term'))
  .map(e => [e.getBoundingClientRect(), e.outerHTML.slice(0, 90)])
  .filter(([box]) => box.height < 43.5 || box.width < 43.5)
  .map(([box, html]) => `${box.width} x ${box.height} ${html}`)"""


@pytest.mark.parametrize("screen", [(PHONE, "light")], indirect=True)
def test_on_a_phone_the_camera_is_first_results_are_in_sight_and_targets_are_large(screen: Any) -> None:
    page = screen
    page.goto("/")
    camera, choose = (page.locator(part).bounding_box() for part in ("#camera", "#choose"))
    assert (camera["y"], camera["x"]) < (choose["y"], choose["x"])
    assert page.locator("#camera-file").get_attribute("capture") == "environment"
    expect(page.locator(".hit:not(.ghostly)").first).to_be_visible()
    assert page.evaluate(SMALL) == []
    start(page)
    page.wait_for_function("() => document.querySelector('.hit').getBoundingClientRect().top < innerHeight / 2")
    assert page.locator(".hit .frame").first.bounding_box()["y"] >= 0
    assert page.evaluate(SMALL) == []
    wide, seen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= seen
    page.locator(".hit .frame").first.tap()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate(SMALL) == []
