"""The reference picture on its way to a language model: opened without an encoder, and as a data URL."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

from tapr.encoders.base import Evidence
from tapr.errors import BadInput
from tapr.query.reference import Reference

NO_EVIDENCE = Evidence(np.zeros((0, 0), np.float32), np.zeros((0, 0, 0), np.float32))
_QUALITIES = (90, 75, 60, 40)
_SMALLEST_SIDE = 64


def picture_only(path: str | Path) -> Reference:
    """Return a Reference for factorizers that look at the picture itself: no encoder has read it."""
    from tapr.images.decode import read_bytes, sha256_of
    from tapr.query.open_reference import shown

    try:
        data = read_bytes(Path(path).expanduser())
        return Reference(shown(data), NO_EVIDENCE, sha256_of(data))
    except BadInput as error:
        raise BadInput(f"{path}: {error}", code=error.code) from None


def data_url(image: Image.Image, longest_side: int, byte_limit: int) -> str:
    """Return a JPEG in base64, within both limits: less quality first, then fewer pixels."""
    image = image.convert("RGB")
    side = min(longest_side, max(image.size))
    while True:
        small = _scaled(image, side)
        for quality in _QUALITIES:
            file = io.BytesIO()
            small.save(file, "JPEG", quality=quality)
            if file.tell() <= byte_limit:
                return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
        if side <= _SMALLEST_SIDE:
            what = f"the picture does not fit into {byte_limit:,} bytes: raise TAPR_LLM_IMAGE_BYTES"
            raise BadInput(what, code="too_large")
        side = max(_SMALLEST_SIDE, side * 3 // 4)


def _scaled(image: Image.Image, side: int) -> Image.Image:
    scale = side / max(image.size)
    if scale >= 1:
        return image
    width, height = image.size
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return image.resize(size, Image.Resampling.LANCZOS)
