"""tapr index: build a gallery or bring it up to date."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tapr.cli.index_options import index_options
from tapr.cli.last_gallery import remember_gallery
from tapr.cli.terminal import ProgressBar, gallery_option, json_option, output, print_json, say, wait_option
from tapr.factorize.tags import keep_vocabulary
from tapr.gallery import Gallery
from tapr.images.decode import RAW_SUFFIXES
from tapr.index.options import IndexOptions
from tapr.index.report import Report
from tapr.index.writer import Writer
from tapr.utils.amounts import counted
from tapr.utils.safe_text import printable

_SHOWN = 20


@click.command()
@click.argument("images", nargs=-1)
@gallery_option
@index_options()
@click.option(
    "--ray",
    "address",
    metavar="ADDRESS",
    help="Encode on the nodes of this Ray cluster (HOST:PORT, or auto); GALLERY may then also be s3://... or gs://...",
)
@wait_option
@json_option
def index(images: tuple[str, ...], gallery_path: str, address: str | None, as_json: bool, **options: Any) -> None:
    """Index IMAGES (folders, files, globs, lists, CSV or JSONL tables with metadata) into a gallery.

    Run it again after changes, with or without IMAGES: only new pictures are encoded, deleted ones are dropped,
    renamed ones kept. An interrupted run is resumed. Files that cannot be read are listed and do not stop it. Searches
    see the gallery as it was until the run ends. A folder that moved or went away: see tapr sources.
    """
    asked = IndexOptions.of(images=images, **options)
    with ProgressBar() as progress:
        if address is None:
            gallery = Gallery.built(Writer(gallery_path, progress=progress), asked)
        else:
            from tapr.cluster.index import index_on_ray

            gallery = index_on_ray(address, gallery_path, asked, progress=progress)
        assert gallery.report is not None
        if gallery.report.encoded:
            keep_vocabulary(gallery.encoder, gallery.path, progress)
    remember_gallery(gallery_path)
    print_report(gallery, gallery.report, as_json)


def print_report(gallery: Gallery, report: Report, as_json: bool) -> None:
    """Print what an index run did; sources that are away are warnings on stderr, with what to do."""
    for source, reason in report.away:
        count = gallery.pictures_by_source().get(source, 0)
        kept = f"{counted(count, 'picture')} of it kept" if count else "pictures known from it are kept"
        say(
            f"warning: {reason}; {kept}. If it is gone: tapr sources -g {gallery.path} --drop {shlex.quote(source)}; "
            f"if it is elsewhere now: tapr sources -g {gallery.path} --move {shlex.quote(source)} NEW"
        )
    if report.damaged_uploads:
        say(
            f"warning: {counted(len(report.damaged_uploads), 'uploaded file')} damaged or gone, such as that of "
            f"{report.damaged_uploads[0][0]!r}; the vectors are kept. See tapr repair -g {gallery.path}"
        )
    if not as_json:
        _print(gallery, report)
        return
    lists = {
        name: [{"path": path, "reason": reason} for path, reason in getattr(report, name)]
        for name in ("failures", "left_out", "away")
    }
    lists["damaged_uploads"] = [{"id": id_, "reason": reason} for id_, reason in report.damaged_uploads]
    print_json({"gallery": str(gallery.path), "encoder": gallery.card.to_dict(), **asdict(report), **lists})


def what_was_done(report: Report) -> str:
    done = [
        (report.encoded, "encoded"),
        (report.shared, "equal to another file"),
        (report.unchanged, "unchanged"),
        (report.touched, "touched"),
        (report.renamed, "renamed"),
        (report.removed, "removed"),
        (report.kept, "kept (source unavailable)"),
    ]
    return ", ".join(f"{count:,} {what}" for count, what in done if count) or "nothing to do"


def _print(gallery: Gallery, report: Report) -> None:
    out = output()
    size = sum(file.stat().st_size for file in gallery.path.glob("*.npy"))
    out.print(f"{what_was_done(report)} in {report.seconds:.1f} s", markup=False)
    out.print(
        f"{gallery.path}: {counted(report.pictures, 'picture')}, {size / 1e6:.1f} MB, {gallery.card.name} "
        f"({gallery.card.extractor}, {gallery.precision}, arithmetic {gallery.card.arithmetic})",
        markup=False,
        soft_wrap=True,
    )
    if report.summarised:
        out.print(f"first stage: {counted(report.summarised, 'picture')} summarised", markup=False)
    if report.described or report.unsure:
        unsure = f"; {report.unsure:,} left without a caption (too uncertain)" if report.unsure else ""
        out.print(f"captions: {counted(report.described, 'picture')}{unsure}", markup=False, soft_wrap=True)
    if report.columns:
        said = ", ".join(f"{column.name} {column.type}" for column in report.columns)
        out.print(f"columns: {said}", markup=False, soft_wrap=True)
    for column in report.columns:
        if column.note:
            out.print(
                f"  {column.name} is text: {column.note}; correct the cell, or declare --column {column.name}=TYPE",
                markup=False,
                soft_wrap=True,
            )
    _print_some(gallery, f"{counted(len(report.failures), 'file')} could not be used", report.failures)
    _print_some(
        gallery, f"{counted(len(report.left_out), 'file or folder', 'files or folders')} left out", report.left_out
    )
    raw = [path for path in report.skipped if Path(path).suffix.lower() in RAW_SUFFIXES]
    others = [path for path in report.skipped if path not in set(raw)]
    _print_skipped(raw, "camera raw, which tapr does not read: export them as JPEG")
    _print_skipped(others, "not an image" if len(others) == 1 else "not images")


def _print_skipped(paths: list[str], why: str) -> None:
    if paths:
        such = printable(paths[0]) if len(paths) == 1 else f"such as {printable(paths[0])}"
        output().print(f"{counted(len(paths), 'file')} skipped ({why}): {such}", markup=False, soft_wrap=True)


def _print_some(gallery: Gallery, what: str, items: list[tuple[str, str]]) -> None:
    out = output()
    if items:
        out.print(f"{what}:")
    for path, reason in items[:_SHOWN]:
        out.print(printable(f"  {path} {reason}"), markup=False, soft_wrap=True)
    if len(items) > _SHOWN:
        more = f"  and {len(items) - _SHOWN} more: tapr index -g {gallery.path} --json lists all"
        out.print(more, markup=False, soft_wrap=True)
