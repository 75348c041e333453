"""Routes of saved searches: list, save, run, delete, and a feed of new matches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from fastapi import APIRouter, Request
from pydantic import Field
from pydantic_core import to_json
from starlette.responses import Response

from tapr.errors import BadOption
from tapr.query.spec import MAX_EDIT_CHARACTERS
from tapr.result import SearchResult, json_ready
from tapr.server import schemas
from tapr.server.access import GALLERY
from tapr.server.concurrency import ConcurrencyLimit
from tapr.server.engine import Engine
from tapr.server.fetching import NotFetched
from tapr.server.notifier import Notifier, saved_searches
from tapr.server.picture_api import BINARY, BYTES, as_accepted
from tapr.server.questions import RankRequest, question
from tapr.server.schemas import problem_replies
from tapr.store.quota import Quota
from tapr.store.saved_searches import Match, SavedSearch

_ATOM = "http://www.w3.org/2005/Atom"
_READ = problem_replies(400, 404, 422, 429, 503)
_WRITE = problem_replies(400, 401, 403, 404, 413, 422, 429, 503)
_FEED: dict[int | str, dict[str, Any]] = {
    200: {"description": "An Atom feed.", "content": dict.fromkeys((BYTES, "application/atom+xml"), BINARY)},
    **_READ,
}
_FEED_ENTRIES = 100


_WORDS = "What the spec was made of, to show to people; without it, the edit or the text."


class SaveRequest(RankRequest):
    """A question to save. A picture that the gallery does not have is sent to /api/references first."""

    edit: str | None = Field(None, max_length=MAX_EDIT_CHARACTERS, description="What should be different, in words.")
    text: str | None = Field(None, max_length=MAX_EDIT_CHARACTERS, description="Search by words alone.")
    like: bool = Field(False, description="Search by the reference alone, without words.")
    words: str | None = Field(None, max_length=MAX_EDIT_CHARACTERS, description=_WORDS)
    webhook: str | None = Field(None, max_length=2000, description="Where to post new matches to; see --webhook.")


def saved_router(engine: Engine, notifier: Notifier, pool: ConcurrencyLimit, quota: Quota | None) -> APIRouter:
    router = APIRouter(prefix="/api")

    def described(search: SavedSearch) -> schemas.SavedSearch:
        return _described(search, len(saved_searches(engine).matches(search.name)))

    @router.get("/searches", responses=_READ)
    async def list_searches() -> schemas.SavedSearches:
        """The saved searches of the gallery."""
        return await pool.run(
            lambda: schemas.SavedSearches(searches=[described(one) for one in saved_searches(engine).all()])
        )

    @router.put("/searches/{name}", responses=_WRITE)
    async def save_search(name: str, request: SaveRequest) -> schemas.SavedSearch:
        """Save a search under a name, in place of one of that name. New pictures that fit it are then found.

        A picture fits if its score is at least `threshold`: the one given, or the score of the last of the k hits now.
        """

        def work() -> schemas.SavedSearch:
            if request.webhook is not None:
                try:
                    notifier.receivers.check(request.webhook)
                except NotFetched as error:
                    raise BadOption(str(error), "webhook") from None
            given = {one: getattr(request, one) for one in request.model_fields_set if one in RankRequest.model_fields}
            asked = question(RankRequest.of(**given), like=request.like, edit=request.edit, text=request.text)
            return described(saved_searches(engine).save_question(name, asked, request.webhook, request.words, quota))

        return await pool.run(work)

    @router.delete("/searches/{name}", status_code=204, response_class=Response, responses=_WRITE)
    async def delete_search(name: str) -> Response:
        """Delete a saved search and its matches."""
        await pool.run(lambda: saved_searches(engine).delete(name))
        return Response(status_code=204)

    @router.get("/searches/{name}/results", response_model=SearchResult, responses=_READ)
    async def run_search(name: str) -> Response:
        """The answer to a saved search, of the gallery as it is now."""

        def work() -> bytes:
            ranking = saved_searches(engine).run(name)
            for reference in ranking.references:
                engine.references.keep(reference)
            return to_json(json_ready(engine.marked(ranking).to_dict(paths=False)))

        return Response(await pool.run(work), media_type="application/json")

    @router.get("/searches/{name}/feed", response_class=Response, responses=_FEED)
    async def feed(request: Request, name: str) -> Response:
        """New pictures that fit a saved search, as an Atom feed, the newest first."""

        def work() -> bytes:
            saved = saved_searches(engine)
            search = saved.file.get(name)
            gallery_id = engine.gallery.manifest.gallery_id or "gallery"
            root = f"{request.url.scheme}://{request.url.netloc}/api/galleries/{request.scope[GALLERY]}"
            return atom(search, saved.matches(search.name)[-_FEED_ENTRIES:], gallery_id, root)

        return as_accepted(request, Response(await pool.run(work), media_type="application/atom+xml"))

    return router


def _described(search: SavedSearch, matches: int) -> schemas.SavedSearch:
    asked = search.question["asked"]
    return schemas.SavedSearch(
        name=search.name,
        words=search.question["words"],
        spec=asked["spec"],
        weights=asked["weights"],
        reference_weight=asked.get("reference_weight"),
        pictures=[schemas.SavedPicture(**picture) for picture in search.question["pictures"]],
        k=asked["k"],
        where=asked["where"],
        threshold=search.threshold,
        saved=datetime.fromtimestamp(search.made, UTC),
        webhook=urlsplit(search.webhook).hostname if search.webhook else None,
        matches=matches,
    )


def atom(search: SavedSearch, matches: list[Match], gallery_id: str, root: str) -> bytes:
    """RFC 4287. An entry's id names the picture's content, so that no reader shows it twice."""
    feed = ElementTree.Element("feed", xmlns=_ATOM)
    own = f"{root}/searches/{quote(search.name, safe='')}/feed"
    name = f"tag:tapr,2026:{gallery_id}/{quote(search.name, safe='')}/{search.made}"
    _element(feed, "id", name)
    _element(feed, "title", f"New pictures: {search.name}")
    _element(feed, "updated", _time(matches[-1].found if matches else search.made))
    _element(_element(feed, "author"), "name", "tapr")
    ElementTree.SubElement(feed, "link", rel="self", href=own)
    for match in reversed(matches):
        entry = _element(feed, "entry")
        picture = f"{root}/images?id={quote(match.id.encode(errors='replace'), safe='')}"
        _element(entry, "id", f"{name}/{match.sha256}")
        _element(entry, "title", match.id)
        _element(entry, "updated", _time(match.found))
        ElementTree.SubElement(entry, "link", rel="alternate", href=picture)
        _element(entry, "summary", f"Score {match.score:.4f}, from {search.threshold:.4f} on a picture fits.")
    return bytes(ElementTree.tostring(feed, encoding="utf-8", xml_declaration=True))


def _element(parent: ElementTree.Element, tag: str, text: str | None = None) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, tag)
    # XML has no control characters and no lone surrogates, an id may
    element.text = None if text is None else "".join(one if one.isprintable() else "\ufffd" for one in text)
    return element


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
