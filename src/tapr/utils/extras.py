"""The names of the optional extras, and the command that installs one."""

from __future__ import annotations

from typing import Literal

DISTRIBUTION = "tapr-cir"  # on the package index `tapr` is another project
Extra = Literal[
    "demo", "heic", "openclip", "serve", "client", "otel", "watch", "llm", "gpu", "ray", "eval"
]  # fmt: skip


def install_hint(extra: Extra) -> str:
    """Return the command that installs an extra, for error messages."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
