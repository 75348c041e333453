"""The page beyond a picture and an edit: one of them alone, parts, several references, folds, facets, columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.server.settings import Settings
from tests.pictures import flag
from tests.server.browsing import DESKTOP, asked_for, axe_finds_nothing, close, expect, names, settles, start, until
from tests.server.conftest import SHADES, ColourFactorizer, served, serving, visitor
from tests.server.test_page_words import forms, table

LOOKED = "What are you looking for?"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """Twenty flags with a price, a date, a kind and a flag for what is new; captions stand in for names."""
    root = tmp_path_factory.mktemp("shop")
    rows = []
    pairs = [(left, right) for left in SHADES for right in SHADES if left != right]
    for number, (left, right) in enumerate(pairs):
        flag(left, right, size=(48 + 24 * (number % 3), 48)).save(root / f"{number}.png")
        rows.append({
            "id": f"{left}-{right}", "path": f"{number}.png", "name": f"{left} and {right}", "price": 10 + number,
            "since": f"2024-{1 + number % 12:02d}-01", "kind": "wide" if number % 3 else "square", "new": number < 5,
        })  # fmt: skip
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Gallery.build(root / "bank", root / "table.jsonl", FakeEncoder())


@pytest.fixture(scope="module")
def address(shop: Gallery) -> Iterator[str]:
    with serving(shop, ColourFactorizer()) as address:
        yield address


def test_words_alone(page: Any) -> None:
    page.goto("/#apart=1")
    page.get_by_label(LOOKED).fill("blue")
    request = asked_for(page, lambda: page.keyboard.press("Enter"))
    assert "reference_id" not in request
    expect(page.locator("#found-note")).to_contain_text("Text search")
    assert "blue" in names(page)[0]
    rows = page.locator(".factor").evaluate_all("rows => rows.map(row => row.dataset.factor)")
    assert rows == ["target", "add", "remove"]  # nothing to keep
    page.get_by_role("button", name="Add a phrase to Leave out").click()
    page.get_by_label("New phrase of Leave out").fill("yellow")
    asked_for(page, lambda: page.keyboard.press("Enter"))
    page.locator(".hit .frame").first.click()
    viewer = page.get_by_role("dialog")
    assert viewer.locator("figcaption").all_text_contents() == ["Found"]
    viewer.get_by_role("radio", name="Leave out: yellow").check()
    until(page, "() => document.querySelectorAll('.over:not(.pending)').length === 1")
    close(page)
    found = names(page)
    page.reload()
    expect(page.locator(".hit .bar").first).to_be_visible()
    assert names(page) == found


def test_a_picture_alone(page: Any) -> None:
    page.goto("/#apart=1")
    page.get_by_role("button", name="Use as reference: red and green").click()
    request = asked_for(page, lambda: page.get_by_role("button", name="Search").click())
    assert "spec" not in request
    expect(page.locator("#found-note")).to_contain_text("Image search")
    assert names(page)[0] == "green and red"
    page.locator(".hit .frame").first.click()
    viewer = page.get_by_role("dialog")
    viewer.get_by_role("radio", name="Likeness: details").check()
    until(page, "() => document.querySelectorAll('.over:not(.pending)').length === 2")
    close(page)
    page.reload()
    expect(page.locator("#found-note")).to_contain_text("Image search")


def test_examples_are_pressed(page: Any) -> None:
    page.goto("/")
    examples = page.get_by_role("list", name="Examples to try").get_by_role("button")
    first = examples.first.text_content()
    assert first == "red and green"  # what the gallery shows
    asked_for(page, examples.first.click)
    expect(page.locator("#found-note")).to_contain_text("Text search")
    expect(examples.first).to_be_hidden()
    page.goto("/#r=red-green")
    assert examples.all_text_contents() == ["in blue", "in black"]  # what its own names speak of: no snow, no night
    expect(page.get_by_label("What should be different?")).to_have_attribute("placeholder", "such as: in blue")
    asked_for(page, examples.first.click)
    assert page.locator("[data-factor=add] [data-atom=blue]").is_visible()


def test_near_duplicates_share_one_card_until_it_is_expanded(page: Any) -> None:
    start(page, edit="in blue")
    apart = names(page)
    page.get_by_text("Show", exact=True).click()
    request = asked_for(page, lambda: page.get_by_label("Group near-duplicates").check())
    assert 0.97 <= request["near_duplicates"] <= 1
    until(page, "before => document.querySelectorAll('.hit').length < before", len(apart))
    ranks = page.locator(".hit .rank").all_text_contents()
    assert ranks != [str(rank) for rank in range(1, len(ranks) + 1)]  # a rank is never changed
    unfold = page.get_by_role("button", name="2 alike").first
    before = page.locator(".hit").count()
    unfold.click()
    expect(page.locator(".hit")).to_have_count(before + 1)
    expect(page.locator(".hit.alike")).to_have_count(1)
    expect(page.get_by_role("button", name="Fold", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_have_count(before)


def test_a_part_of_the_reference_is_drawn_or_set_by_keys(page: Any) -> None:
    page.goto("/#apart=1&r=yellow-red&like=1")
    expect(page.locator(".hit .bar").first).to_be_visible()
    page.get_by_role("button", name="Crop").click()
    dialog = page.get_by_role("dialog", name="Select the area to search")
    until(page, "() => document.querySelector('.crop-stage img').naturalWidth > 0")
    box = dialog.locator(".crop-stage").bounding_box()
    page.mouse.move(box["x"] + 1, box["y"] + 1)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + box["height"] - 1, steps=4)
    page.mouse.up()
    request = asked_for(page, lambda: dialog.get_by_role("button", name="Use this area").click())
    left, _, right, bottom = request["crop"]
    assert left < 0.1
    assert right == pytest.approx(0.5, abs=0.05)
    assert bottom > 0.9
    expect(page.locator("#found-note")).to_contain_text("Only the selected area is searched")
    expect(page.locator("#crop-mark")).to_be_visible()
    assert "yellow" in names(page)[0]
    page.reload()
    expect(page.locator("#found-note")).to_contain_text("Only the selected area is searched")
    page.get_by_role("button", name="Crop").click()
    dialog.get_by_label("Left").focus()
    page.keyboard.press("End")  # it stops before the right edge
    dialog.get_by_label("Right").focus()
    page.keyboard.press("End")
    request = asked_for(page, lambda: dialog.get_by_role("button", name="Use this area").click())
    assert request["crop"][0] == pytest.approx(0.46, abs=0.05)
    assert request["crop"][2] == 1
    page.locator(".hit .frame").first.click()
    expect(page.locator("#viewer .crop-mark")).to_be_visible()
    close(page)
    page.get_by_role("button", name="Crop").click()
    request = asked_for(page, lambda: dialog.get_by_role("button", name="Whole picture").click())
    assert "crop" not in request


def test_a_further_reference_is_added_and_removed(page: Any) -> None:
    page.goto("/#apart=1&r=yellow-red&crop=0,0,0.5,1&like=1")
    expect(page.locator(".hit .bar").first).to_be_visible()
    page.get_by_role("button", name="Add picture").click()
    expect(page.locator("#adding")).to_be_visible()
    card = page.locator(".hit", has_text="blue and black").first
    card.hover()
    request = asked_for(page, lambda: card.get_by_role("button", name="Use as reference").click())
    assert request["more_references"] == [{"reference_id": "blue-black"}]
    assert request["crop"] == [0, 0, 0.5, 1]
    expect(page.locator("#more-references-list li")).to_have_count(1)
    expect(page.locator("#found-note")).to_contain_text("Pictures count equally")
    page.locator(".hit .frame").first.click()
    viewer = page.get_by_role("dialog")
    assert viewer.locator("figcaption").all_text_contents() == ["Reference 1", "Reference 2", "Found"]
    viewer.get_by_role("radio", name="Likeness: details (picture 2)").check()
    until(page, "() => document.querySelectorAll('.over:not(.pending)').length === 3")
    close(page)
    page.reload()
    expect(page.locator("#more-references-list li")).to_have_count(1)
    expect(page.locator(".hit .bar").first).to_be_visible()  # the search of the address has been answered
    request = asked_for(page, lambda: page.get_by_role("button", name="Remove: blue and black").click())
    assert "more_references" not in request


def test_facets_narrow_the_gallery_and_are_cleared(page: Any) -> None:
    page.goto("/")
    page.get_by_text("Filters", exact=True).click()
    page.get_by_label("square").check()
    expect(page.locator(".hit:not(.ghostly)")).to_have_count(7)
    expect(page.locator("#gallery-count")).to_have_text("20 pictures")  # the gallery's, whatever is filtered
    expect(page.locator("#found-note")).to_contain_text("7 of 20 meet the filters")
    page.get_by_label("price to").fill("0")
    expect(page.locator("#found-note")).to_contain_text("as the reference")
    expect(page.locator(".hit:not(.ghostly)")).to_have_count(1)
    page.get_by_label("true").check()
    page.get_by_label("since from").fill("100")
    expect(page.get_by_role("button", name="Clear the filters")).to_be_visible()
    assert "facets=" in page.url
    page.reload()
    page.get_by_role("button", name="Clear the filters").click()
    expect(page.locator(".hit:not(.ghostly)")).to_have_count(20)
    expect(page.get_by_label("square")).not_to_be_checked()


def test_an_unknown_column_is_named_with_the_known_ones_and_the_filter_cleared(page: Any) -> None:
    page.goto("/#where=prize < 4")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("there is no column 'prize': did you mean price?")
    expect(alert).to_contain_text("kind, name, new, price, since")
    alert.get_by_role("button", name="Clear the filters").click()
    expect(page.locator(".hit:not(.ghostly)")).to_have_count(20)
    expect(alert).to_be_hidden()


def test_chosen_columns_stand_under_the_pictures_and_in_the_address(page: Any) -> None:
    page.goto("/")
    page.get_by_text("Show", exact=True).click()
    page.get_by_label("price", exact=True).check()
    expect(page.locator(".hit .chosen").first).to_have_text("price10")
    page.get_by_label(LOOKED).fill("red")
    page.keyboard.press("Enter")
    expect(page.locator(".hit .bar").first).to_be_visible()
    expect(page.locator(".hit .chosen").first).to_contain_text("price")
    page.reload()
    expect(page.locator(".hit .chosen").first).to_contain_text("price")
    assert "columns=" in page.url


def test_the_page_says_what_it_is_doing(page: Any) -> None:
    held: list[Any] = []
    page.route("**/api/factorize", lambda route: held.append(route))  # noqa: PLW0108 - playwright asks for a function
    page.goto("/#r=red-green")
    page.get_by_label("What should be different?").fill("in blue")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#doing")).to_have_text("Reading the picture and your words …")
    settles(page, lambda: len(held), 1)
    held[0].continue_()
    expect(page.locator(".hit .bar").first).to_be_visible()
    expect(page.locator("#doing")).to_be_hidden()


SAID = """() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const said = [];
  while (walk.nextNode()) if (walk.currentNode.parentElement.checkVisibility()) said.push(walk.currentNode.data.trim());
  for (const e of document.querySelectorAll("[aria-label], [title], [placeholder]"))
    said.push(e.ariaLabel, e.title, e.placeholder);
  return said.filter(Boolean);
}"""


def test_the_page_speaks_the_browsers_language_or_the_chosen_one(browser: Any, address: str, axe: str) -> None:
    english, german = table("en"), table("de")
    left = {text for key in english for text in forms(english[key]) if text not in forms(german[key])}
    with visitor(browser, address, (1440, 900), locale="de-AT") as page:
        page.goto("/#apart=1&r=red-green&target=blue&remove=yellow")
        expect(page.locator(".hit .bar").first).to_be_visible()
        expect(page.get_by_label("Was soll anders sein?")).to_be_visible()
        expect(page.locator("#found-title")).to_have_text("Die besten 19 von 19")
        page.get_by_text("Feineinstellung").click()
        page.get_by_text("Filter", exact=True).click()
        page.locator(".hit .frame").first.click()
        expect(page.get_by_role("radio", name="Weglassen: yellow")).to_be_visible()
        assert page.evaluate("document.documentElement.lang") == "de"
        assert set(page.evaluate(SAID)) & left == set(), "left in English"
        axe_finds_nothing(page, axe)
        close(page)
        page.get_by_label("Sprache", exact=True).select_option("Español")
        expect(page.get_by_label("¿Qué debe ser diferente?")).to_be_visible()
        expect(page.locator(".hit .bar").first).to_be_visible()  # the search goes along
        page.goto("/")
        page.reload()
        expect(page.get_by_label("¿Qué busca?")).to_be_visible()  # remembered
        expect(page.locator("#weights")).to_be_hidden()
        page.goto("/#target=blue")
        page.reload()
        expect(page.locator("#weights")).to_be_visible()  # as is what was unfolded


def test_pictures_fill_cards_in_rows_of_one_height(page: Any) -> None:
    page.goto("/")
    expect(page.locator(".hit:not(.ghostly)")).to_have_count(20)
    boxes = page.locator(".frame").evaluate_all("all => all.map(e => e.getBoundingClientRect().toJSON())")
    rows: dict[int, list[dict[str, float]]] = {}
    for box in boxes:
        rows.setdefault(round(box["y"]), []).append(box)
    assert len(rows) < len(boxes)
    for row in rows.values():
        assert max(box["height"] for box in row) - min(box["height"] for box in row) <= 2
    shapes = {round(box["width"] / box["height"], 1) for box in boxes}
    assert len(shapes) == 3  # 48, 72 and 96 wide


def test_a_person_is_asked_for_the_token_and_keeps_the_search(browser: Any, shop: Gallery) -> None:
    with (
        served(shop, ColourFactorizer(), Settings(port=0, token="secret-token")) as server,
        visitor(browser, f"http://127.0.0.1:{server.port}", DESKTOP) as page,
    ):
        page.goto("/#target=blue&apart=1")
        page.get_by_label("Token").fill("guess-again")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("That is not the token of this server.")
        page.get_by_label("Token").fill("secret-token")
        page.keyboard.press("Enter")
        expect(page.locator(".hit .bar").first).to_be_visible()
        assert "blue" in names(page)[0]
        assert "token" not in page.url


def test_marked_pictures_become_chips_that_count_and_can_be_taken_off(page: Any, axe: str) -> None:
    start(page)
    before = names(page)
    wanted, unwanted = page.locator(".hit").nth(2), page.locator(".hit").nth(0)
    liked, disliked = (card.get_attribute("data-id") for card in (wanted, unwanted))
    wanted.hover()
    request = asked_for(page, wanted.get_by_role("button", name="More like this").click)
    assert (request["more_like"], "not_like" in request) == ([liked], False)
    page.locator(f'.hit[data-id="{disliked}"] .frame').click()
    viewer = page.get_by_role("dialog")
    request = asked_for(page, viewer.get_by_role("button", name="Not this one").click)
    assert (request["more_like"], request["not_like"]) == ([liked], [disliked])
    expect(viewer).to_be_hidden()
    chips = page.locator("#factors .chip.marked")
    expect(chips).to_have_count(2)
    assert page.locator("[data-factor=preserve] .marked, [data-factor=remove] .marked").evaluate_all(
        "found => found.map(chip => [chip.closest('section').dataset.factor, chip.dataset.marked])"
    ) == [["preserve", liked], ["remove", disliked]]
    assert not {before[0], before[2]} & set(names(page)), "marked pictures leave the answer"
    expect(page.locator("#found-note")).to_contain_text("Your marks count")
    axe_finds_nothing(page, axe)

    page.locator(".hit .frame").first.click()
    for term in (f"Keep: more like {before[2]}: details", f"Leave out: not like {before[0]}: details"):
        viewer.get_by_role("radio", name=term).check()
        until(page, "() => document.querySelectorAll('.over:not(.pending)').length === 2")
    expect(viewer.locator(".term.plain", has_text=f"more like {before[2]}: overall look")).to_be_visible()
    close(page)

    marked = names(page)
    page.reload()  # the address has the marks
    expect(chips).to_have_count(2)
    expect(chips.first).to_contain_text(before[2])
    until(page, "count => document.querySelectorAll('.hit .bar').length === count", len(marked))
    assert names(page) == marked
    asked_for(page, chips.first.click)
    request = asked_for(page, chips.first.click)
    assert not {"more_like", "not_like"} & set(request)
    assert sorted(names(page)) == sorted(before)
    assert asked_for(page, page.get_by_role("button", name="Undo").click)["not_like"] == [disliked]
    for mark in range(4):
        card = page.locator(".hit").first
        card.hover()
        card.get_by_role("button", name="More like this").click()
        expect(page.locator("[data-factor=preserve] .marked")).to_have_count(mark + 1)
        expect(page.locator("#found")).not_to_have_attribute("aria-busy", "true")
    card.hover()
    page.locator(".hit").first.get_by_role("button", name="More like this").click()
    expect(page.locator("#trouble")).to_contain_text("Up to 4 pictures")
