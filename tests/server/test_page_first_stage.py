"""The page over a gallery with a first stage: a limit on the time, and whether the answer is proven."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tapr.gallery import Gallery
from tests.server.browsing import DESKTOP, PHONE, expect, fine_tune, fingers_can_hit_everything, start
from tests.server.conftest import ColourFactorizer, client_of, serving, visitor

LIMIT = "Time limit (ms)"


@pytest.fixture(scope="module")
def summarised(gallery: Gallery, tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """The same gallery with a first stage."""
    copy = tmp_path_factory.mktemp("summarised") / "gallery"
    shutil.copytree(gallery.path, copy)
    Gallery.add_first_stage(copy)
    return Gallery.open(copy, encoder=gallery.encoder)


@pytest.fixture(scope="module")
def limited(summarised: Gallery) -> Iterator[str]:
    """The address of its server."""
    with serving(summarised, ColourFactorizer()) as address:
        yield address


def asked_of(reply: Any) -> dict[str, Any]:
    asked: dict[str, Any] = json.loads(reply.value.request.post_data)
    return asked


def test_the_gallery_says_whether_it_has_a_first_stage(gallery: Gallery, summarised: Gallery) -> None:
    for one, expected in ((gallery, False), (summarised, True)):
        with client_of(one) as client:
            assert client.get("/api/gallery").json()["first_stage"] is expected


def test_without_a_first_stage_no_limit_is_offered_or_asked(page: Any) -> None:
    start(page)
    fine_tune(page)
    expect(page.get_by_label(LIMIT)).to_be_hidden()
    page.goto(f"{page.url}&budget_ms=50")
    with page.expect_response("**/api/rank") as reply:
        page.reload()
    assert reply.value.status == 200
    assert "budget_ms" not in asked_of(reply)
    expect(page.locator("#found-note")).not_to_contain_text("Proven")


def test_a_limit_is_asked_kept_in_the_address_and_taken_back(browser: Any, limited: str) -> None:
    with visitor(browser, limited, DESKTOP) as page:
        start(page)
        expect(page.locator("#found-note")).to_have_text(
            ""
        )  # few pictures: all are compared, and nothing is to be said
        fine_tune(page)
        field = page.get_by_label(LIMIT)
        with page.expect_response("**/api/rank") as reply:
            field.fill("5000")
            field.press("Enter")
        assert asked_of(reply)["budget_ms"] == 5000
        expect(page.locator("#found-note")).to_have_text("Proven exact")
        assert "30 of 30 pictures read in full" in (page.locator("#facts").text_content() or "")
        assert "budget_ms=5000" in page.url
        with page.expect_response("**/api/rank") as reply:
            page.reload()
        assert asked_of(reply)["budget_ms"] == 5000
        expect(field).to_have_value("5000")
        with page.expect_response("**/api/rank") as reply:
            field.fill("0")  # no limit
            field.press("Enter")
        assert "budget_ms" not in asked_of(reply)
        expect(field).to_have_value("")
        expect(page.locator("#found-note")).to_have_text("")


@pytest.mark.parametrize(
    ("locale", "count", "said"),
    [
        ("en", 1, "1 picture not ruled out"),
        ("en", 1234, "1,234 pictures not ruled out"),
        ("de", 1234, "1.234 Bilder nicht ausgeschlossen"),
    ],
)
def test_what_is_not_proven_is_told_in_the_visitors_words(
    browser: Any, limited: str, locale: str, count: int, said: str
) -> None:
    def answer(route: Any) -> None:
        """As a gallery of 20,000 pictures answers in a short time."""
        reply = route.fetch()
        told = reply.json()
        told["prefilter"] = {"read": 128, "open": count, "pictures": 20_000, "proven": False}
        told["notes"] = [f"exact: not proven; 128 of 20,000 pictures read in full, and {count:,} more could not be ..."]
        route.fulfill(response=reply, json=told)

    with visitor(browser, limited, DESKTOP, locale=locale) as page:
        page.route("**/api/rank", answer)
        page.goto("/#apart=1&r=red-green.png&target=blue&budget_ms=20")
        expect(page.locator("#found-note")).to_have_text(said)
        with page.expect_response("**/api/rank") as reply:
            page.locator("#more").click()
        more = asked_of(reply)  # the whole list again: what is found in the time may differ
        assert (more["k"], more["budget_ms"], "offset" in more) == (48, 20, False)
        expect(page.locator(".hit")).to_have_count(29)


def test_on_a_phone_fingers_can_hit_it(browser: Any, limited: str) -> None:
    with visitor(browser, limited, PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce") as page:
        start(page)
        fine_tune(page)
        expect(page.get_by_label(LIMIT)).to_be_visible()
        fingers_can_hit_everything(page)
