"""tapr index: build a gallery or bring it up to date."""

from __future__ import annotations

from dataclasses import asdict

import click

from tapr.commands.terminal import ProgressBar, gallery_option, json_option, output, print_json
from tapr.encoders.frame import FITS
from tapr.encoders.local_tokens import EXTRACTORS
from tapr.gallery import Gallery
from tapr.gallery.block import PRECISIONS, Precision
from tapr.gallery.build import Report

_SHOWN_FAILURES = 20


@click.command()
@click.argument("images", nargs=-1)
@gallery_option
@click.option("--encoder", help="clip-b16 (default), open_clip:MODEL/TAG, ...; see tapr models list.")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="How local vectors are stored: fp16 (default), int8 (half the size, approximate), both (faster, exact).",
)
@click.option("--extractor", type=click.Choice(EXTRACTORS), help="How local vectors are read; default clearclip.")
@click.option("--fit", type=click.Choice(FITS), help="crop the middle square (default) or pad the whole picture.")
@click.option("--template", help='A sentence around every phrase, such as "a photo of {}"; default the plain phrase.')
@click.option("--centre/--no-centre", default=None, help="Subtract mean vectors before matching; recorded in the bank.")
@json_option
def index(
    images: tuple[str, ...],
    gallery_path: str,
    encoder: str | None,
    precision: Precision | None,
    extractor: str | None,
    fit: str | None,
    template: str | None,
    centre: bool | None,
    as_json: bool,
) -> None:
    """Index IMAGES (folders, files, globs, lists, CSV or JSONL tables with metadata) into a gallery.

    Run it again after changes, with or without IMAGES: only new pictures are encoded, deleted ones are dropped,
    renamed ones kept. An interrupted run is resumed. Files that cannot be read are listed and do not stop it.
    """
    with ProgressBar() as progress:
        gallery = Gallery.build(
            gallery_path, images, encoder, precision,
            extractor=extractor, fit=fit, template=template, centre=centre, progress=progress,
        )  # fmt: skip
    report = gallery.report
    assert report is not None
    if as_json:
        failures = [{"path": path, "reason": reason} for path, reason in report.failures]
        print_json(
            {"gallery": str(gallery.path), "encoder": gallery.card.to_dict(), **asdict(report), "failures": failures}
        )
    else:
        _print(gallery, report)


def _print(gallery: Gallery, report: Report) -> None:
    out = output()
    done = [
        (report.encoded, "encoded"),
        (report.shared, "equal to another file"),
        (report.unchanged, "unchanged"),
        (report.touched, "touched"),
        (report.renamed, "renamed"),
        (report.removed, "removed"),
    ]
    said = ", ".join(f"{count:,} {what}" for count, what in done if count) or "nothing to do"
    size = sum(file.stat().st_size for file in gallery.path.glob("*.npy"))
    out.print(f"{said} in {report.seconds:.1f} s", markup=False)
    out.print(
        f"{gallery.path}: {report.pictures:,} pictures, {size / 1e6:.1f} MB, {gallery.card.name} "
        f"({gallery.card.extractor}, {gallery.precision})",
        markup=False,
        soft_wrap=True,
    )
    if report.failures:
        out.print(f"{len(report.failures)} files could not be used:")
        for path, reason in report.failures[:_SHOWN_FAILURES]:
            out.print(f"  {path} {reason}", markup=False, soft_wrap=True)
        if len(report.failures) > _SHOWN_FAILURES:
            out.print(
                f"  and {len(report.failures) - _SHOWN_FAILURES} more: tapr index -g {gallery.path} --json lists all"
            )
    if report.skipped:
        first = report.skipped[0]
        out.print(f"{len(report.skipped)} other files are no pictures, such as {first}", markup=False, soft_wrap=True)
