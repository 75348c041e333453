"""frame: what a tower sees of pictures of any shape."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tapr.images.frame import Frame


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8))


def resized_then_cut(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """The order that stored vectors are of."""
    width, height = image.size
    scale = size / min(width, height)
    wide, tall = max(size, round(width * scale)), max(size, round(height * scale))
    image = image.resize((wide, tall), Image.Resampling.BICUBIC)
    left, top = (wide - size) // 2, (tall - size) // 2
    return np.asarray(image.crop((left, top, left + size, top + size)))


@pytest.mark.parametrize(
    ("width", "height"), [(224, 224), (300, 200), (199, 333), (640, 480), (1, 1), (1600, 200), (50, 399), (8, 1)]
)
def test_ordinary_shapes_give_the_same_bits_as_ever(width: int, height: int) -> None:
    image = noise(width, height)
    assert np.array_equal(Frame(224).apply(image), resized_then_cut(image, 224))


@pytest.mark.parametrize(("width", "height"), [(1700, 200), (40, 400), (13, 300), (3, 100), (9000, 900)])
def test_long_shapes_differ_by_rounding_alone(width: int, height: int) -> None:
    image = noise(width, height)
    difference = Frame(64).apply(image).astype(int) - resized_then_cut(image, 64)
    assert np.abs(difference).max() <= 3  # of 255, in noise


@pytest.mark.parametrize(
    ("width", "height"), [(1, 20_000), (20_000, 1), (7_000_000, 1), (1, 7_000_000), (3, 100_000), (1, 120_000_000)]
)
@pytest.mark.parametrize("fit", ["crop", "pad", "targetpad"])
def test_thin_pictures_take_no_more_memory_than_others(width: int, height: int, fit: str) -> None:
    image = Image.new("RGB", (width, height), "red")
    seen = Frame(224, fit).apply(image)  # took gigabytes, or ended in MemoryError
    assert seen.shape == (224, 224, 3)
    assert tuple(seen[112, 112]) in ((255, 0, 0), (255, 255, 255)) or fit == "targetpad"  # a line, blended with black
    if fit == "crop":
        assert (seen == (255, 0, 0)).all()


def test_the_middle_is_what_is_cut_out_of_a_long_picture() -> None:
    image = Image.new("RGB", (2000, 100), "blue")
    image.paste((255, 0, 0), (950, 0, 1050, 100))
    seen = Frame(32).apply(image)
    assert (seen[:, 2:-2] == (255, 0, 0)).all()


@pytest.mark.parametrize(("width", "height"), [(224, 224), (100, 120), (300, 400), (200, 600), (900, 300)])
def test_targetpad_widens_what_is_too_long_and_keeps_the_middle(width: int, height: int) -> None:
    """As public code for composed retrieval does: sides that differ by 1.25 and more are brought to that ratio."""
    image = noise(width, height)
    across = down = 0
    if max(width, height) / min(width, height) >= 1.25:
        wanted = max(width, height) / 1.25
        across, down = (max(int((wanted - side) / 2), 0) for side in (width, height))
    widened = Image.new("RGB", (width + 2 * across, height + 2 * down))
    widened.paste(image, (across, down))
    frame = Frame(64, "targetpad")
    assert np.array_equal(frame.apply(image), resized_then_cut(widened, 64))
    left, top, right, bottom = frame.box(width, height)
    assert right - left == bottom - top == min(widened.size)
    assert (left + right, top + bottom) == (width, height)
