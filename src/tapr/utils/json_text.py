"""Reads JSON of unknown origin: every error is a ValueError, and no later step can run out of stack."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 64  # lists and objects inside each other


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. ValueError if it is malformed or nested more than MAX_DEPTH levels deep."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for item in level for child in _children(item)]
        if not level:
            return value
    raise ValueError(f"nested more than {MAX_DEPTH} levels deep")


def _children(item: Any) -> Any:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()
