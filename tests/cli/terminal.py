"""Runs the command line in this process and keeps what it printed."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tapr.cli.main import main

_KEPT = tempfile.TemporaryDirectory(prefix="tapr-home-")
HOME = Path(_KEPT.name)  # what tests used last is not what a person did


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def run(*arguments: str | Path) -> Done:
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        mock.patch.object(sys, "argv", ["tapr", *map(str, arguments)]),
        mock.patch("tapr.cli.last_gallery.home", return_value=HOME),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    assert isinstance(code, int)
    return Done(code, out.getvalue(), err.getvalue())
