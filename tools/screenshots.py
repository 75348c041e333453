"""The pictures of the page and of the report in docs/images, made anew from the demo's gallery.

    tapr demo && python tools/screenshots.py [--out docs/images]

Needs Chromium, playwright and the extras `serve` and `demo`.
"""

from __future__ import annotations

import argparse
import io
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tapr.encoders.weights import home
from tapr.gallery import Gallery
from tapr.serve.app import create_app
from tapr.serve.settings import Settings

REFERENCE, EDIT = "woman teacher, dark skin", "an astronaut instead of a teacher"
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


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
            page.get_by_role("radio", name="Continuity: its parts").check()
            page.wait_for_function("() => document.querySelectorAll('.over:not(.pending)').length === 2")
            settle(page)
            keep(page, out / "why-light.png", None)
        page.close()
    context = browser.new_context(viewport=PHONE, device_scale_factor=2, has_touch=True, is_mobile=True)
    page = context.new_page()
    search(page, address)
    page.locator("#stay-slider").fill("0.7")
    settle(page)
    page.locator("label[for=edit]").evaluate("e => scrollTo(0, e.getBoundingClientRect().top - 14)")
    settle(page)
    keep(page, out / "phone.png")
    context.close()


def report_picture(browser: Any, report: Path, out: Path) -> None:
    page = browser.new_page(viewport={"width": 1180, "height": 860}, color_scheme="light")
    page.goto(report.as_uri())
    panel = page.locator("section", has_text="sunglasses").first
    panel.locator("button.chip", has_text="sunglasses").first.click()
    keep(panel, out / "demo.png", None)
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
