"""The page with pictures of one's own, without a server, without a mouse, without much room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.pictures import flag, png
from tests.server.browsing import chips, expect, fine_tune, give_file, names, settles, start, until
from tests.server.conftest import visitor


def test_an_own_picture_is_chosen_dropped_or_pasted(page: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_bytes(png(flag("red", "yellow", size=(200, 100))))
    page.goto("/")
    give_file(page, tmp_path / "mine.png")
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


def test_a_refusal_that_comes_after_the_next_question_is_not_told(page: Any) -> None:
    page.goto("/#target=blue")
    expect(page.locator(".hit .bar").first).to_be_visible()
    with page.expect_response(lambda reply: reply.status == 400):
        page.evaluate("location.hash = 'target=blue&where=nothing = 1'")
    page.evaluate("location.hash = 'target=green&apart=1'")  # before the page has read the refusal
    settles(page, lambda: "green" in next(iter(names(page)), ""), True)
    expect(page.locator("#found:not([aria-busy])")).to_be_attached()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_link_to_an_upload_says_that_the_picture_is_missing_and_takes_it(page: Any, tmp_path: Path) -> None:
    page.goto(f"/#upload={'0' * 64}&target=blue&add=blue")
    expect(page.get_by_role("alert")).to_contain_text("The reference of this link was uploaded")
    expect(page.locator("#drop-hint")).to_be_visible()
    (tmp_path / "mine.png").write_bytes(png(flag("red", "yellow")))
    give_file(page, tmp_path / "mine.png")
    expect(page.locator(".hit .bar").first).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()
    assert chips(page, "add") == ["blue"]


def test_an_upload_that_the_server_has_forgotten_is_sent_again(page: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_bytes(png(flag("red", "yellow", "red")))
    page.goto("/")
    give_file(page, tmp_path / "mine.png")
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
    fine_tune(page)
    page.get_by_role("switch", name="Use Add").click()
    until(page, "() => !document.querySelector('.hit .bar').ariaLabel.includes('Add')")
    assert forgotten
    expect(page.get_by_role("alert")).to_be_hidden()


def hold_the_first(page: Any, pattern: str) -> list[Any]:
    """The first request of this kind waits here, once it has been made."""
    held: list[Any] = []

    def hold(route: Any) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route(pattern, hold)
    return held


def test_searching_again_while_the_ranking_is_under_way_does_not_lose_it(page: Any) -> None:
    held = hold_the_first(page, "**/api/rank")  # never answered
    page.goto("/")
    page.get_by_role("button", name="Use as reference: red and green").click()
    page.get_by_label("What should be different?").fill("in blue")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("[data-atom=blue]")).to_be_visible()
    settles(page, lambda: len(held), 1)
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".hit .bar").first).to_be_visible()


def test_a_refused_picture_is_still_told_when_other_requests_end_after_it(page: Any, tmp_path: Path) -> None:
    (tmp_path / "no.png").write_text("not a picture")
    held = hold_the_first(page, "**/api/gallery?*offset=*")
    page.goto("/")
    give_file(page, tmp_path / "no.png")
    told = page.get_by_role("alert")
    expect(told).to_have_text("The reference is not a picture in a format that tapr reads")
    settles(page, lambda: len(held), 1)
    held[0].continue_()
    expect(page.get_by_role("button", name="Use as reference: red and green")).to_be_visible()
    expect(told).to_have_text("The reference is not a picture in a format that tapr reads")
    (tmp_path / "mine.png").write_bytes(png(flag("red", "yellow")))
    give_file(page, tmp_path / "mine.png")
    expect(page.locator("#reference-name")).to_have_text("mine.png")
    expect(told).to_be_hidden()


def test_trouble_is_said_in_the_servers_words_and_can_be_tried_again(page: Any, tmp_path: Path) -> None:
    (tmp_path / "no.png").write_text("not a picture")
    page.goto("/")
    give_file(page, tmp_path / "no.png")
    expect(page.get_by_role("alert")).to_have_text("The reference is not a picture in a format that tapr reads")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose a picture, say in words")

    start(page)
    page.get_by_text("Filters", exact=True).click()
    page.get_by_label("Filter on metadata").fill("left =")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Cannot read the filter 'left ='")
    page.locator("#facets").get_by_label("red").check()
    page.get_by_label("Filter on metadata").fill("left = =")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Cannot read the filter 'left = ='")  # without what was ticked
    page.locator("#facets").get_by_label("red").uncheck()
    page.get_by_label("Filter on metadata").fill("left = 'mauve'")
    page.keyboard.press("Enter")
    expect(page.locator("#found-title")).to_have_text("No picture meets the filters")
    page.get_by_label("Filter on metadata").fill("")
    page.keyboard.press("Enter")
    expect(page.locator("#found-title")).to_have_text("Top 24 of 29")

    fine_tune(page)
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
    page.get_by_role("button", name="Write the phrases yourself").click()
    expect(page.locator(".hit .bar").first).to_be_visible()
    expect(page.get_by_label("The sentence")).to_have_value("blue")


def asked_atoms(answer: Any) -> list[str]:
    spec = answer.request.post_data_json["spec"]
    return [*spec["add"], *spec["preserve"]]


def answered(page: Any) -> None:
    expect(page.locator("#found")).not_to_have_attribute("aria-busy", "true")


def test_an_opened_picture_stays_open_when_another_ranking_arrives(page: Any) -> None:
    start(page)
    held = hold_the_first(page, "**/api/rank")
    page.locator("[data-atom=yellow]").focus()
    page.keyboard.press("Delete")
    settles(page, lambda: len(held), 1)
    page.locator(".hit .frame").first.click()
    viewer = page.get_by_role("dialog")
    opened = viewer.locator(".over").last.get_attribute("data-id")
    with page.expect_response("**/api/rank"):
        held[0].continue_()
    answered(page)
    expect(viewer).to_be_visible()
    expect(viewer.locator(".over").last).to_have_attribute("data-id", opened)
    page.keyboard.press("Escape")
    expect(viewer).to_be_hidden()


def test_the_keyboard_is_enough(page: Any) -> None:
    page.goto("/#apart=1")
    page.get_by_role("button", name="Use as reference: red and green").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("What should be different?")).to_be_focused()
    page.keyboard.type("in blue")
    page.keyboard.press("Enter")
    expect(page.locator("[data-atom=blue]")).to_be_visible()
    page.locator("[data-atom=blue]").focus()
    page.keyboard.press("Alt+ArrowDown")
    expect(page.locator("[data-factor=preserve] [data-atom=blue]")).to_be_focused()
    with page.expect_response(lambda one: one.url.endswith("/api/rank") and "blue" not in asked_atoms(one)):
        page.keyboard.press("Delete")
    expect(page.get_by_role("button", name="Add a phrase to Keep")).to_be_focused()
    answered(page)  # what arrives later would be another ranking under the keys below
    page.keyboard.press("/")
    edit = page.get_by_label("What should be different?")
    expect(edit).to_be_focused()

    frames, viewer = page.locator(".hit .frame"), page.get_by_role("dialog")
    page.keyboard.press("ArrowDown")  # from the field to the pictures
    expect(frames.first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(frames.nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(frames.last).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(viewer).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(viewer.get_by_role("button", name="Next")).to_be_disabled()
    page.keyboard.press("Escape")
    expect(frames.last).to_be_focused()  # where one looked last
    for _ in range(frames.count()):
        if edit.evaluate("e => e === document.activeElement"):
            break
        page.keyboard.press("ArrowUp")
    expect(edit).to_be_focused()
    page.get_by_role("button", name="Add a phrase to Keep").press("Enter")
    page.keyboard.type("red")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Add a phrase to Keep")).to_be_focused()


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Any, address: str) -> None:
    with visitor(browser, address, (360, 740), has_touch=True, is_mobile=True) as page:
        start(page)
        widths = "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        wide, screen = page.evaluate(widths)
        assert wide <= screen
        page.locator(".hit .frame").first.tap()
        expect(page.get_by_role("dialog")).to_be_visible()
        wide, screen = page.evaluate(widths)
        assert wide <= screen
