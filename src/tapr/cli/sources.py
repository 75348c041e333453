"""tapr sources: where a gallery's pictures come from, and what to do when that changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tapr.cli.index import print_report
from tapr.cli.index_options import index_options
from tapr.cli.terminal import ProgressBar, gallery_option, json_option, output, print_json
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.index.sources import find
from tapr.store import uploads
from tapr.utils.amounts import counted
from tapr.utils.safe_text import printable


@click.command()
@gallery_option
@index_options("drop", "move")
@json_option
def sources(gallery_path: str, drop: tuple[str, ...], move: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """List the folders, files and tables that a gallery was indexed from; drop or move them.

    --drop and --move bring the gallery up to date at once, as tapr index does. Pictures that only moved are not encoded
    again.
    """
    gallery = Gallery.open(gallery_path)
    if drop or move:
        with ProgressBar() as progress:
            report = gallery.sync(drop=drop, move=move, progress=progress)
        print_report(gallery, report, as_json)
        return
    rows = list(_rows(gallery))
    if as_json:
        print_json({"gallery": str(gallery.path), "sources": rows})
        return
    for row in rows:
        problem = f" ({row['problem']})" if row["problem"] else ""
        output().print(
            printable(f"{row['source']}: {counted(row['pictures'], 'picture')}{problem}"), markup=False, soft_wrap=True
        )


def _rows(gallery: Gallery) -> Iterator[dict[str, Any]]:
    counts = gallery.pictures_by_source()
    for source in gallery.sources():
        try:
            problem = find([source]).empty.get(source)
        except BadInput as error:  # a table that cannot be read
            problem = str(error)
        yield {"source": source, "pictures": counts.get(source, 0), "problem": problem}
    if counts.get(uploads.SOURCE):  # put one by one
        yield {"source": uploads.SOURCE, "pictures": counts[uploads.SOURCE], "problem": None}
