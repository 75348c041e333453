"""tapr first-stage: what a search of a very large gallery reads before the pictures themselves."""

from __future__ import annotations

import click

from tapr.cli.terminal import ProgressBar, gallery_option, json_option, output, plain, print_json
from tapr.gallery import Gallery
from tapr.search.prefilter.store import build
from tapr.search.prefilter.summary import RANK
from tapr.utils.amounts import counted
from tapr.utils.clock import Clock


@click.command("first-stage")
@gallery_option
@click.option(
    "--directions",
    default=RANK,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Kept per picture: more rule out more pictures, and take more memory.",
)
@json_option
def first_stage(gallery_path: str, directions: int, as_json: bool) -> None:
    """Make the first stage of a gallery: summaries that bound every score, and an index of candidates (FAISS).

    Then tapr search --prefilter N reads at most N pictures exactly and says whether the answer is proven exact;
    --prefilter exact reads as many as the proof needs. Make it again after the gallery has changed.
    """
    gallery, clock = Gallery.open(gallery_path), Clock()
    with ProgressBar("summarising") as progress:
        made = build(gallery, directions=directions, progress=progress)
    clock.lap("build")
    seconds, each = clock.laps["build"], made.bytes / gallery.row_count
    if as_json:
        print_json(
            {"gallery": str(gallery.path), "pictures": gallery.row_count, "directions": directions,
             "bytes": made.bytes, "seconds": round(seconds, 3)}
        )  # fmt: skip
        return
    output().print(
        plain(
            f"{gallery.path}: first stage of {counted(gallery.row_count, 'picture')} in {seconds:.1f} s, "
            f"{made.bytes / 1e6:.1f} MB ({each / 1e3:.1f} KB per picture; their vectors take "
            f"{gallery.manifest.row_bytes() / 1e3:.1f})"
        ),
        soft_wrap=True,
    )
