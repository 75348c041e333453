"""The description of the API in a real browser: its routes, examples and answers, without a network."""

from __future__ import annotations

from typing import Any

from tests.server.browsing import axe_finds_nothing, expect


def test_the_description_of_the_api_is_drawn_without_a_network(page: Any, axe: str) -> None:
    outside: list[str] = []
    page.on("request", lambda request: outside.append(request.url) if "127.0.0.1" not in request.url else None)
    page.goto("/docs")
    paths = page.request.get("/openapi.json").json()["paths"]
    plain = [methods for path, methods in paths.items() if not path.startswith("/api/galleries/{")]
    routes = page.locator(".route")
    expect(routes).to_have_count(sum(map(len, plain)))
    expect(page.locator("nav a")).to_have_count(sum(map(len, plain)) + 1)
    search = page.locator("#search")
    expect(search).to_contain_text("/api/search")
    expect(search.locator("pre").first).to_contain_text("/api/search --json '{")
    expect(search.locator("pre").nth(1)).to_contain_text("-F reference=@photo.jpg")
    expect(search.locator("pre").nth(2)).to_contain_text('"searched_by": "a picture and words"')
    search.get_by_text("Fields").click()
    expect(search.locator("td").filter(has_text="reference_url").first).to_be_visible()
    page.get_by_role("link", name="POST rank").click()
    expect(page.locator("#rank")).to_be_in_viewport()
    axe_finds_nothing(page, axe)
    assert outside == []
