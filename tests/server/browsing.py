"""What a visitor of the page does and sees, in short words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
PATIENCE = 30_000  # milliseconds, as long as Playwright waits for an act: CI's machine is slow
expect.set_options(timeout=PATIENCE)

DESKTOP, LAPTOP, PHONE = (1440, 900), (1366, 640), (390, 844)


def start(page: Any, *, edit: str = "in blue, no yellow", reference: str = "red and green") -> None:
    page.goto("/#apart=1")  # many flags are alike
    page.get_by_role("button", name=f"Use as reference: {reference}").click()
    page.get_by_label("What should be different?").fill(edit)
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".hit .bar").first).to_be_visible()


def fine_tune(page: Any) -> None:
    """Weights and switches, which are folded away at first; on a phone they are behind a button as well."""
    if page.locator("#adjust").is_visible():
        page.locator("#adjust").click()
    page.get_by_text("Fine-tune", exact=True).click()
    expect(page.locator("#weights")).to_be_visible()


def give_file(page: Any, path: Path) -> None:
    # before the page is ready it is inert for people, but not for the driver
    page.locator("#ask:not([inert]) #file").set_input_files(path)


def names(page: Any) -> list[str]:
    found: list[str] = page.locator(".hit .name").all_text_contents()
    return found


def chips(page: Any, factor: str) -> list[str]:
    found: list[str] = page.locator(f"[data-factor={factor}] .chip[data-atom] > span:first-child").all_text_contents()
    return found


def until(page: Any, condition: str, argument: Any = None) -> None:
    page.wait_for_function(condition, arg=argument)


NAMES = "[...document.querySelectorAll('.hit .name')].map(e => e.textContent)"


def changed_from(page: Any, before: list[str]) -> None:
    until(page, f"before => JSON.stringify({NAMES}) !== JSON.stringify(before)", before)


def becomes(page: Any, wanted: list[str]) -> None:
    until(page, f"wanted => JSON.stringify({NAMES}) === JSON.stringify(wanted)", wanted)


def settles(page: Any, look: Callable[[], Any], wanted: Any) -> None:
    """What is looked at becomes what is wanted, and stays told when it does not."""
    last = time.monotonic() + PATIENCE / 1000
    while (seen := look()) != wanted and time.monotonic() < last:
        page.wait_for_timeout(100)
    assert seen == wanted


def axe_finds_nothing(page: Any, axe: str) -> None:
    page.evaluate(axe)

    def violations() -> list[str]:
        found = page.evaluate("() => axe.run({resultTypes: ['violations']})")
        return [f"{one['id']}: {node['html'][:120]}" for one in found["violations"] for node in one["nodes"]]

    settles(page, violations, [])


SMALL = """() => [...document.querySelectorAll('button, select, summary, input, a, textarea, .switch, .check, .term')]
  .filter(e => e.checkVisibility() && !e.matches('.skip') && !e.parentElement.closest('.switch, .check, .term'))
  .map(e => [e.getBoundingClientRect(), e.outerHTML.slice(0, 90)])
  .filter(([box]) => box.height < 43.5 || box.width < 43.5)
  .map(([box, html]) => `${box.width} x ${box.height} ${html}`)"""


def fingers_can_hit_everything(page: Any) -> None:
    settles(page, lambda: page.evaluate(SMALL), [])
    settles(page, lambda: page.evaluate("document.documentElement.scrollWidth - innerWidth"), 0)  # nothing is wider


KEPT = ["#reference-picture", "#choose", "#part", "#forget", "#edit", "#go", ".ask-rest"]
OUT_OF_SIGHT = """parts => parts.filter(part => {
  const box = document.querySelector(part).getBoundingClientRect();
  return box.width === 0 || box.top < 0 || box.bottom > innerHeight || (part === '.ask-rest' && box.height < 200);
})"""


def reference_stays_in_sight(page: Any) -> None:
    """However far one has scrolled; and the factors have room too."""
    loads(page, "#reference-picture")
    page.locator(".hit").last.scroll_into_view_if_needed()
    page.locator(".ask-rest").evaluate("e => e.scrollTo(0, e.scrollHeight)")
    settles(page, lambda: page.evaluate(OUT_OF_SIGHT, KEPT), [])


WITHOUT_SCROLLING = """() => {
  const seen = part => {
    const box = part.getBoundingClientRect();
    return scrollY === 0 && box.width > 0 && box.top >= 0 && box.bottom <= innerHeight + 1;
  };
  const narrow = innerWidth < 861;
  const parts = narrow ? ['#reference-picture', '#edit', '#adjust', '#found-title']
    : ['#reference-picture', '#edit', '[data-factor=remove] .plus', '#fine-tune', '#found-title'];
  const hidden = parts.filter(part => !seen(document.querySelector(part)));
  const row = [...document.querySelectorAll('.hit .frame')];
  const first = row.filter(one => one.getBoundingClientRect().top === row[0].getBoundingClientRect().top);
  return [...hidden, ...first.filter(one => !seen(one)).map(one => one.ariaLabel)];
}"""


def all_is_seen_without_scrolling(page: Any) -> None:
    """The question, down to what is left out, and the first row of what was found."""
    settles(page, lambda: page.evaluate(WITHOUT_SCROLLING), [])


def camera_is_first(page: Any) -> None:
    camera, choose = (page.locator(part).bounding_box() for part in ("#camera", "#choose"))
    assert (camera["y"], camera["x"]) < (choose["y"], choose["x"])
    assert page.locator("#camera-file").get_attribute("capture") == "environment"


def results_come_into_sight(page: Any) -> None:
    until(page, "() => document.querySelector('.hit').getBoundingClientRect().top < innerHeight / 2")
    until(page, "() => document.querySelector('.hit .frame').getBoundingClientRect().top >= 0")


def loads(page: Any, pictures: str) -> None:
    """Every picture of the selector that is shown is there."""
    there = "every(i => i.hidden || (i.complete && i.naturalWidth > 0 && !i.classList.contains('pending')))"
    until(
        page,
        f"all => {{ const found = [...document.querySelectorAll(all)]; return found.length && found.{there} }}",
        pictures,
    )


def asked_for(page: Any, act: Any) -> dict[str, Any]:
    """What /api/rank is asked after an act, once the answer is on the page."""
    with page.expect_response("**/api/rank") as reply:
        act()
    assert reply.value.ok, reply.value.text()
    expect(page.locator("#found:not([aria-busy])")).to_be_attached()
    read: dict[str, Any] = json.loads(reply.value.request.post_data)
    return read


def close(page: Any) -> None:
    """An opened picture; the step of the history that it was is taken back."""
    page.keyboard.press("Escape")
    until(page, "() => !history.state?.viewing")
