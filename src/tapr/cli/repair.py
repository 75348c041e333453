"""tapr repair: encode again what is damaged in a gallery's files, and nothing else."""

from __future__ import annotations

from dataclasses import asdict

import click

from tapr.cli.terminal import ProgressBar, gallery_option, json_option, output, plain, print_json, wait_option
from tapr.gallery import Gallery
from tapr.index.repair import Repair
from tapr.utils.amounts import counted

_SHOWN = 20


@click.command()
@gallery_option
@wait_option
@json_option
def repair(gallery_path: str, wait: float, as_json: bool) -> None:
    """Mend a gallery whose files are lost, cut short, changed or another gallery's: encode those rows again.

    tapr doctor --verify says what is hurt. A picture whose file is gone or has changed cannot be encoded again: it is
    named, and leaves the gallery as a file that failed; then the exit code is 1. A picture that was put over HTTP and
    whose file is lost is named too: searches find it, and it has to be put again. Searches that run meanwhile go on.
    """
    with ProgressBar() as progress:
        gallery, done = Gallery.repair(gallery_path, progress=progress, wait=wait)
    if as_json:
        lost = [{"path": path, "reason": reason} for path, reason in done.lost]
        lost_uploads = [{"id": id_, "reason": reason} for id_, reason in done.lost_uploads]
        told = {**asdict(done), "lost": lost, "lost_uploads": lost_uploads}
        print_json({"gallery": str(gallery.path), **told, "pictures": len(gallery)})
    else:
        _print(gallery, done)
    if done.lost or done.lost_uploads:
        raise click.exceptions.Exit(1)


def _print(gallery: Gallery, done: Repair) -> None:
    out = output()
    if done.restored:
        out.print(f"{counted(len(done.restored), 'uploaded picture')} restored from files of equal content")
    if done.lost_uploads:
        out.print(f"lost, to be put again: {counted(len(done.lost_uploads), 'uploaded picture')}")
    for id_, reason in done.lost_uploads[:_SHOWN]:
        out.print(plain(f"  {id_}: its file {reason}"), soft_wrap=True)
    if len(done.lost_uploads) > _SHOWN:
        out.print(f"  and {len(done.lost_uploads) - _SHOWN:,} more: --json lists all")
    if not done.files and (done.restored or done.lost_uploads):
        return
    if not done.files:
        out.print(plain(f"nothing to repair: {gallery.path} is as it was written"), soft_wrap=True)
        return
    derived = f", {counted(done.derived, 'row')} made from what was stored" if done.derived else ""
    out.print(
        f"{counted(len(done.files), 'file')} mended: {counted(done.encoded, 'picture')} encoded again{derived}, "
        f"in {done.seconds:.1f} s"
    )
    out.print(plain(f"{gallery.path}: {counted(len(gallery), 'picture')}"), soft_wrap=True)
    if done.lost:
        out.print(f"{counted(len(done.lost), 'picture')} could not be encoded again and left the gallery:")
    for path, reason in done.lost[:_SHOWN]:
        out.print(plain(f"  {path} {reason}"), soft_wrap=True)
    if len(done.lost) > _SHOWN:
        out.print(
            plain(f"  and {len(done.lost) - _SHOWN:,} more: tapr index -g {gallery.path} --json lists all failures")
        )
