"""A small gallery of coloured flags, a factorizer that knows colours, and a client of the server on them."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tapr.encoders.fake import COLOURS, FakeEncoder
from tapr.factorize.base import Factorizer
from tapr.gallery import Gallery
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
from starlette.testclient import TestClient

from tapr.server.app import create_app
from tapr.server.settings import Settings
from tests.pictures import flag, png

pytest.register_assert_rewrite("tests.server.browsing", "tests.server.whole_page")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run"
)
SHADES = ("red", "green", "blue", "yellow", "black")
# ids that break what is careless: URLs, HTML, SQL, headers, paths
HOSTILE_IDS = (
    "a/b c/d.png",
    '"><script>alert(1)</script>.png',
    "it's; DROP TABLE images;--.png",
    "zwei\nZeilen\r\nSet-Cookie: x=1.png",
    "日本語 – ñ 🚲.png",
    "..",
    "../../etc/passwd",
    "100%25 #1?x=y&z.png",
    "${7*7}{{7*7}}<img src=x onerror=alert(1)>",
    "\\\\server\\share\\x.png",
)


class ColourFactorizer:
    """Colour words after `no` are removed, the others added; after `instead` nothing of the picture stays."""

    name = "colours"

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        words = re.findall(r"\w+", edit.lower())
        removed = [word for before, word in pairwise(words) if before == "no" and word in COLOURS]
        added = [word for word in dict.fromkeys(words) if word in COLOURS and word not in removed]
        stays = 0.0 if "instead" in words else None
        spec = EditSpec(f"a picture {edit}", added, (), list(dict.fromkeys(removed)), continuity=stays)
        return Factorization(spec, self.name, ("colours only",) if not added else ())


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """Twenty flags named left-right.png, and ten pictures with hostile ids."""
    root = tmp_path_factory.mktemp("serve")
    rows: list[dict[str, object]] = []
    for left in SHADES:
        for right in SHADES:
            if left != right:
                flag(left, right, size=(48, 32)).save(root / f"{left}-{right}.png")
                path = f"{left}-{right}.png"
                rows.append({"id": path, "path": path, "name": f"{left} and {right}", "left": left})
    for number, id_ in enumerate(HOSTILE_IDS):
        Image.new("RGB", (40 + number, 40), COLOURS["purple"]).save(root / f"hostile{number}.png")
        rows.append({"id": id_, "path": f"hostile{number}.png", "note": "<b>bold</b>"})
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Gallery.build(root / "bank", root / "table.jsonl", FakeEncoder())


def client_of(gallery: Gallery, settings: Settings | None = None) -> TestClient:
    app = create_app(gallery, settings or Settings(names=("testserver",)), ColourFactorizer())
    return TestClient(app, base_url="http://127.0.0.1:8765", raise_server_exceptions=False)


@pytest.fixture(scope="session")
def client(gallery: Gallery) -> Iterator[TestClient]:
    with client_of(gallery) as client:
        yield client


@pytest.fixture
def red_file() -> bytes:
    """A reference that is not in the gallery."""
    return png(flag("red", size=(60, 60)))


@contextmanager
def served(
    gallery: Gallery | Mapping[str, Gallery], factorizer: Factorizer | None, settings: Settings | None = None
) -> Iterator[Any]:
    """A server on a socket, for those who do not speak ASGI: uvicorn's, as `tapr serve` runs it."""
    pytest.importorskip("uvicorn", reason="the extra 'serve' is not installed")
    from tapr.server.connections import listen, server_of

    settings = settings or Settings(port=0)
    with listen(settings) as listening:
        server: Any = server_of(create_app(gallery, settings, factorizer), settings)
        server.port = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield server
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def serving(gallery: Gallery, factorizer: Factorizer | None) -> Iterator[str]:
    """Its address."""
    with served(gallery, factorizer) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="session")
def address(gallery: Gallery) -> Iterator[str]:
    with serving(gallery, ColourFactorizer()) as address:
        yield address


@pytest.fixture(scope="module")  # while it is open its event loop runs in this thread, and others cannot
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        yield browser
        browser.close()


# The page is told every answer late: a test that looks too early fails each time, not once in a while on a slow machine
LATE = """const soon = window.fetch;
window.fetch = async (...asked) => {
  const reply = await soon(...asked);
  await new Promise((done) => setTimeout(done, 150));
  return reply;
};"""


@contextmanager
def visitor(browser: Any, address: str, size: tuple[int, int], **options: Any) -> Iterator[Any]:
    """A new visitor; whatever the page complains of in the console fails the test."""
    width, height = size
    context = browser.new_context(base_url=address, viewport={"width": width, "height": height}, **options)
    context.add_init_script(LATE)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
    page.on("console", lambda said: complaints.append(said.text) if "Content Security Policy" in said.text else None)
    yield page
    context.close()
    assert not complaints


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    with visitor(browser, address, (1280, 900)) as page:
        yield page


@pytest.fixture
def screen(browser: Any, address: str, request: Any) -> Iterator[Any]:
    """The page on a screen of the size and in the theme that a test names, or its class; a narrow one is touched."""
    size, scheme = getattr(request, "param", None) or request.cls.SCREEN
    phone = size[0] < 500
    with visitor(
        browser, address, size, color_scheme=scheme, has_touch=phone, is_mobile=phone, reduced_motion="reduce"
    ) as page:
        yield page


@pytest.fixture(scope="session")
def axe() -> str:
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-playwright-python, which brings axe-core, is not installed")
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def asked(page: Any) -> list[str]:
    """The API calls of the page, in order."""
    calls: list[str] = []
    page.on(
        "request",
        lambda request: calls.append(request.url.split("/api/")[-1].split("?")[0]) if "/api/" in request.url else None,
    )
    return calls
