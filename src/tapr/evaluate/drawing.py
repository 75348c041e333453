"""Saves figures as PNG, SVG and PDF. The same figure always gives the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.utils.extras import install_hint

_NO_DATE: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
_STYLE = {
    "svg.hashsalt": "tapr",  # without a fixed salt, every file has different ids inside
    "pdf.fonttype": 42,  # text stays text, as journals ask
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as drawing
    except ImportError:
        raise BadInput(f"plots need matplotlib: {install_hint('eval')}, or leave them out with --no-plots") from None
    drawing.rcParams.update(_STYLE)
    return drawing


def save(figure: Any, base: Path) -> list[Path]:
    """Save under `base` (without a suffix) and close the figure."""
    base.parent.mkdir(parents=True, exist_ok=True)
    paths = [base.with_name(f"{base.name}.{suffix}") for suffix in _NO_DATE]
    for path in paths:
        figure.savefig(path, dpi=160, metadata=_NO_DATE[path.suffix[1:]])
    pyplot().close(figure)
    return paths
