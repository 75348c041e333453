"""A copy of the package in which tests change or add files; what is not changed is linked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import tapr

PACKAGE = Path(tapr.__file__).parent


def linked_copy(root: Path) -> Path:
    """The copy's package folder; `root` goes on PYTHONPATH."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, root / "tapr", copy_function=os.symlink, ignore=ignored)
    return root / "tapr"


def insert_after(package: Path, name: str, line: str, added: str) -> None:
    """Put a line after one that stands in the file exactly once."""
    path = package / name
    text = path.read_text(encoding="utf-8")
    assert text.count(f"{line}\n") == 1, f"{name} no longer holds {line!r}: mend the tests and docs/extending.md"
    path.unlink()  # it may be a link
    path.write_text(text.replace(f"{line}\n", f"{line}\n{added}\n"), encoding="utf-8")
