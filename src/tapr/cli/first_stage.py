"""tapr first-stage: summaries of a gallery's pictures, so that searches read few of them."""

from __future__ import annotations

import click

from tapr.cli.terminal import ProgressBar, gallery_option, json_option, output, plain, print_json, wait_option
from tapr.gallery import Gallery
from tapr.utils.amounts import counted
from tapr.utils.clock import Clock


def advice(gallery: Gallery) -> str:
    """Return what to do about a large gallery that has no first stage; empty: nothing."""
    if not gallery.lacks_first_stage():
        return ""
    return f"searches read every picture in full: tapr first-stage -g {gallery.path} makes them faster, once"


@click.command("first-stage")
@gallery_option
@wait_option
@json_option
def first_stage(gallery_path: str, wait: float, as_json: bool) -> None:
    """Add summaries of all pictures to a gallery, once. They bound every score, so that a search reads few pictures.

    From then on every index run and every write keeps them true. Searches of large galleries use them by themselves and
    give the same answers; tapr search --prefilter N and --budget-ms limit what is read, and say whether the answer is
    proven exact.
    """
    clock = Clock()
    with ProgressBar() as progress:
        added = Gallery.add_first_stage(gallery_path, progress=progress, wait=wait)
    clock.lap("build")
    gallery = Gallery.open(gallery_path)
    vectors = gallery.manifest.model_copy(update={"first_stage": False}).row_bytes()
    each = gallery.manifest.row_bytes() - vectors
    if as_json:
        print_json(
            {"gallery": str(gallery.path), "pictures": gallery.row_count, "added": added,
             "bytes": each * gallery.row_count, "seconds": round(clock.laps["build"], 3)}
        )  # fmt: skip
        return
    done = "has a first stage"
    if added:
        done = f"{counted(gallery.row_count, 'picture')} summarised in {clock.laps['build']:.1f} s"
    output().print(
        plain(f"{gallery.path}: {done}, {each / 1e3:.1f} KB per picture; their vectors take {vectors / 1e3:.1f}"),
        soft_wrap=True,
    )
