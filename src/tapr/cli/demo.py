"""tapr demo: a real composed search, offline, nothing to configure."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

import tapr
from tapr import demo as bundled
from tapr.cli.terminal import ProgressBar, json_option, output, plain, print_json, say
from tapr.encoders.weights import home
from tapr.errors import BadInput
from tapr.explain.report import Panel, write_report
from tapr.gallery import Gallery
from tapr.index.sources import resolve
from tapr.query.open_reference import open_reference
from tapr.result import Ranking
from tapr.store.layout import MANIFEST

_SHOWN = 6
# for the user's own pictures
_OWN_EDITS = ("the same at night", "the same in red", "a drawing of it", "seen from above")


@dataclass(frozen=True, eq=False)
class _Answer:
    query: bundled.DemoQuery
    ranking: Ranking
    rank: int | None  # of the best right answer
    plain_rank: int | None  # the rank if the edit alone is the target


@click.command()
@click.option("--images", type=click.Path(), help="Use the pictures of this folder instead of the bundled ones.")
@click.option("--serve", is_flag=True, help="Open the page on this gallery afterwards.")
@json_option
def demo(images: str | None, serve: bool, as_json: bool) -> None:
    """Index a few hundred emoji once, run composed searches on them, and write a page that explains the answers."""
    begin = time.perf_counter()
    gallery = _gallery(images)
    answers = [_ask(gallery, query) for query in (_own_queries(gallery) if images else bundled.queries())]
    page = write_report(
        gallery.path.parent / f"{gallery.path.name}.html", [_panel(answer) for answer in answers], "tapr demo"
    )
    if as_json:
        print_json(_as_json(gallery, answers, page))
    else:
        _print(answers)
        first = answers[0].ranking
        ran = f"encoder {first.encoder} ({first.extractor}), factorizer {first.factorizer}, kernel {first.kernel}"
        say(f"{len(gallery)} pictures, {ran}")
        say(f"{time.perf_counter() - begin:.0f} s in all" + ("" if images else f"; {bundled.CREDIT}"))
        output().print(f"See why, atom by atom: {page}", soft_wrap=True, markup=False)
    if serve:
        from tapr.cli.serve import serve_gallery

        serve_gallery(gallery)


def _gallery(images: str | None) -> Gallery:
    folder = home() / "demo"
    with ProgressBar() as progress:
        if images is None:
            table = folder / "emoji.jsonl"
            bundled.write_table(table)
            _renew(folder / "emoji", progress)
            return Gallery.build(folder / "emoji", table, progress=progress)
        name = hashlib.sha256(resolve(images).encode()).hexdigest()[:12]
        _renew(folder / f"own-{name}", progress)
        gallery = Gallery.build(folder / f"own-{name}", images, progress=progress)
    if not len(gallery):
        raise BadInput(f"there is no picture that can be read in {images!r}")
    return gallery


def _renew(folder: Path, progress: ProgressBar) -> None:
    """A gallery that an older tapr left in the cache gets the vectors that a new one would have."""
    if (folder / MANIFEST).exists():
        Gallery.reencode(folder, progress=progress)


def _own_queries(gallery: Gallery) -> list[bundled.DemoQuery]:
    positions = np.linspace(0, len(gallery) - 1, num=len(_OWN_EDITS)).astype(int)
    ids = [entry.id for entry in gallery.entries(positions)]
    return [bundled.DemoQuery(id_, edit, ()) for id_, edit in zip(ids, _OWN_EDITS, strict=True)]


def _ask(gallery: Gallery, query: bundled.DemoQuery) -> _Answer:
    reference = open_reference(query.reference, gallery.encoder, gallery)
    everything = len(gallery)
    ranking = tapr.search(gallery, reference, query.edit, k=everything)
    alone = tapr.search(
        gallery, reference, spec=tapr.EditSpec(query.edit), k=everything, weights=tapr.Weights(1, 0, 0, 0)
    )
    return _Answer(query, ranking, _rank(ranking, query), _rank(alone, query))


def _rank(ranking: Ranking, query: bundled.DemoQuery) -> int | None:
    return min((hit.rank for hit in ranking.hits if hit.id in query.answers), default=None)


def _panel(answer: _Answer) -> Panel:
    shown = dataclasses.replace(answer.ranking, hits=answer.ranking.hits[:_SHOWN])
    found = next((hit.id for hit in answer.ranking.hits if hit.rank == answer.rank), None)
    note = None
    if answer.query.answers:
        note = (
            f"The right answer ({found}) ranks {answer.rank}; with the edit alone as the target, {answer.plain_rank}."
        )
    return Panel(shown, answer.query.edit, answer=found, note=note)


def _as_json(gallery: Gallery, answers: list[_Answer], page: Path) -> dict[str, Any]:
    first = answers[0].ranking
    queries = [
        {
            "reference": answer.query.reference,
            "edit": answer.query.edit,
            "spec": answer.ranking.spec.to_dict(),
            "answers": list(answer.query.answers),
            "rank": answer.rank,
            "rank_edit_as_target": answer.plain_rank,
            "hits": [
                {"rank": hit.rank, "id": hit.id, "path": hit.path, "score": hit.score}
                for hit in answer.ranking.hits[:_SHOWN]
            ],
        }
        for answer in answers
    ]
    return {
        "gallery": str(gallery.path),
        "pictures": len(gallery),
        "encoder": gallery.card.to_dict(),
        "factorizer": first.factorizer,
        "kernel": first.kernel,
        "page": str(page),
        "queries": queries,
    }


def _print(answers: list[_Answer]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("reference", "edit", "found first"):
        table.add_column(column, overflow="fold")
    judged = any(answer.query.answers for answer in answers)
    if judged:
        table.add_column("rank", justify="right")
        table.add_column("edit alone", justify="right", style="dim")
    for answer in answers:
        first = answer.ranking.hits[0].id if answer.ranking.hits else ""
        found = f"[bold]{plain(first)}[/]" if first in answer.query.answers else plain(first)
        row = [plain(answer.query.reference), plain(answer.query.edit), found]
        table.add_row(*row, *([str(answer.rank), str(answer.plain_rank)] if judged else []))
    out = output()
    out.print(table)
    if judged:
        ours = np.array([answer.rank for answer in answers])
        alone = np.array([answer.plain_rank for answer in answers])
        out.print(
            f"mean rank of the right answer {ours.mean():.1f}, first in {(ours == 1).sum()} of {len(ours)} searches"
        )
        out.print(f"with the edit alone as the target {alone.mean():.1f}, first in {(alone == 1).sum()}", style="dim")
