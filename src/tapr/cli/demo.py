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
from tapr.cli.terminal import ProgressBar, json_option, link, output, plain, print_json, say
from tapr.encoders.weights import home
from tapr.errors import BadInput
from tapr.explain.report import Panel, write_report
from tapr.gallery import Gallery
from tapr.index.sources import resolve
from tapr.query.open_reference import open_reference
from tapr.result import Hit, Ranking
from tapr.utils.amounts import counted

_SHOWN = 6
# for the user's own pictures
_OWN_EDITS = ("the same at night", "the same in red", "a drawing of it", "seen from above")


@dataclass(frozen=True, eq=False)
class _Answer:
    query: bundled.DemoQuery
    ranking: Ranking
    rank: int | None  # of the best right answer
    plain_rank: int | None  # the rank if the edit alone is the target

    @property
    def right(self) -> Hit | None:
        return None if self.rank is None else self.ranking.hits[self.rank - 1]

    @property
    def why(self) -> str | None:
        """Why the right answer is not first: what is hard about it, and what the first picture has ahead of it."""
        first, right = self.ranking.hits[0], self.right
        if right is None or right.rank == 1:
            return None
        ahead = [part.value - other.value for part, other in zip(first.contributions, right.contributions, strict=True)]
        most = int(np.argmax(ahead))
        part = first.contributions[most]
        by = f'"{part.text}"' if part.peak is not None else part.label.lower()
        measured = f'"{first.id}" is ahead mostly by {by} (+{ahead[most]:.3f}).'
        return f"{self.query.why} {measured}" if self.query.why else measured


@click.command()
@click.option("--images", type=click.Path(), help="Use the pictures of this folder instead of the bundled ones.")
@click.option("--serve", is_flag=True, help="Open the page on this gallery afterwards.")
@json_option
def demo(images: str | None, serve: bool, as_json: bool) -> None:
    """Index a few hundred emoji once, run composed searches on them, and write a page that explains the answers."""
    begin = time.perf_counter()
    gallery = _gallery(images)
    answers = [_ask(gallery, query) for query in (_own_queries(gallery) if images else bundled.queries())]
    # what was found first, then what was not: by the rank that was measured here, which another processor may change
    answers.sort(key=lambda answer: answer.rank or 0)
    page = write_report(
        gallery.path.parent / f"{gallery.path.name}.html",
        [_panel(answer) for answer in answers],
        "tapr demo",
        _about(gallery, answers, None if images else bundled.CREDIT),
    )
    if as_json:
        print_json(_as_json(gallery, answers, page))
    else:
        _print(answers)
        first = answers[0].ranking
        ran = f"encoder {first.encoder} ({first.extractor}), factorizer {first.factorizer}, kernel {first.kernel}"
        say(f"{counted(len(gallery), 'picture')}, {ran}")
        say(f"{time.perf_counter() - begin:.0f} s in all" + ("" if images else f"; {bundled.CREDIT}"))
        output().print("See why, picture by picture: ", link(page), sep="", soft_wrap=True)
    if serve:
        from tapr.cli.serve import serve_gallery

        serve_gallery(gallery)


def _gallery(images: str | None) -> Gallery:
    folder = home() / "demo"
    with ProgressBar() as progress:
        if images is None:
            table = folder / "emoji.jsonl"
            bundled.write_table(table)
            return Gallery.build(folder / "emoji", table, progress=progress)
        name = hashlib.sha256(resolve(images).encode()).hexdigest()[:12]
        gallery = Gallery.build(folder / f"own-{name}", images, progress=progress)
    if not len(gallery):
        raise BadInput(f"there is no picture that can be read in {images!r}")
    return gallery


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
    right = answer.right
    if right is None:
        return Panel(shown, answer.query.edit)
    place = "first" if right.rank == 1 else f"at rank {right.rank}"
    note = f"The right answer, {right.id}, is {place}. By the edit's words alone its rank is {answer.plain_rank}."
    if answer.why:
        note += f" Why not first: {answer.why}"
    return Panel(shown, answer.query.edit, answer=right.id, note=note)


def _about(gallery: Gallery, answers: list[_Answer], credit: str | None) -> list[str]:
    """Return the lines above the searches."""
    if credit is None:
        return []
    first = sum(answer.rank == 1 for answer in answers)
    others = [str(answer.rank) for answer in answers if answer.rank != 1]
    last = f"; those with the right answer at rank {', '.join(others)} come last, with their reasons" if others else ""
    said = f"{counted(len(answers), 'search', 'searches')} in {counted(len(gallery), 'picture')}"
    return [f"{said}: the right answer is first in {first}{last}. {credit}."]


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
            "why_not_first": answer.why,
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
    for answer in answers:
        if answer.why and answer.right:
            out.print(plain(f"{answer.right.id} is not first: {answer.why}"), style="dim")
    if judged:
        ours = np.array([answer.rank for answer in answers])
        alone = np.array([answer.plain_rank for answer in answers])
        out.print(
            f"mean rank of the right answer {ours.mean():.1f}, first in {(ours == 1).sum()} of {len(ours)} searches"
        )
        out.print(f"with the edit alone as the target {alone.mean():.1f}, first in {(alone == 1).sum()}", style="dim")
