"""The documentation site: `make docs` builds it into build/site, with warnings as errors."""

from __future__ import annotations

import re
from typing import Any

import tapr

project = "tapr"
author = "the tapr authors"
copyright = f"2026, {author}"
version = release = tapr.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

html_theme = "furo"
html_title = "tapr"
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

default_role = "code"  # docstrings write `name`
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
nitpicky = False


def plain(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are prose: outside backticks, signs that reStructuredText reads as markup stand for themselves."""
    for number, line in enumerate(lines):
        pieces = re.split(r"(`[^`]*`)", line)
        lines[number] = "".join(
            piece if piece.startswith("`") else re.sub(r"([*|_])", r"\\\1", piece) for piece in pieces
        )


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", plain)
