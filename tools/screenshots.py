"""The pictures of the page and of the report in docs/images, made anew from the demo's gallery.

    tapr demo && python tools/screenshots.py [--out docs/images]

Needs Chromium, playwright and the extras `serve` and `demo`.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tapr.encoders.weights import home
from tapr.gallery import Gallery
from tapr.server.app import create_app
from tapr.server.settings import Settings

REFERENCE, EDIT = "cat face", "a dog instead of a cat"
WORDS = "a person with a book"
DESK, LAPTOP, PHONE = {"width": 1440, "height": 900}, {"width": 1366, "height": 640}, {"width": 390, "height": 844}


@contextmanager
def serving(gallery: Gallery) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(create_app(gallery, Settings()), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def search(page: Page, address: str) -> None:
    page.goto(f"{address}/#r={REFERENCE}&edit={EDIT}")
    page.wait_for_selector(".hit .bar")
    settle(page)


def settle(page: Page) -> None:
    """Every picture that can be seen is there, and nothing moves."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)


def keep(shown: Any, path: Path, colours: int | None = 256) -> None:
    """A page, or a part of it. Flat pages need few colours; heat maps need them all."""
    picture = Image.open(io.BytesIO(shown.screenshot())).convert("RGB")
    if colours:
        picture = picture.quantize(colours, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    print(path)


def page_pictures(browser: Any, address: str, out: Path) -> None:
    for theme in ("light", "dark"):
        page = browser.new_page(viewport=DESK, color_scheme=theme)
        search(page, address)
        keep(page, out / f"found-{theme}.png")
        if theme == "light":
            page.locator(".hit .frame").first.click()
            page.get_by_role("radio", name="Likeness: details").check()
            page.wait_for_function("() => document.querySelectorAll('.over:not(.pending)').length === 2")
            settle(page)
            keep(page, out / "why-light.png", None)
        else:
            part_picture(page, out)
        page.close()
    laptop_picture(browser, address, out)
    context = browser.new_context(viewport=PHONE, device_scale_factor=2, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"{address}/#r={REFERENCE}")
    page.get_by_label("What should be different?").fill(EDIT)
    page.get_by_role("button", name="Search").tap()
    page.wait_for_selector(".hit .bar")
    settle(page)
    keep(page, out / "phone.png")
    context.close()


def part_picture(page: Page, out: Path) -> None:
    """The dialog in which a part of the reference is drawn."""
    page.get_by_role("button", name="Crop").click()
    settle(page)
    box = page.locator(".crop-stage").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.08 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 0.62 * box["height"], steps=4)
    page.mouse.up()
    keep(page.locator("#cropper"), out / "part-dark.png")


def laptop_picture(browser: Any, address: str, out: Path) -> None:
    """Words alone on a low screen, with facets and columns."""
    page = browser.new_page(viewport=LAPTOP, color_scheme="light")
    columns, facets = quote(json.dumps(["kind", "skin"])), quote(json.dumps({"gender": {"values": ["woman"]}}))
    page.goto(f"{address}/#edit={WORDS}&columns={columns}&facets={facets}")
    page.wait_for_selector(".hit .bar")
    page.locator(".ask-rest").evaluate("e => e.scrollTo(0, document.querySelector('#filter').offsetTop - e.offsetTop)")
    settle(page)
    keep(page, out / "laptop-light.png")
    page.close()


def report_picture(browser: Any, report: Path, out: Path) -> None:
    page = browser.new_page(viewport={"width": 1180, "height": 860}, color_scheme="light")
    page.goto(report.as_uri())
    keep(page.locator("section").first, out / "demo.png")  # the demo's first search
    page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of docs/images anew.")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    demo = home() / "demo"
    flags = ["--no-sandbox", "--disable-gpu"]
    with serving(Gallery.open(demo / "emoji")) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page_pictures(browser, address, out)
        report_picture(browser, demo / "emoji.html", out)
        browser.close()


if __name__ == "__main__":
    main()
