"""The gallery that was used last, for commands that may go without naming it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tapr.cli.terminal import say
from tapr.encoders.weights import home
from tapr.errors import BadInput
from tapr.utils.files import write_atomically


def remember_gallery(path: str) -> None:
    if "://" in path:
        return
    with contextlib.suppress(OSError):  # a convenience: a home that cannot be written to must not fail a search
        home().mkdir(parents=True, exist_ok=True)
        write_atomically(_file(), str(Path(path).absolute()).encode(errors="surrogateescape"))


def named_or_last(path: str | None) -> str:
    if path is not None:
        return path
    try:
        last = _file().read_bytes().decode(errors="surrogateescape")
    except OSError:
        raise BadInput("say which gallery: add -g FOLDER; none was indexed or searched here yet") from None
    if not Path(last).is_dir():
        raise BadInput(f"the gallery used last, {last}, is gone: add -g FOLDER")
    say(f"gallery: {last}, the one used last")
    return last


def _file() -> Path:
    return home() / "last-gallery"
