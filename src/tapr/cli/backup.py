"""tapr backup: a copy of a gallery, taken while others write, and verified."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tapr.cli.terminal import gallery_option, json_option, output, plain, print_json, say
from tapr.store.backup import Copied, copy_gallery
from tapr.utils.amounts import counted
from tapr.utils.arguments import folder_of


@click.command()
@click.argument("target", type=click.Path())
@gallery_option
@json_option
def backup(target: str, gallery_path: str, as_json: bool) -> None:
    """Copy a gallery into the new folder TARGET, while others may read and write it, and verify the copy.

    The copy is a gallery itself: its last published state, with the pictures that were put over HTTP. The files of its
    sources are not copied. tapr restore makes a gallery of it again.
    """
    tell(copy_gallery(folder_of(gallery_path), folder_of(target), say), target, as_json)


def tell(copied: Copied, target: str, as_json: bool) -> None:
    if as_json:
        print_json({"target": str(Path(target)), **asdict(copied)})
        return
    said = f"{counted(copied.pictures, 'picture')} in {counted(copied.files, 'file')}"
    output().print(plain(f"{target}: {said}, {copied.bytes / 1e6:.1f} MB, verified"), soft_wrap=True)
