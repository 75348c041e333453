"""What a visitor of the page does and sees, in short words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect


def start(page: Any, *, edit: str = "in blue, no yellow", reference: str = "red and green") -> None:
    page.goto("/#apart=1")  # many flags are alike
    page.get_by_role("button", name=f"Use as reference: {reference}").click()
    page.get_by_label("What should be different?").fill(edit)
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".hit .bar").first).to_be_visible()


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
