"""The page in a real browser: the whole story, from a reference to a changed mind."""

from __future__ import annotations

import json
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tapr.gallery import Gallery
from tapr.serve.settings import Settings
from tests.pictures import flag, png
from tests.serve.conftest import HOSTILE_IDS, ColourFactorizer

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="the extra 'serve' is not installed")
expect = playwright_api.expect

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run"
)


@pytest.fixture(scope="module")
def address(gallery: Gallery) -> Iterator[str]:
    from tapr.serve.app import create_app

    config = uvicorn.Config(create_app(gallery, Settings(), ColourFactorizer()), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A new visitor; whatever the page complains of in the console fails the test."""
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
    page.on("console", lambda said: complaints.append(said.text) if "Content Security Policy" in said.text else None)
    yield page
    context.close()
    assert not complaints


@pytest.fixture
def asked(page: Any) -> list[str]:
    """The API calls of the page, in order."""
    calls: list[str] = []
    page.on(
        "request",
        lambda request: calls.append(request.url.split("/api/")[-1].split("?")[0]) if "/api/" in request.url else None,
    )
    return calls


def start(page: Any, *, edit: str = "in blue, no yellow", reference: str = "red and green") -> None:
    page.goto("/")
    page.get_by_role("button", name=f"Use as reference: {reference}").click()
    page.get_by_label("What should be different?").fill(edit)
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".hit .bar").first).to_be_visible()


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


def test_from_a_picture_and_an_edit_to_pictures_and_reasons(page: Any) -> None:
    start(page)
    assert chips(page, "add") == ["blue"]
    assert chips(page, "remove") == ["yellow"]
    assert "blue" in names(page)[0]
    assert "Target" in page.locator(".hit .bar").first.get_attribute("aria-label")
    expect(page.locator("#facts")).to_contain_text("encoder fake (tokens) · factorizer colours · kernel")
    expect(page.locator("#found-title")).to_have_text("24 of 29 pictures")


def test_chips_are_added_changed_weighed_moved_and_deleted_without_a_new_factorization(
    page: Any, asked: list[str]
) -> None:
    start(page, edit="in blue and green")
    before = names(page)
    asked.clear()

    page.get_by_role("button", name="Add an atom to Remove").click()
    page.get_by_label("New atom of Remove").fill("black")
    page.keyboard.press("Enter")
    changed_from(page, before)
    assert chips(page, "remove") == ["black"]

    page.locator("[data-atom=green]").click()
    page.get_by_label("Words").fill("yellow")
    page.keyboard.press("Enter")
    expect(page.locator("[data-atom=yellow]")).to_be_visible()
    assert chips(page, "add") == ["blue", "yellow"]

    before = names(page)
    page.locator("[data-atom=yellow]").click()
    page.get_by_label("Weight of this atom").fill("3")
    changed_from(page, before)
    page.keyboard.press("Escape")
    expect(page.locator("[data-atom=yellow] .times")).to_have_text("×3.0")

    before = names(page)
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
    page.get_by_role("switch", name="Use Preserve").click()
    changed_from(page, before)
    assert "Preserve" not in page.locator(".hit .bar").first.get_attribute("aria-label")
    page.get_by_role("switch", name="Use Preserve").click()
    until(page, "() => document.querySelector('.hit .bar').ariaLabel.includes('Preserve')")
    assert names(page) == before


def test_undo_and_redo_go_through_every_step(page: Any) -> None:
    start(page)
    first = names(page)
    page.get_by_role("switch", name="Use Add").click()
    changed_from(page, first)
    second = names(page)
    page.locator("#weight-remove").fill("2")
    changed_from(page, second)
    page.locator("#found").focus()
    page.keyboard.press("Control+z")
    changed_from(page, names(page))
    assert names(page) == second
    page.get_by_role("button", name="Undo").click()
    changed_from(page, second)
    assert names(page) == first
    page.keyboard.press("Control+Shift+z")
    changed_from(page, first)
    assert names(page) == second


def test_a_result_shows_where_its_evidence_lies_beside_the_reference(page: Any) -> None:
    start(page)
    page.locator(".hit .frame").first.click()
    viewer = page.get_by_role("dialog")
    expect(viewer).to_be_visible()
    until(page, "() => [...document.querySelectorAll('.viewer img')].every(i => i.complete && i.naturalWidth > 0)")
    assert viewer.locator("figcaption").all_text_contents() == ["Reference", "Found"]
    combined = viewer.locator(".over").nth(1).get_attribute("src")
    viewer.get_by_role("radio", name="Add: blue").check()
    until(page, "() => [...document.querySelectorAll('.over:not(.pending)')].length === 2")
    assert viewer.locator(".over").nth(1).get_attribute("src") != combined
    assert "atom=blue" in viewer.locator(".over").nth(1).get_attribute("src")
    first = viewer.get_by_role("heading").text_content()
    page.keyboard.press("Tab")
    viewer.get_by_role("button", name="Next").click()
    assert viewer.get_by_role("heading").text_content() != first
    page.keyboard.press("Escape")
    expect(viewer).to_be_hidden()


def test_any_result_becomes_the_reference(page: Any) -> None:
    start(page)
    name = names(page)[0]
    card = page.locator(".hit").first
    card.hover()
    card.get_by_role("button", name="Use as reference").click()
    expect(page.locator("#reference-picture")).to_have_attribute(
        "alt", f"the reference: {name.replace(' and ', '-')}.png"
    )
    until(page, f"name => document.querySelector('.hit .bar') && !{NAMES}.includes(name)", name)


def test_the_address_holds_the_search(page: Any, browser: Any) -> None:
    start(page)
    page.get_by_label("Weight of Add").fill("1.5")
    page.get_by_role("switch", name="Use Target").click()
    page.wait_for_load_state("networkidle")
    found, address = names(page), page.url
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    other = context.new_page()
    other.goto(address)
    expect(other.locator(".hit .bar").first).to_be_visible()
    assert names(other) == found
    assert chips(other, "add") == ["blue"]
    expect(other.get_by_role("switch", name="Use Target")).not_to_be_checked()
    expect(other.get_by_label("Weight of Add")).to_have_value("1.5")
    context.close()


def test_an_own_picture_is_chosen_dropped_or_pasted(page: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_bytes(png(flag("red", "yellow", size=(200, 100))))
    page.goto("/")
    page.locator("#file").set_input_files(tmp_path / "mine.png")
    expect(page.locator("#reference-name")).to_have_text("mine.png")
    expect(page.locator("#found-title")).to_have_text("Now say what should be different")
    give = """([kind, bytes]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(bytes)], `${kind}.png`, {type: "image/png"}));
      const options = {dataTransfer: data, clipboardData: data, bubbles: true, cancelable: true};
      const event = kind === "drop" ? new DragEvent(kind, options) : new ClipboardEvent(kind, options);
      document.body.dispatchEvent(event);
    }"""
    for kind, colour in (("drop", "green"), ("paste", "blue")):
        page.evaluate(give, [kind, list(png(flag(colour)))])
        expect(page.locator("#reference-name")).to_have_text(f"{kind}.png")
    page.get_by_label("What should be different?").fill("yellow")
    page.keyboard.press("Enter")
    expect(page.locator(".hit .bar").first).to_be_visible()
    assert "yellow" in names(page)[0]


def test_a_link_to_an_upload_says_that_the_picture_is_missing_and_takes_it(page: Any, tmp_path: Path) -> None:
    page.goto(f"/#upload={'0' * 64}&target=blue&add=blue")
    expect(page.get_by_role("alert")).to_contain_text("The reference of this link was uploaded")
    expect(page.locator("#drop-hint")).to_be_visible()
    (tmp_path / "mine.png").write_bytes(png(flag("red", "yellow")))
    page.locator("#file").set_input_files(tmp_path / "mine.png")
    expect(page.locator(".hit .bar").first).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()
    assert chips(page, "add") == ["blue"]


def test_an_upload_that_the_server_has_forgotten_is_sent_again(page: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_bytes(png(flag("red", "yellow", "red")))
    page.goto("/")
    page.locator("#file").set_input_files(tmp_path / "mine.png")
    page.get_by_label("What should be different?").fill("blue")
    page.keyboard.press("Enter")
    expect(page.locator(".hit .bar").first).to_be_visible()
    forgotten: list[bool] = []

    def forget_once(route: Any) -> None:
        if forgotten:
            route.continue_()
            return
        forgotten.append(True)
        route.fulfill(status=404, body='{"detail": "x"}', content_type="application/problem+json")

    page.route("**/api/rank", forget_once)
    page.get_by_role("switch", name="Use Add").click()
    until(page, "() => !document.querySelector('.hit .bar').ariaLabel.includes('Add')")
    assert forgotten
    expect(page.get_by_role("alert")).to_be_hidden()


def test_trouble_is_said_in_the_servers_words_and_can_be_tried_again(page: Any, tmp_path: Path) -> None:
    (tmp_path / "no.png").write_text("not a picture")
    page.goto("/")
    page.locator("#file").set_input_files(tmp_path / "no.png")
    expect(page.get_by_role("alert")).to_have_text("The reference is not a picture in a format that Pillow reads")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose a reference first")

    start(page)
    page.get_by_text("Only some pictures").click()
    page.get_by_label("Filter on metadata").fill("left =")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Cannot read the filter 'left ='")
    page.get_by_label("Filter on metadata").fill("left = 'mauve'")
    page.keyboard.press("Enter")
    expect(page.locator("#found-title")).to_have_text("No picture meets the filter")
    page.get_by_label("Filter on metadata").fill("")
    page.keyboard.press("Enter")
    expect(page.locator("#found-title")).to_have_text("24 of 29 pictures")

    page.route("**/api/rank", lambda route: route.abort())
    page.get_by_role("switch", name="Use Add").click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    page.unroute("**/api/rank")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_when_the_factorizer_fails_the_factors_are_written_by_hand(page: Any) -> None:
    problem = json.dumps({"detail": "the model cannot be reached"})
    page.route(
        "**/api/factorize",
        lambda route: route.fulfill(status=503, body=problem, content_type="application/problem+json"),
    )
    page.goto("/")
    page.get_by_role("button", name="Use as reference: red and green").click()
    page.get_by_label("What should be different?").fill("blue")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("The model cannot be reached")
    page.get_by_role("button", name="Write the factors yourself").click()
    expect(page.locator(".hit .bar").first).to_be_visible()
    expect(page.get_by_label("Target sentence")).to_have_value("blue")


def test_the_keyboard_is_enough(page: Any) -> None:
    page.goto("/")
    page.get_by_role("button", name="Use as reference: red and green").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("What should be different?")).to_be_focused()
    page.keyboard.type("in blue")
    page.keyboard.press("Enter")
    expect(page.locator("[data-atom=blue]")).to_be_visible()
    page.locator("[data-atom=blue]").focus()
    page.keyboard.press("Alt+ArrowDown")
    expect(page.locator("[data-factor=preserve] [data-atom=blue]")).to_be_focused()
    page.keyboard.press("Delete")
    expect(page.get_by_role("button", name="Add an atom to Preserve")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("What should be different?")).to_be_focused()


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Any, address: str) -> None:
    context = browser.new_context(
        base_url=address, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    start(page)
    widths = "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    wide, screen = page.evaluate(widths)
    assert wide <= screen
    page.locator(".hit .frame").first.tap()
    expect(page.get_by_role("dialog")).to_be_visible()
    wide, screen = page.evaluate(widths)
    assert wide <= screen
    context.close()


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


def test_the_description_of_the_api_is_drawn_without_a_network(page: Any) -> None:
    outside: list[str] = []
    page.on("request", lambda request: outside.append(request.url) if "127.0.0.1" not in request.url else None)
    page.goto("/docs")
    expect(page.locator(".route")).to_have_count(9)
    expect(page.locator(".route").first).to_contain_text("/api/search")
    assert outside == []
