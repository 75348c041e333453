"""Getting hold of the open_clip package."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tapr.errors import BadInput
from tapr.utils.extras import install_hint


def import_open_clip() -> Any:
    """Return the open_clip package, or refuse with a sentence that says how to get it."""
    try:
        import torch  # noqa: F401

        try:
            import open_clip
        except RuntimeError:
            _declare_torchvision_operators()
            import open_clip
    except ImportError as error:
        raise BadInput(
            f"open_clip encoders need torch and open_clip: {install_hint('openclip')}", code="missing_extra"
        ) from error
    return open_clip


@lru_cache(maxsize=1)
def _declare_torchvision_operators() -> Any:
    """Declare the operators without which a torchvision that does not fit this torch cannot be imported.

    open_clip imports torchvision for its picture transforms; neither they nor tapr call these operators, so that
    declaring them is enough. The declaration lives as long as the returned object, which the cache keeps.
    """
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
