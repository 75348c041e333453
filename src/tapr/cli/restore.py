"""tapr restore: a gallery from a backup, verified."""

from __future__ import annotations

import click

from tapr.cli.backup import tell
from tapr.cli.terminal import gallery_option, json_option, say
from tapr.store.backup import copy_gallery
from tapr.utils.arguments import folder_of


@click.command()
@click.argument("source", metavar="BACKUP", type=click.Path())
@gallery_option
@json_option
def restore(source: str, gallery_path: str, as_json: bool) -> None:
    """Make a gallery from a BACKUP, in a new folder, and verify it.

    A gallery that is there is never written over: move it away first.
    """
    tell(copy_gallery(folder_of(source), folder_of(gallery_path), say), gallery_path, as_json)
