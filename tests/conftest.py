"""The real encoder, for the tests that need one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, fetch
from tapr.errors import TaprError


@pytest.fixture(scope="session")
def image_tower_file() -> Path:
    """The real image tower, from the user's cache or fetched into it."""
    try:
        return fetch(CLIP_B16_IMAGE_TOWER)
    except TaprError as error:
        pytest.skip(f"needs the weights of clip-b16: {error}")


@pytest.fixture(scope="session")
def clip(image_tower_file: Path) -> ClipOnnxEncoder:
    return ClipOnnxEncoder()
