"""tapr searches: the saved searches of a gallery."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.table import Table

from tapr.cli.search import print_ranking
from tapr.cli.terminal import gallery_option, json_option, output, plain, print_json, say
from tapr.search.saved import SavedSearches
from tapr.store.saved_searches import Match, SavedSearch


@click.group()
def searches() -> None:
    """List, run and delete saved searches, and find new pictures that fit them.

    tapr search --save NAME saves one. A picture fits if it meets the filter and its score is at least the threshold:
    the one that was given, or the score of the last of the k hits when it was saved.
    """


@searches.command("list")
@gallery_option
@json_option
def list_(gallery_path: str, as_json: bool) -> None:
    """The saved searches, and how many new pictures each has found."""
    saved = SavedSearches(gallery_path)
    rows = [(one, len(saved.matches(one.name))) for one in saved.all()]
    if as_json:
        print_json({"searches": [{**_told(one), "matches": count} for one, count in rows]})
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("name", "asked", "fits from", "new"):
        table.add_column(column, overflow="fold")
    for one, count in rows:
        asked = one.question["words"] or one.question["asked"]["spec"]["target"]
        table.add_row(plain(one.name), plain(asked), f"{one.threshold:.4f}", f"{count:,}")
    output().print(table if rows else "no search is saved: see tapr search --save")


@searches.command()
@click.argument("name")
@gallery_option
@json_option
def run(name: str, gallery_path: str, as_json: bool) -> None:
    """Ask a saved search again, of the gallery as it is now."""
    ranking = SavedSearches(gallery_path).run(name)
    if as_json:
        print_json(ranking.to_dict())
    else:
        print_ranking(ranking)


@searches.command()
@click.argument("name", required=False)
@gallery_option
@json_option
def matches(name: str | None, gallery_path: str, as_json: bool) -> None:
    """New pictures that fit: look for them now, and list all that were found, of one search or of all."""
    saved = SavedSearches(gallery_path)
    saved.check(say)
    _print_matches(saved.matches(name), as_json)


@searches.command()
@click.argument("name")
@gallery_option
@json_option
def delete(name: str, gallery_path: str, as_json: bool) -> None:
    """Delete a saved search and its matches."""
    SavedSearches(gallery_path).delete(name)
    if as_json:
        print_json({"deleted": name})
    else:
        output().print(plain(f"deleted {name!r}"))


def _told(search: SavedSearch) -> dict[str, Any]:
    asked = search.question["asked"]
    shown = {"name": search.name, "words": search.question["words"], "spec": asked["spec"], "k": asked["k"]}
    rest = {"where": asked["where"], "threshold": search.threshold, "saved": search.made, "webhook": search.webhook}
    return {**shown, **rest}


def _print_matches(found: list[Match], as_json: bool) -> None:
    if as_json:
        print_json({"matches": [one.to_dict() for one in found]})
        return
    for one in found:
        moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.found))
        output().print(plain(f"{moment}  {one.search}: {one.id} (score {one.score:.4f})"), soft_wrap=True)
    if not found:
        output().print("no new picture fits yet")
