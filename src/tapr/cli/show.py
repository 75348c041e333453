"""tapr show: a picture of a gallery in its folder."""

from __future__ import annotations

import os

import click

from tapr.cli.last_gallery import named_or_last, remember_gallery
from tapr.cli.terminal import json_option, link, output, print_json, say_place
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.utils.desktop import show_in_folder


@click.command()
@click.argument("id_", metavar="ID")
@click.option("-g", "--gallery", "gallery_path", type=click.Path(), help="Its folder; else the one used last.")
@click.option("--path", "only_path", is_flag=True, help="Print the path of the file and open nothing.")
@json_option
def show(id_: str, gallery_path: str | None, only_path: bool, as_json: bool) -> None:
    """Open the file manager where the picture ID lies; without a desktop, print the path of its file."""
    folder = named_or_last(gallery_path)
    entry = Gallery.open(folder).find(id_)
    if entry is None:
        raise BadInput(f"the gallery has no picture with the id {id_!r}: tapr search prints ids")
    if not os.path.exists(entry.path):
        raise BadInput(f"the file of {id_!r} is gone from {entry.path}: bring the gallery up to date with tapr index")
    remember_gallery(folder)
    opened = not (only_path or as_json) and show_in_folder(entry.path)
    if as_json:
        print_json({"id": entry.id, "path": entry.path})
    elif opened:
        say_place("opened the folder of", entry.path)
    else:
        output().print(link(entry.path), soft_wrap=True)
